"""The images from which Langevin chains go on: persistent chains with a slow refresh."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class ReplayBuffer:
    """``size`` images float16, from which chains start and to which their samples go back.

    With the chance ``1 - keep_chance`` a data image takes a sample's place; of these, every
    ``shuffle_every``-th has its pixels shuffled, so that some chains start far from the data. The buffer
    begins as if every image had just been replaced.

    Half precision rounds a value near 1 by at most 2.5e-4, far less than the noise of a Langevin step.

    References
    ----------
    Du and Mordatch, NeurIPS 2019.
    """

    def __init__(
        self,
        size: int,
        fresh: Callable[[int], Tensor],
        *,
        keep_chance: float,
        shuffle_every: int | None,
        generator: torch.Generator,
        held: Tensor | None = None,
    ) -> None:
        """``fresh(n)`` draws n (noisy) data images (n, 1, y, x) on the generator's device.

        ``held`` (y, x), bool, marks pixels that are never shuffled: those that the chains leave alone.
        """
        self._fresh, self._generator, self._held = fresh, generator, held
        self._keep_chance, self._shuffle_every = keep_chance, shuffle_every
        self.n_replaced = 0
        """Replacements so far, those of the beginning included."""
        parts = [self._replacements(min(64, size - done)).half() for done in range(0, size, 64)]
        self._images = torch.cat(parts)

    def __len__(self) -> int:
        return len(self._images)

    def draw(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the places (n,) of n different images, and the images, float32 (n, 1, y, x)."""
        order = torch.randperm(len(self._images), generator=self._generator, device=self._generator.device)
        return order[:n], self._images[order[:n]].float()

    def put_back(self, places: Tensor, samples: Tensor) -> None:
        """Store the samples, or data images instead of some of them, at the places they were drawn from."""
        chance = torch.rand(len(places), generator=self._generator, device=self._generator.device)
        replaced = (chance >= self._keep_chance).nonzero()[:, 0]
        stored = samples.half()
        if len(replaced):
            stored[replaced] = self._replacements(len(replaced)).half()
        self._images[places] = stored

    def peek(self, n: int) -> Tensor:
        """Return the first n images, float32, without drawing random numbers."""
        return self._images[:n].float()

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs to go on as if nothing had happened (the generator is the caller's)."""
        return {"images": self._images, "n_replaced": self.n_replaced}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._images.copy_(state["images"])
        self.n_replaced = state["n_replaced"]

    def _replacements(self, n: int) -> Tensor:
        images = self._fresh(n)
        for image in images:
            self.n_replaced += 1
            if self._shuffle_every is not None and self.n_replaced % self._shuffle_every == 0:
                self._shuffle(image)
        return images

    def _shuffle(self, image: Tensor) -> None:
        free = torch.ones_like(image, dtype=torch.bool)
        if self._held is not None:
            free &= ~self._held
        pixels = image[free]
        order = torch.randperm(len(pixels), generator=self._generator, device=pixels.device)
        image[free] = pixels[order]
