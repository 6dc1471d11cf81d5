"""The sum that a non-uniform Fourier transform approximates, written out in numpy."""

import numpy as np


def phases(points: np.ndarray, n: int) -> np.ndarray:
    """Turns of every pixel about the pixel n // 2: (point, n)."""
    return np.exp(-2j * np.pi * np.outer(points, np.arange(n) - n // 2))


def exact_forward(images: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Images (..., y, x) to samples (..., point)."""
    n_y, n_x = images.shape[-2:]
    along_y, along_x = phases(points[:, 0], n_y), phases(points[:, 1], n_x)
    return np.einsum("...yx,jy,jx->...j", images, along_y, along_x, optimize=True) / np.sqrt(n_y * n_x)


def exact_adjoint(samples: np.ndarray, points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Samples (..., point) to images (..., y, x)."""
    along_y, along_x = (phases(points[:, axis], n).conj() for axis, n in enumerate(shape))
    return np.einsum("...j,jy,jx->...yx", samples, along_y, along_x, optimize=True) / np.sqrt(
        shape[0] * shape[1]
    )


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
