"""Fronts with a worker process of their own."""

from collections.abc import Callable, Iterator

import pytest
from front_scans import Record, recorded, supervising
from running_server import QUICK, RunningServer, running_servers

from gadget.front.relay import Relay
from gadget.front.supervisor import Supervisor
from gadget.scan_watch import WatchFactory
from gadget.settings import Settings


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """Return one for a test whose workers die."""
    with supervising() as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def lasting() -> Iterator[Supervisor]:
    """Return one whose worker outlives every test that uses it."""
    with supervising() as supervisor:
        pid = supervisor.pid
        yield supervisor
        assert supervisor.pid == pid


@pytest.fixture
def run() -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts a front, which keeps the scans if told to."""
    with running_servers() as start:

        def front(
            supervisor: Supervisor, *, keeps: bool = False, prior: str = "tv", **options: object
        ) -> RunningServer:
            watches: list[WatchFactory] = [lambda _address: Record()] if keeps else []
            relay = Relay(
                supervisor,
                lambda *_head: Settings(seed=17, prior=prior),
                recorded if keeps else lambda _peer: None,
            )
            return start(relay, watch_factories=watches, **{"options": QUICK, **options})

        yield front
