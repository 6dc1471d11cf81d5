"""The command ``replay``: settings by options, what it writes, prints and shows, and its exit codes."""

import io
import re
import sys
from types import SimpleNamespace

import h5py
import pytest
from simulated_scans import MATRIX, QUICK

from gadget.cli import main
from gadget.commands.options import settings_of
from gadget.commands.progress import progress_on_terminal
from reconlib.joint.outcome import Outcome
from reconlib.posterior.outcome import PosteriorOutcome


def test_replay_writes_images_and_says_so(run, joint, scan, tmp_path):
    joint()

    code, out, err = run(
        "replay", scan, tmp_path / "out.h5", *QUICK, "--coils", tmp_path / "c.h5", "--png", tmp_path / "png",
        "--no-posterior", "--seed", "4",
    )  # fmt: skip

    assert code == 0
    assert re.fullmatch(rf"{tmp_path}/out\.h5: 2 images, \d+\.\d s of reconstruction\n", out)
    assert err == ""
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["dataset/image_1/data"].shape == (2, 1, 1, *MATRIX)
    with h5py.File(tmp_path / "c.h5") as file:
        assert file["dataset/coils"].shape == (2, 3, *MATRIX)
    assert len(list((tmp_path / "png").iterdir())) == 2


def test_options_win_over_set_and_set_over_the_file(run, joint, scan, tmp_path):
    stand_in = joint()
    config = tmp_path / "settings.yaml"
    config.write_text("prior: tv\nseed: 1\nsolver: {iterations: 11, coil_smoothness: 3}\n")

    code, _, err = run(
        "replay", scan, tmp_path / "out.h5", "--config", config, "--set", "solver.iterations=12",
        "--set", "seed=2", "--seed", "3", "--no-posterior",
    )  # fmt: skip

    assert code == 0, err
    used = stand_in.calls[0]
    assert (used["settings"].iterations, used["settings"].coil_smoothness, used["seed"]) == (12, 3, 3)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], (True, 30.0)),
        (["--no-posterior"], (False, 30.0)),
        (["--posterior", "20s"], (True, 20.0)),
        (["--posterior", "2min"], (True, 120.0)),
        (["--posterior", "1.5"], (True, 1.5)),
        (["--set", "posterior.enabled=false", "--posterior", "3 s"], (True, 3.0)),
    ],
)
def test_flags_choose_uncertainty_and_its_time(run, joint, sampling, scan, tmp_path, flags, expected):
    joint()
    script = sampling()
    seen = []
    script.on_step = lambda *_: seen.append(1)

    code, out, err = run("replay", scan, tmp_path / "out.h5", *QUICK[1:], *flags)

    assert code == 0, err
    enabled, _ = expected
    assert bool(seen) is enabled
    sampled = r", uncertainty of 2, 12\.0 s of sampling" if enabled else ""
    assert re.fullmatch(rf"{tmp_path}/out\.h5: 2 images, \d+\.\d s of reconstruction{sampled}\n", out)
    chosen = settings_of(
        None,
        set_=[flags[1]] if flags[:1] == ["--set"] else [],
        posterior=flags[-1] if "--posterior" in flags else None,
        no_posterior="--no-posterior" in flags,
    )
    assert (chosen.posterior.enabled, chosen.posterior.time_limit_s) == expected


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--posterior", "20s", "--no-posterior"], "exclude each other"),
        (["--posterior", "soon"], "'soon' is no time; write for example 20s, 2min or 20"),
        (["--posterior", "0s"], "is no time"),
        (["--posterior", "5h"], "is no time"),
        (["--posterior", "-5"], "is no time"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "serve"])
def test_a_time_that_is_none_ends_with_2(run, scan, tmp_path, command, flags, fault):
    files = [scan, tmp_path / "out.h5"] if command == "replay" else []

    code, _, err = run(command, *files, *QUICK[1:], *flags)

    assert code == 2
    assert fault in " ".join(err.split())


def test_uncertainty_that_cannot_be_relied_on_is_printed(run, joint, sampling, scan, tmp_path):
    joint()
    sampling(outcomes=[PosteriorOutcome.TOO_SHORT])

    code, out, _ = run("replay", scan, tmp_path / "out.h5", *QUICK[1:])

    assert code == 0
    assert f"\n  slice 0: uncertainty NOT RELIABLE, {PosteriorOutcome.TOO_SHORT.value}\n" in out
    with h5py.File(tmp_path / "out.h5") as file:
        assert {"image_1", "image_2", "image_3"} < set(file["dataset"])


def test_verbose_logs_each_slice_to_stderr(run, joint, scan, tmp_path):
    joint()

    code, out, err = run("--verbose", "replay", scan, tmp_path / "out.h5", *QUICK)

    assert code == 0
    assert len(re.findall(r"^INFO slice [01]: joint reconstruction", err, re.MULTILINE)) == 2
    assert "INFO" not in out


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (
            Outcome.NOT_FINITE,
            "slice 0: FALLBACK: zero-filled root sum of squares (the iterate has infinities or NaNs)",
        ),
        (Outcome.ALL_ZERO, "slice 0: image of zeros: the k-space is all zero"),
        (Outcome.OUT_OF_TIME, "slice 0: joint reconstruction, stopped at its time limit"),
    ],
)
def test_a_labelled_image_ends_with_3(run, joint, scan, tmp_path, outcome, line):
    joint(outcomes=[outcome])

    code, out, _ = run("replay", scan, tmp_path / "out.h5", *QUICK)

    assert code == 3
    assert f"\n  {line}\n" in out
    assert h5py.is_hdf5(tmp_path / "out.h5")


def test_a_scan_that_cannot_be_read_ends_with_1(run, tmp_path):
    bad = tmp_path / "scan.h5"
    bad.write_text("no HDF5")

    code, out, err = run("replay", bad, tmp_path / "out.h5", *QUICK)

    assert (code, out) == (1, "")
    assert err.startswith(
        f"gadgetron-ebm: {bad} is not an HDF5 file; a scan is needed in the ISMRMRD format (.h5). Convert "
    )
    assert err.count("\n") == 1
    assert not (tmp_path / "out.h5").exists()


def test_a_missing_group_ends_with_1(run, scan, tmp_path):
    code, _, err = run("replay", scan, tmp_path / "out.h5", "--group", "other", *QUICK)

    assert code == 1
    assert "has no group 'other'; it has the scan dataset. Choose one with --group." in err


def test_an_unknown_prior_ends_with_1_and_is_named(run, scan, tmp_path):
    code, _, err = run("replay", scan, tmp_path / "out.h5", "--prior", "no-such-prior")

    assert code == 1
    assert "no-such-prior" in err
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("option", [["--set", "solver.iteration=5"], ["--set", "seed"], ["--seed", "-1"]])
def test_a_faulty_setting_on_the_command_line_ends_with_2(run, scan, tmp_path, option):
    code, _, err = run("replay", scan, tmp_path / "out.h5", *option)

    assert code == 2
    assert option[1].partition("=")[0] in err


def test_a_faulty_settings_file_ends_with_1_and_all_faults(run, scan, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("seed: -1\nprio: tv\n")

    code, _, err = run("replay", scan, tmp_path / "out.h5", "--config", config)

    assert code == 1
    assert "has 2 faults" in err
    assert "Did you mean prior?" in err


def test_an_existing_output_ends_with_2_and_is_kept(run, joint, scan, tmp_path):
    joint()
    out = tmp_path / "out.h5"
    out.write_text("precious")

    code, _, err = run("replay", scan, out, *QUICK)

    assert code == 2
    assert "out.h5 exists" in err
    assert out.read_text() == "precious"
    assert run("replay", scan, out, "--overwrite", *QUICK)[0] == 0


def test_the_scan_as_its_own_output_ends_with_2(run, scan):
    code, _, err = run("replay", scan, scan, "--overwrite", *QUICK)

    assert code == 2
    assert "is the scan as well" in err


def test_an_output_in_a_missing_folder_ends_with_2(run, scan, tmp_path):
    code, _, err = run("replay", scan, tmp_path / "absent" / "out.h5", *QUICK)

    assert code == 2
    assert "there is no folder" in err


class Terminal(io.StringIO):
    """Something that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_sampling_shows_its_progress(joint, sampling, scan, tmp_path, monkeypatch):
    joint()
    sampling(n_steps=9)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    with pytest.raises(SystemExit) as ended:
        main(["replay", str(scan), str(tmp_path / "out.h5"), *QUICK[1:]])

    assert not ended.value.code
    assert "uncertainty 2, steps" in terminal.getvalue()
    assert "9/9" in terminal.getvalue()


def test_the_clock_of_the_iterations_begins_anew_with_each_batch(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress_on_terminal(4) as progress:
        bars = progress._bars
        assert bars is not None
        task = next(one for one in bars.tasks if one.description == "iterations")
        for _ in range(2):
            for iteration in (1, 2):
                progress.iteration(SimpleNamespace(iteration=iteration, iterations=2))
                assert task.finished is (iteration == 2)
            progress.image()
        assert task.description == "2 images made, iterations"


@pytest.mark.parametrize("command", [["replay"], ["demo"]])
def test_progress_is_shown_on_a_terminal_only(joint, scan, tmp_path, monkeypatch, command):
    joint()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    files = [scan, tmp_path / "out.h5"] if command == ["replay"] else [tmp_path / "demo"]

    with pytest.raises(SystemExit) as ended:
        main([*command, *map(str, files), *(QUICK if command == ["replay"] else QUICK[1:])])

    assert not ended.value.code
    assert "iterations" in terminal.getvalue()
    assert "7/7" in terminal.getvalue()
    assert ("readouts" in terminal.getvalue()) is (command == ["replay"])
