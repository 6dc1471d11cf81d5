"""Training patches: what is in the images is in the patches, and nothing else."""

import math
import re

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats

from reconlib.training.patches import PatchError, PatchSampler, fourier_crop, smooth_fields
from reconlib.training.settings import DataSettings


def sampler(images: torch.Tensor, seed: int = 0, **settings) -> PatchSampler:
    generator = torch.Generator().manual_seed(seed)
    chosen = DataSettings(**{"patch": 32, "resolutions": (1.0,), "intensity": (1.0, 1.0), **settings})
    return PatchSampler(images, chosen, device=torch.device("cpu"), generator=generator)


def images(n: int = 3, height: int = 40, width: int = 44) -> torch.Tensor:
    """Distinct pixels in every image: a patch can be placed without doubt."""
    rng = np.random.default_rng(2)
    return torch.from_numpy(rng.uniform(0.01, 1.2, (n, height, width))).half()


@pytest.mark.parametrize(("n", "matrix"), [(16, 12), (16, 11), (15, 12), (15, 9), (16, 16)])
def test_fourier_crop_keeps_the_middle_of_kspace(n, matrix, generator):
    shape, target = (n, n + 3), (matrix, matrix + 2)
    image = 5 + torch.rand(2, *shape, generator=generator)

    # the frequencies that are kept, from the definition of the transform
    def transforms(full: int, cut: int):
        frequencies = np.arange(cut) - cut // 2
        forward = np.exp(-2j * np.pi * np.outer(frequencies, np.arange(full)) / full)
        return forward, np.exp(2j * np.pi * np.outer(np.arange(cut), frequencies) / cut) / full

    (forward_y, back_y), (forward_x, back_x) = map(transforms, shape, target)
    expected = np.abs(back_y @ (forward_y @ image.double().numpy() @ forward_x.T) @ back_x.T)
    np.testing.assert_allclose(fourier_crop(image, target).numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize(("n", "matrix"), [(16, 12), (15, 12), (16, 11)])
def test_fourier_crop_keeps_a_constant(n, matrix):
    found = fourier_crop(torch.full((1, n, n + 1), 0.7), (matrix, matrix))
    torch.testing.assert_close(found, torch.full((1, matrix, matrix), 0.7))


@pytest.mark.parametrize(("symmetries", "expected"), [("all", 8), ("flips", 4), ("none", 1)])
def test_patches_are_pieces_of_the_images_in_the_chosen_symmetries(symmetries, expected):
    stored = images()
    seen = set()
    drawn = sampler(stored, symmetries=symmetries).draw(100)
    assert drawn.shape == (100, 1, 32, 32)
    for patch in drawn[:, 0]:
        found = []
        for symmetry in range(8):
            turned = torch.rot90(patch, symmetry % 4)
            turned = turned.flip(1) if symmetry >= 4 else turned
            for index, image in enumerate(stored.float()):
                windows = image.unfold(0, 32, 1).unfold(1, 32, 1)
                # one pixel of random values, and then the whole patch, tells the place
                candidates = (windows[..., 5, 7] == turned[5, 7]).nonzero()
                found += [(index, symmetry) for a, b in candidates if torch.equal(windows[a, b], turned)]
        assert len(found) == 1
        seen.add(found[0])
    assert len({symmetry for _, symmetry in seen}) == expected
    assert {index for index, _ in seen} == {0, 1, 2}


def test_whole_images_need_no_square():
    stored = images()
    drawn = sampler(stored, patch=None, resolutions=(0.1,), symmetries="flips").draw(20)
    assert drawn.shape == (20, 1, 40, 44)
    flipped = torch.cat([stored, stored.flip(1), stored.flip(2), stored.flip(1, 2)]).float()
    assert all(bool((flipped == one).all(dim=(1, 2)).any()) for one in drawn[:, 0])


def test_whole_images_that_are_not_square_are_not_turned():
    with pytest.raises(PatchError, match=r"40 x 44 pixels cannot be turned .* set data.symmetries to flips"):
        sampler(images(), patch=None)


def test_resolutions_are_fractions_of_the_matrix_with_equal_chance():
    stored = images(2, 48, 64)
    seen = {1.0: 0, 0.75: 0}
    whole = {
        fraction: fourier_crop(stored.float(), (round(48 * fraction), round(64 * fraction))).half().float()
        for fraction in seen
    }
    chosen = sampler(stored, resolutions=(1.0, 0.75), symmetries="none")
    for _ in range(200):
        pair = chosen.draw(1)[0, 0, 3, 4:6]
        (found,) = [
            fraction
            for fraction, every in whole.items()
            if bool(((every[..., :-1] == pair[0]) & (every[..., 1:] == pair[1])).any())
        ]
        seen[found] += 1
    assert stats.binomtest(seen[0.75], 200, 0.5).pvalue > 1e-4


def test_the_intensity_is_drawn_log_uniformly_from_its_range():
    means = sampler(torch.full((2, 40, 40), 0.5).half(), intensity=(0.4, 2.2)).draw(500).mean(dim=(1, 2, 3))
    drawn = (means / 0.5).log().numpy()
    uniform = stats.uniform(math.log(0.4), math.log(2.2) - math.log(0.4))
    assert stats.kstest(drawn, uniform.cdf).pvalue > 1e-3


def test_smooth_fields_have_variance_1_and_their_correlation_length(generator):
    lengths = torch.tensor([2.0, 4.0, 8.0]).repeat_interleave(400)
    fields = smooth_fields((64, 72), lengths, generator).view(3, 400, 64, 72)
    for length, field in zip((2, 4, 8), fields, strict=True):
        # 4608 pixels of about 4 pi l^2 / 2 correlated ones, 400 fields
        error = 5 * (2 * 2 * math.pi * length**2 / (400 * 64 * 72)) ** 0.5
        assert float(field.square().mean()) == pytest.approx(1, abs=error)
        for axis in (1, 2):
            found = float((field * field.roll(length, axis)).mean())
            assert found == pytest.approx(math.exp(-0.5), abs=error)


def test_the_chosen_share_of_patches_has_regions_of_turned_sign():
    flat = torch.ones(1, 64, 64).half()
    drawn = sampler(flat, patch=64, signed=0.5).draw(400)
    plain = (drawn == 1).all(dim=3).all(dim=2).flatten()
    assert stats.binomtest(int(plain.sum()), 400, 0.5).pvalue > 1e-4
    signed = drawn[~plain]
    assert float(signed.abs().max()) <= 1
    assert float(signed.max()) > 0.9
    assert float(signed.min()) < -0.9
    # tau is uniform in 0.7 to 2.2, so the share of negative pixels is the mean of P(h > tau)
    expected = float(np.mean(stats.norm.sf(np.linspace(0.7, 2.2, 1001))))
    assert float((signed < 0).float().mean()) == pytest.approx(expected, abs=0.04)
    # connected: where the sign turns, neighbours mostly agree
    agree = (signed[..., 1:].sign() == signed[..., :-1].sign()).float().mean()
    assert float(agree) > 0.9
    assert not bool((sampler(flat, patch=64).draw(50) != 1).any()), "by default signs stay"


def test_patches_follow_the_state_of_the_generator():
    chosen = {"signed": 0.5, "intensity": (0.5, 2.0), "resolutions": (1.0, 0.9)}
    first, same, other = (sampler(images(), seed, **chosen).draw(5) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_a_resolution_must_leave_room_for_a_patch():
    message = "images of 40 x 44 pixels cut to the resolution 0.75 are 30 x 33, less than data.patch (32)"
    with pytest.raises(PatchError, match=re.escape(message)):
        sampler(images(), resolutions=(1.0, 0.75))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"intensity": (2.0, 1.0)}, r"intensity is a range low, high; found \[2.0, 1.0\]"),
        ({"patch": 32, "margin": 16}, "a patch of 32 pixels has nothing inside a margin of 16"),
        ({"resolutions": (1.5,)}, "resolutions"),
        ({"signed": 1.5}, "signed"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        DataSettings(**wrong)
