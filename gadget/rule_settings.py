"""Rules that choose settings by what a scan's header says, as they stand in a configuration."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gadget.checked_settings import Section

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def _patterns(value: Any) -> Any:
    if value is None:
        return None
    patterns = [value] if isinstance(value, str) else value
    if (
        not isinstance(patterns, list | tuple)
        or not patterns
        or not all(isinstance(one, str) and one.strip() for one in patterns)
    ):
        raise ValueError("needs a text, or a list of texts, in which * stands for anything")
    return tuple(one.strip() for one in patterns)


def _range(value: Any) -> Any:
    if value is None:
        return None
    ends = value if isinstance(value, list | tuple) else [value, value]
    numbers = [end for end in ends if end is not None]
    if (
        len(ends) != 2
        or not numbers
        or not all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
        or not numbers[0] <= numbers[-1]  # also false of NaN
    ):
        raise ValueError("needs a number, or [lowest, highest], one of which may be null: no limit")
    return tuple(None if end is None else float(end) for end in ends)


def _plain_name(value: Any) -> Any:
    if not isinstance(value, str) or not _PLAIN_NAME.fullmatch(value):
        raise ValueError("needs 1 to 40 letters, digits, '.', '_' and '-': it stands in logs and images")
    return value


def _settings(value: Any) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("needs the keys that the rule sets, for example prior: NAME")
    return {
        key if key == name else f"{name}.{key}": one
        for name, inner in value.items()
        for key, one in (inner.items() if isinstance(inner, Mapping) else ((name, inner),))
    }


Patterns = Annotated[tuple[str, ...] | None, BeforeValidator(_patterns)]
Range = Annotated[tuple[float | None, float | None] | None, BeforeValidator(_range)]


class RuleConditions(Section):
    """What a scan's header has to say for a rule to fit; all that are given have to hold."""

    protocol_name: Patterns = None
    """Of measurementInformation: patterns, any of which fits; * stands for anything, case does not count."""
    sequence_name: Patterns = None
    """Of measurementInformation: patterns."""
    body_part: Patterns = None
    """Of studyInformation (bodyPartExamined): patterns."""
    echo_time_ms: Range = None
    """The first TE of sequenceParameters: [lowest, highest], ends included."""
    repetition_time_ms: Range = None
    """The first TR."""
    inversion_time_ms: Range = None
    """The first TI."""
    field_strength_t: Range = None
    """systemFieldStrength_T."""
    matrix: Range = None
    """Of the image, before interpolation by the scanner's own software: rows and columns both."""
    pixel_spacing_mm: Range = None
    """Field of view by matrix of the image: both sides."""
    coils: Range = None
    """receiverChannels; where the header has none, the channels of the first readout."""

    def given(self) -> dict[str, Any]:
        """Return the conditions that the rule has."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class ProtocolRule(Section):
    """Settings for scans of some kind."""

    name: Annotated[str, BeforeValidator(_plain_name)]
    """Stands in the log and in the meta of images."""
    when: RuleConditions = RuleConditions()
    """None: fits every scan."""
    settings: Annotated[dict[str, Any], BeforeValidator(_settings)] = Field()
    """What holds for such scans, by dotted key."""

    def without(self, keys: Collection[str]) -> "ProtocolRule":
        """Return the rule without some of what it sets."""
        return self.model_copy(
            update={"settings": {key: value for key, value in self.settings.items() if key not in keys}}
        )
