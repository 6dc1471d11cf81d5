"""Files of priors that change while a server runs."""

import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from simulated_scans import TOTAL_VARIATION, StandIn, reconstructor, scan_messages, settings

from gadget.configs import prior_folders
from gadget.errors import SettingsError
from gadget.image_meta import read_meta
from gadget.pipeline import reconstruct_stream
from gadget.streaming_priors import LoadedPriors
from gadget.wire.messages import Acquisition, Image
from reconlib.priors.library import find_prior


@pytest.fixture
def installed(tmp_path) -> Path:
    """Return the folder of a copy of the shipped prior."""
    folder = tmp_path / "priors" / "site"
    shutil.copytree(find_prior("brain-local", prior_folders()), folder)
    return folder


def priors(installed: Path) -> LoadedPriors:
    return LoadedPriors([installed.parent], torch.device("cpu"))


def change_card(folder: Path, **changes: str) -> None:
    """Replace the card as an editor or installer does: the new file takes the old one's name."""
    card = yaml.safe_load((folder / "card.yaml").read_text(encoding="utf-8")) | changes
    part = folder / "new.yaml"
    part.write_text(yaml.safe_dump(card), encoding="utf-8")
    part.replace(folder / "card.yaml")


def test_unchanged_files_are_read_once(installed, monkeypatch):
    loaded = priors(installed)
    first = loaded.get("site")
    monkeypatch.setattr("gadget.streaming_priors.load_prior", lambda *_: pytest.fail("read again"))

    assert loaded.get("site") is first


def test_changed_files_take_the_place_of_the_old_ones(installed, caplog):
    caplog.set_level(logging.INFO)
    loaded = priors(installed)
    old = loaded.get("site")
    change_card(installed, version="9.9")

    assert loaded.get("site").card.version == "9.9"
    assert old.card.version != "9.9"
    assert f"version 9.9 was loaded in place of {old.card.version}" in caplog.text


def truncated(folder: Path) -> None:
    with (folder / "prior.safetensors").open("r+b") as file:
        file.truncate(1000)


def garbage(folder: Path) -> None:
    (folder / "card.yaml").write_text("{", encoding="utf-8")


def other_weights(folder: Path) -> None:
    change_card(folder, sha256="0" * 64)


def without_weights(folder: Path) -> None:
    (folder / "prior.safetensors").unlink()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize("damage", [truncated, garbage, other_weights, without_weights, gone])
def test_broken_files_leave_the_loaded_prior_in_use_and_the_log_says_so(installed, damage, caplog):
    loaded = priors(installed)
    old = loaded.get("site")
    damage(installed)

    assert loaded.get("site") is old
    (record,) = caplog.records
    assert "have changed and cannot be used: prior: " in record.getMessage()
    assert f"version {old.card.version}, stays in use" in record.getMessage()


def test_broken_files_that_are_repaired_are_read_again(installed):
    loaded = priors(installed)
    loaded.get("site")
    card = (installed / "card.yaml").read_bytes()
    garbage(installed)
    loaded.get("site")
    (installed / "card.yaml").write_bytes(card)
    change_card(installed, version="9.9")

    assert loaded.get("site").card.version == "9.9"


def test_files_that_were_never_good_are_refused(installed):
    garbage(installed)

    with pytest.raises(SettingsError, match=r"prior: .*card\.yaml"):
        priors(installed).get("site")


@pytest.mark.parametrize("damage", [garbage, None])
def test_a_change_in_the_middle_of_a_scan_counts_from_the_next_scan(installed, tmp_path, damage):
    """All images of a scan are made with one prior, whatever becomes of its files."""
    solver = reconstructor(StandIn(), prior_search=[installed.parent])
    chosen = settings(prior="site")
    version = solver.load(chosen).card.version
    messages = scan_messages(tmp_path, n_slices=3)
    middle = [n for n, one in enumerate(messages) if isinstance(one, Acquisition)][30]

    def source():
        for number, message in enumerate(messages):
            if number == middle:
                damage(installed) if damage else change_card(installed, version="9.9")
            yield message

    def versions(stream):
        return [read_meta(one)["EBM_PriorVersion"] for one in stream if isinstance(one, Image)]

    assert versions(reconstruct_stream(source(), chosen, reconstructor=solver)) == [version] * 3
    later = version if damage else "9.9"
    assert versions(reconstruct_stream(messages, chosen, reconstructor=solver)) == [later] * 3


def test_two_scans_at_once_load_a_prior_once(installed, monkeypatch):
    """The second waits for the first instead of loading it again."""
    import threading

    from gadget import streaming_priors

    begun, go_on, n_loaded = threading.Event(), threading.Event(), []
    load = streaming_priors.load_prior

    def slow(*arguments):
        n_loaded.append(1)
        begun.set()
        assert go_on.wait(5)
        return load(*arguments)

    monkeypatch.setattr(streaming_priors, "load_prior", slow)
    loaded, found = priors(installed), []
    threads = [threading.Thread(target=lambda: found.append(loaded.get("site"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(5)
    go_on.set()
    for thread in threads:
        thread.join(5)

    assert found[0] is found[1]
    assert n_loaded == [1]


def test_total_variation_has_no_weights_to_look_at():
    solver = reconstructor(StandIn())

    assert solver.load(TOTAL_VARIATION) is solver.load(TOTAL_VARIATION)


def test_the_same_content_under_another_time_is_read_again(installed):
    """Looking at times and sizes is cheap, and a file that was written again may be another."""
    loaded = priors(installed)
    old = loaded.get("site")
    os.utime(installed / "card.yaml", ns=(1, 1))

    assert loaded.get("site") is not old
    assert loaded.get("site").card == old.card
