"""Gadgetron's side of a chain with an external node, as Gadgetron 4.7 plays it.

It reads a chain as Gadgetron's own parser does, starts or dials the external node, sends it configuration and
header, gives it those messages that it has a writer for, and takes what comes back: see PROTOCOL.md. What
stands before and after the node in the chain is not run; tests say what it would send.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import scripted_peer as script
from gadgetron.external.connection import Connection
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, ScriptedGadgetron, ScriptedPeer

TO_THE_NODE = {
    *(script.ACQUISITION, script.WAVEFORM, script.IMAGE),
    *(script.RECON_DATA, script.IMAGE_ARRAY, script.BUCKET),
}
"""Where a chain names no writers for its node, Gadgetron has one for each of these; and readers as well."""
REFUSED_PIXELS = (2, 4)
"""int16 and int32: an image of these from the node ends the chain."""


class ChainError(Exception):
    """The chain fails, as Gadgetron's would; the text is what its log says."""


@dataclass(frozen=True)
class Gadget:
    """A gadget, a reader or a writer."""

    dll: str
    classname: str
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Chain:
    """What Gadgetron makes of a configuration of version 2 with one external node."""

    readers: tuple[Gadget, ...]
    writers: tuple[Gadget, ...]
    before: tuple[Gadget, ...]
    action: str
    """execute or connect."""
    action_attributes: Mapping[str, str]
    configuration: bytes
    """What the node is sent: the element as it stands, or a bare declaration where there is none."""
    after: tuple[Gadget, ...]


def read_chain(text: str) -> Chain:
    """Read a chain; raise ChainError where Gadgetron would refuse it."""
    root = ElementTree.fromstring(text)
    if root.tag != "configuration" or root.findtext("version") != "2":
        raise ChainError("No parser accepted config file.")
    nodes = list(root.find("stream") or ())
    if unknown := {node.tag for node in nodes} - {"gadget", "external"}:
        raise ChainError(f"map::at: {unknown}")
    (place,) = [number for number, node in enumerate(nodes) if node.tag == "external"]
    external = nodes[place]
    if any(child.tag in ("readers", "writers") for child in external):
        raise ChainError("this script knows external nodes with Gadgetron's default readers and writers only")
    action = next((child for child in external if child.tag in ("execute", "connect")), None)
    if action is None:
        raise ChainError("Unable to parse valid action for external node")
    configuration = external.find("configuration")
    sent = b"" if configuration is None else ElementTree.tostring(configuration).strip() + b"\n"
    return Chain(
        readers=_gadgets(root.find("readers")),
        writers=_gadgets(root.find("writers")),
        before=tuple(map(_gadget, nodes[:place])),
        action=action.tag,
        action_attributes=dict(action.attrib),
        configuration=b'<?xml version="1.0"?>\n' + sent,
        after=tuple(map(_gadget, nodes[place + 1 :])),
    )


def _gadgets(parent: ElementTree.Element | None) -> tuple[Gadget, ...]:
    return tuple(map(_gadget, () if parent is None else parent))


def _gadget(node: ElementTree.Element) -> Gadget:
    properties = {}
    for found in node.iter("property"):
        by_attributes = "name" in found.attrib and "value" in found.attrib
        by_children = found.find("name") is not None and found.find("value") is not None
        if by_attributes == by_children:
            raise ChainError("Unable to parse property" if not by_attributes else "Ambigous property parse")
        name, value = (found.get(key) if by_attributes else found.findtext(key) for key in ("name", "value"))
        properties[str(name)] = value or ""
    return Gadget(node.findtext("dll") or "", node.findtext("classname") or "", properties)


class NodeInThread:
    """The node as the gadgetron package runs it, but in this process: quick to start."""

    def __init__(self, target: Callable[[Any], None]) -> None:
        ours, theirs = socket.socketpair()
        self.peer = ScriptedPeer(ours)
        self.exit_code: object = 0
        self.thread = threading.Thread(target=self._run, args=(theirs, target))
        self.thread.start()

    def _run(self, sock: socket.socket, target: Callable[[Any], None]) -> None:
        try:
            with Connection(sock) as connection:
                target(connection)
        except SystemExit as leave:
            self.exit_code = leave.code

    def ends_within(self, seconds: float) -> object:
        """Return its exit code."""
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.exit_code


class ExternalNode:
    """The external node of a running chain, seen from Gadgetron.

    Parameters
    ----------
    peer
        The connection to it, with nothing sent.
    """

    def __init__(self, chain: Chain, peer: ScriptedPeer, header: bytes) -> None:
        self.peer = peer
        self.bypassed: list[bytes] = []
        """Messages that went past the node."""
        self._is_closed = False
        self.peer.send(
            script.text_message(script.CONFIG_TEXT, chain.configuration),
            script.text_message(script.HEADER, header),
        )

    def push(self, *messages: bytes) -> None:
        """Give the node messages from upstream, or send them past it."""
        for message in messages:
            if int.from_bytes(message[:2], "little") in TO_THE_NODE:
                self.peer.send(message)
            else:
                self.bypassed.append(message)

    def close(self) -> None:
        """Upstream has ended: in order, by a failure, or since the client is gone."""
        if not self._is_closed:
            self._is_closed = True
            self.peer.send(CLOSE_BYTES)

    def results(self) -> list[tuple[int, bytes]]:
        """Take what the node sends, up to its CLOSE.

        Raises
        ------
        ChainError
            It reported a failure, or sent what it must not.
        """
        taken: list[tuple[int, bytes]] = []
        errors = []
        while True:
            message_id, body = self.peer.take_message()
            if message_id == CLOSE:
                break
            if message_id == ERROR:
                self.close()
                errors.append(body.decode())
            elif message_id not in TO_THE_NODE:
                raise ChainError(f"Received illegal message id from external peer: {message_id}")
            elif message_id == script.IMAGE and int.from_bytes(body[2:4], "little") in REFUSED_PIXELS:
                raise ChainError("an image of a type that Gadgetron does not read")
            else:
                taken.append((message_id, body))
        if errors:
            raise ChainError("; ".join(errors))
        return taken


def dial_as_gadgetron(
    attributes: Mapping[str, str], *, tries: int = 10, pause_s: float = 2.0, seconds: float = 20.0
) -> ScriptedPeer:
    """Connect to a node that runs: the first address that the name has, again and again."""
    host, port = attributes.get("address") or "localhost", int(attributes["port"])
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    for last in [*[False] * (tries - 1), True]:
        try:
            return ScriptedPeer.dial(address[:2], seconds)
        except ConnectionRefusedError:
            if last:
                raise
            time.sleep(pause_s)
    raise AssertionError("never here")


def execute_as_gadgetron(
    attributes: Mapping[str, str], *, import_from: Sequence[Path] = (), seconds: float = 120.0
) -> ScriptedGadgetron:
    """Start the node: ``python -m gadgetron PORT MODULE TARGET``; it connects back."""
    if attributes["type"] != "python":
        raise ChainError("map::at")
    return ScriptedGadgetron(
        attributes["name"], attributes["target"], import_from=import_from, seconds=seconds
    )
