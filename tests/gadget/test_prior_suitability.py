"""Orientation and pixel spacing of a scan against the card of its prior."""

import math
from pathlib import Path

import pytest
import torch
from test_series import context

from gadget.prior_suitability import known_planes, mismatches, tilts
from reconlib.priors.card import PriorCard
from reconlib.priors.library import find_prior, load_prior

SHIPPED = Path(__file__).parents[2] / "config" / "priors"
NORMALS = {"axial": (0.0, 0.0, 1.0), "sagittal": (-1.0, 0.0, 0.0), "coronal": (0.0, 1.0, 0.0)}


def card(**told) -> PriorCard:
    return PriorCard.model_validate(
        {
            "name": "knees",
            "version": "1.0",
            "description": "for tests",
            "architecture": {"kind": "total-variation", "epsilon": 1e-3},
            "temperature": 1.0,
            "prior_weight": {"rule": "noise"},
            "anatomy": "knee",
            "licence": "MIT",
            "input": told,
        }
    )


@pytest.mark.parametrize(
    ("text", "planes"),
    [
        (None, set()),
        ("", set()),
        ("any", set()),
        ("any plane, also axial", set()),
        ("heads, feet first", set()),
        ("axial and sagittal heads; trained in all eight orientations", {"axial", "sagittal"}),
        ("Transversal: rows left to right", {"axial"}),
        ("CORONAL, head up", {"coronal"}),
        ("coaxial cables", set()),
    ],
)
def test_planes_are_the_words_of_the_cards_text(text, planes):
    assert known_planes(text) == planes


@pytest.mark.parametrize(("plane", "normal"), NORMALS.items())
def test_a_plane_that_the_card_does_not_name_is_a_mismatch(plane, normal):
    for known in NORMALS:
        found = mismatches(card(orientation=f"{known} knees"), context(slice_dir=normal))
        assert bool(found) == (plane != known)
        if found:
            assert found[0].sentence == (
                f"the slice is {plane}, but the prior knees 1.0 was made for {known} ones"
            )
            assert found[0].remark == f"the prior does not know {plane} slices"


def test_an_oblique_slice_belongs_to_planes_up_to_45_degrees_away():
    def tilted(degrees):
        angle = math.radians(degrees)
        return context(slice_dir=(0.0, math.sin(angle), math.cos(angle)))

    axial = card(orientation="axial")
    assert not mismatches(axial, tilted(44))
    assert not mismatches(card(orientation="coronal"), tilted(46))
    (found,) = mismatches(axial, tilted(60))
    assert found.sentence == (
        "the slice is coronal, tilted by 30 degrees, but the prior knees 1.0 was made for axial ones"
    )


def test_angles_are_those_between_normals():
    found = tilts((0.0, 3.0, 3.0))
    assert found == pytest.approx({"sagittal": 90, "coronal": 45, "axial": 45})
    assert tilts((0.0, 0.0, 0.0)) is None
    assert tilts((math.nan, 0.0, 1.0)) is None


@pytest.mark.parametrize(
    ("spacing", "fits"),
    [((0.5, 3.0), True), ((3.0, 3.0), True), ((0.5, 2.95), False), ((3.1, 4.0), False), ((2.98, 3.02), True)],
)
def test_pixels_have_to_lie_in_the_cards_range(spacing, fits):
    """40 x 45 pixels on 120 x 135 mm: 3 mm."""
    found = mismatches(card(pixel_spacing_mm=spacing), context())
    assert (not found) == fits
    if found:
        assert "the pixels are 3 x 3 mm, but the prior knees 1.0 was made for" in found[0].sentence
        assert found[0].remark == "the prior does not know pixels of 3 x 3 mm"


def test_pixels_are_those_of_the_grid_that_the_prior_sees():
    interpolated = context(recon_matrix=(80, 90, 1))
    assert not mismatches(card(pixel_spacing_mm=(2.5, 3.5)), interpolated)
    (found,) = mismatches(card(pixel_spacing_mm=(2.5, 3.5)), context(grid_matrix=(40, 90)))
    assert "the pixels are 3 x 1.5 mm" in found.sentence


def test_where_the_card_says_nothing_nothing_is_warned_of():
    assert mismatches(card(), context()) == ()
    assert mismatches(card(orientation="axial"), context(slice_dir=(0.0, 0.0, 0.0))) == ()


def test_the_shipped_brain_prior_knows_axial_and_sagittal_slices_and_total_variation_any():
    brain, tv = (
        load_prior(find_prior(name, [SHIPPED]), torch.device("cpu")).card for name in ("brain-local", "tv")
    )
    found = {plane: mismatches(brain, context(slice_dir=normal)) for plane, normal in NORMALS.items()}
    assert [plane for plane, one in found.items() if one] == ["coronal"]
    assert not any(mismatches(tv, context(slice_dir=normal)) for normal in NORMALS.values())
