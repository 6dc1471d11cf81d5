"""The noise level of data without noise readouts: where the object is not."""

from pathlib import Path

import numpy as np
import pytest

from gadget.scan.noise_estimate import noise_std_beside_object, noise_std_from_data


def corner_noise(kspace: np.ndarray, corner: int = 12) -> float:
    """Noise per real component in the corners of the coil images, by numpy alone."""
    axes = (1, 2)
    shifted = np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), axes=axes, norm="ortho")
    images = np.fft.fftshift(shifted, axes=axes)
    ends = (slice(0, corner), slice(-corner, None))
    power = [np.mean(np.abs(images[:, y, x]) ** 2) for y in ends for x in ends]
    return float(np.sqrt(np.mean(power) / 2))


def sampled(kspace: np.ndarray, every: int) -> tuple[np.ndarray, np.ndarray]:
    mask = np.zeros(kspace.shape[1:], np.bool_)
    mask[::every] = True
    return np.where(mask, kspace, 0).astype(np.complex64), mask


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("name", ["brain_t1_7coil_full", "brain_t1_8coil_full", "sphere_8coil_full"])
def test_on_measured_scans_it_is_that_of_the_corners_of_the_image(
    data_folder: Path, name: str, every: int
) -> None:
    kspace = np.load(data_folder / "kspace" / f"{name}.npy")
    samples, mask = sampled(kspace, every)
    assert noise_std_beside_object(samples, mask) == pytest.approx(corner_noise(kspace), rel=0.06)


def noise(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    return 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))


def test_an_object_in_the_middle_of_the_readout_does_not_raise_it() -> None:
    columns = np.arange(91)
    object_ = 40 * np.exp(-(((columns - 45) / 9.0) ** 2))
    hybrid = noise(3, 61, 91) + object_
    samples, mask = sampled(np.fft.fftshift(np.fft.fft(hybrid, norm="ortho"), axes=-1), 2)
    assert noise_std_beside_object(samples, mask) == pytest.approx(0.3, rel=0.08)


def test_a_slab_with_two_phase_encoding_directions_works_alike() -> None:
    mask = np.ones((5, 12, 64), np.bool_)
    assert noise_std_beside_object(noise(2, 5, 12, 64).astype(np.complex64), mask) == pytest.approx(
        0.3, rel=0.1
    )


def test_incomplete_lines_and_narrow_readouts_leave_it_to_the_edges() -> None:
    samples, mask = sampled(noise(2, 20, 32), 1)
    mask[3, :7] = False
    assert noise_std_beside_object(samples, mask) is None
    assert noise_std_from_data(0.5, samples, mask) == 0.5
    assert noise_std_beside_object(*sampled(noise(2, 20, 15), 1)) is None
    assert noise_std_beside_object(np.zeros((2, 20, 32), np.complex64), np.ones((20, 32), np.bool_)) is None


@pytest.mark.parametrize(("edges", "expected"), [(0.31, 0.3), (0.2, 0.2), (2.0, 1.5)])
def test_the_lower_estimate_counts_but_not_far_below_the_edges(edges: float, expected: float) -> None:
    samples, mask = sampled(noise(3, 64, 64), 1)
    assert noise_std_from_data(edges, samples, mask) == pytest.approx(expected, rel=0.06)
