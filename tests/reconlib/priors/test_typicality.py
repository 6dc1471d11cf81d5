"""Words for images: when each is used, and what the shipped prior says."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from scipy import ndimage

from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior, load_prior
from reconlib.priors.typicality import Typicality, typicality, unusual_share
from reconlib.simulation.anatomy import draw_head

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sum:
    """R = sum x: linear, so it knows the sign."""

    temperature: float = 1.0

    def value(self, image):
        return image.sum(dim=(1, 2, 3))

    def value_and_gradient(self, image):
        return self.value(image), torch.ones_like(image)


def prior(percentiles: dict | None, values: str = "signed") -> Prior:
    """The sum of pixels: a flat image has the energy 0.4 per pixel where the brightness is 0.4."""
    card = PriorCard(
        name="linear",
        version="2.1",
        description="for tests",
        architecture={"kind": "total-variation", "epsilon": 0.1},
        temperature=1.0,
        input={"values": values},
        prior_weight={"rule": "noise"},
        energy_percentiles=percentiles,
        anatomy="any",
        licence="MIT",
    )
    return Prior(card, Sum())


def known(*values: float, brightness: float | None = 0.4) -> dict:
    return {
        "per_pixel": dict(zip((0, 5, 50, 95, 100), values, strict=True)),
        "noise_std": 0.0,
        "n_images": 20,
        "brightness": brightness,
    }


@pytest.mark.parametrize(
    ("values", "word", "percentile", "among", "place"),
    [
        ((0.3, 0.35, 0.4, 0.45, 0.5), "typical", 50, True, "at percentile 50 of 20 validation"),
        ((0.3, 0.41, 0.42, 0.45, 0.5), "unusual", 5 * 0.1 / 0.11, True, "at percentile 5 of"),
        ((0.2, 0.25, 0.3, 0.35, 0.45), "unusual", 97.5, True, "at percentile 98 of"),
        ((0.405, 0.41, 0.42, 0.45, 0.5), "unusual", 0, False, "below that of all"),
        ((0.415, 0.42, 0.43, 0.45, 0.5), "outside", 0, False, "below that of all 20"),
        ((0.2, 0.25, 0.3, 0.35, 0.39), "unusual", 100, False, "above that of all"),
        ((0.2, 0.25, 0.3, 0.35, 0.375), "outside", 100, False, "above that of all"),
    ],
)
def test_the_word_follows_from_the_place_among_validation_images(values, word, percentile, among, place):
    found = typicality(prior(known(*values)), torch.full((1, 1, 24, 32), 7.0))
    assert found.word == word
    assert found.energy_per_pixel == pytest.approx(0.4, rel=1e-5)
    assert found.percentile == pytest.approx(percentile, abs=0.01)
    assert found.among_validation_images is among
    assert found.sentence.startswith(f"{word}: ")
    assert "linear 2.1" in found.sentence
    assert place in found.sentence
    assert (found.region_map, found.unusual_share, found.region_side) == (None, None, None)


def test_of_a_complex_image_the_real_part_counts(generator):
    card = known(0.3, 0.35, 0.4, 0.45, 0.5)
    image = torch.complex(torch.full((1, 1, 24, 32), -7.0), torch.randn(1, 1, 24, 32, generator=generator))
    assert typicality(prior(card, "magnitude"), image).energy_per_pixel == pytest.approx(0.4, rel=1e-5)
    signed = typicality(prior(card), image)
    assert signed.energy_per_pixel == pytest.approx(-0.4, rel=1e-5)
    assert signed.word == "outside"


@pytest.mark.parametrize(
    ("percentiles", "value", "why"),
    [
        (None, 1.0, "linear 2.1 has no energies of validation images"),
        (known(0.1, 0.2, 0.3, 0.4, 0.5, brightness=None), 1.0, "energies of an older kind"),
        (known(0.1, 0.2, 0.3, 0.4, 0.5), 0.0, "no signal"),
        (known(0.1, 0.2, 0.3, 0.4, 0.5), math.nan, "infinities or NaNs"),
        (known(0.1, 0.2, 0.3, 0.4, 0.5), math.inf, "infinities or NaNs"),
    ],
)
def test_what_cannot_be_told_is_unknown(percentiles, value, why):
    found = typicality(prior(percentiles), torch.full((1, 1, 24, 32), value))
    assert found.word == "unknown"
    assert found.sentence.startswith("unknown: ")
    assert why in found.sentence
    assert math.isnan(found.energy_per_pixel)
    assert math.isnan(found.percentile)
    assert found.among_validation_images is None


def test_the_share_of_unusual_regions_counts_both_sides_and_no_air():
    regions = torch.tensor([[0.5, 1.5, 2.5], [3.5, math.nan, 2.0]])
    per_pixel = {0.0: 0.0, 1.0: 1.0, 99.0: 3.0, 100.0: 4.0}
    assert unusual_share(regions, per_pixel) == pytest.approx(2 / 5)
    assert unusual_share(torch.full((2, 2), math.nan), per_pixel) == 0


def of_shipped(image: torch.Tensor) -> Typicality:
    return typicality(load_prior(SHIPPED / "brain-local", CPU), image)


@pytest.fixture(scope="module")
def head() -> torch.Tensor:
    return draw_head((192, 168), generator=torch.Generator().manual_seed(4), contrast="t1").magnitude


def test_a_head_is_typical_of_the_shipped_prior_in_any_units(head):
    found = of_shipped(head)
    assert found.word == "typical", found.sentence
    assert found.among_validation_images
    assert found.region_side == 32
    assert found.region_map.shape == (6, 6)
    assert float(found.region_map.nanmedian()) == pytest.approx(50, abs=45)
    for scale in (1e-9, 1e6):
        scaled = of_shipped(torch.complex(scale * head, torch.zeros_like(head)))
        assert scaled.energy_per_pixel == pytest.approx(found.energy_per_pixel, rel=1e-4)
        assert scaled.word == found.word


def test_a_smeared_part_of_a_head_shows_in_its_regions(head):
    smeared = head.clone()
    smeared[0, 0, :, :70] = torch.from_numpy(ndimage.gaussian_filter(head[0, 0].numpy(), 1.5))[:, :70]
    found = of_shipped(smeared)
    assert found.percentile > 5, "the energy of the whole is usual"
    assert found.word == "unusual", found.sentence
    assert found.unusual_share > 0.15
    assert float(found.region_map[:, :2].nanmean()) < 5 < float(found.region_map[:, 3:].nanmean())


@pytest.mark.parametrize("what", ["blurred", "noisy", "noise", "discs"])
def test_what_is_no_head_is_outside(what, head, generator):
    y, x = torch.arange(192.0)[:, None] - 96, torch.arange(168.0)[None] - 84
    discs = 0.6 * (y.square() + x.square() < 70**2)
    for angle in torch.arange(6) * torch.pi / 3:
        near = (y - 40 * torch.sin(angle)).square() + (x - 40 * torch.cos(angle)).square() < 12**2
        discs = discs + 0.4 * near
    white = torch.randn(head.shape, generator=generator)
    images = {
        "blurred": torch.from_numpy(ndimage.gaussian_filter(head.numpy(), (0, 0, 3, 3))),
        "noisy": head + 0.12 * white,
        "noise": white.abs(),
        "discs": discs[None, None],
    }
    found = of_shipped(images[what])
    assert found.word == "outside", found.sentence
    assert not found.among_validation_images
    assert found.percentile == (100 if what in ("noisy", "noise") else 0)


def test_total_variation_does_not_know(head):
    found = typicality(load_prior(SHIPPED / "total-variation", CPU), head)
    assert found.word == "unknown"
    assert "total-variation" in found.sentence
