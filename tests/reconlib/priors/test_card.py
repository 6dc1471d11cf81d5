"""What a card may say."""

import pytest
from pydantic import ValidationError

from reconlib.priors.card import PriorCard
from reconlib.priors.card_file import card_text, parse_card

SMALLEST = {
    "name": "small",
    "version": "1.0",
    "description": "for tests",
    "architecture": {"kind": "local", "widths": [2, 3], "input_gain": 2.0, "noise_level": 0.05},
    "temperature": 2.8125e-5,
    "prior_weight": {"rule": "noise"},
    "anatomy": "any",
    "licence": "MIT",
}
FULL = SMALLEST | {
    "gradient_noise_std": 7.5e-3,
    "image_phase": "real",
    "input": {
        "matrix": [256, 208],
        "transpose": True,
        "rotation_degrees": 180,
        "orientation": "axial, rows run from front to back",
        "scaling": "maximum",
        "pixel_spacing_mm": [0.5, 1.2],
    },
    "prior_weight": {
        "rule": "fit",
        "intercept": 1e-4,
        "slope": 0.1,
        "coil_smoothness": 0.3,
        "fitted_on": "7 simulated scans",
    },
    "energy_percentiles": {
        "per_pixel": {0: -0.5, 50: 0.25, 100: 1.5},
        "noise_std": 0.015,
        "n_images": 180,
        "brightness": 0.4,
        "resolutions": [1.0, 0.75],
        "regions": {"side": 32, "per_pixel": {0: 0.1, 100: 2}, "unusual_share": {50: 0.0, 100: 0.3}},
    },
    "posterior": {
        "std_factor": 1.1,
        "fitted_on": "20 simulated scans",
        "coverage": {"90 %": {"before": 0.8, "after": 0.9}},
    },
    "contrasts": ["T1", "T2"],
    "training": {
        "data": [{"source": "somewhere", "licence": "CC0", "subjects": 7, "images": 120}],
        "objective": "maximum-likelihood",
        "settings": {"n_updates": 5, "nested": {"noise_range": [0.006, 0.2]}},
        "hardware": "two CPU cores",
        "hours": 1.5,
        "n_updates": 5,
        "command": "gadgetron-ebm train x.yaml",
        "torch": "2.6",
        "note": "déjà vu",
    },
    "validation": {"psnr": 40.1},
    "sha256": "0" * 64,
}


@pytest.mark.parametrize("content", [SMALLEST, FULL], ids=["smallest", "full"])
def test_a_card_survives_being_written_and_read(content):
    card = PriorCard.model_validate(content)
    assert parse_card(card_text(card).encode(), "card") == card


def test_keys_of_percentiles_are_numbers_again():
    card = parse_card(card_text(PriorCard.model_validate(FULL)).encode(), "card")
    assert card.energy_percentiles is not None
    assert card.energy_percentiles.per_pixel == {0.0: -0.5, 50.0: 0.25, 100.0: 1.5}


def test_what_is_not_said_has_plain_defaults():
    card = PriorCard.model_validate(SMALLEST)
    assert card.input.matrix == "any"
    assert (card.input.transpose, card.input.rotation_degrees) == (False, 0)
    assert card.input.pixel_spacing_mm is None
    assert card.energy_percentiles is None
    assert card.posterior is None
    assert card.training.data == ()


def test_short_forms_of_training_are_read():
    content = SMALLEST | {"training": {"data": ["a set, CC0"], "device": "a GPU"}}
    training = PriorCard.model_validate(content).training
    assert training.data[0].source == "a set, CC0"
    assert training.hardware == "a GPU"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"input": {"matrix": [256]}}, r"input\.matrix"),
        ({"input": {"matrix": [0, 256]}}, r"input\.matrix"),
        ({"input": {"rotation_degrees": 45}}, r"input\.rotation_degrees"),
        ({"input": {"pixel_spacing_mm": [1.2, 0.5]}}, "smallest first"),
        ({"input": {"scaling": "loud"}}, r"input\.scaling"),
        ({"energy_percentiles": {"per_pixel": {5: 2.0, 95: 1.0}, "noise_std": 0.0, "n_images": 3}},
         "rise with the percentile"),
        ({"energy_percentiles": {"per_pixel": {101: 2.0}, "noise_std": 0.0, "n_images": 3}}, "per_pixel"),
        ({"energy_percentiles": {"per_pixel": {}, "noise_std": 0.0, "n_images": 3}}, "per_pixel"),
        ({"energy_percentiles": {"per_pixel": {5: 1.0}, "noise_std": 0.0, "n_images": 3, "brightness": 0}},
         "brightness"),
        ({"energy_percentiles": {"per_pixel": {5: 1.0}, "noise_std": 0.0, "n_images": 3,
                                 "regions": {"side": 32, "per_pixel": {5: 2.0, 95: 1.0},
                                             "unusual_share": {5: 0}}}},
         "rise with the percentile"),
        ({"posterior": {"std_factor": 0.0}}, r"posterior\.std_factor"),
        ({"training": {"hours": -1}}, r"training\.hours"),
        ({"training": {"data": [{"licence": "CC0"}]}}, r"training\.data\.0\.source"),
        ({"training": {"colour": "red"}}, r"training\.colour"),
        ({"prior_weight": {"rule": "fixed"}}, r"prior_weight\.rule"),
        ({"architecture": {"kind": "module", "path": "evil.py"}}, "architecture"),
        ({"name": "a" * 101}, "name"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)  # fmt: skip
def test_what_makes_no_sense_is_refused(changes, fault):
    with pytest.raises(ValidationError, match=fault):
        PriorCard.model_validate(SMALLEST | changes)


def test_no_alias_is_written_where_a_value_is_shared():
    shared = ["a", "b"]
    content = SMALLEST | {"validation": {"one": shared, "two": shared}}
    text = card_text(PriorCard.model_validate(content))
    assert "*" not in text
    assert parse_card(text.encode(), "card").validation == {"one": ["a", "b"], "two": ["a", "b"]}
