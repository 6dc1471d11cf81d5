"""Small scans as messages, and stand-ins for the joint reconstruction: what the tests of the stream share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ismrmrd
import torch

from gadget.pipeline import reconstruct_stream
from gadget.reconstructor import Reconstructor
from gadget.scan_file import read_scan
from gadget.scan_writer import write_scan
from gadget.scan_writer_header import ScanFileSettings
from gadget.settings import Settings, load_settings
from gadget.wire.messages import ConfigText, Image, Message
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.simulation.scan import SimulatedScan, simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

TOTAL_VARIATION = load_settings(None, [("prior", "tv"), ("device", "cpu"), ("posterior.enabled", False)])
QUICK = ("--no-posterior", "--prior", "tv", "--set", "solver.iterations=2", "--device", "cpu")
"""The same as options of a command, with two iterations."""
GADGETRON = ConfigText("<configuration/>")
"""How Gadgetron begins."""
MATRIX = (26, 20)
N_ITERATIONS = 7


@cache
def simulated(n_slices: int, noise: float) -> SimulatedScan:
    """Simulate a scan of 3 coils and 26 x 20 pixels, fully sampled."""
    return simulate_head_scan(
        ScanSettings(
            matrix=MATRIX,
            fov_mm=(260.0, 200.0),
            n_slices=n_slices,
            n_coils=3,
            pattern="full",
            noise=noise,
            seed=5,
        )
    )


def make_scan(
    path: Path, *, n_slices: int = 3, n_repetitions: int = 1, noise: float = 0.02, **recording: Any
) -> Path:
    """Write such a scan, with the same samples in each repetition."""
    write_scan(path, [simulated(n_slices, noise)] * n_repetitions, ScanFileSettings(**recording))
    return path


def scan_messages(folder: Path, **kind: Any) -> list[Message]:
    """Return the messages of such a scan, CLOSE included."""
    return list(read_scan(make_scan(folder / "scan.h5", **kind)))


@dataclass
class StandIn:
    """A joint reconstruction that only says how slices end, and keeps what it was called with.

    The image is slice number + 1 everywhere, counted over calls; ``misbehave`` may raise or change the
    result.
    """

    outcomes: Iterable[Outcome] = ()
    misbehave: Callable[[SimpleNamespace], None] = lambda _result: None

    def __post_init__(self) -> None:
        self.batches: list[KSpace] = []
        self.calls: list[dict[str, Any]] = []
        self._outcomes = iter(self.outcomes)
        self._n_slices = 0

    def __call__(self, kspace: KSpace, **others: Any) -> SimpleNamespace:
        self.batches.append(kspace)
        self.calls.append(others)
        if others["on_iteration"] is not None:
            for iteration in range(1, N_ITERATIONS + 1):
                others["on_iteration"](SimpleNamespace(iteration=iteration, iterations=N_ITERATIONS))
        n, _, n_y, n_x = kspace.samples.shape
        numbers = torch.arange(1, n + 1) + self._n_slices
        self._n_slices += n
        result = SimpleNamespace(
            image=(numbers[:, None, None, None] * torch.ones(n, 1, n_y, n_x)).to(torch.complex64),
            coils=torch.full_like(kspace.samples, 2j),
            outcomes=tuple(next(self._outcomes, Outcome.OUT_OF_ITERATIONS) for _ in range(n)),
            n_iterations=(N_ITERATIONS,) * n,
            scale=(0.5,) * n,
            noise_level=(0.25,) * n,
            prior_weight=(0.125,) * n,
            mean_coil_magnitude=(0.75,) * n,
            image_phase="real",
            prior_weight_rule="noise",
            solver="fast",
        )
        self.misbehave(result)
        return result


def reconstructor(joint: StandIn, **others: Any) -> Reconstructor:
    """Return a reconstructor on the CPU with a stand-in for the joint reconstruction."""
    return Reconstructor("cpu", joint=joint, **others)


def settings(**changes: Any) -> Settings:
    """Return settings with total variation as prior, without uncertainty, and some keys changed.

    ``__`` in the name of a key stands for a dot.
    """
    return load_settings(
        None,
        [
            ("prior", "tv"),
            ("device", "cpu"),
            ("posterior.enabled", False),
            *((key.replace("__", "."), value) for key, value in changes.items()),
        ],
    )


def run_stream(
    messages: Iterable[Message], joint: StandIn | None = None, chosen: Settings | None = None, **others: Any
) -> list[Message]:
    """Return all answers to a stream, with a stand-in for the joint reconstruction."""
    made = reconstructor(StandIn() if joint is None else joint)
    return list(reconstruct_stream(messages, chosen or settings(), reconstructor=made, **others))


def meta_of(image: Image) -> ismrmrd.Meta:
    """Read an image's meta as a client does."""
    return ismrmrd.Meta.deserialize(image.meta.partition("\0")[0])
