"""Receive coils and object phase of a simulated scan."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from reconlib.simulation.random_field import RandomField


def pixel_positions(matrix: tuple[int, int], fov_mm: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Positions (y, x) of pixel centres in mm, shapes (y, 1) and (1, x); zero at the index ``n // 2``."""
    (n_y, n_x), (fov_y, fov_x) = matrix, fov_mm
    if n_y < 1 or n_x < 1 or not (fov_y > 0 and fov_x > 0):
        raise ValueError(
            f"A matrix of {matrix} pixels over {fov_mm} mm is no image; both need positive sizes (y, x)."
        )
    y = (torch.arange(n_y, dtype=torch.float64) - n_y // 2) * (fov_y / n_y)
    x = (torch.arange(n_x, dtype=torch.float64) - n_x // 2) * (fov_x / n_x)
    return y[:, None], x[None, :]


def loop_coils(
    matrix: tuple[int, int],
    n_coils: int,
    *,
    generator: torch.Generator,
    fov_mm: tuple[float, float] = (220.0, 220.0),
    slice_positions_mm: Sequence[float] = (0.0,),
    array_radius_mm: float = 150.0,
    n_segments: int = 40,
) -> Tensor:
    r"""Sensitivities of circular loops on a cylinder round the head, by the law of Biot and Savart.

    By reciprocity a coil receives with :math:`B_x - i B_y` of the field that a unit current in it would
    make. Up to eight loops lie in one ring, more in two rings that are turned against each other. Each
    channel has a random constant phase, and each loop is a little displaced, as in a flexible array.

    Returns complex64 (slice, coil, y, x); the root-sum-of-squares over the coils is 1 at the centre of the
    first slice and rises towards the array. Maps of one seed belong to the same array at any matrix size.
    """
    if n_coils < 1:
        raise ValueError(f"n_coils is {n_coils}; a scan needs at least one coil.")
    centres, normals, radius = _loops(n_coils, array_radius_mm, generator)
    channel_phase = 2.0 * math.pi * torch.rand(n_coils, generator=generator, dtype=torch.float64)
    y, x = pixel_positions(matrix, fov_mm)
    maps = torch.stack(
        [
            torch.stack(
                [
                    _loop_field(x, y, z, c, n, radius, n_segments)
                    for c, n in zip(centres, normals, strict=True)
                ]
            )
            for z in slice_positions_mm
        ]
    )
    maps = maps * torch.exp(1j * channel_phase)[:, None, None]
    centre = maps[0, :, matrix[0] // 2, matrix[1] // 2].abs().square().sum().sqrt()
    return (maps / centre).to(torch.complex64)


def smooth_phase(
    matrix: tuple[int, int],
    *,
    generator: torch.Generator,
    fov_mm: tuple[float, float] = (220.0, 220.0),
    slice_positions_mm: Sequence[float] = (0.0,),
    amplitude_rad: float = 1.0,
) -> Tensor:
    """Phase that smooth coil maps can take up: slow waves and a shifted echo; float32 (slice, 1, y, x)."""
    y, x = pixel_positions(matrix, fov_mm)
    field = RandomField.draw(260.0, generator=generator, n_waves=24, bandwidth=0.3)
    offset, slope_y, slope_x = (2.0 * torch.rand(3, generator=generator) - 1.0).tolist()
    ramp = math.pi * (offset + slope_y * y / fov_mm[0] + slope_x * x / fov_mm[1])
    waves = torch.stack([field(x, y, torch.tensor(z)) for z in slice_positions_mm])
    phase: Tensor = (amplitude_rad * waves + ramp)[:, None].to(torch.float32)
    return phase


def rough_phase(
    matrix: tuple[int, int],
    *,
    generator: torch.Generator,
    fov_mm: tuple[float, float] = (220.0, 220.0),
    slice_positions_mm: Sequence[float] = (0.0,),
    amplitude_rad: float = 0.6,
    wavelength_mm: float = 16.0,
) -> Tensor:
    """Phase of a gradient echo that is too rough for smooth coil maps; float32 (slice, 1, y, x).

    A faint variation everywhere (a twentieth of ``amplitude_rad``), and patches a few millimetres wide,
    scarce and of either sign, as veins, flowing blood and air cells leave: about ``amplitude_rad`` at their
    centres.
    """
    y, x = pixel_positions(matrix, fov_mm)
    everywhere = RandomField.draw(wavelength_mm, generator=generator, bandwidth=0.4)
    patches = RandomField.draw(wavelength_mm, generator=generator, bandwidth=0.4)
    slices = []
    for z in slice_positions_mm:
        height = torch.tensor(z)
        patch = patches(x, y, height)
        scarce = torch.sign(patch) * (1.0 - torch.exp(-((patch.abs() - 1.7).clamp(min=0.0).square()) / 0.25))
        slices.append(amplitude_rad * (0.05 * everywhere(x, y, height) + scarce))
    return torch.stack(slices)[:, None].to(torch.float32)


def _loops(n_coils: int, array_radius: float, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Centres and unit normals (coil, 3) as (x, y, z) in mm, and the radius of every loop."""
    n_rings = 1 if n_coils <= 8 else 2
    ring = torch.arange(n_coils) % n_rings
    in_ring = torch.div(torch.arange(n_coils), n_rings, rounding_mode="floor")
    sizes = torch.bincount(ring, minlength=n_rings)
    jitter = 2.0 * torch.rand(n_coils, 3, generator=generator, dtype=torch.float64) - 1.0
    turn = float(torch.rand((), generator=generator, dtype=torch.float64))
    spacing = 2.0 * math.pi / sizes[ring].to(torch.float64)
    angle = spacing * (in_ring + 0.5 * ring + 0.12 * jitter[:, 0] + turn)
    loop_radius = min(1.15 * math.pi * array_radius / int(sizes.max()), 0.55 * array_radius)
    height = (ring.to(torch.float64) - 0.5 * (n_rings - 1)) * 1.6 * loop_radius + 6.0 * jitter[:, 1]
    distance = array_radius * (1.0 + 0.04 * jitter[:, 2])
    outward = torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], dim=1)
    centres = distance[:, None] * outward
    centres[:, 2] = height
    return centres, -outward, loop_radius


def _loop_field(
    x: Tensor, y: Tensor, z: float, centre: Tensor, normal: Tensor, radius: float, n_segments: int
) -> Tensor:
    """B_x - i B_y of a unit current in one loop at the plane ``z``, complex128 (y, x), in arbitrary units."""
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    across = torch.linalg.cross(up, normal)
    angles = 2.0 * math.pi * (torch.arange(n_segments, dtype=torch.float64) + 0.5) / n_segments
    field_x = torch.zeros(y.shape[0], x.shape[1], dtype=torch.float64)
    field_y = torch.zeros_like(field_x)
    for angle in angles:
        wire = centre + radius * (angle.cos() * across + angle.sin() * up)
        along = (angle.cos() * up - angle.sin() * across).tolist()
        d_x, d_y, d_z = x - wire[0], y - wire[1], z - float(wire[2])
        # The strip is some 12 mm wide, so that the field stays finite at the wire.
        cube = (d_x.square() + d_y.square() + d_z**2 + 12.0**2).pow(1.5)
        field_x += (along[1] * d_z - along[2] * d_y) / cube
        field_y += (along[2] * d_x - along[0] * d_z) / cube
    return torch.complex(field_x, -field_y)
