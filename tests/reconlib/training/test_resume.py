"""A run that is stopped and resumed is the run that was never stopped, bit by bit."""

import itertools
import json
import re

import pytest
import torch
from small_run import blobs, run, same_weights, small_settings

from reconlib.training.checkpoint import CheckpointError, Checkpoints
from reconlib.training.distributed import Processes
from reconlib.training.trainer import TrainOutcome, train


def stop_after(n: int):
    """Ask to stop in the n-th update."""
    asked = itertools.count(1)
    return lambda: next(asked) == n


def log(folder) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.parametrize(
    ("objective", "optimiser"),
    [("score-matching", "adamw"), ("maximum-likelihood", "adamw"), ("maximum-likelihood", "adabelief")],
)
def test_a_resumed_run_equals_one_that_was_not_stopped(objective, optimiser, tmp_path):
    settings = small_settings(objective, optimiser={"kind": optimiser})
    whole = run(settings, tmp_path / "whole")
    assert whole.outcome is TrainOutcome.FINISHED
    # stopped twice, once in the middle between two lines of the log
    first = run(settings, tmp_path / "parts", stop=stop_after(3))
    assert (first.outcome, first.n_updates) == (TrainOutcome.STOPPED, 3)
    second = run(settings, tmp_path / "parts", resume=True, stop=stop_after(7))
    assert second.n_updates == 10
    last = run(settings, tmp_path / "parts", resume=True)
    assert (last.outcome, last.n_updates) == (TrainOutcome.FINISHED, 12)
    assert same_weights(whole.network, last.network)
    assert whole.validation == last.validation
    assert log(tmp_path / "whole") == log(tmp_path / "parts")
    for name in ("shared.pt", "process-0.pt"):
        one, other = (
            torch.load(tmp_path / kind / "checkpoints" / "00000012-0" / name, weights_only=True)
            for kind in ("whole", "parts")
        )
        one.pop("seconds", None)
        other.pop("seconds", None)
        assert_equal(one, other)


def assert_equal(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        assert one == other


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(tmp_path):
    settings = small_settings("maximum-likelihood")
    whole = run(settings, tmp_path / "whole")

    def die(progress) -> None:
        if progress.update == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "killed", on_progress=die)
    # what a crash in the middle of writing leaves behind: half a checkpoint, half a line
    part = tmp_path / "killed" / "checkpoints" / "00000010-0.part"
    part.mkdir()
    (part / "shared.pt").write_bytes(b"half")
    with (tmp_path / "killed" / "log.jsonl").open("a") as file:
        file.write('{"update": 9, "lo')
    assert log_updates(tmp_path / "killed") == [4, 6, 8], "beyond the checkpoint at 5"
    last = run(settings, tmp_path / "killed", resume=True)
    assert same_weights(whole.network, last.network)
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


def log_updates(folder) -> list[int]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["update"] for line in lines if line.endswith("}")]


def test_the_newest_checkpoints_and_the_best_weights_are_kept(tmp_path):
    settings = small_settings(bookkeeping={"checkpoint_every": 2, "keep_checkpoints": 2})
    result = run(settings, tmp_path)
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["00000010-0", "00000012-0"]
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    means = {
        row["update"]: sum(v for k, v in row.items() if k.startswith("validation"))
        for row in log(tmp_path)
        if any(key.startswith("validation") for key in row)
    }
    assert best["update"] == min(means, key=means.get)
    assert set(means) == {6, 12}
    assert set(result.validation) == {
        f"{kind}{level}" for kind in ("", "signed ") for level in ("0.01", "0.02", "0.05", "0.1")
    }


def test_the_best_weights_can_be_the_result(tmp_path):
    # a rate that ruins with the second update what the first one reached: the best weights are not the last
    settings = small_settings(
        ema=1.0,
        optimiser={"schedule": "constant", "learning_rate": 0.4, "warmup_updates": 0},
        n_updates=2,
        bookkeeping={"validate_every": 1, "result": "best"},
    )
    result = run(settings, tmp_path)
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    assert result.n_updates == best["update"] < 2
    assert result.validation == best["validation"]
    assert torch.equal(result.network.state_dict()["stem.weight"], best["average"]["stem.weight"])


def test_a_run_is_not_resumed_with_other_settings(tmp_path):
    run(small_settings(), tmp_path, stop=stop_after(2))
    other = small_settings(batch=8, optimiser={"learning_rate": 0.02})
    message = (
        "what differs: batch (then 4, now 8); optimiser.learning_rate (then 0.01, now 0.02). "
        "Set them back, or start a new run."
    )
    with pytest.raises(CheckpointError, match=re.escape(message)):
        run(other, tmp_path, resume=True)


def test_a_run_is_not_resumed_with_other_images(tmp_path):
    run(small_settings(), tmp_path, stop=stop_after(2))
    with pytest.raises(CheckpointError, match="what differs: the training images"):
        train(small_settings(), blobs(5, seed=9), blobs(2), folder=tmp_path, resume=True)


def test_what_is_not_there_is_not_resumed_and_what_is_there_not_overwritten(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint in .* to resume from"):
        run(small_settings(), tmp_path, resume=True)
    run(small_settings(), tmp_path, stop=stop_after(1))
    with pytest.raises(CheckpointError, match="already holds a run; resume it, or name another folder"):
        run(small_settings(), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "cannot be read as a checkpoint"), (b"PK\x03\x04 no", "cannot be read as a checkpoint")],
)
def test_a_damaged_checkpoint_is_named(content, message, tmp_path):
    run(small_settings(), tmp_path, stop=stop_after(2))
    (tmp_path / "checkpoints" / "00000002-0" / "shared.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"00000002-0/shared.pt {message}.* remove its folder"):
        run(small_settings(), tmp_path, resume=True)


class _Harmful:
    def __reduce__(self):
        return (print, ("code from a file ran",))


def test_a_checkpoint_runs_no_code(tmp_path, capsys):
    run(small_settings(), tmp_path, stop=stop_after(2))
    torch.save({"weights": _Harmful()}, tmp_path / "checkpoints" / "00000002-0" / "shared.pt")
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        run(small_settings(), tmp_path, resume=True)
    assert "code from a file ran" not in capsys.readouterr().out


def test_checkpoints_are_in_the_order_of_updates(tmp_path):
    checkpoints = Checkpoints(tmp_path, 9, Processes())
    for update, rollbacks in ((5, 0), (100, 0), (20, 1), (20, 0)):
        checkpoints.save(update, rollbacks, {"update": update}, {})
    names = [path.name for path in checkpoints.paths()]
    assert names == ["00000005-0", "00000020-0", "00000020-1", "00000100-0"]
    assert checkpoints.load(checkpoints.paths()[-1]) == ({"update": 100}, {})
