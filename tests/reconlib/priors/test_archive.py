"""A prior as one file: packed, installed, and every way in which an archive is refused."""

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest
import torch
import yaml

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.priors.archive import install_prior, pack_prior
from reconlib.priors.card import PriorCard
from reconlib.priors.library import PriorError, find_prior, load_prior, read_card, write_prior

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
def package(tmp_path, generator) -> Path:
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    weights = {
        name: torch.randn(value.shape, generator=generator) for name, value in network.state_dict().items()
    }
    write_prior(tmp_path / "small", PriorCard.model_validate(CARD), weights)
    return tmp_path / "small"


def zipped(path: Path, entries: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(name, content)
    return path


def contents(package: Path) -> list[tuple[str, bytes]]:
    return [(name, (package / name).read_bytes()) for name in ("card.yaml", "prior.safetensors")]


def test_a_packed_prior_is_installed_and_found_by_name(package, tmp_path):
    packed = pack_prior(package, tmp_path / "small.zip")
    folder, card = install_prior(tmp_path / "small.zip", tmp_path / "mine" / "priors")
    assert card == packed == read_card(package)
    assert folder == find_prior("small", [tmp_path / "mine" / "priors"])
    image = torch.rand(1, 1, 9, 8)
    device = torch.device("cpu")
    found, expected = (load_prior(one, device).energy.value(image) for one in (folder, package))
    assert torch.equal(found, expected)
    assert [path.name for path in folder.parent.iterdir()] == ["small"]


def test_the_archive_is_a_plain_zip_file_and_always_the_same(package, tmp_path):
    pack_prior(package, tmp_path / "a.zip")
    for path in package.iterdir():
        path.touch()
    pack_prior(package, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert file.testzip() is None
        assert [(one.filename, file.read(one)) for one in file.infolist()] == contents(package)


def test_total_variation_is_packed_without_weights(tmp_path):
    pack_prior(SHIPPED / "total-variation", tmp_path / "tv.zip")
    with zipfile.ZipFile(tmp_path / "tv.zip") as file:
        assert file.namelist() == ["card.yaml"]
    folder, _ = install_prior(tmp_path / "tv.zip", tmp_path / "priors")
    assert folder.name == "total-variation"


def test_a_faulty_package_is_not_packed(package, tmp_path):
    weights = package / "prior.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(PriorError, match=r"is not packed, it is faulty: .* have SHA-256"):
        pack_prior(package, tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.parametrize("name", ["card.yaml", "prior.safetensors"])
def test_a_link_is_not_packed(package, tmp_path, name):
    (package / name).rename(tmp_path / name)
    (package / name).symlink_to(tmp_path / name)
    with pytest.raises(PriorError, match=f"{name} is a link"):
        pack_prior(package, tmp_path / "out.zip")


def test_no_file_is_overwritten_by_packing(package, tmp_path):
    (tmp_path / "out.zip").write_text("mine")
    with pytest.raises(PriorError, match=r"out\.zip exists"):
        pack_prior(package, tmp_path / "out.zip")
    assert (tmp_path / "out.zip").read_text() == "mine"


def test_an_installed_prior_is_replaced_only_on_request(package, tmp_path):
    pack_prior(package, tmp_path / "one.zip")
    install_prior(tmp_path / "one.zip", tmp_path / "priors")
    text = yaml.safe_load((package / "card.yaml").read_text()) | {"version": "2.0"}
    (package / "card.yaml").write_text(yaml.safe_dump(text))
    pack_prior(package, tmp_path / "two.zip")
    with pytest.raises(PriorError, match=r"there is a prior 'small' .* already"):
        install_prior(tmp_path / "two.zip", tmp_path / "priors")
    assert read_card(tmp_path / "priors" / "small").version == "1.0"
    install_prior(tmp_path / "two.zip", tmp_path / "priors", replace=True)
    assert read_card(tmp_path / "priors" / "small").version == "2.0"
    assert [path.name for path in (tmp_path / "priors").iterdir()] == ["small"]


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "small/card.yaml", "CARD.YAML", "run.py", "card.yaml/", "..\\evil"],
)
def test_other_names_are_refused(package, tmp_path, name):
    path = zipped(tmp_path / "evil.zip", [*contents(package), (name, b"x")])
    with pytest.raises(PriorError, match=r"is no archive of a prior: it holds .* nothing else"):
        install_prior(path, tmp_path / "priors")
    assert not (tmp_path / "priors").exists()
    assert not (tmp_path / "evil").exists()


def test_an_archive_without_card_or_with_two_is_refused(package, tmp_path):
    card, weights = contents(package)
    with pytest.raises(PriorError, match="is no archive of a prior"):
        install_prior(zipped(tmp_path / "none.zip", [weights]), tmp_path / "priors")
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = zipped(tmp_path / "two.zip", [card, card, weights])
    with pytest.raises(PriorError, match="is no archive of a prior"):
        install_prior(path, tmp_path / "priors")


def test_a_link_in_an_archive_is_refused(package, tmp_path):
    link = zipfile.ZipInfo("prior.safetensors")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = zipped(tmp_path / "link.zip", [contents(package)[0], (link, b"/etc/passwd")])
    with pytest.raises(PriorError, match=r"prior\.safetensors in .* is a link or a device"):
        install_prior(path, tmp_path / "priors")


def test_what_unpacks_to_more_than_it_may_is_refused(tmp_path):
    """Ten megabytes of one letter: ten kilobytes in the archive."""
    path = zipped(tmp_path / "bomb.zip", [("card.yaml", b"#" * 10_000_000)])
    assert path.stat().st_size < 20_000
    with pytest.raises(PriorError, match=r"card\.yaml in .* is larger than 1048576 bytes"):
        install_prior(path, tmp_path / "priors")


def test_an_archive_of_absurd_size_is_refused_unread(tmp_path):
    with (tmp_path / "huge.zip").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PriorError, match="no archive of a prior is that large"):
        install_prior(tmp_path / "huge.zip", tmp_path / "priors")


def test_a_size_that_the_archive_lies_about_is_refused(package, tmp_path):
    path = zipped(tmp_path / "lie.zip", contents(package))
    blob = bytearray(path.read_bytes())
    central = blob.index(b"PK\x01\x02")
    blob[central + 24 : central + 28] = (5).to_bytes(4, "little")  # the card's size
    path.write_bytes(blob)
    with pytest.raises(PriorError, match=r"cannot be read as a zip file|no valid card"):
        install_prior(path, tmp_path / "priors")


@pytest.mark.parametrize("blob", [b"", b"PK\x03\x04", b"no zip file at all" * 10])
def test_what_is_no_zip_file_is_refused(tmp_path, blob):
    (tmp_path / "not.zip").write_bytes(blob)
    with pytest.raises(PriorError, match="cannot be read as a zip file"):
        install_prior(tmp_path / "not.zip", tmp_path / "priors")


def test_a_damaged_archive_is_refused(package, tmp_path):
    pack_prior(package, tmp_path / "good.zip")
    blob = bytearray((tmp_path / "good.zip").read_bytes())
    blob[len(blob) // 2] ^= 1
    (tmp_path / "bad.zip").write_bytes(blob)
    with pytest.raises(PriorError, match="Bad CRC-32"):
        install_prior(tmp_path / "bad.zip", tmp_path / "priors")


def test_a_faulty_prior_is_not_installed_and_the_old_one_stays(package, tmp_path):
    pack_prior(package, tmp_path / "good.zip")
    install_prior(tmp_path / "good.zip", tmp_path / "priors")
    card, (name, blob) = contents(package)
    path = zipped(tmp_path / "bad.zip", [card, (name, blob[:-1] + b"!")])
    with pytest.raises(PriorError, match=r"bad\.zip is not installed, it is faulty: .*SHA-256") as caught:
        install_prior(path, tmp_path / "priors", replace=True)
    assert ".new" not in str(caught.value)
    assert [path.name for path in (tmp_path / "priors").iterdir()] == ["small"]
    load_prior(tmp_path / "priors" / "small", torch.device("cpu"))


def test_the_name_in_the_card_cannot_lead_out_of_the_folder(package, tmp_path):
    text = yaml.safe_load((package / "card.yaml").read_text()) | {"name": "../../evil"}
    path = zipped(tmp_path / "evil.zip", [("card.yaml", yaml.safe_dump(text).encode()), contents(package)[1]])
    with pytest.raises(PriorError, match="is no valid card: name"):
        install_prior(path, tmp_path / "priors")


def test_a_rename_that_fails_brings_the_old_prior_back(package, tmp_path, monkeypatch):
    pack_prior(package, tmp_path / "good.zip")
    folder, _ = install_prior(tmp_path / "good.zip", tmp_path / "priors")
    real = Path.rename

    def rename(path, target):
        if path.name.endswith(".new") and Path(target).name == "small":
            raise OSError(28, "No space left on device")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(PriorError, match=r"cannot be installed in .*: No space left"):
        install_prior(tmp_path / "good.zip", tmp_path / "priors", replace=True)
    assert hashlib.sha256((folder / "prior.safetensors").read_bytes()).hexdigest() == read_card(folder).sha256
    assert [path.name for path in folder.parent.iterdir()] == ["small"]
