"""Which rule fits a scan, by what its header says, and why the others do not.

Nothing that is said of a failed condition repeats a text of the header: protocol names can be patient data.
Numbers are repeated.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gadget.errors import ScanError
from gadget.rule_settings import ProtocolRule
from gadget.scan.header import ScanDescription, parse_scan_header
from gadget.settings import Settings, with_rule
from gadget.wire.messages import Acquisition, Message, ScanHeader

logger = logging.getLogger(__name__)

ROUNDING = 1e-6
"""Relative: a pixel of 230.4 mm / 256 is one of 0.9 mm."""

Fact = str | tuple[float, ...] | None
"""What a header says on one condition: a text; one number, or two that both have to fit; None: nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule fits."""

    rule: ProtocolRule
    failed: tuple[str, ...]
    """A sentence for each condition that does not hold."""

    @property
    def fits(self) -> bool:
        """Whether all conditions hold."""
        return not self.failed


def facts_of(description: ScanDescription, n_channels: int | None = None) -> dict[str, Fact]:
    """Return what the header says on each condition (:class:`gadget.rule_settings.RuleConditions`).

    Matrix and field of view are those of the image of the first encoding.

    Parameters
    ----------
    n_channels
        Of the first readout, for headers without receiverChannels.
    """
    space = description.encodings[0].recon
    coils = description.receiver_channels or n_channels
    return {
        "protocol_name": description.protocol_name,
        "sequence_name": description.sequence_name,
        "body_part": description.body_part,
        "echo_time_ms": description.echo_times_ms[:1] or None,
        "repetition_time_ms": description.repetition_times_ms[:1] or None,
        "inversion_time_ms": description.inversion_times_ms[:1] or None,
        "field_strength_t": _one(description.field_strength_t),
        "matrix": tuple(float(n) for n in space.matrix[:2]),
        "pixel_spacing_mm": tuple(fov / n for fov, n in zip(space.fov_mm[:2], space.matrix[:2], strict=True)),
        "coils": _one(coils),
    }


def facts_of_scan(messages: Iterable[Message]) -> dict[str, Fact]:
    """Return the same of a recorded scan, of which no more than the first readout is read.

    Raises
    ------
    ScanError
        It has no header, or a faulty one.
    """
    description = None
    for message in messages:
        if isinstance(message, ScanHeader):
            description = parse_scan_header(message.text)
        if isinstance(message, Acquisition) and description is not None:
            return facts_of(description, int(message.header["active_channels"]))
    if description is None:
        raise ScanError("The scan has no header; which rule fits is told by it.")
    return facts_of(description)


def judged(rules: Sequence[ProtocolRule], facts: dict[str, Fact]) -> list[Verdict]:
    """Compare each rule with a scan; the first that fits counts."""
    return [
        Verdict(
            rule,
            tuple(
                f"{name}: {failure}"
                for name, wanted in rule.when.given().items()
                if (failure := _failure(wanted, facts[name]))
            ),
        )
        for rule in rules
    ]


def with_fitting_rule(settings: Settings, facts: dict[str, Fact]) -> tuple[Settings, str | None]:
    """Return what holds for a scan, and the name of the rule that says so; None where none fits."""
    if not settings.rules:
        return settings, None
    verdicts = judged(settings.rules, facts)
    for verdict in verdicts:
        if verdict.fits:
            rule = verdict.rule
            changes = ", ".join(f"{key} {value}" for key, value in rule.settings.items()) or "nothing"
            logger.info("The rule %s fits this scan and sets: %s.", rule.name, changes)
            return with_rule(settings, rule), rule.name
    logger.info(
        "None of %d rule(s) fits this scan; the settings hold without: %s",
        len(verdicts),
        " ".join(f"{one.rule.name}: {'; '.join(one.failed)}." for one in verdicts),
    )
    return with_rule(settings, None), None


def _one(value: float | None) -> Fact:
    return None if value is None else (float(value),)


def _failure(wanted: tuple[str, ...] | tuple[float | None, float | None], found: Fact) -> str:
    """Say why a condition does not hold; empty where it does."""
    if found is None:
        return "the header does not say it"
    if isinstance(found, str):
        patterns = [str(one) for one in wanted]
        if any(fnmatchcase(found.lower(), one.lower()) for one in patterns):
            return ""
        return f"the header's is not {' or '.join(map(repr, patterns))}"
    lowest, highest = (None if end is None else float(end) for end in wanted)
    least = -math.inf if lowest is None else lowest - abs(lowest) * ROUNDING
    most = math.inf if highest is None else highest + abs(highest) * ROUNDING
    if all(least <= one <= most for one in found):
        return ""
    limits = (
        f"{lowest:g}"
        if lowest == highest
        else f"at least {lowest:g}"
        if highest is None
        else f"at most {highest:g}"
        if lowest is None
        else f"{lowest:g} to {highest:g}"
    )
    return f"{' x '.join(f'{one:.4g}' for one in found)} is not {limits}"
