"""How front and worker talk beside the scans: JSON texts, one a packet, over a pair of Unix sockets.

With a text the front may pass the socket over which a scan will come. The end of the stream says that the
other process is gone.
"""

import contextlib
import errno
import json
import select
import socket
from array import array
from typing import Any

from gadget.errors import GadgetError

_MOST_BYTES = 512 * 1024
"""Of one packet; the kernel's buffers hold less unless an administrator raised them."""


class Channel:
    """One end; texts may be sent by several threads, and are read by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple["Channel", socket.socket]:
        """Return an end, and the socket of the other one."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(own), other

    def send(
        self, content: dict[str, Any], passed: socket.socket | None = None, *, waits: bool = True
    ) -> None:
        """Send a text, and a socket with it.

        Raises
        ------
        BlockingIOError
            The other process reads nothing and the buffer is full; only where this is not to wait for room.
        OSError
            The other process is gone.
        GadgetError
            The text is too long for a packet.
        """
        packet = json.dumps(content).encode()
        flags = 0 if waits else socket.MSG_DONTWAIT
        passing = (
            [] if passed is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [passed.fileno()]))]
        )
        try:
            # whole or not at all, as packets are, also where several threads send
            self._sock.sendmsg([packet], passing, flags)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise GadgetError(
                    f"The settings of a scan take {len(packet)} bytes as text, more than the system passes "
                    "between processes; use fewer or shorter rules."
                ) from error
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for something to receive, at most so long; whether there is."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self) -> tuple[dict[str, Any], socket.socket | None] | None:
        """Wait for a text and what was passed with it; None: the other process is gone."""
        try:
            try:
                packet, handles, _, _ = socket.recv_fds(self._sock, _MOST_BYTES, 1)
            except ConnectionResetError:  # it left something unread; what it said before comes behind that
                packet, handles, _, _ = socket.recv_fds(self._sock, _MOST_BYTES, 1)
        except OSError:
            return None
        passed = socket.socket(fileno=handles[0]) if handles else None
        if not packet:
            return None
        return json.loads(packet), passed

    def hang_up(self) -> None:
        """End it for both sides; a thread that waits in :meth:`receive` gets None."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket; nobody may be waiting in :meth:`receive`."""
        self._sock.close()
