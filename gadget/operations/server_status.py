"""How a server is, as it says when it is asked."""

from dataclasses import dataclass
from enum import Enum


class Condition(Enum):
    """Whether scans are reconstructed now; the value is what people read."""

    READY = "ready"
    LOADING = "loading the model; scans wait"
    RESTARTING = "the reconstruction stopped or gives no sign of life; scans wait until it goes on"
    STOPPING = "stopping: running scans are finished, new ones refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A moment of a server's life."""

    condition: Condition = Condition.READY
    worker_pid: int | None = None
    """Of the process that reconstructs, where it is another one; None while there is none."""
    n_restarts: int = 0
    n_connections: int = 0
    most_connections: int | None = None
    queued_bytes: int = 0
    """What peers have sent and the reconstruction has not taken yet."""
