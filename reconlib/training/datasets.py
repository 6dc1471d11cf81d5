"""Training images: an archive of magnitude images, cut into random patches on the device."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reconlib.training.settings import DataSettings


class DataError(Exception):
    """The training images cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """Square magnitude images, stored as the square root in 8 bits: ``image = (v / 255) ** 2``."""

    training: Tensor
    """uint8 (image, y, x)"""
    validation: Tensor
    """uint8 (image, y, x), of subjects that are not in ``training``"""

    @staticmethod
    def load(path: Path) -> "ImageArchive":
        """Read an .npz with ``image_sqrt_u8`` uint8 (image, y, x) and ``validation`` bool (image,)."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                missing = {"image_sqrt_u8", "validation"} - set(archive.files)
                if missing:
                    raise DataError(
                        f"{path} has no {' and no '.join(sorted(missing))} "
                        f"(it has {', '.join(archive.files)}); "
                        "training needs image_sqrt_u8, uint8 (image, y, x), and validation, bool (image,)."
                    )
                images, validation = archive["image_sqrt_u8"], archive["validation"].astype(bool)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as a .npz archive of images: {error}") from error
        if images.ndim != 3 or images.dtype != np.uint8 or images.shape[1] != images.shape[2]:
            raise DataError(
                f"{path}: image_sqrt_u8 is {images.dtype} of shape {images.shape}; "
                "training needs square uint8 images (image, y, x)."
            )
        if validation.shape != images.shape[:1] or validation.all() or not validation.any():
            raise DataError(
                f"{path}: validation has shape {validation.shape} and marks {int(validation.sum())} of "
                f"{images.shape[0]} images; it must mark some and not all of them."
            )
        return ImageArchive(torch.from_numpy(images[~validation]), torch.from_numpy(images[validation]))


def decode(stored: Tensor) -> Tensor:
    """Float32 intensities of images stored as the square root in 8 bits."""
    return (stored.float() / 255).square()


def fourier_crop(images: Tensor, matrix: int) -> Tensor:
    """Cut square images (image, y, x) to a smaller matrix in k-space, as if the scanner had measured less.

    Public images are often interpolated by zero-filling; cut to what was measured they show the sharp
    pixels and the ringing of a real scan. Negative ringing is kept out (magnitudes are not negative).
    """
    n = images.shape[-1]
    if matrix == n:
        return images
    kspace = torch.fft.fftshift(torch.fft.fft2(images), dim=(-2, -1))
    first = n // 2 - matrix // 2
    kspace = kspace[..., first : first + matrix, first : first + matrix]
    cropped: Tensor = torch.fft.ifft2(torch.fft.ifftshift(kspace, dim=(-2, -1))).abs()
    return cropped * (matrix / n) ** 2


class PatchSampler:
    """Random patches: position, one of the eight symmetries of the square, resolution, intensity."""

    def __init__(
        self, images: Tensor, settings: DataSettings, *, device: torch.device, generator: torch.Generator
    ) -> None:
        self._settings = settings
        self._device = device
        self._generator = generator
        self._sets: list[Tensor] = []
        for matrix in settings.fourier_crop:
            if not settings.patch <= matrix <= images.shape[-1]:
                raise DataError(
                    f"fourier_crop {matrix} must lie between the patch ({settings.patch}) and the images' "
                    f"side ({images.shape[-1]})."
                )
            cut = [fourier_crop(decode(part.to(device)), matrix) for part in torch.split(images, 64)]
            peak = [torch.quantile(c.flatten(1), 0.9995, dim=1)[:, None, None].clamp_min(1e-6) for c in cut]
            self._sets.append(
                torch.cat(
                    [
                        (255 * (c / p).clamp(0, 1.6).sqrt() / 1.6**0.5).round().byte()
                        for c, p in zip(cut, peak, strict=True)
                    ]
                )
            )

    def draw(self, n: int) -> Tensor:
        """Return float32 patches (n, 1, patch, patch)."""
        side = self._settings.patch
        which = int(torch.randint(len(self._sets), (), generator=self._generator, device=self._device))
        images = self._sets[which]
        room = images.shape[-1] - side + 1

        def integers(high: int) -> Tensor:
            return torch.randint(high, (n, 1, 1), generator=self._generator, device=self._device)

        index, top, left = integers(images.shape[0]), integers(room), integers(room)
        ramp = torch.arange(side, device=self._device)
        flip_y, flip_x, turn = integers(2), integers(2), integers(2)
        y = torch.where(flip_y == 1, side - 1 - ramp[None, :, None], ramp[None, :, None])
        x = torch.where(flip_x == 1, side - 1 - ramp[None, None, :], ramp[None, None, :])
        y, x = y.expand(n, side, side), x.expand(n, side, side)
        y, x = torch.where(turn == 1, x, y), torch.where(turn == 1, y, x)
        stored = images[index, top + y, left + x].float()
        dither = torch.rand(stored.shape, generator=self._generator, device=self._device) - 0.5
        patches = 1.6 * ((stored + dither).clamp_min(0) / 255).square()
        low, high = self._settings.intensity
        scale = low + (high - low) * torch.rand((n, 1, 1), generator=self._generator, device=self._device)
        return (patches * scale)[:, None]
