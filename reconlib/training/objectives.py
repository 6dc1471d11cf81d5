"""What training minimises."""

from torch import Tensor

from reconlib.energies.local import LocalEnergyNetwork


def score_matching_loss(
    network: LocalEnergyNetwork, clean: Tensor, noise: Tensor, noise_level: Tensor, margin: int
) -> Tensor:
    r"""Multi-noise denoising score matching of an energy, one value per image.

    .. math:: | \sigma \nabla R(x + \sigma n; \sigma) - n |^2, \quad n \sim N(0, 1),

    averaged over the pixels that are at least ``margin`` away from the rim of the patch (what lies beyond the
    rim is unknown to the network). Its minimum is the energy whose ``exp(-R)`` is the density of noisy
    images.

    ``clean`` and ``noise`` are float32 (image, 1, y, x), ``noise_level`` is (image,).

    References
    ----------
    Vincent, Neural Computation 23:1661 (2011); Song and Ermon, NeurIPS 2019.
    """
    level = noise_level[:, None, None, None]
    _, gradient = network.value_and_gradient(clean + level * noise, noise_level)
    residual = level * gradient - noise
    if margin:
        residual = residual[..., margin:-margin, margin:-margin]
    return residual.square().mean(dim=(1, 2, 3))
