"""A run that diverges goes back and takes smaller steps, or says what to change."""

import json

import pytest
import torch
from small_run import run, same_weights, small_settings

from reconlib.training.checkpoint import Checkpoints
from reconlib.training.guard import Guard, TrainingDiverged
from reconlib.training.trainer import TrainOutcome


def rows(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def rollbacks(folder) -> list[tuple[int, str]]:
    return [(row["update"], row["text"]) for row in rows(folder) if row.get("event") == "rollback"]


@pytest.mark.parametrize("objective", ["score-matching", "maximum-likelihood"])
def test_a_step_that_is_too_large_is_lowered_until_the_run_finishes(objective, tmp_path):
    # the first steps are small (warm-up); the later ones blow the energy up
    settings = small_settings(
        objective,
        optimiser={"learning_rate": 20.0, "warmup_updates": 12, "schedule": "constant"},
        guard={"max_rollbacks": 40, "lower_by": 0.2, "gap_range": (-50.0, 5.0), "sample_range": (-5.0, 5.0)},
        bookkeeping={"checkpoint_every": 2, "validate_every": 12, "keep_checkpoints": 9},
    )
    result = run(settings, tmp_path)
    assert result.outcome is TrainOutcome.FINISHED
    assert result.n_rollbacks == len(rollbacks(tmp_path)) > 0
    assert all(bool(torch.isfinite(value).all()) for value in result.network.state_dict().values())
    last = [row for row in rows(tmp_path) if "learning_rate" in row][-1]
    # the schedule's rate at updates 9 to 12, lowered by 0.2 each time
    schedule = sum(20.0 * update / 12 for update in (9, 10, 11, 12)) / 4
    assert last["learning_rate"] == pytest.approx(schedule * 0.2**result.n_rollbacks)


def test_a_run_that_no_step_can_save_says_what_to_change(tmp_path):
    settings = small_settings("maximum-likelihood", guard={"gap_range": (0.0, 1e-9), "max_rollbacks": 2})
    message = (
        r"at update 0 the energy gap is .* \(guard.gap_range allows 0 to 1e-09\). It went back to a "
        r"checkpoint 2 times, with a learning rate lowered to 0.25 of the schedule's.* "
        r"Lower optimiser.learning_rate"
    )
    with pytest.raises(TrainingDiverged, match=message):
        run(settings, tmp_path)
    assert len(rollbacks(tmp_path)) == 2


def scripted(monkeypatch, bad_calls: set[int]) -> list[int]:
    """Let the guard see trouble at its n-th look (1, 2, ...), and nowhere else."""
    looks = []

    def trouble(self, seen):
        del self, seen
        looks.append(len(looks) + 1)
        return "it looks bad" if looks[-1] in bad_calls else None

    monkeypatch.setattr(Guard, "trouble", trouble)
    return looks


def test_the_run_goes_back_to_the_last_checkpoint_and_repeats_the_same_draws(monkeypatch, tmp_path):
    settings = small_settings("maximum-likelihood", guard={"lower_by": 0.999999999})
    whole = run(settings, tmp_path / "whole")
    # the ninth update fails once: back to the checkpoint after the fifth
    scripted(monkeypatch, {9})
    again = run(settings, tmp_path / "again")
    assert rollbacks(tmp_path / "again") == [
        (8, "at update 8 it looks bad: back to update 5, learning rate times 1")
    ]
    assert again.n_rollbacks == 1
    for name, value in whole.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_the_run_goes_further_back_each_time_until_it_gets_past_the_trouble(monkeypatch, tmp_path):
    looks = scripted(monkeypatch, {11, 12, 15, 20, 27})
    settings = small_settings(bookkeeping={"checkpoint_every": 2, "keep_checkpoints": 9})
    result = run(settings, tmp_path)
    # trouble at update 10 again and again: from 10, then from 8, 6 and 4 anew
    assert [text.split(", learning")[0] for _, text in rollbacks(tmp_path)] == [
        f"at update 10 it looks bad: back to update {update}" for update in (10, 8, 6, 4, 2)
    ]
    assert result.outcome is TrainOutcome.FINISHED
    assert len(looks) == 27 + 10


def test_a_checkpoint_that_leads_to_trouble_twice_is_given_up(monkeypatch, tmp_path):
    looks = scripted(monkeypatch, {9, 10, 13})
    result = run(small_settings(), tmp_path)
    texts = [text for _, text in rollbacks(tmp_path)]
    assert [text.split(": ")[1] for text in texts] == [
        "back to update 5, learning rate times 0.5",
        "back to update 0, learning rate times 0.25",
        "back to update 0, learning rate times 0.125",
    ]
    assert result.outcome is TrainOutcome.FINISHED
    assert len(looks) == 8 + 1 + 1 + 2 + 1 + 12
    names = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert sorted(names) == ["00000005-3", "00000010-3", "00000012-3"]


def test_a_lowered_rate_survives_a_resume(monkeypatch, tmp_path):
    settings = small_settings()
    scripted(monkeypatch, {4})
    whole = run(settings, tmp_path / "whole")
    scripted(monkeypatch, {4})
    asked = iter([False] * 8 + [True])
    first = run(settings, tmp_path / "parts", stop=lambda: next(asked))
    assert first.outcome is TrainOutcome.STOPPED
    scripted(monkeypatch, set())
    last = run(settings, tmp_path / "parts", resume=True)
    assert (last.n_rollbacks, whole.n_rollbacks) == (1, 1)
    assert same_weights(whole.network, last.network)


def test_checkpoints_before_and_after_going_back_have_different_names(tmp_path):
    from reconlib.training.distributed import Processes

    checkpoints = Checkpoints(tmp_path, 3, Processes())
    checkpoints.save(5, 0, {"a": 1}, {})
    checkpoints.save(5, 1, {"a": 2}, {})
    assert [checkpoints.load(path)[0]["a"] for path in checkpoints.paths()] == [1, 2]
