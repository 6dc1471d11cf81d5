"""``install-configs``, and that the chains go into a Gadgetron whole."""

import stat
from pathlib import Path

import pytest
from scripted_gadgetron import read_chain

from gadget.configs import config_folder
from gadget.errors import FileError
from gadget.gadgetron_configs import chains, gadgetron_home, install_chains, why_not_executable

SHIPPED = {path.name: path.read_bytes() for path in (config_folder() / "gadgetron").glob("*.xml")}


@pytest.fixture
def home(tmp_path) -> Path:
    """Return the home of a Gadgetron without programs."""
    home = tmp_path / "gadgetron"
    (home / "share" / "gadgetron" / "config").mkdir(parents=True)
    (home / "share" / "gadgetron" / "config" / "default.xml").write_text("<of-gadgetron/>")
    return home


def in_place(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "share" / "gadgetron" / "config").iterdir()}


def program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def test_the_command_puts_all_chains_beside_gadgetrons_own(run, home):
    code, out, err = run("install-configs", "--gadgetron-home", home)

    assert (code, err) == (0, "")
    assert in_place(home) == {**SHIPPED, "default.xml": b"<of-gadgetron/>"}
    config = home / "share" / "gadgetron" / "config"
    assert out.splitlines() == [str(config / name) for name in sorted(SHIPPED)]
    assert {stat.S_IMODE((config / name).stat().st_mode) for name in SHIPPED} == {0o644}


def test_a_second_time_nothing_changes_and_that_is_said(run, home):
    run("install-configs", "--gadgetron-home", home)
    code, out, _ = run("install-configs", "--gadgetron-home", home)

    assert code == 0
    config = home / "share" / "gadgetron" / "config"
    assert out.splitlines() == [f"{config / name} (as it was)" for name in sorted(SHIPPED)]


def test_chains_that_were_edited_are_kept_unless_they_are_to_be_replaced(run, home):
    edited = home / "share" / "gadgetron" / "config" / "ebm_execute.xml"
    edited.write_text("<mine/>")

    code, out, err = run("install-configs", "--gadgetron-home", home)
    assert (code, out) == (1, "")
    assert "holds other files of these names: ebm_execute.xml." in err
    assert "(--overwrite). Nothing was written." in err
    assert in_place(home) == {"default.xml": b"<of-gadgetron/>", "ebm_execute.xml": b"<mine/>"}

    assert run("install-configs", "--gadgetron-home", home, "--overwrite")[0] == 0
    assert edited.read_bytes() == SHIPPED["ebm_execute.xml"]


@pytest.mark.parametrize(
    ("to", "address", "port"),
    [("recon-7.lan:9004", "recon-7.lan", "9004"), ("[::1]:80", "::1", "80"), ('a"b&c:1', 'a"b&c', "1")],
)
def test_the_connecting_chains_get_the_address_that_is_named(run, home, to, address, port):
    assert run("install-configs", "--gadgetron-home", home, "--connect", to)[0] == 0

    for name, content in in_place(home).items():
        if name.startswith("ebm_connect"):
            chain = read_chain(content.decode())
            assert dict(chain.action_attributes) == {"address": address, "port": port}
        elif name != "default.xml":
            assert content == SHIPPED[name]


@pytest.mark.parametrize("to", ["9004", "host", "host:0", "host:99999", ":9004"])
def test_an_address_needs_host_and_port(run, home, to):
    code, _, err = run("install-configs", "--gadgetron-home", home, "--connect", to)

    assert code == 2
    assert f"'{to}' is no HOST:PORT; write for example --connect localhost:9002." in err


def test_a_folder_that_is_no_gadgetron_is_refused(run, tmp_path):
    code, _, err = run("install-configs", "--gadgetron-home", tmp_path)

    assert code == 1
    assert f"{tmp_path} is not the home of a Gadgetron: it has no folder share/gadgetron/config." in err


def test_a_chain_that_cannot_be_written_fails_in_words(home, monkeypatch):
    monkeypatch.setattr("gadget.gadgetron_configs.chains", lambda _connect: {"no/such.xml": "<x/>"})

    with pytest.raises(FileError, match="Cannot write"):
        install_chains(home)


def test_gadgetron_is_found_by_its_variable_or_its_program(tmp_path):
    found = program(tmp_path / "env" / "bin" / "gadgetron")
    link = tmp_path / "links" / "gadgetron"
    link.parent.mkdir()
    link.symlink_to(found)

    assert gadgetron_home({"GADGETRON_HOME": "/somewhere", "PATH": ""}) == Path("/somewhere")
    assert gadgetron_home({"PATH": str(found.parent)}) == tmp_path / "env"
    assert gadgetron_home({"PATH": str(link.parent)}) == tmp_path / "env"
    with pytest.raises(FileError, match=r"No Gadgetron was found: .* GADGETRON_HOME is not set\. Name its"):
        gadgetron_home({"PATH": str(tmp_path)})


def test_a_python_that_cannot_start_the_reconstruction_is_a_warning(run, home):
    program(home / "bin" / "python3", "echo \"ModuleNotFoundError: No module named 'gadget'\" >&2", "exit 1")
    code, out, err = run("install-configs", "--gadgetron-home", home)

    assert code == 0
    assert len(out.splitlines()) == len(SHIPPED)
    assert "warning: " in err
    assert "cannot import gadget.gadgetron_entry (ModuleNotFoundError: No module named 'gadget')" in err
    assert "only ebm_connect* will work" in err


def test_the_first_python_counts_as_it_does_for_gadgetron(home):
    program(home / "bin" / "python3", "exit 1")
    program(home / "bin" / "python", "exit 0")

    assert why_not_executable(home) == ""


def test_a_gadgetron_without_a_python_of_its_own_is_not_judged(home):
    assert why_not_executable(home) == ""


def test_without_an_address_the_chains_are_as_shipped():
    assert {name: text.encode() for name, text in chains().items()} == SHIPPED
