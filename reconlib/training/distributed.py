"""Several processes, one run: what they agree on and what each does alone.

``torchrun --no-python --nproc-per-node N gadgetron-ebm train ...`` starts N processes that find each other by
environment variables. Gradients are averaged by DistributedDataParallel, which is given the whole loss as a
module (the image gradients of a local energy are written out by hand, outside of the network's ``forward``).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn


class SharingError(ValueError):
    """The run cannot be divided among the processes; the text says why."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a run; this one has the number ``rank``. One process is the plain case."""

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def share(self, total: int, what: str) -> int:
        """Return this process' part of a total, which must divide evenly."""
        if total % self.count:
            raise SharingError(
                f"{what} is {total}, which {self.count} processes cannot share evenly; "
                f"set it to a multiple of {self.count}, or start another number of processes."
            )
        return total // self.count

    def averaging(self, loss: nn.Module) -> nn.Module:
        """Return the loss as a module whose ``backward`` leaves the gradients' mean over the processes.

        Keep the module as long as it is used, and make one only for each set of weights.
        """
        if self.count == 1:
            return loss
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(loss)

    def mean(self, values: Sequence[float]) -> list[float]:
        """Mean of each value over the processes."""
        if self.count == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(together)
        return [float(v) / self.count for v in together]

    def largest(self, values: Sequence[float]) -> list[float]:
        """Largest of each value over the processes; NaN where a process has one."""
        if self.count == 1:
            return list(values)
        # MAX treats NaN in ways that differ between backends: send it as infinity
        finite = [v if v == v else float("inf") for v in values]
        together = torch.tensor(finite, dtype=torch.float64, device=self.device)
        distributed.all_reduce(together, op=distributed.ReduceOp.MAX)
        return [float(v) for v in together]

    def wait(self) -> None:
        """Return once every process has come here."""
        if self.count > 1:
            distributed.barrier()


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun started, or go alone where it did not.

    On GPUs every process takes the one of its local rank; on a CPU they talk through gloo.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device=device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), count, device)
    finally:
        distributed.destroy_process_group()
