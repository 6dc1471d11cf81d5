r"""The trajectory of plain radial scans whose readouts come without one.

The rules, for encodings with the trajectory 'radial' or 'goldenangle':

* **Spoke number**: ``idx.kspace_encode_step_1``. Where the angles of a golden-angle series go on over several
  repetitions, so must this counter.
* **Angle**: number times step, from the readout axis x towards y, plus the first angle (0). The step is what
  the ``trajectoryDescription`` says (:mod:`gadget.scan.trajectory_description`); else the golden angle
  :math:`\pi / \tau` of 111.246 degrees for 'goldenangle'; else, for 'radial', half a circle over the number
  of spokes that the limits of ``kspace_encoding_step_1`` announce.
* **Along a spoke** samples are placed as those of Cartesian readouts (:mod:`gadget.scan.placement`), with the
  encoded matrix and field of view along x: even and odd numbers, the centre sample, oversampling,
  oversampling that was removed upstream, asymmetric echoes and half spokes alike. Reversed readouts
  (IS_REVERSE) run the other way.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.placement import readout_grid, readout_span
from gadget.scan.trajectory_description import NO_DESCRIPTION, TrajectoryDescription
from gadget.scan.trajectory_grid import TrajectoryGrid
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Header
from reconlib.trajectories.angles import golden_angle, stepped_angles
from reconlib.trajectories.radial import radial_points

KINDS = ("radial", "goldenangle")
"""Trajectories of headers that can be built."""


def built_points(
    headers: list[Header],
    n_samples: int,
    encoding: Encoding,
    grid: TrajectoryGrid,
    description: TrajectoryDescription = NO_DESCRIPTION,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Build the points (readout, sample, 2), in cycles per field of view of the grid.

    Samples are in the order of acquisition.

    Returns
    -------
    points, notes
        The first note says what was built.

    Raises
    ------
    ScanError
        The header does not say that the scan is radial, or not how many spokes there are.
    """
    if encoding.trajectory not in KINDS:
        raise ScanError(
            f"The readouts have no trajectory, and encoding[{encoding.index}] is '{encoding.trajectory}': "
            "only plain radial trajectories ('radial', 'goldenangle') can be built from the header. Let the "
            "converter write the trajectory into the readouts."
        )
    step, words = _step(encoding, description)
    numbers = np.array([int(header["idx"]["kspace_encode_step_1"]) for header in headers], np.int64)
    angles = stepped_angles(numbers, step, description.first_angle_rad)
    first = headers[0]
    line = readout_grid(encoding, n_samples, int(first["center_sample"]))
    # Of the field of view that the readout covers, in cycles per field of view of a square grid of the
    # length x.
    spacing = grid.fov_mm[0] / line.fov_mm
    points = np.empty((len(headers), n_samples, 2))
    notes = [f"no trajectory with the readouts: built as {words}"]
    for row, (header, angle) in enumerate(zip(headers, angles, strict=True)):
        is_reversed = bool(int(header["flags"]) & Flag.IS_REVERSE.bit)
        span = readout_span(
            line, n_samples, int(header["center_sample"]), is_reversed=is_reversed, name="A spoke"
        )
        centre = span.first + line.n_columns // 2 - span.column
        spoke = radial_points(np.array([angle]), n_samples, centre=centre, spacing=spacing)[0]
        points[row] = spoke[::-1] if is_reversed else spoke
        if row == 0:
            notes += [note for note in (line.warning, span.warning) if note]
    # Spokes are straight in cycles per mm: the field of view along y has its own length.
    points[..., 1] *= grid.fov_mm[1] / grid.fov_mm[0]
    return points, tuple(notes)


def _step(encoding: Encoding, description: TrajectoryDescription) -> tuple[float, str]:
    step = description.angle_step_rad
    if step is not None:
        return step, f"radial spokes {math.degrees(step):.3f} degrees apart (trajectoryDescription)"
    if encoding.trajectory == "goldenangle":
        return golden_angle(), "radial spokes at the golden angle, 111.246 degrees apart"
    limit = encoding.limits.get("kspace_encoding_step_1")
    n_spokes = 0 if limit is None else limit.maximum + 1
    if n_spokes < 2:
        raise ScanError(
            f"encoding[{encoding.index}] is radial, its readouts have no trajectory, and "
            f"encodingLimits.kspace_encoding_step_1 announces {n_spokes} spoke(s): the angles cannot be "
            "known. Write the limits, a trajectoryDescription with angle_increment_deg, or the trajectory "
            "itself."
        )
    return math.pi / n_spokes, f"{n_spokes} radial spokes, evenly over half a circle"
