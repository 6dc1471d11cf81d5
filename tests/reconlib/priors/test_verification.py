"""What a verification tells: everything that was checked, and all faults at once."""

import hashlib
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.priors.card import PriorCard
from reconlib.priors.card_file import read_card
from reconlib.priors.library import write_prior
from reconlib.priors.verification import check_package, count_parameters, prior_facts

CARD = {
    "name": "small",
    "version": "1.0",
    "description": "for tests",
    "architecture": {"kind": "local", "widths": [2, 3], "input_gain": 2.0, "noise_level": 0.05},
    "temperature": 1.5,
    "prior_weight": {"rule": "noise"},
    "anatomy": "any",
    "licence": "MIT",
}
SHIPPED = Path(__file__).parents[3] / "config" / "priors"


@pytest.fixture
def package(tmp_path) -> Path:
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    write_prior(tmp_path / "small", PriorCard.model_validate(CARD), dict(network.state_dict()))
    return tmp_path / "small"


def test_a_good_package_passes_every_check(package):
    report = check_package(package)
    assert report.faults == ()
    assert report.card == read_card(package)
    assert [check.skipped for check in report.checks] == [False] * 7


def test_faults_of_card_and_weights_are_told_together(package):
    weights = package / "prior.safetensors"
    weights.write_bytes(b"pickle")
    text = yaml.safe_load((package / "card.yaml").read_text()) | {"temperature": -1, "colour": "red"}
    (package / "card.yaml").write_text(yaml.safe_dump(text))
    card_fault, weights_fault = check_package(package).faults
    assert "temperature: " in card_fault
    assert "colour: " in card_fault
    assert "is no safetensors file" in weights_fault


def test_a_wrong_hash_hides_neither_shapes_nor_infinities(package):
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 4), input_gain=2.0))
    weights = dict(network.state_dict())
    weights["stem.weight"] = torch.full_like(weights["stem.weight"], torch.inf)
    (package / "prior.safetensors").write_bytes(safetensors.torch.save(weights))
    report = check_package(package)
    assert len(report.faults) == 3
    text = " ".join(report.faults)
    for words in ("have SHA-256", "hold infinities or NaNs, in stem.weight", "do not fit"):
        assert words in text
    assert report.checks[-1].skipped


def test_missing_weights_are_a_fault(package):
    (package / "prior.safetensors").unlink()
    (fault,) = check_package(package).faults
    assert "cannot be read: No such file" in fault


def test_an_energy_that_overflows_is_a_fault(package):
    """Finite weights, but the energy of a plain image is none."""
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    weights = dict(network.state_dict())
    weights["stem_log_weight"] = torch.full_like(weights["stem_log_weight"], 200.0)
    blob = safetensors.torch.save(weights)
    (package / "prior.safetensors").write_bytes(blob)
    text = yaml.safe_load((package / "card.yaml").read_text())
    (package / "card.yaml").write_text(yaml.safe_dump(text | {"sha256": hashlib.sha256(blob).hexdigest()}))
    (fault,) = check_package(package).faults
    assert "infinities or NaNs on a plain test image" in fault


def test_facts_follow_from_the_files(package):
    # By hand: embedding 2*32+32 + 32*16+16; stem 25*2+2; modulators (16+1)*2n for n = 2, 3, 3, 3; level: down
    # 16*2*3, first and second 9*3*3, read-out 3*3, weights 3.
    n = 96 + 528 + 52 + 34 * (2 + 3 + 3 + 3) + 96 + 2 * 81 + 9 + 3
    card = read_card(package)
    assert count_parameters(card) == n
    facts = prior_facts(package, card)
    assert facts["parameters"] == f"{n:,}"
    size = (package / "prior.safetensors").stat().st_size
    assert facts["weights"] == f"{size / 1e6:.1f} MB"
    assert "2 resolutions with 2, 3 channels" in facts["architecture"]
    assert facts["density"] == "exp(-R / 1.5)"


def test_facts_of_other_architectures(tmp_path):
    paper = PriorCard.model_validate(
        CARD | {"architecture": {"kind": "paper"}, "input": {"rotation_degrees": 180, "transpose": True}}
    )
    facts = prior_facts(tmp_path, paper)
    assert facts["parameters"] == "21,350,640"
    assert facts["weights"] == "the file is missing"
    assert facts["sees the image"] == "x and y exchanged, then turned by 180 degrees"
    tv = prior_facts(SHIPPED / "total-variation", read_card(SHIPPED / "total-variation"))
    assert "parameters" not in tv
    assert "nothing is trained" in tv["architecture"]
