"""How patient we are with a peer, and what its socket is set to."""

import socket
from dataclasses import dataclass, field

from gadget.inbox_room import InboxRoom
from gadget.wire.limits import MIB, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How patient we are with a peer, and how much of it we keep in memory."""

    first_message_s: float = 30.0
    """Longest wait for the first message."""
    idle_s: float | None = 300.0
    """Longest time without a byte in either direction while the peer has not sent CLOSE; None: no limit."""
    send_s: float = 300.0
    """Longest wait for the peer to take a message of ours."""
    grace_s: float = 2.0
    """How long a reconstruction may take to stop once its peer is gone; then it is left behind."""
    linger_s: float = 1.5
    """Longest silence of a peer between our CLOSE and its own, so that our last words are not lost, and what
    it still sends of a scan that failed is not lost to those who keep it."""
    inbox_bytes: int = 512 * MIB
    """How far the peer may be ahead of the reconstruction; beyond, TCP makes it wait."""
    room: InboxRoom = field(default_factory=InboxRoom)
    """What all connections that have these options may be ahead together."""
    scan_bytes: int = 65536 * MIB
    """Most that one peer may send."""
    limits: Limits = field(default_factory=Limits)
    """The largest sizes that are believed."""


KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine or cable died sends no end of stream: the kernel asks after 30 s of silence, and then
every 10 s; three questions without an answer end the connection, a minute after the peer's last sign."""


def prepare(sock: socket.socket, send_s: float) -> None:
    """Set time limit, keep-alive and immediate sending of a connected socket."""
    sock.settimeout(send_s)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
