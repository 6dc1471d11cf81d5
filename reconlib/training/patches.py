"""Random training patches, cut from magnitude images on the device."""

import math

import torch
from torch import Tensor

from reconlib.training.settings import DataSettings


class PatchError(ValueError):
    """The images do not fit the settings of the patches; the text says why."""


def fourier_crop(images: Tensor, matrix: tuple[int, int]) -> Tensor:
    """Cut images (image, y, x) to a smaller matrix in k-space, as if the scanner had measured less.

    Public images are often interpolated by zero-filling; cut to what was measured they show the sharp
    pixels and the ringing of a real scan. The result is a magnitude: ringing does not go below zero. A
    constant image stays what it is.
    """
    n_y, n_x = images.shape[-2:]
    if matrix == (n_y, n_x):
        return images
    kspace = torch.fft.fftshift(torch.fft.fft2(images), dim=(-2, -1))
    top, left = n_y // 2 - matrix[0] // 2, n_x // 2 - matrix[1] // 2
    kspace = kspace[..., top : top + matrix[0], left : left + matrix[1]]
    cropped: Tensor = torch.fft.ifft2(torch.fft.ifftshift(kspace, dim=(-2, -1))).abs()
    return cropped * (matrix[0] * matrix[1] / (n_y * n_x))


def smooth_fields(matrix: tuple[int, int], lengths: Tensor, generator: torch.Generator) -> Tensor:
    r"""Draw periodic Gaussian random fields (n, 1, y, x) of mean 0 and variance 1, one per length.

    Their correlation at the distance r is :math:`\exp(-r^2 / 2 l^2)` with l the length in pixels (where the
    field is much larger than that).
    """
    f_y, f_x = (torch.fft.fftfreq(n, device=lengths.device) for n in matrix)
    squared = f_y[:, None] ** 2 + f_x[None, :] ** 2
    filters = torch.exp(-(math.pi**2) * lengths[:, None, None, None] ** 2 * squared)
    noise = torch.randn((len(lengths), 1, *matrix), generator=generator, device=lengths.device)
    fields: Tensor = torch.fft.ifft2(torch.fft.fft2(noise) * filters).real
    return fields / filters.square().mean(dim=(-2, -1), keepdim=True).sqrt()


class PatchSampler:
    """Random patches of images float16 (image, y, x): place, symmetry, resolution, intensity, sign.

    With ``settings.patch`` null it draws whole images at their own resolution. The images are kept on
    ``device`` in float16, once per resolution. All random numbers come from ``generator``, which is on the
    device, too: its state is the sampler's state.
    """

    def __init__(
        self, images: Tensor, settings: DataSettings, *, device: torch.device, generator: torch.Generator
    ) -> None:
        n_y, n_x = images.shape[-2:]
        self._settings, self._device, self._generator = settings, device, generator
        self.matrix = (n_y, n_x) if settings.patch is None else (settings.patch, settings.patch)
        if settings.symmetries == "all" and self.matrix[0] != self.matrix[1]:
            raise PatchError(
                f"whole images of {n_y} x {n_x} pixels cannot be turned by 90 degrees: "
                "set data.symmetries to flips, or train on square patches (data.patch)."
            )
        self._sets: list[Tensor] = []
        for fraction in (1.0,) if settings.patch is None else settings.resolutions:
            matrix = (round(fraction * n_y), round(fraction * n_x))
            if matrix[0] < self.matrix[0] or matrix[1] < self.matrix[1]:
                raise PatchError(
                    f"images of {n_y} x {n_x} pixels cut to the resolution {fraction:g} are {matrix[0]} x "
                    f"{matrix[1]}, less than data.patch ({settings.patch}): lower data.patch, or leave this "
                    "resolution out of data.resolutions."
                )
            parts = [fourier_crop(part.to(device).float(), matrix).half() for part in torch.split(images, 64)]
            self._sets.append(torch.cat(parts))

    def draw(self, n: int, *, signed: float | None = None) -> Tensor:
        """Return float32 patches (n, 1, y, x); ``signed`` stands in for the settings' share."""
        images = self._sets[int(self._integers(len(self._sets), ()))]
        patches = self._cut(images, n)
        low, high = (math.log(v) for v in self._settings.intensity)
        patches = patches * torch.exp(self._uniform(n, low, high))
        share = self._settings.signed if signed is None else signed
        return self._with_signs(patches, share) if share else patches

    def _cut(self, images: Tensor, n: int) -> Tensor:
        (side_y, side_x), (n_y, n_x) = self.matrix, images.shape[-2:]
        index = self._integers(len(images), (n, 1, 1))
        top, left = self._integers(n_y - side_y + 1, (n, 1, 1)), self._integers(n_x - side_x + 1, (n, 1, 1))
        y = torch.arange(side_y, device=self._device)[None, :, None].expand(n, side_y, side_x)
        x = torch.arange(side_x, device=self._device)[None, None, :].expand(n, side_y, side_x)
        if self._settings.symmetries != "none":
            y = torch.where(self._integers(2, (n, 1, 1)) == 1, side_y - 1 - y, y)
            x = torch.where(self._integers(2, (n, 1, 1)) == 1, side_x - 1 - x, x)
        if self._settings.symmetries == "all":
            turn = self._integers(2, (n, 1, 1)) == 1
            y, x = torch.where(turn, x, y), torch.where(turn, y, x)
        return images[index, top + y, left + x].float()[:, None]

    def _with_signs(self, patches: Tensor, share: float) -> Tensor:
        r"""Turn the sign of connected regions in a share of the patches.

        The factor is :math:`\cos(\pi\, \mathrm{sigmoid}(k (h - \tau)))` with h a smooth random field of
        variance 1: 1 where h is small, -1 in the islands where it exceeds :math:`\tau`, with a zero
        between, as the real part of an image has it where flow or off-resonance turns the phase.
        """
        n = len(patches)
        lengths = torch.exp(self._uniform(n, math.log(2.0), math.log(14.0))).flatten()
        field = smooth_fields(self.matrix, lengths, self._generator)
        threshold, steepness = self._uniform(n, 0.7, 2.2), self._uniform(n, 2.0, 8.0)
        factor = torch.cos(math.pi * torch.sigmoid(steepness * (field - threshold)))
        chosen = self._uniform(n, 0.0, 1.0) < share
        return torch.where(chosen, patches * factor, patches)

    def _integers(self, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(high, shape, generator=self._generator, device=self._device)

    def _uniform(self, n: int, low: float, high: float) -> Tensor:
        drawn = torch.rand((n, 1, 1, 1), generator=self._generator, device=self._device)
        return low + (high - low) * drawn
