"""The brain of the simulated head: cortex, fissures, ventricles and basal ganglia, as a map of tissues."""

import itertools
import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

from reconlib.simulation.random_field import RandomField

Plane = NDArray[np.float32]
Region = NDArray[np.bool_]


class Tissue(IntEnum):
    """What a point of the head is made of."""

    AIR = 0
    SKIN = 1
    FAT = 2
    MUSCLE = 3
    BONE = 4
    MARROW = 5
    CSF = 6
    GREY = 7
    WHITE = 8
    NUCLEUS = 9
    PALLIDUM = 10
    BLOOD = 11
    MENINGES = 12


@dataclass(frozen=True, slots=True)
class BrainShape:
    """Random functions of the position (x, y, z) in mm that shape one brain."""

    folds: RandomField
    shallow_folds: RandomField
    medial_folds: RandomField
    fold_depth: RandomField
    bend_x: RandomField
    bend_y: RandomField
    thickness: RandomField
    side: float
    """How much larger the left half of everything is, about 0.05."""
    ventricle_width: float
    """Factor on the width of the ventricles, about 1."""

    @classmethod
    def draw(cls, generator: torch.Generator) -> "BrainShape":
        """Draw the shape of one brain."""
        side, width = torch.randn(2, generator=generator).tolist()
        return cls(
            folds=RandomField.draw(24.0, generator=generator, n_waves=64, bandwidth=0.2),
            shallow_folds=RandomField.draw(20.0, generator=generator, n_waves=64, bandwidth=0.2),
            medial_folds=RandomField.draw(24.0, generator=generator, n_waves=48, bandwidth=0.2),
            fold_depth=RandomField.draw(30.0, generator=generator, n_waves=24, bandwidth=0.4),
            bend_x=RandomField.draw(34.0, generator=generator, n_waves=24, bandwidth=0.35),
            bend_y=RandomField.draw(34.0, generator=generator, n_waves=24, bandwidth=0.35),
            thickness=RandomField.draw(18.0, generator=generator, n_waves=24, bandwidth=0.4),
            side=0.04 * side,
            ventricle_width=math.exp(0.2 * width),
        )


def field_values(field: RandomField, x: Plane, y: Plane, z: float) -> Plane:
    """Values of a field in the plane at the height ``z``, float32."""
    values: Plane = field(torch.from_numpy(x), torch.from_numpy(y), torch.tensor(z)).numpy()
    return values


def paint_brain(
    x: Plane, y: Plane, z: float, depth: Plane, shape: BrainShape, pixel_mm: float
) -> NDArray[np.int8]:
    """Tissues of one plane inside the skull, int8 (y, x) of :class:`Tissue`.

    ``x`` and ``y`` (y, x) are the positions in mm from the middle of the brain, the front at negative ``y``;
    ``depth`` is the distance in mm below the brain's surface, negative outside of it; ``z`` counts upwards
    from the level of the thalami. ``pixel_mm`` is the distance of the points of the plane.
    """
    bend_x = field_values(shape.bend_x, x, y, z)
    bend_y = field_values(shape.bend_y, x, y, z)
    inner_x, inner_y = x + 1.1 * bend_x, y + 1.1 * bend_y
    bent_x, bent_y = x + 2.8 * bend_x, y + 2.8 * bend_y
    midline = _midline(x + 0.7 * bend_x, inner_y, z)
    sylvian = _sylvian(x + 2.0 * bend_x, y + 2.0 * bend_y, z, shape)

    # Clefts are lines; round them lies fluid, wider near the surface, and round that the ribbon of the
    # cortex.
    reach, clefts = _clefts(bent_x, bent_y, z, depth, shape)
    clefts |= (depth < 0.0) | (midline < pixel_mm) | (sylvian < pixel_mm)
    distance = ndimage.distance_transform_edt(~clefts).astype(np.float32) * np.float32(pixel_mm)
    variation = field_values(shape.thickness, x, y, z)
    fluid_mm = np.clip(1.15 - 0.055 * reach + 0.35 * variation, 0.25, None)
    ribbon_mm = fluid_mm + 2.6 + 0.45 * variation

    tissue = np.full(x.shape, Tissue.WHITE, dtype=np.int8)
    tissue[distance < ribbon_mm] = Tissue.GREY
    _paint_nuclei(tissue, inner_x, inner_y, z, shape)
    tissue[distance < fluid_mm] = Tissue.CSF
    tissue[midline < 0.5] = Tissue.MENINGES
    tissue[_ventricles(inner_x, inner_y, z, shape)] = Tissue.CSF
    return tissue


def _clefts(x: Plane, y: Plane, z: float, depth: Plane, shape: BrainShape) -> tuple[Plane, Region]:
    """Depth in mm below the outer or medial surface, and the lines along which the cortex folds in.

    The lines are the zeros of random fields. The position is stretched towards the surface, so they run
    inwards.
    """
    inside = np.clip(depth, 0.0, None)
    radius = np.sqrt(x * x + y * y) + np.float32(1e-3)
    stretch = ((radius + 0.6 * inside) / radius).astype(np.float32)
    outer = _crossings(field_values(shape.folds, x * stretch, y * stretch, z))
    shallow = _crossings(field_values(shape.shallow_folds, x * stretch, y * stretch, z))
    medial = _crossings(field_values(shape.medial_folds, (0.45 * x).astype(np.float32), y, z))
    # Above the corpus callosum the hemispheres part, and their walls fold as well.
    callosum = np.sqrt((y / 42.0) ** 2 + (z / 26.0) ** 2)
    from_midline = np.abs(x) + np.where(callosum < 1.0, 200.0 * (1.0 - callosum), 0.0)
    deepest = field_values(shape.fold_depth, x, y, z)
    lines = outer & (inside < 18.0 + 6.0 * deepest)
    lines |= shallow & (inside < 6.0 + 6.0 * deepest)
    medial_lines = medial & (from_midline < 11.0 + 4.0 * deepest)
    near_midline = from_midline < 15.0
    lines = np.where(near_midline & (inside > 6.0), medial_lines, lines)
    reach = np.where(near_midline, np.minimum(1.3 * from_midline, inside), inside).astype(np.float32)
    return reach, lines


def _crossings(level: Plane) -> Region:
    """Points where a field changes its sign towards the next row or column."""
    positive = level > 0
    lines = np.zeros(level.shape, dtype=np.bool_)
    lines[:-1] |= positive[:-1] != positive[1:]
    lines[:, :-1] |= positive[:, :-1] != positive[:, 1:]
    return lines


def _midline(x: Plane, y: Plane, z: float) -> Plane:
    """Distance in mm from the fissure between the hemispheres, which stops at the corpus callosum."""
    callosum = 1.0 - (z / 27.0) ** 2
    front, back = (-36.0 * math.sqrt(callosum), 34.0 * math.sqrt(callosum)) if callosum > 0 else (0.0, 0.0)
    gap = np.clip(np.minimum(y - front, back - y), 0.0, None)
    distance: Plane = np.sqrt(x * x + gap * gap).astype(np.float32)
    return distance


def _sylvian(x: Plane, y: Plane, z: float, shape: BrainShape) -> Plane:
    """Distance in mm from the two lateral fissures and the insular clefts they lead to."""
    fade = max(0.0, 1.0 - ((z + 2.0) / 22.0) ** 2)
    if fade == 0.0:
        return np.full(x.shape, 1e3, dtype=np.float32)
    distance = np.full(x.shape, 1e3, dtype=np.float32)
    for sign in (-1.0, 1.0):
        grow = 1.0 + sign * shape.side
        inner = 36.0 * grow + 10.0 * (1.0 - fade)
        path = [(68.0, -8.0), (52.0, -12.0), (inner + 3.0, -16.0), (inner + 1.0, -22.0)]
        branch = [(inner + 3.0, -16.0), (inner, -4.0), (inner + 1.5, 10.0), (inner + 7.0, 17.0)]
        for line in (path, branch):
            for (x_0, y_0), (x_1, y_1) in itertools.pairwise(line):
                distance = np.minimum(distance, _segment(sign * x, y, (x_0, y_0, 0.0), (x_1, y_1, 0.0)))
    return distance


def _ventricles(x: Plane, y: Plane, z: float, shape: BrainShape) -> Region:
    """Lateral and third ventricles: chains of segments whose widths change with the height."""
    body = math.exp(-(((z - 16.0) / 10.0) ** 2))
    horn = math.exp(-(((z - 4.0) / 13.0) ** 2))
    atrium = math.exp(-(((z - 3.0) / 12.0) ** 2))
    inside = np.zeros(x.shape, dtype=np.bool_)
    for sign in (-1.0, 1.0):
        factor = shape.ventricle_width * (1.0 + 3.0 * sign * shape.side)
        chain = [
            (14.0, -36.0, 2.6 * horn),
            (8.5, -28.0, 4.2 * horn),
            (5.5, -18.0, 3.6 * max(horn, body)),
            (6.5, -4.0, 4.6 * body),
            (10.0, 12.0, 5.0 * body),
            (17.0, 24.0, 5.6 * max(body, 0.9 * atrium)),
            (25.0, 34.0, 6.6 * atrium),
            (26.0, 45.0, 3.0 * atrium),
        ]
        for start, end in itertools.pairwise(chain):
            if max(start[2], end[2]) > 0.8:
                near = (start[0], start[1], start[2] * factor - 0.4)
                far = (end[0], end[1], end[2] * factor - 0.4)
                inside |= _segment(sign * x, y, near, far) < 0.0
    third = 2.0 * shape.ventricle_width * math.exp(-(((z + 3.0) / 9.0) ** 2)) - 0.4
    if third > 0.3:
        inside |= _segment(x, y, (0.0, -6.0, 0.7 * third), (0.0, 14.0, third)) < 0.0
    return inside


def _paint_nuclei(tissue: NDArray[np.int8], x: Plane, y: Plane, z: float, shape: BrainShape) -> None:
    """Caudate, putamen, pallidum and thalamus on both sides, smaller above and below their level."""
    #            x, y, half axes, turn in degrees, level, half height, tissue
    nuclei = [
        (15.0, -22.0, 5.2, 9.5, 18.0, 6.0, 22.0, Tissue.NUCLEUS),
        (26.0, -5.0, 5.6, 15.0, 14.0, 0.0, 17.0, Tissue.NUCLEUS),
        (19.5, -1.5, 4.2, 9.5, 22.0, -2.0, 12.0, Tissue.PALLIDUM),
        (11.0, 10.0, 8.2, 13.0, -28.0, 2.0, 16.0, Tissue.NUCLEUS),
    ]
    for sign in (-1.0, 1.0):
        for centre_x, centre_y, half_x, half_y, degrees, level, height, kind in nuclei:
            size = 1.0 - ((z - level) / height) ** 2
            if size <= 0.05:
                continue
            scale = math.sqrt(size) * (1.0 + sign * shape.side)
            turn = math.radians(degrees)
            along, across = sign * x - centre_x, y - centre_y
            u = along * math.cos(turn) + across * math.sin(turn)
            v = across * math.cos(turn) - along * math.sin(turn)
            inside = (u / (half_x * scale)) ** 2 + (v / (half_y * scale)) ** 2 < 1.0
            tissue[inside] = kind


def _segment(x: Plane, y: Plane, start: tuple[float, float, float], end: tuple[float, float, float]) -> Plane:
    """Signed distance in mm to a segment between (x, y, half width) points; negative inside its width."""
    d_x, d_y = end[0] - start[0], end[1] - start[1]
    t = np.clip(((x - start[0]) * d_x + (y - start[1]) * d_y) / (d_x * d_x + d_y * d_y), 0.0, 1.0)
    width = start[2] + (end[2] - start[2]) * t
    distance: Plane = (np.hypot(x - start[0] - t * d_x, y - start[1] - t * d_y) - width).astype(np.float32)
    return distance
