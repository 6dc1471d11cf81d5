"""A head that this project draws itself: seeded, at any matrix size, with the fine structure of a brain.

No measured image is involved. Scalp and skull are layers of a warped ellipsoid,
:mod:`reconlib.simulation.brain` fills it. The head is drawn on a finer grid and cut to the matrix in
k-space, so it is band-limited as a measured image is, Gibbs ringing included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.simulation.brain import BrainShape, Plane, Tissue, field_values, paint_brain
from reconlib.simulation.coils import pixel_positions
from reconlib.simulation.random_field import RandomField

Contrast = Literal["t1", "t2", "flair"]

SIGNAL: dict[Contrast, dict[Tissue, float]] = {
    "t1": dict(
        zip(Tissue, (0.0, 0.5, 0.95, 0.34, 0.03, 0.36, 0.12, 0.41, 0.60, 0.46, 0.53, 0.9, 0.3), strict=True)
    ),
    "t2": dict(
        zip(Tissue, (0.0, 0.3, 0.62, 0.2, 0.03, 0.3, 1.0, 0.53, 0.38, 0.44, 0.33, 0.05, 0.2), strict=True)
    ),
    "flair": dict(
        zip(Tissue, (0.0, 0.4, 0.8, 0.3, 0.03, 0.35, 0.07, 0.6, 0.47, 0.53, 0.43, 0.1, 0.25), strict=True)
    ),
}
"""Signal of every tissue, relative to the brightest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSlices:
    """Slices of one head without coils, phase or noise; water and fat apart, as their phases differ."""

    water: Tensor
    """float32 (slice, 1, y, x), band-limited, so slightly negative beside edges."""
    fat: Tensor
    """float32 (slice, 1, y, x), likewise."""

    @property
    def magnitude(self) -> Tensor:
        """Water and fat together, float32 (slice, 1, y, x), not negative; the 99.95th percentile is 1."""
        return (self.water + self.fat).abs()


def draw_head(
    matrix: tuple[int, int],
    *,
    generator: torch.Generator,
    fov_mm: tuple[float, float] = (220.0, 220.0),
    slice_positions_mm: Sequence[float] = (0.0,),
    contrast: Contrast = "t1",
    oversampling: int = 3,
) -> HeadSlices:
    """Draw transverse slices of one random head.

    Slice positions count upwards in mm from the level of the thalami; between -25 and 60 mm they look like a
    brain, and neighbours change smoothly. The front is at the top. One seed gives one head: matrix, field of
    view and positions decide only what is seen of it. ``oversampling`` is the fineness of the grid it is
    drawn on.
    """
    if contrast not in SIGNAL:
        raise ValueError(f"contrast is {contrast!r}; choose one of {', '.join(SIGNAL)}.")
    if oversampling < 1:
        raise ValueError(
            f"oversampling is {oversampling}; the head is drawn on a grid at least as fine as the matrix."
        )
    if len(slice_positions_mm) == 0:
        raise ValueError("slice_positions_mm is empty; give the height in mm of at least one slice.")
    shape = _HeadShape.draw(generator)
    fine = (matrix[0] * oversampling, matrix[1] * oversampling)
    y, x = (axis.to(torch.float32).numpy() for axis in pixel_positions(fine, fov_mm))
    x, y = (np.ascontiguousarray(axis) for axis in np.broadcast_arrays(x, y))
    pixel_mm = (fov_mm[0] / fine[0] * fov_mm[1] / fine[1]) ** 0.5
    water, fat = [], []
    for z in slice_positions_mm:
        tissue = _paint_head(x, y, float(z), shape, pixel_mm)
        signal = _signal(tissue, x, y, float(z), shape, SIGNAL[contrast], pixel_mm)
        fatty = (tissue == Tissue.FAT) | (tissue == Tissue.MARROW)
        water.append(np.where(fatty, 0.0, signal))
        fat.append(np.where(fatty, signal, 0.0))
    images = torch.from_numpy(np.stack([water, fat]))[:, :, None]
    images = cut_to_matrix(images, matrix)
    images = images / torch.quantile(_sorted_sample(images.sum(0).abs()), 0.9995)
    return HeadSlices(water=images[0].to(torch.float32), fat=images[1].to(torch.float32))


def cut_to_matrix(images: Tensor, matrix: tuple[int, int]) -> Tensor:
    """Cut k-space of real images (..., y, x) to a smaller matrix (y, x); brightness and position are kept."""
    n_y, n_x = images.shape[-2:]
    if matrix[0] > n_y or matrix[1] > n_x:
        raise ValueError(
            f"Images of {n_y} x {n_x} pixels cannot be cut to the larger matrix {matrix[0]} x {matrix[1]}."
        )
    kspace = fft2c(images)
    top, left = n_y // 2 - matrix[0] // 2, n_x // 2 - matrix[1] // 2
    kspace = kspace[..., top : top + matrix[0], left : left + matrix[1]]
    brightness = (matrix[0] * matrix[1] / (n_y * n_x)) ** 0.5
    cut: Tensor = ifft2c(kspace).real * brightness
    return cut


@dataclass(frozen=True, slots=True)
class _HeadShape:
    """What makes one head: its size and random functions of the position in mm."""

    half_x: float
    half_y: float
    turn_rad: float
    outline: RandomField
    layers: RandomField
    fat_texture: RandomField
    texture: RandomField
    fine_texture: RandomField
    shading: RandomField
    vessels: NDArray[np.float64]
    brain: BrainShape

    @classmethod
    def draw(cls, generator: torch.Generator) -> "_HeadShape":
        size_x, size_y, turn = torch.randn(3, generator=generator).tolist()
        vessels = torch.rand(30, 6, generator=generator, dtype=torch.float64).numpy()
        return cls(
            half_x=77.0 + 2.0 * size_x,
            half_y=97.0 + 2.0 * size_y,
            turn_rad=0.03 * turn,
            outline=RandomField.draw(110.0, generator=generator, n_waves=16, bandwidth=0.25),
            layers=RandomField.draw(38.0, generator=generator, n_waves=24, bandwidth=0.4),
            fat_texture=RandomField.draw(6.0, generator=generator, n_waves=40, bandwidth=0.4),
            texture=RandomField.draw(9.0, generator=generator, n_waves=48, bandwidth=0.5),
            fine_texture=RandomField.draw(3.2, generator=generator, n_waves=48, bandwidth=0.3),
            shading=RandomField.draw(230.0, generator=generator, n_waves=16, bandwidth=0.2),
            vessels=vessels,
            brain=BrainShape.draw(generator),
        )


def _paint_head(x: Plane, y: Plane, z: float, shape: _HeadShape, pixel_mm: float) -> NDArray[np.int8]:
    """Tissues of one plane, int8 (y, x)."""
    cos, sin = np.float32(np.cos(shape.turn_rad)), np.float32(np.sin(shape.turn_rad))
    x, y = cos * x + sin * y, cos * y - sin * x
    depth = _depth(x, y, z, shape)
    layers = field_values(shape.layers, x, y, z)
    # The temporal muscle lies at the sides, before the middle; the fat is thicker at the back.
    lower = min(max((30.0 - z) / 30.0, 0.0), 1.0)
    thickness_mm: list[tuple[Tissue, Plane | float]] = [
        (Tissue.SKIN, 1.6),
        (Tissue.FAT, 3.6 + 0.6 * layers + 1.4 * np.clip(y / shape.half_y, 0.0, None)),
        (Tissue.MUSCLE, 5.0 * lower * np.exp(-(((y + 24.0) / 24.0) ** 2))),
        (Tissue.BONE, 1.9),
        (Tissue.MARROW, 2.6 + 0.6 * layers),
        (Tissue.BONE, 1.7),
        (Tissue.MENINGES, 0.6),
    ]
    bound = np.zeros_like(depth)
    bounds = []
    for kind, thickness in thickness_mm:
        bound = bound + thickness
        bounds.append((kind, bound))
    brain_depth = depth - bound - 1.4 + 0.4 * layers
    tissue = paint_brain(x, y, z, brain_depth, shape.brain, pixel_mm)
    for kind, outer in reversed(bounds):
        tissue[depth < outer] = kind
    tissue[depth < 0.0] = Tissue.AIR
    _paint_vessels(tissue, x, y, z, depth - bound, shape)
    return tissue


def _depth(x: Plane, y: Plane, z: float, shape: _HeadShape) -> Plane:
    """Distance in mm below the skin, to first order, negative outside."""
    height = max(0.02, 1.0 - (max(z, 0.0) / 92.0) ** 2 - (min(z, 0.0) / 180.0) ** 2) ** 0.5
    half_x = shape.half_x * height * (1.0 + 0.05 * np.clip(y / shape.half_y, -1.0, 1.0))
    half_y = shape.half_y * height
    radius = np.sqrt((x / half_x) ** 2 + (y / half_y) ** 2) + 1e-6
    slope = np.sqrt((x / half_x**2) ** 2 + (y / half_y**2) ** 2) / radius + 1e-6
    depth: Plane = ((1.0 - radius) / slope + 1.3 * field_values(shape.outline, x, y, z)).astype(np.float32)
    return depth


def _paint_vessels(
    tissue: NDArray[np.int8], x: Plane, y: Plane, z: float, inner: Plane, shape: _HeadShape
) -> None:
    """The sagittal sinus at the back, and small vessels that run obliquely through the slices.

    ``inner`` is the distance in mm below the inside of the skull.
    """
    sinus = (inner > -0.8) & (y > 0) & (np.abs(x) < 3.4 - 0.55 * inner)
    tissue[sinus & (inner < 6.0)] = Tissue.BLOOD
    for angle, distance, slope_x, slope_y, size, kind in shape.vessels:
        turn = 2.0 * np.pi * angle
        radius = 14.0 + 52.0 * distance
        centre_x = radius * np.cos(turn) + 0.7 * (slope_x - 0.5) * z
        centre_y = 1.25 * radius * np.sin(turn) + 0.7 * (slope_y - 0.5) * z
        inside = np.hypot(x - centre_x, y - centre_y) < 0.5 + 0.7 * size**2
        place = (inner < 24.0) & (tissue != Tissue.WHITE) if kind < 0.8 else tissue == Tissue.WHITE
        tissue[inside & place & (inner > 0.0)] = Tissue.BLOOD if kind < 0.8 else Tissue.GREY


def _signal(
    tissue: NDArray[np.int8],
    x: Plane,
    y: Plane,
    z: float,
    shape: _HeadShape,
    signal: dict[Tissue, float],
    pixel_mm: float,
) -> NDArray[np.float64]:
    """Signal of every point: that of its tissue, with a texture and a slow shading."""
    table = np.array([signal[kind] for kind in Tissue])
    spread = np.array([_TEXTURE.get(kind, 0.022) for kind in Tissue])
    fatty = np.clip(field_values(shape.fat_texture, x, y, z), -0.3, 2.0)
    texture = field_values(shape.texture, x, y, z) + 0.7 * field_values(shape.fine_texture, x, y, z)
    variation = np.where((tissue == Tissue.FAT) | (tissue == Tissue.MARROW), -fatty, texture)
    shading = 1.0 + 0.08 * field_values(shape.shading, x, y, z)
    # Tissues pass into each other over a fraction of a millimetre.
    mixed = ndimage.gaussian_filter(table[tissue], 0.35 / pixel_mm)
    values: NDArray[np.float64] = np.clip(mixed * (1.0 + spread[tissue] * variation), 0.0, None) * shading
    return values


_TEXTURE = {Tissue.FAT: 0.16, Tissue.MARROW: 0.3, Tissue.MUSCLE: 0.1, Tissue.CSF: 0.05, Tissue.GREY: 0.05}
"""Relative variation within a tissue, 0.022 where not named."""


def _sorted_sample(values: Tensor) -> Tensor:
    """Flatten for ``torch.quantile``, which takes 16 million values at most."""
    flat = values.flatten()
    return flat[:: max(1, flat.numel() // 10_000_000)]
