"""The target of Gadgetron's ``<execute name="gadget.gadgetron_entry" target="reconstruct" type="python"/>``.

Gadgetron runs ``python -m gadgetron PORT gadget.gadgetron_entry reconstruct``. The gadgetron package connects
back, reads config and header, and calls :func:`reconstruct` with its ``Connection``. From there on its socket
is ours: the package's reader never returns once the peer is gone, and takes an unknown message for the end of
the scan.

Imports that may fail stay inside functions: if importing this module failed, the gadgetron package would send
CLOSE, which looks like success with the images missing.
"""

import itertools
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gadget.answering import Handler, Peer, answer, log_ending
from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError
from gadget.operations.latency import LatencyWatch
from gadget.wire.binary import text_of
from gadget.wire.messages import ConfigText, Message, ScanHeader
from gadget.wire.session import Dialect, End, Session

if TYPE_CHECKING:
    from gadget.settings import Settings

logger = logging.getLogger(__name__)

OPTIONS = ConnectionOptions(idle_s=None)
"""No limit to Gadgetron's silence: scans pause, and on this machine a dead Gadgetron closes its socket."""
NOTHING_MORE = ConfigText("<configuration/>")
"""What the reconstruction gets for the chain's configuration, whose properties are its settings already."""


def reconstruct(connection: Any) -> None:
    """Reconstruct what comes over a ``gadgetron.external.connection.Connection``, and close it.

    Raises
    ------
    SystemExit
        The scan failed; the log and, while it was there, Gadgetron have been told.
    """
    serve_connection(connection, _pipeline)


def serve_connection(connection: Any, handle: Handler, options: ConnectionOptions = OPTIONS) -> None:
    """Do what :func:`reconstruct` does, with another reconstruction."""
    sock, config, header = _take_over(connection)
    conversation = Conversation(
        sock,
        Session(End.ANSWERER, Dialect.GADGETRON),
        address="Gadgetron",
        options=options,
        watches=[LatencyWatch("Gadgetron")],
        already_read=(ConfigText(text_of(config)), ScanHeader(text_of(header))),
    )
    ending = answer(conversation, handle)
    log_ending(ending, conversation.address, logger)
    if ending.abandoned:
        # The reconstruction's thread still runs and could keep the interpreter from ending in order.
        logging.shutdown()
        os._exit(1)
    if ending.failure is not None:
        raise SystemExit(1)


def settings_of_chain(config: Message) -> "Settings":
    """Return the settings that the properties of a chain make, over the configuration that it names, if any.

    Raises
    ------
    SettingsError
        They are faulty.
    """
    from gadget.peer_settings import own_values_from_xml
    from gadget.settings_source import SettingsSource

    values = own_values_from_xml(config.text) if isinstance(config, ConfigText) else []
    return SettingsSource(None, values).for_scan(config)


def _pipeline(messages: Iterator[Message], peer: Peer) -> Iterable[Message]:
    from gadget.commands.options import use_threads
    from gadget.pipeline import reconstruct_stream

    settings = settings_of_chain(next(messages))
    use_threads(settings)
    return reconstruct_stream(
        itertools.chain([NOTHING_MORE], messages),
        settings,
        cancelled=peer.cancelled,
        silent=peer.silent,
        overlap=True,
    )


class _Finished:
    """Takes the place of the socket in the package's Connection, which would send a second CLOSE."""

    def read(self, n_bytes: int) -> bytes:
        raise GadgetError(
            f"{n_bytes} bytes were asked of a connection that gadget.gadgetron_entry has taken over."
        )

    def write(self, data: bytes) -> None:
        raise GadgetError(
            f"{len(data)} bytes were sent on a connection that gadget.gadgetron_entry has taken over."
        )

    def close(self) -> None:
        """Do nothing: the conversation has closed the socket."""


def _take_over(connection: Any) -> tuple[socket.socket, bytes, bytes]:
    """Take socket, config and header out of a Connection, which has read exactly these from the socket."""
    sock = getattr(getattr(connection, "socket", None), "socket", None)
    raw = getattr(connection, "raw_bytes", None)
    config, header = getattr(raw, "config", None), getattr(raw, "header", None)
    if not isinstance(sock, socket.socket) or not isinstance(config, bytes) or not isinstance(header, bytes):
        raise GadgetError(
            "The connection is not what the gadgetron package 1.4.1 makes: it needs socket.socket, "
            "raw_bytes.config and raw_bytes.header. Install gadgetron 1.4.1."
        )
    connection.socket = _Finished()
    return sock, config, header
