"""Prior packages: written, found, loaded, and every way in which one is refused."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.total_variation import TotalVariation
from reconlib.priors.card import PriorCard
from reconlib.priors.library import (
    PriorError,
    find_prior,
    list_priors,
    load_prior,
    read_card,
    rewrite_card,
    verify_prior,
    write_prior,
)

CPU = torch.device("cpu")
SHIPPED = Path(__file__).parents[3] / "config" / "priors"
CARD = {
    "name": "small",
    "version": "1.0",
    "description": "for tests",
    "architecture": {"kind": "local", "widths": [2, 3], "input_gain": 2.0, "noise_level": 0.05},
    "temperature": 1.5,
    "prior_weight": {"rule": "noise"},
    "anatomy": "any",
    "licence": "MIT",
    "training": {"n_updates": 3},
}


@pytest.fixture
def weights(generator) -> dict[str, torch.Tensor]:
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    return {
        name: torch.randn(value.shape, generator=generator) for name, value in network.state_dict().items()
    }


@pytest.fixture
def package(tmp_path, weights) -> Path:
    write_prior(tmp_path / "small", PriorCard.model_validate(CARD), weights)
    return tmp_path / "small"


def change_card(folder: Path, **changes: object) -> None:
    path = folder / "card.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def replace_weights(folder: Path, blob: bytes) -> None:
    """Other weights, with a hash that fits: what a careless or evil author could ship."""
    (folder / "prior.safetensors").write_bytes(blob)
    change_card(folder, sha256=hashlib.sha256(blob).hexdigest())


def test_a_package_that_is_written_is_read_back(package, weights, generator):
    prior = load_prior(package, CPU)
    blob = (package / "prior.safetensors").read_bytes()
    assert prior.card == PriorCard.model_validate(CARD | {"sha256": hashlib.sha256(blob).hexdigest()})
    assert prior.energy.temperature == 1.5
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    network.load_state_dict(weights)
    image = torch.rand(2, 1, 7, 9, generator=generator)
    expected = network(image, torch.tensor([0.05])).detach()
    torch.testing.assert_close(prior.energy.value(image), expected)
    assert verify_prior(package) == prior.card


def test_a_package_is_never_overwritten(package, weights):
    with pytest.raises(FileExistsError):
        write_prior(package, PriorCard.model_validate(CARD), weights)


def test_all_faults_of_a_card_are_named(package):
    change_card(package, temperature=-1.0, colour="red", name="No Good", prior_weight={"rule": "magic"})
    with pytest.raises(PriorError) as caught:
        read_card(package)
    text = str(caught.value)
    assert str(package / "card.yaml") in text
    for word in ("temperature: ", "colour: ", "name: ", "prior_weight.rule: "):
        assert word in text


@pytest.mark.parametrize("content", ["[1, 2]", "", "just text"])
def test_a_card_that_is_no_mapping_is_refused(package, content):
    (package / "card.yaml").write_text(content)
    with pytest.raises(PriorError, match="is no valid card"):
        read_card(package)


@pytest.mark.parametrize("content", [b"a: [1", b"\xff\xfe\x00", b"!!python/object/apply:os.getcwd []"])
def test_a_card_that_is_no_plain_yaml_is_refused(package, content):
    (package / "card.yaml").write_bytes(content)
    with pytest.raises(PriorError, match="cannot be read as YAML"):
        read_card(package)


def test_a_card_of_absurd_size_is_refused(package):
    (package / "card.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(PriorError, match="that is no card"):
        read_card(package)


def test_weights_that_were_changed_are_refused(package):
    path = package / "prior.safetensors"
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(blob)
    with pytest.raises(PriorError, match=r"have SHA-256 [0-9a-f]{64}, but the card of 'small' names"):
        verify_prior(package)


def test_a_card_without_hash_is_not_trusted(package):
    change_card(package, sha256=None)
    with pytest.raises(PriorError, match="has no sha256"):
        load_prior(package, CPU)


def test_missing_weights_are_named(package):
    (package / "prior.safetensors").unlink()
    with pytest.raises(PriorError, match=r"the weights .*prior\.safetensors cannot be read"):
        load_prior(package, CPU)


class _Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_a_pickle_in_place_of_safetensors_is_refused_and_not_executed(package, tmp_path):
    replace_weights(package, pickle.dumps(_Bomb(tmp_path / "executed")))
    with pytest.raises(PriorError, match="is no safetensors file"):
        load_prior(package, CPU)
    assert not (tmp_path / "executed").exists()


def test_weights_of_another_architecture_are_refused(package, weights):
    weights["stem.weight"] = torch.zeros(2, 1, 3, 3)
    replace_weights(package, safetensors.torch.save(weights))
    with pytest.raises(PriorError, match=r"do not fit the card's architecture; differences at stem\.weight"):
        load_prior(package, CPU)


def test_missing_and_unknown_weights_are_refused(package, weights):
    weights["other"] = weights.pop("stem_log_weight")
    replace_weights(package, safetensors.torch.save(weights))
    with pytest.raises(PriorError, match="do not fit the card's architecture; differences at other"):
        load_prior(package, CPU)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(package, weights, value):
    weights["stem.weight"][0, 0, 2, 2] = value
    replace_weights(package, safetensors.torch.save(weights))
    with pytest.raises(PriorError, match="hold infinities or NaNs"):
        load_prior(package, CPU)


def test_priors_are_found_by_name_and_by_folder(package, monkeypatch):
    assert find_prior("small", [package.parent / "nowhere", package.parent]) == package
    assert find_prior(str(package), []) == package
    monkeypatch.chdir(package.parent)
    assert find_prior("./small", []).resolve() == package


def test_the_first_place_that_has_a_name_wins(tmp_path, weights):
    write_prior(tmp_path / "small", PriorCard.model_validate(CARD), weights)
    write_prior(tmp_path / "second" / "small", PriorCard.model_validate(CARD), weights)
    assert find_prior("small", [tmp_path / "second", tmp_path]) == tmp_path / "second" / "small"


def test_an_unknown_name_lists_the_known_ones(package):
    with pytest.raises(PriorError, match="no prior named 'smal'; known are small"):
        find_prior("smal", [package.parent])
    with pytest.raises(PriorError, match="known are none"):
        find_prior("smal", [])


def test_a_folder_without_card_is_no_prior(tmp_path):
    with pytest.raises(PriorError, match=r"has no card\.yaml"):
        find_prior(str(tmp_path), [])


def test_tv_is_short_for_the_shipped_total_variation():
    folder = find_prior("tv", [SHIPPED])
    assert folder == SHIPPED / "total-variation"
    prior = load_prior(folder, CPU)
    assert isinstance(prior.energy, TotalVariation)
    assert prior.energy.epsilon == 1e-3
    assert prior.energy.temperature == prior.card.temperature


def test_every_shipped_prior_verifies_under_its_own_name():
    listed = list_priors([SHIPPED])
    assert {"total-variation"} <= {one.name for one in listed}
    for one in listed:
        assert one.card is not None, one.fault
        assert one.name == one.folder.name == one.card.name
        assert verify_prior(one.folder) == one.card


def test_listing_shows_each_name_once(package, tmp_path, weights):
    other = PriorCard.model_validate(CARD | {"version": "2.0"})
    write_prior(tmp_path / "second" / "small", other, weights)
    listed = list_priors([tmp_path, tmp_path / "second", tmp_path / "nowhere"])
    assert [(one.folder, one.card.version) for one in listed if one.card] == [(package, "1.0")]


@pytest.mark.usefixtures("package")
def test_a_broken_package_does_not_hide_the_others(tmp_path, weights):
    for name in ("a", "b", "c"):
        write_prior(tmp_path / name, PriorCard.model_validate(CARD), weights)
    change_card(tmp_path / "a", temperature="hot")
    (tmp_path / "b" / "card.yaml").unlink()
    (tmp_path / "c" / "card.yaml").unlink()
    (tmp_path / "c" / "card.yaml").mkdir()
    (tmp_path / "no package").mkdir()
    (tmp_path / ".hidden").mkdir()
    faults = {one.name: one.fault for one in list_priors([tmp_path])}
    assert set(faults) == {"a", "b", "c", "small"}
    assert faults["small"] == ""
    assert "temperature: Input should be a valid number" in faults["a"]
    assert "cannot be read: No such file" in faults["b"]
    assert "is no regular file" in faults["c"]
    with pytest.raises(PriorError, match="known are small"):
        find_prior("other", [tmp_path])


@pytest.mark.usefixtures("package")
def test_a_place_that_cannot_be_read_is_listed_as_that(tmp_path, monkeypatch):
    real = Path.iterdir

    def iterdir(path):
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    listed = list_priors([tmp_path / "locked", tmp_path])
    assert [(one.name, one.fault) for one in listed] == [
        (str(tmp_path / "locked"), "Permission denied"),
        ("small", ""),
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: &a [l, l]\nb: &b [*a, *a]\nc: &c [*b, *b]", "aliases"),
        ("a: &x {k: 1}\nb: {<<: *x}", "aliases"),
        ("[" * 500 + "]" * 500, "nested more than 20 deep"),
        ("name: a\nversion: '1.0'\nname: b", "the key 'name' stands there twice"),
        ("number: " + "9" * 5000, "cannot be read as YAML"),
        ("date: 2020-99-99", "cannot be read as YAML"),
    ],
    ids=["alias", "bomb", "merge", "deep", "twice", "digits", "date"],
)
def test_a_card_of_hostile_yaml_is_refused(package, content, fault):
    (package / "card.yaml").write_text(content)
    with pytest.raises(PriorError, match=fault):
        read_card(package)


@pytest.mark.parametrize("value", [".inf", ".nan", "-.inf"])
def test_a_card_with_numbers_that_are_not_finite_is_refused(package, value):
    change_card(package, temperature=float(value.replace(".", "")))
    with pytest.raises(PriorError, match="temperature: "):
        read_card(package)


def test_absurd_widths_are_refused_before_memory_is_taken(package):
    change_card(package, architecture=CARD["architecture"] | {"widths": [10**9, 10**9]})
    with pytest.raises(PriorError, match=r"architecture\.local\.widths\.0: Input should be less than"):
        load_prior(package, CPU)


def test_large_widths_are_compared_with_the_weights_before_memory_is_taken(package):
    """Eight resolutions of 4096 channels would need 13 GB."""
    change_card(package, architecture=CARD["architecture"] | {"widths": [4096] * 8})
    with pytest.raises(PriorError, match=r"do not fit .* stem\.weight|do not fit .* levels"):
        load_prior(package, CPU)


def test_weights_of_another_type_are_refused(package, weights):
    weights["stem.weight"] = weights["stem.weight"].half()
    replace_weights(package, safetensors.torch.save(weights))
    with pytest.raises(PriorError, match=r"need to be float32, but stem\.weight \(torch\.float16\) is not"):
        load_prior(package, CPU)


def test_a_header_that_promises_more_than_there_is_is_refused(package):
    header = b'{"stem.weight":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'
    replace_weights(package, len(header).to_bytes(8, "little") + header)
    with pytest.raises(PriorError, match="is no safetensors file"):
        load_prior(package, CPU)


@pytest.mark.parametrize("name", ["card.yaml", "prior.safetensors"])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(package, name):
    (package / name).unlink()
    os.mkfifo(package / name)
    with pytest.raises(PriorError, match="is no regular file"):
        load_prior(package, CPU)


def test_weights_of_absurd_size_are_refused_unread(package):
    with (package / "prior.safetensors").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no space on the disk
    with pytest.raises(PriorError, match="no prior is that large"):
        load_prior(package, CPU)


def test_the_network_comes_with_the_prior_and_sees_the_image_turned(package, weights, generator):
    change_card(package, input={"transpose": True, "rotation_degrees": 90})
    turned = load_prior(package, CPU)
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    network.load_state_dict(weights)
    assert turned.network is not None
    assert turned.network.state_dict().keys() == weights.keys()
    image = torch.rand(1, 1, 7, 9, generator=generator)
    seen = torch.from_numpy(np.rot90(image[0, 0].numpy().T).copy())[None, None]
    expected = network(seen, torch.tensor([0.05])).detach()
    torch.testing.assert_close(turned.energy.value(image), expected)
    plain = network(image, torch.tensor([0.05])).detach()
    assert abs(float(expected - plain)) > 1e-3 * float(expected)


def test_a_card_is_rewritten_and_the_weights_stay(package):
    blob = (package / "prior.safetensors").read_bytes()
    card = read_card(package)
    weight = card.prior_weight.model_copy(update={"factor": 1.7, "fitted_on": "three scans"})
    rewrite_card(package, card.model_copy(update={"prior_weight": weight}))
    assert read_card(package).prior_weight.factor == 1.7
    assert load_prior(package, CPU).card.prior_weight.fitted_on == "three scans"
    assert (package / "prior.safetensors").read_bytes() == blob
    assert sorted(path.name for path in package.iterdir()) == ["card.yaml", "prior.safetensors"]


def test_a_card_of_other_weights_or_out_of_range_is_not_written(package):
    before = (package / "card.yaml").read_bytes()
    card = read_card(package)
    with pytest.raises(PriorError, match="only what the card says of the same weights can be rewritten"):
        rewrite_card(package, card.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(PriorError, match="is no valid card: temperature"):
        rewrite_card(package, card.model_copy(update={"temperature": -1.0}))
    assert (package / "card.yaml").read_bytes() == before


def test_a_write_that_fails_leaves_the_old_card(package, monkeypatch):
    before = (package / "card.yaml").read_bytes()

    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    card = read_card(package)
    with pytest.raises(PriorError, match="cannot be written: No space left"):
        rewrite_card(package, card.model_copy(update={"version": "9.9"}))
    assert (package / "card.yaml").read_bytes() == before
    assert len(list(package.iterdir())) == 2


def test_a_new_package_that_cannot_be_written_leaves_nothing(tmp_path, weights, monkeypatch):
    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PriorError, match="No space left"):
        write_prior(tmp_path / "small", PriorCard.model_validate(CARD), weights)
    assert list(tmp_path.iterdir()) == []
