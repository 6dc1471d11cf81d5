"""Two processes are one with twice the batch."""

import os
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_run import blobs, run, same_weights, small_settings

from reconlib.training.distributed import Processes
from reconlib.training.networks import build_network
from reconlib.training.objectives import EnergyGap, ScoreMatching
from reconlib.training.run_state import _stream

HERE = Path(__file__).parent


def fixed_gradients(processes: Processes) -> dict[str, torch.Tensor]:
    """Gradients of both objectives on this process' part of a batch of eight that everyone knows."""
    generator = torch.Generator().manual_seed(3)
    images = blobs(8)[:, None].double()
    noise = torch.randn(images.shape, generator=generator, dtype=torch.float64)
    levels = torch.linspace(0.05, 0.2, 8, dtype=torch.float64)
    mine = slice(processes.rank, None, processes.count)
    arguments = {"score": (images, noise, levels), "gap": (images, images + 0.1 * noise)}
    found = {}
    for name, batch in arguments.items():
        network = build_network(small_settings()).double()
        with torch.no_grad():
            for weight in network.parameters():
                weight.copy_(0.2 * torch.randn(weight.shape, generator=generator))
        loss = ScoreMatching(network, 4, 1.0) if name == "score" else EnergyGap(network, 0.015)
        averaging = processes.averaging(loss)
        averaging(*(one[mine] for one in batch)).backward()
        found |= {f"{name} {key}": p.grad.clone() for key, p in network.named_parameters()}
    return found


def one_of_two(folder: Path) -> None:
    """What each of the two processes does; the results go to files."""
    from reconlib.training.distributed import joined_processes

    with joined_processes(torch.device("cpu")) as processes:
        result = {
            "gradients": fixed_gradients(processes),
            "mean": processes.mean([processes.rank, 3.0]),
            "largest": processes.largest([float(processes.rank), float("nan") if processes.rank else 0.0]),
        }
        settings = small_settings("maximum-likelihood", n_updates=6)
        asked = iter([False] * 3 + [processes.rank == 1])
        stopped = run(settings, folder / "run", processes=processes, stop=lambda: next(asked))
        result |= {"stopped": stopped.n_updates}
        last = run(settings, folder / "run", processes=processes, resume=True)
        whole = run(settings, folder / "whole", processes=processes)
        result |= {
            "weights": dict(last.network.state_dict()),
            "exact": same_weights(last.network, whole.network),
            "processes": last.processes,
        }
    (folder / f"{processes.rank}.pickle").write_bytes(pickle.dumps(result))


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, list[dict]]:
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(2):
        environment = os.environ | {
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[2])]),
        }
        code = f"import pathlib, test_distributed as t; t.one_of_two(pathlib.Path({str(folder)!r}))"
        started.append(
            subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in started:
        _, complaint = process.communicate(timeout=200)
        assert process.returncode == 0, complaint
    return folder, [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(2)]


@pytest.mark.slow
def test_two_processes_have_the_gradient_of_one_with_twice_the_batch(two):
    expected = fixed_gradients(Processes())
    for result in two[1]:
        assert result["gradients"].keys() == expected.keys()
        for name, gradient in expected.items():
            found = result["gradients"][name]
            scale = float(gradient.abs().max())
            torch.testing.assert_close(found, gradient, rtol=1e-9, atol=1e-11 * scale, msg=name)


@pytest.mark.slow
def test_two_processes_end_with_the_same_weights_and_resume_exactly(two):
    first, second = two[1]
    assert first["stopped"] == second["stopped"] == 4, "the second asked; both stop in the same update"
    assert first["exact"]
    assert second["exact"]
    assert first["processes"] == 2
    for name, value in first["weights"].items():
        assert torch.equal(value, second["weights"][name])


@pytest.mark.slow
def test_every_process_has_its_own_buffer_and_random_numbers(two):
    folder = two[0] / "run" / "checkpoints" / "00000006-0"
    own = [torch.load(folder / f"process-{rank}.pt", weights_only=True) for rank in range(2)]
    images = [state["step"]["images"] for state in own]
    assert [len(part) for part in images] == [12, 12], "a buffer of 24, shared"
    assert not torch.equal(*images)
    for name in ("patches", "chains"):
        assert not torch.equal(*(state["generators"][name] for state in own))
    assert sorted(path.name for path in folder.iterdir()) == ["process-0.pt", "process-1.pt", "shared.pt"]
    assert len((two[0] / "run" / "log.jsonl").read_text().splitlines()) == 3, "only one process writes"


@pytest.mark.slow
def test_processes_agree_on_what_they_saw(two):
    for result in two[1]:
        assert result["mean"] == [0.5, 3.0]
        assert result["largest"] == [1.0, float("inf")], "a NaN on one process is trouble for all"


@pytest.mark.slow
def test_a_run_of_two_is_not_resumed_by_one(two):
    from reconlib.training.checkpoint import CheckpointError

    with pytest.raises(CheckpointError, match=re.escape("the number of processes (then 2, now 1)")):
        run(small_settings("maximum-likelihood", n_updates=6), two[0] / "run", resume=True)


def test_a_batch_must_be_divisible():
    message = "batch is 9, which 2 processes cannot share evenly; set it to a multiple of 2"
    with pytest.raises(ValueError, match=re.escape(message)):
        Processes(0, 2).share(9, "batch")
    assert Processes(1, 2).share(8, "batch") == 4


def test_seeds_differ_between_processes_purposes_and_runs():
    seeds = [
        _stream(seed, rank, name) for seed in (0, 1) for rank in range(8) for name in ("patches", "chains")
    ]
    assert len(set(seeds)) == 32
