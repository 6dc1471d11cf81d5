"""Training patches: what is in the archive is in the patches, and nothing else."""

import re

import numpy as np
import pytest
import torch

from reconlib.training.datasets import DataError, ImageArchive, PatchSampler, decode, fourier_crop
from reconlib.training.settings import DataSettings


def sampler(images: torch.Tensor, seed: int = 0, **settings) -> PatchSampler:
    generator = torch.Generator().manual_seed(seed)
    chosen = DataSettings(**{"patch": 32, "fourier_crop": (40,), "intensity": (1.0, 1.0), **settings})
    return PatchSampler(images, chosen, device=torch.device("cpu"), generator=generator)


def images(n: int = 3, side: int = 40) -> torch.Tensor:
    """Distinct pixels in every image: a patch can be placed without doubt."""
    rng = np.random.default_rng(2)
    return torch.from_numpy(rng.integers(1, 200, (n, side, side)).astype(np.uint8))


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_stored_values_are_square_roots():
    assert decode(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.04, 1])


@pytest.mark.parametrize(("n", "matrix"), [(16, 12), (16, 11), (15, 12), (15, 9), (16, 16)])
def test_fourier_crop_keeps_the_middle_of_kspace(n, matrix, generator):
    image = 5 + torch.rand(2, n, n, generator=generator)
    # the frequencies that are kept, from the definition of the transform
    frequencies = np.arange(matrix) - matrix // 2
    forward = np.exp(-2j * np.pi * np.outer(frequencies, np.arange(n)) / n)
    backward = np.exp(2j * np.pi * np.outer(np.arange(matrix), frequencies) / matrix)
    kspace = forward @ image.double().numpy() @ forward.T
    expected = np.abs(backward @ kspace @ backward.T) / n**2
    np.testing.assert_allclose(fourier_crop(image, matrix).numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize(("n", "matrix"), [(16, 12), (15, 12), (16, 11)])
def test_fourier_crop_keeps_a_constant(n, matrix):
    found = fourier_crop(torch.full((1, n, n), 0.7), matrix)
    torch.testing.assert_close(found, torch.full((1, matrix, matrix), 0.7))


def test_patches_are_pieces_of_the_images_in_all_eight_symmetries():
    stored = images()
    quantile = torch.quantile(decode(stored).flatten(1), 0.9995, dim=1)
    intensities = decode(stored) / quantile[:, None, None]
    seen = set()
    drawn = sampler(stored).draw(160)
    assert drawn.shape == (160, 1, 32, 32)
    for patch in drawn[:, 0]:
        found = []
        for symmetry in range(8):
            turned = torch.rot90(patch, symmetry % 4)
            turned = turned.flip(1) if symmetry >= 4 else turned
            for index, image in enumerate(intensities):
                windows = image.unfold(0, 32, 1).unfold(1, 32, 1)
                error = (windows - turned).abs().amax(dim=(2, 3))
                # half a grey level of the stored square root, and half of dither
                found += [(index, symmetry)] * int((error < 0.015).sum())
        assert len(found) == 1
        seen.add(found[0])
    assert {symmetry for _, symmetry in seen} == set(range(8))
    assert {index for index, _ in seen} == {0, 1, 2}


def test_the_intensity_is_drawn_from_its_range():
    flat = torch.full((2, 40, 40), 128, dtype=torch.uint8)
    means = sampler(flat, intensity=(0.4, 1.3)).draw(200).mean(dim=(1, 2, 3))
    assert 0.39 < float(means.min()) < 0.45
    assert 1.25 < float(means.max()) < 1.32


def test_patches_are_never_negative():
    assert float(sampler(torch.zeros(1, 40, 40, dtype=torch.uint8)).draw(20).min()) >= 0


def test_patches_follow_the_seed():
    first, same, other = (sampler(images(), seed).draw(5) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("matrix", [31, 41])
def test_a_matrix_must_lie_between_patch_and_image(matrix):
    with pytest.raises(DataError, match=rf"fourier_crop {matrix} must lie between the patch \(32\)"):
        sampler(images(), fourier_crop=(matrix,))


VALIDATION = np.array([False, True, False])


def test_an_archive_is_split_into_training_and_validation(tmp_path):
    stored = images().numpy()
    path = save(tmp_path / "a.npz", image_sqrt_u8=stored, validation=VALIDATION)
    archive = ImageArchive.load(path)
    assert np.array_equal(archive.training.numpy(), stored[[0, 2]])
    assert np.array_equal(archive.validation.numpy(), stored[[1]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"validation": VALIDATION}, "has no image_sqrt_u8 (it has validation)"),
        ({"image_sqrt_u8": images().numpy()}, "has no validation (it has image_sqrt_u8)"),
        ({"image_sqrt_u8": images().float().numpy(), "validation": VALIDATION}, "is float32 of shape"),
        ({"image_sqrt_u8": images().numpy()[:, 1:], "validation": VALIDATION}, "needs square uint8 images"),
        ({"image_sqrt_u8": images().numpy(), "validation": VALIDATION[:2]}, "validation has shape (2,)"),
        ({"image_sqrt_u8": images().numpy(), "validation": np.zeros(3, bool)}, "marks 0 of 3 images"),
        ({"image_sqrt_u8": images().numpy(), "validation": np.ones(3, bool)}, "marks 3 of 3 images"),
        (
            {"image_sqrt_u8": images().numpy().astype(object), "validation": VALIDATION},
            "cannot be read as a .npz archive of images",
        ),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(tmp_path, arrays, message):
    with pytest.raises(DataError, match=re.escape(message)):
        ImageArchive.load(save(tmp_path / "a.npz", **arrays))


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no zip")
    for name in ("a.npz", "missing.npz"):
        with pytest.raises(DataError, match=r"cannot be read as a \.npz archive"):
            ImageArchive.load(tmp_path / name)
