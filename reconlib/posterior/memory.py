"""How much memory chains need, and how many are evaluated at once.

An evaluation passes through the data term (coil images, and as much again for their transform) and then
through the prior (the features of a network and what their gradient needs); the larger of the two counts. The
workspace of the FFT and convolution libraries is not in the numbers.
"""

import torch
from torch import Tensor

from reconlib.priors.card import LocalArchitecture, PaperArchitecture
from reconlib.priors.library import Prior

CPU_BUDGET = 2**28
"""Bytes for an evaluation on a CPU. Larger chunks are no faster there."""
GPU_SHARE = 0.5
"""Of the free device memory."""
_COMPLEX, _REAL = 8, 4
_STATE_IMAGES = 12
"""Complex images of a chain: position, velocity, gradients, noise, and what a step makes of them."""
_FEATURE_COPIES = 8
"""Tensors of the size of a level's features that are alive at once in a local energy, as measured."""
_PAPER_BYTES = 140_000_000
"""Of the published network, which always sees 320 x 320 pixels; as measured."""


def bytes_per_chain(matrix: tuple[int, int], n_coils: int, prior: Prior) -> int:
    """Return the bytes that a chain of a (y, x) slice needs at most: its state, and its evaluation."""
    n_pixels = matrix[0] * matrix[1]
    data = (2 * n_coils + 4) * _COMPLEX * n_pixels
    return _STATE_IMAGES * _COMPLEX * n_pixels + max(data, _prior_bytes(n_pixels, prior))


def rows_that_fit(coil_images: Tensor, prior: Prior) -> int:
    """Return how many chains of slices (slice, coil, y, x) to evaluate at once; at least one."""
    _, n_coils, n_y, n_x = coil_images.shape
    budget = float(CPU_BUDGET)
    if coil_images.is_cuda:
        budget = GPU_SHARE * torch.cuda.mem_get_info(coil_images.device)[0]
    return max(1, int(budget // bytes_per_chain((n_y, n_x), n_coils, prior)))


def _prior_bytes(n_pixels: int, prior: Prior) -> int:
    architecture = prior.card.architecture
    if isinstance(architecture, LocalArchitecture):
        features = sum(width / 4**level for level, width in enumerate(architecture.widths))
        return int(_FEATURE_COPIES * features * _REAL * n_pixels)
    if isinstance(architecture, PaperArchitecture):
        return _PAPER_BYTES
    return 12 * _REAL * n_pixels
