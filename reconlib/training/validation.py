"""How good the averaged weights are on images of subjects that the run does not learn from."""

import torch
from torch import Tensor, nn

from reconlib.training.objectives import score_matching_loss
from reconlib.training.patches import PatchSampler
from reconlib.training.settings import TrainSettings


class Validation:
    """Score-matching loss on fixed patches of the validation images with fixed noise.

    It needs no partition function, so it judges energies of both objectives: how well the gradient of R, as a
    denoiser, finds the noise. Score matching is judged at several noise levels, maximum likelihood at the one
    it is trained at. Where the settings turn signs in some images, plain and signed images are judged apart.
    """

    n_patches = 64
    levels = (0.01, 0.02, 0.05, 0.1)

    def __init__(self, images: Tensor, settings: TrainSettings, device: torch.device) -> None:
        self._settings = settings
        generator = torch.Generator(device).manual_seed(settings.seed + 1)
        sampler = PatchSampler(images, settings.data, device=device, generator=generator)
        signed = settings.data.signed
        kinds = {"": 0.0, "signed ": 1.0} if 0 < signed < 1 else {"": signed}
        self._clean = {
            kind: [sampler.draw(16, signed=share) for _ in range(self.n_patches // 16)]
            for kind, share in kinds.items()
        }
        shape = next(iter(self._clean.values()))[0].shape
        self._noise = [
            torch.randn(shape, generator=generator, device=device) for _ in range(self.n_patches // 16)
        ]

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return the loss by kind of image and noise level; a constant energy has 1."""
        judged: tuple[float, ...] = self.levels
        if self._settings.objective == "maximum-likelihood":
            judged = (self._settings.resolved_data_noise,)
        return {
            f"{kind}{level:g}": self._loss(network, clean, level)
            for kind, clean in self._clean.items()
            for level in judged
        }

    def _loss(self, network: nn.Module, patches: list[Tensor], level: float) -> float:
        total = 0.0
        for clean, noise in zip(patches, self._noise, strict=True):
            noise_level = torch.full((len(clean),), level, device=clean.device)
            with torch.no_grad():
                loss = score_matching_loss(
                    network,
                    clean,
                    noise,
                    noise_level,
                    self._settings.data.rim,
                    self._settings.resolved_temperature,
                )
            total += float(loss.sum())
        return total / self.n_patches
