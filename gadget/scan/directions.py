"""Whether the directions of a slice are what the ISMRMRD standard asks for: unit vectors at right angles.

The rule: read_dir, phase_dir and slice_dir go from the readout into the image header, and as ImageRowDir and
ImageColumnDir into its meta, just as they came. Where they have not the length 1, or are not at right angles
to each other, to a thousandth, or are not given at all (0, 0, 0), a warning says so: whoever places the image
by them places it wrongly, and only whoever wrote them can know what was meant.
"""

import math
from itertools import combinations

from gadget.scan.context import Vector

TOLERANCE = 1e-3


def direction_warnings(read_dir: Vector, phase_dir: Vector, slice_dir: Vector) -> tuple[str, ...]:
    """Return a sentence for each fault; none where all is well."""
    named = {"read_dir": read_dir, "phase_dir": phase_dir, "slice_dir": slice_dir}
    known, warnings = {}, []
    for name, vector in named.items():
        length = math.hypot(*vector)
        if length == 0:
            warnings.append(f"{name} is not given (0, 0, 0)")
        elif not abs(length - 1) <= TOLERANCE:
            warnings.append(f"{name} has the length {length:.4g} instead of 1")
        if 0 < length < math.inf:
            known[name] = [value / length for value in vector]
    for (one, a), (other, b) in combinations(known.items(), 2):
        cosine = sum(x * y for x, y in zip(a, b, strict=True))
        if not abs(cosine) <= TOLERANCE:
            angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
            warnings.append(f"{one} and {other} make an angle of {angle:.1f} degrees instead of 90")
    what = "the image's place in the patient is not to be relied on; directions are passed on as they came"
    return tuple(f"{warning}: {what}" for warning in warnings)
