"""``gadgetron-ebm train``: from a config and images to a prior, with a stop on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from gadget.cli import main

SMALL = {
    "name": "small",
    "network": {"widths": [4, 8]},
    "data": {"patch": 32, "resolutions": [1.0]},
    "n_updates": 3,
    "batch": 2,
    "bookkeeping": {"picture_every": None},
}


@pytest.fixture
def place(tmp_path) -> Path:
    """Return a folder with train.yaml and images.npz."""
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(SMALL))
    images = np.random.default_rng(2).random((6, 40, 40), dtype=np.float32)
    np.savez(tmp_path / "images.npz", image=images, validation=np.arange(6) == 5)
    return tmp_path


@pytest.fixture
def train(place, capsys, monkeypatch):
    """Return a function that runs the command in ``place``: exit code, stdout, stderr."""

    def run(*options: object) -> tuple[int, str, str]:
        monkeypatch.chdir(place)
        words = ["train", "train.yaml", "--data", "images.npz", "--device", "cpu", *options]
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_a_run_leaves_a_prior_and_the_folder_of_the_run(train, place):
    code, out, err = train("--out", "small", "--set", "n_updates=2")
    assert code == 0, err
    assert "small: prior small 0.1, 2 updates" in out
    card = yaml.safe_load((place / "small" / "card.yaml").read_text())
    expected = "gadgetron-ebm train train.yaml --data images.npz --out small --set n_updates=2"
    assert card["training"]["command"] == expected
    names = {path.name for path in (place / "small-run").iterdir()}
    assert names == {"best.pt", "checkpoints", "log.jsonl"}
    code, _, err = train("--out", "small")
    assert code == 2
    assert "small exists; name a new folder" in err
    code, _, err = train("--out", "other", "--run", "small-run")
    assert code == 2
    assert "holds a run already; go on with --resume" in " ".join(err.split())


def test_a_finished_run_can_be_packaged_again(train, place):
    assert train("--out", "small")[0] == 0
    code, _, err = train("--out", "again", "--run", "small-run", "--resume")
    assert code == 0, err
    first, second = ((place / name / "prior.safetensors").read_bytes() for name in ("small", "again"))
    assert first == second


def test_a_changed_config_is_not_resumed(train):
    assert train("--out", "small", "--set", "n_updates=1")[0] == 0
    code, _, err = train("--out", "other", "--run", "small-run", "--resume", "--set", "batch=4")
    assert code == 1
    assert "what differs: batch (then 2, now 4); n_updates (then 1, now 3)" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume"], "there is no checkpoint in new-run to resume from"),
        (["--set", "batch=0"], "batch: found 0, needs a whole number >= 1"),
        (["--set", "optimiser.learning_rat=1"], "Did you mean optimiser.learning_rate?"),
        (
            ["--set", "data.patch=64"],
            "images of 40 x 40 pixels cut to the resolution 1 are 40 x 40, less than",
        ),
        (["--set", "warm_start=./none"], "none/card.yaml cannot be read"),
        (["--set", "objective=maximum-likelihood", "--set", "batch=9000"], "a batch of 9000 cannot be drawn"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(train, place, options, message):
    code, _, err = train("--out", "new", *options)
    assert code == 1
    assert message in err
    assert "Traceback" not in err
    assert not (place / "new").exists()


def test_images_that_cannot_be_read_are_named(train, place):
    (place / "images.npz").write_bytes(b"no zip")
    code, _, err = train("--out", "new")
    assert code == 1
    assert "images.npz" in err


def test_a_run_that_diverges_ends_with_1(train):
    code, _, err = train("--out", "new", "--set", "optimiser.learning_rate=1e30", "--set", "n_updates=40")
    assert code == 1
    assert "The run diverges: at update" in err
    assert "Lower optimiser.learning_rate" in err


def started(place: Path, *options: str) -> subprocess.Popen[str]:
    words = ["train", "train.yaml", "--data", "images.npz", "--out", "small", "--device", "cpu", *options]
    code = "import sys; from gadget.cli import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_saves_a_checkpoint_and_the_run_goes_on_from_it(number, place):
    config = {**SMALL, "n_updates": 100_000, "bookkeeping": {"report_every": 1, "picture_every": None}}
    (place / "train.yaml").write_text(yaml.safe_dump(config))
    process = started(place)
    log = place / "small-run" / "log.jsonl"
    for _ in range(600):
        if log.exists() and log.read_text().count("\n") >= 3:
            break
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopping after this update" in err
    assert "a checkpoint is saved in small-run. Give the same command with --resume to go on." in err
    assert "Traceback" not in err
    updates = [json.loads(line)["update"] for line in log.read_text().splitlines()]
    (*_, newest) = sorted((place / "small-run" / "checkpoints").iterdir())
    assert newest.name == f"{updates[-1]:08d}-0"
    state = torch.load(newest / "shared.pt", weights_only=True)
    assert state["update"] == updates[-1] < 100_000
    process = started(place, "--resume")
    for _ in range(600):
        if log.read_text().count("\n") > len(updates):
            break
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=60)
    further = [json.loads(line)["update"] for line in log.read_text().splitlines()]
    assert further[: len(updates) + 1] == [*updates, updates[-1] + 1]
