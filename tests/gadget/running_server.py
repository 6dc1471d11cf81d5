"""A server in a thread, for scripted peers."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from scripted_peer import (
    ACQUISITION,
    CLOSE,
    CLOSE_BYTES,
    GADGETRON_CONFIG,
    NAMED_CONFIG,
    SCAN_HEADER,
    TEXT,
    ScriptedPeer,
    readout,
)

from gadget.answering import Handler, Peer
from gadget.connection_options import ConnectionOptions
from gadget.server import Server
from gadget.wire.messages import Acquisition, Image, Message, Waveform

SCAN = NAMED_CONFIG + SCAN_HEADER + b"".join(readout(counter=k) for k in range(5)) + CLOSE_BYTES
ECHO = [(ACQUISITION, readout(counter=k)[2:]) for k in range(5)] + [(CLOSE, b"")]
"""What a peer takes for it from a server that echoes."""
GADGETRON_SCAN = GADGETRON_CONFIG + SCAN_HEADER + readout() + CLOSE_BYTES
QUICK = ConnectionOptions(grace_s=20.0, linger_s=0.5)


def echo(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
    """Answer with the readouts, images and waveforms that came."""
    for message in messages:
        if isinstance(message, Acquisition | Image | Waveform):
            yield message


class RunningServer:
    """A server on a free port of its own."""

    def __init__(
        self,
        handle: Handler = echo,
        options: ConnectionOptions = QUICK,
        hosts: tuple[str, ...] = ("127.0.0.1",),
        **more: object,
    ) -> None:
        self.server = Server(handle, hosts=hosts, port=0, options=options, **more)  # type: ignore[arg-type]  # as given
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def dial(self, host: int = 0) -> ScriptedPeer:
        return ScriptedPeer.dial(self.server.addresses[host])

    def serves(self) -> bool:
        """Whether it serves a whole scan now; within five seconds, so nothing before it may hang."""
        try:
            with ScriptedPeer.dial(self.server.addresses[0], seconds=5) as peer:
                peer.send(SCAN)
                numbers = [message_id for message_id, _ in peer.take_all()]
        except (ConnectionError, EOFError):  # refused without a word
            return False
        return numbers[-1] == CLOSE and TEXT not in numbers

    def has_ended_all(self) -> bool:
        """Whether all connections have ended within five seconds."""
        return soon(lambda: not self.server.n_connections)

    def close(self) -> None:
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.server.close()


def soon(holds: Callable[[], object], seconds: float = 5.0) -> bool:
    """Whether something comes to hold in time; the outcome of waiting for what no event tells."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def running_servers() -> Iterator[Callable[..., RunningServer]]:
    """Yield a function that starts servers, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: object, **options: object) -> RunningServer:
            running = RunningServer(*arguments, **options)  # type: ignore[arg-type]  # as given
            stack.callback(running.close)
            return running

        yield start
