"""What a header says about spokes beyond the kind of trajectory: the ``trajectoryDescription``.

Read are its ``identifier`` and its user parameters of numbers (``userParameterLong`` and
``userParameterDouble``), by these names, upper and lower case and separators apart:

* ``angle_increment_rad``, ``angle_increment_deg``: from one spoke number to the next;
* ``tiny_golden_angle``: the number N of the tiny golden angle, in whole numbers;
* ``first_angle_rad``, ``first_angle_deg``: of the spoke 0, from the readout axis x towards y.

An identifier that contains 'golden' says so, too; 'tiny' and a number in it give N ('TinyGoldenAngle7').
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from gadget.errors import ScanError
from gadget.scan.header_xml import child_of, optional_number, tag, text_of
from reconlib.trajectories.angles import golden_angle


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryDescription:
    """Identifier and numbers of a ``trajectoryDescription``."""

    identifier: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """By name in lower case, letters and digits only."""

    @property
    def first_angle_rad(self) -> float:
        """Angle of the spoke 0."""
        return self._angle("firstangle") or 0.0

    @property
    def golden_number(self) -> int | None:
        """N of the tiny golden angle (1: the golden angle) where identifier or parameters name one."""
        number = self.numbers.get("tinygoldenangle")
        if number is not None:
            if number != int(number) or number < 1:
                raise ScanError(
                    f"trajectoryDescription: tiny_golden_angle is {number:g}; it must be a whole number from "
                    "1."
                )
            return int(number)
        words = self.identifier.lower()
        if "tiny" in words:
            found = re.search(r"\d+", words)
            if found is None or int(found.group()) < 1:
                raise ScanError(
                    "trajectoryDescription names a tiny golden angle without its number. Write it as "
                    "'TinyGoldenAngle7', or as the user parameter tiny_golden_angle."
                )
            return int(found.group())
        return 1 if "golden" in words else None

    @property
    def angle_step_rad(self) -> float | None:
        """Angle from one spoke to the next, where the description says it."""
        step = self._angle("angleincrement")
        if step is None and self.golden_number is not None:
            return golden_angle(self.golden_number)
        return step

    def _angle(self, name: str) -> float | None:
        if f"{name}rad" in self.numbers:
            return self.numbers[f"{name}rad"]
        degrees = self.numbers.get(f"{name}deg")
        return None if degrees is None else math.radians(degrees)


NO_DESCRIPTION = TrajectoryDescription()


def read_trajectory_description(encoding: Element | None) -> TrajectoryDescription:
    """Read the description of an ``encoding`` element of the XML header; empty where it has none.

    Raises
    ------
    ScanError
        A parameter that is read is not a finite number.
    """
    node = child_of(encoding, "trajectoryDescription")
    if node is None:
        return NO_DESCRIPTION
    numbers = {}
    for parameter in node:
        if tag(parameter) in ("userParameterLong", "userParameterDouble"):
            name = re.sub("[^a-z0-9]", "", (text_of(parameter, "name") or "").lower())
            value = optional_number(parameter, "value", f"trajectoryDescription.{name}")
            if name and value is not None:
                numbers[name] = value
    return TrajectoryDescription(identifier=text_of(node, "identifier") or "", numbers=numbers)
