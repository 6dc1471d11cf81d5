"""Interpolated images are cut to what was measured; others stay as they are."""

import numpy as np
import pytest
import torch

from reconlib.evaluation.band_limit import cut_to_measured, measured_extent, own_noise_std


def centred_fft(image):
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image), norm="ortho"))


def centred_ifft(kspace):
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace), norm="ortho"))


def object_image(matrix, noise, seed=0):
    """Magnitude of ellipses with complex noise on them."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in matrix), indexing="ij")
    image = np.zeros(matrix)
    for _ in range(12):
        c_y, c_x, a, b = rng.uniform([-0.5, -0.5, 0.05, 0.05], [0.5, 0.5, 0.4, 0.4])
        image += rng.uniform(0.1, 0.4) * (((y - c_y) / a) ** 2 + ((x - c_x) / b) ** 2 < 1)
    return np.abs(image / image.max() + noise * (rng.normal(size=matrix) + 1j * rng.normal(size=matrix)))


def interpolated(image, matrix):
    """Fill k-space up with zeros, take the magnitude, round to 8 bits of its root, as archives do."""
    kspace = np.zeros(matrix, complex)
    top, left = (n // 2 - m // 2 for n, m in zip(matrix, image.shape, strict=True))
    kspace[top : top + image.shape[0], left : left + image.shape[1]] = centred_fft(image)
    whole = np.abs(centred_ifft(kspace))
    whole /= whole.max()
    return (np.round(255 * np.sqrt(whole)) / 255) ** 2


def as_tensor(image):
    return torch.from_numpy(image)[None, None]


@pytest.mark.parametrize("measured", [(128, 96), (96, 128), (100, 88)], ids=str)
def test_the_edge_of_an_interpolated_spectrum_is_found(measured):
    image = interpolated(object_image(measured, 0.01), (160, 144))
    assert measured_extent(as_tensor(image)) == pytest.approx(measured, abs=6)


@pytest.mark.parametrize("matrix", [(128, 96), (99, 130)], ids=str)
def test_a_measured_spectrum_is_left_alone(matrix):
    image = as_tensor(object_image(matrix, 0.01))
    assert measured_extent(image) == matrix
    assert torch.equal(cut_to_measured(image), image.float())


def test_cutting_crops_k_space_and_keeps_intensities():
    small = object_image((128, 96), 0.005)
    image = as_tensor(interpolated(small, (160, 144)))
    cut = cut_to_measured(image)
    m_y, m_x = cut.shape[-2:]
    kspace = centred_fft(image[0, 0].numpy())
    top, left = 80 - m_y // 2, 72 - m_x // 2
    expected = centred_ifft(kspace[top : top + m_y, left : left + m_x]).real
    expected = np.maximum(expected, 0) * np.sqrt(m_y * m_x / (160 * 144))
    assert np.allclose(cut[0, 0].numpy(), expected, atol=1e-6)
    assert float(cut.mean()) == pytest.approx(float(image.mean()), rel=0.01)
    assert cut.dtype == torch.float32


@pytest.mark.parametrize("std", [0.01, 0.04])
def test_the_noise_of_an_image_is_that_of_the_corners_of_its_spectrum(std):
    rng = np.random.default_rng(3)
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in (160, 130)), indexing="ij")
    smooth = 1 + np.exp(-4 * (x**2 + y**2))  # bright everywhere: the magnitude leaves Gaussian noise
    image = np.abs(smooth + std * (rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape)))
    assert own_noise_std(as_tensor(image)) == pytest.approx(std, rel=0.1)
