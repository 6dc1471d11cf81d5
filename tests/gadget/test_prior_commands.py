"""``prior ...`` and ``sample``: found, listed, shown, verified, packed, installed, imported, drawn from."""

import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from gadget.configs import config_folder, prior_folders, user_prior_folder
from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.priors.card import PriorCard
from reconlib.priors.library import write_prior

CARD = {
    "name": "small",
    "version": "1.2",
    "description": "for tests",
    "architecture": {"kind": "local", "widths": [2, 3], "input_gain": 2.0, "noise_level": 0.05},
    "temperature": 1.5,
    "prior_weight": {"rule": "noise"},
    "anatomy": "left elbow",
    "licence": "MIT",
}


@pytest.fixture(autouse=True)
def _no_priors_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("GADGETRON_EBM_PRIORS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def make_prior(folder: Path, **changes: object) -> Path:
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(2, 3), input_gain=2.0))
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }
    write_prior(folder, PriorCard.model_validate(CARD | changes), weights)
    return folder


def png_size(path: Path) -> tuple[int, int]:
    """Width and height from the header (PNG specification, IHDR)."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_names_are_looked_up_in_the_environment_then_the_users_folder_then_the_shipped(tmp_path):
    one, two, data = tmp_path / "one", tmp_path / "two", tmp_path / "data"
    environment = {
        "GADGETRON_EBM_PRIORS": os.pathsep.join([str(one), "", str(two)]),
        "XDG_DATA_HOME": str(data),
    }
    shipped = config_folder() / "priors"
    assert prior_folders(environment) == (one, two, shipped)
    own = data / "gadgetron-ebm" / "priors"
    own.mkdir(parents=True)
    assert prior_folders(environment) == (one, two, own, shipped)


def test_the_users_folder_follows_the_xdg_specification(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    default = Path("/home/someone/.local/share/gadgetron-ebm/priors")
    assert user_prior_folder({}) == default
    assert user_prior_folder({"XDG_DATA_HOME": ""}) == default
    assert user_prior_folder({"XDG_DATA_HOME": "relative"}) == default
    assert user_prior_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/gadgetron-ebm/priors")


def test_list_is_a_table_and_a_broken_package_does_not_end_it(run, tmp_path, monkeypatch):
    make_prior(tmp_path / "site" / "small")
    broken = make_prior(tmp_path / "site" / "bad")
    (broken / "card.yaml").write_text("name: [")
    monkeypatch.setenv("GADGETRON_EBM_PRIORS", f"{tmp_path / 'nowhere'}{os.pathsep}{tmp_path / 'site'}")

    code, out, err = run("prior", "list")

    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["NAME", "VERSION", "ANATOMY", "WHERE"]
    table = {line.split()[0]: line for line in lines}
    assert table["small"].split() == ["small", "1.2", "left", "elbow", str(tmp_path / "site" / "small")]
    assert table["small"].index("1.2") == head.index("VERSION")
    assert "total-variation" in table
    assert "BROKEN" in out
    assert re.search(r"^bad is broken: .*card\.yaml cannot be read as YAML", out, re.MULTILINE)


def test_a_swap_is_one_flag_or_one_line(run, tmp_path, monkeypatch):
    """The first of a name wins; a folder needs no place in the search path."""
    make_prior(tmp_path / "site" / "total-variation", name="total-variation", version="7.7")
    assert "version: '1." in run("prior", "show", "tv")[1]
    monkeypatch.setenv("GADGETRON_EBM_PRIORS", str(tmp_path / "site"))
    assert "version: '7.7'" in run("prior", "show", "tv")[1]
    config = tmp_path / "settings.yaml"
    for name in ("tv", str(make_prior(tmp_path / "mine"))):
        config.write_text(f"prior: {name}\n")
        assert run("check-config", config) == (0, f"{config}: good (prior {name})\n", "")


def test_show_tells_facts_and_the_card(run, tmp_path):
    folder = make_prior(tmp_path / "small")

    code, out, _ = run("prior", "show", folder)

    assert code == 0
    facts = dict(re.findall(r"^# ([a-z ]+): +(.*)$", out, re.MULTILINE))
    assert facts["where"] == str(folder)
    assert facts["parameters"] == "1,320"
    assert re.fullmatch(r"0\.0 MB", facts["weights"])
    card = yaml.safe_load("\n".join(line for line in out.splitlines() if not line.startswith("#")))
    assert card["architecture"]["widths"] == [2, 3]


def test_control_characters_of_a_card_do_not_reach_the_terminal(run, tmp_path, monkeypatch):
    evil = "red \x1b[31m and \x9b bell \x07\nmore"
    folder = make_prior(tmp_path / "small", description=evil, anatomy=evil)
    monkeypatch.setenv("GADGETRON_EBM_PRIORS", str(tmp_path))
    for arguments in (["show", folder], ["list"]):
        code, out, _ = run("prior", *arguments)
        assert code == 0
        assert "red" in out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out)


def test_verify_prints_what_it_checked(run, tmp_path):
    folder = make_prior(tmp_path / "small")
    code, out, err = run("prior", "verify", folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1] == f"{folder}: good"
    assert [line.split()[0] for line in lines[:-1]] == ["good"] * 7


def test_verify_names_all_faults_and_ends_with_1(run, tmp_path):
    folder = make_prior(tmp_path / "small")
    (folder / "prior.safetensors").write_bytes(b"\x80\x04.")
    text = yaml.safe_load((folder / "card.yaml").read_text()) | {"temperature": -1}
    (folder / "card.yaml").write_text(yaml.safe_dump(text))

    code, out, _ = run("prior", "verify", folder)

    assert code == 1
    assert out.splitlines()[-1] == f"{folder}: 2 faults"
    assert "temperature: Input should be greater than 0" in out
    assert "is no safetensors file" in out


def test_a_prior_is_packed_installed_and_used_by_name(run, tmp_path):
    folder = make_prior(tmp_path / "work")

    code, out, err = run("prior", "pack", folder, "--out", tmp_path / "small.zip")
    assert code == 0, err
    assert out.startswith(f"{tmp_path / 'small.zip'}: prior small 1.2, ")

    code, out, err = run("prior", "install", tmp_path / "small.zip")
    assert code == 0, err
    installed = tmp_path / "data" / "gadgetron-ebm" / "priors" / "small"
    assert out == f"{installed}: prior small 1.2; use it with --prior small\n"
    assert str(installed) in run("prior", "list")[1]
    assert run("prior", "verify", "small")[0] == 0

    code, _, err = run("prior", "install", tmp_path / "small.zip")
    assert code == 1
    assert "there is a prior 'small'" in err
    assert run("prior", "install", tmp_path / "small.zip", "--replace")[0] == 0
    code, out, _ = run("prior", "install", tmp_path / "small.zip", "--into", tmp_path / "other")
    assert code == 0
    assert out.endswith(f"use it with --prior {tmp_path / 'other' / 'small'}\n")  # no name leads there
    assert (tmp_path / "other" / "small" / "card.yaml").is_file()


def test_what_is_no_archive_is_not_installed(run, tmp_path):
    (tmp_path / "x.zip").write_text("no")
    code, _, err = run("prior", "install", tmp_path / "x.zip")
    assert code == 1
    assert "cannot be read as a zip file" in err
    assert run("prior", "install", tmp_path / "none.zip")[0] == 2


def test_a_checkpoint_is_imported(run, tmp_path, monkeypatch):
    widths = [48, 48, 144, 240, 432, 768, 1344]
    shapes = [(48, 1, 3, 3), (48, 48, 3, 3)]
    for stage in range(1, 6):
        shapes += [(widths[stage], widths[stage], 3, 3), (widths[stage + 1], widths[stage], 3, 3)]
    shapes.append((1, 1344, 5, 5))
    state = {f"module.convs.{i}.weight": torch.tensor(0.01).expand(shape) for i, shape in enumerate(shapes)}
    torch.save({"state_dict": state}, tmp_path / "published.pth")
    arguments = ("prior", "import-published", tmp_path / "published.pth", "--out", tmp_path / "knee")

    code, out, err = run(*arguments, "--name", "knee-fs", "--contrast", "CORPD-FS")

    assert code == 0, err
    assert out == f"{tmp_path / 'knee'}: prior knee-fs 1.0; use it with --prior {tmp_path / 'knee'}\n"
    card = yaml.safe_load((tmp_path / "knee" / "card.yaml").read_text())
    assert card["temperature"] == 2.8125e-5
    assert card["input"]["rotation_degrees"] == 180
    assert card["prior_weight"]["published"]["slope"] == -3.57541e7
    assert run(*arguments)[0] == 2  # the folder exists
    assert run(*arguments[:-1], tmp_path / "b", "--name", "No Name")[0] == 2
    torch.save({"other": torch.zeros(3)}, tmp_path / "other.pth")
    code, _, err = run("prior", "import-published", tmp_path / "other.pth", "--out", tmp_path / "c")
    assert code == 1
    assert "at the top are 'other'" in err
    assert not (tmp_path / "c").exists()
    monkeypatch.chdir(tmp_path)
    assert "--prior ./here" in run(*arguments[:-1], "here")[1]


def test_draws_are_written_as_a_grid_and_as_numbers(run, tmp_path):
    folder = make_prior(tmp_path / "small")
    png, npy = tmp_path / "draws.png", tmp_path / "draws.npy"
    arguments = ("sample", folder, "--n", 5, "--matrix", 16, 12, "--steps", 20, "--device", "cpu")

    code, out, err = run(*arguments, "--out", png, "--out", npy)

    assert code == 0, err
    assert f"{npy}: 5 draws from small 1.2, 20 steps, seed 0\n" in out
    assert png_size(png) == (3 * 12 + 4, 2 * 16 + 2)  # three columns, two rows, gaps of two pixels
    draws = np.load(npy)
    assert draws.shape == (5, 16, 12)
    assert draws.dtype == np.float32
    assert run(*arguments, "--out", npy)[0] == 2  # exists
    assert run(*arguments, "--out", npy, "--seed", 4, "--overwrite")[0] == 0
    assert not np.array_equal(np.load(npy), draws)
    assert run(*arguments, "--out", npy, "--seed", 0, "--overwrite")[0] == 0
    assert np.array_equal(np.load(npy), draws)
    assert run(*arguments, "--out", npy, "--sampler", "kinetic", "--overwrite")[0] == 0
    assert not np.array_equal(np.load(npy), draws)
    assert run(*arguments, "--out", npy, "--sampler", "nuts", "--overwrite")[0] == 2


def test_no_draws_are_made_of_total_variation(run, tmp_path):
    for command in (["sample", "tv"], ["prior", "landscape", "tv"]):
        code, _, err = run(*command, "--out", tmp_path / "x.png", "--matrix", 16, 16)
        assert code == 1
        assert "total-variation is no density" in err
    assert not (tmp_path / "x.png").exists()


def test_draws_need_a_known_kind_of_file(run, tmp_path):
    folder = make_prior(tmp_path / "small")
    code, _, err = run("sample", folder, "--out", tmp_path / "x.jpg")
    assert code == 2
    assert "is neither .png nor .npy" in err
    assert run("prior", "landscape", folder, "--out", tmp_path / "x.npy")[0] == 2


def test_a_landscape_is_drawn(run, tmp_path):
    folder = make_prior(tmp_path / "small")
    out = tmp_path / "plane.png"

    code, printed, err = run(
        "prior", "landscape", folder, "--out", out, "--matrix", 12, 16, "--steps", 30, "--points", 9
    )

    assert code == 0, err
    assert re.fullmatch(rf"{out}: small 1\.2, T~ = \S+\n", printed)
    assert min(png_size(out)) > 300
