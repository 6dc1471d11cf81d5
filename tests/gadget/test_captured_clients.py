"""What Gadgetron's client and the FIRE client sent, byte for byte, to a server in this process."""

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scripted_peer as script
from captured_scans import assert_is_phantom, captured, images_of, root_sum_of_squares
from scripted_peer import CLOSE, IMAGE, TEXT, ScriptedPeer

from gadget.answering import Peer
from gadget.pipeline import reconstruct_stream
from gadget.server import Server
from gadget.settings import Settings, load_settings
from gadget.wire.messages import Message

CLIENTS = ("client_gadgetron", "client_fire")
NAME_BYTES = 2 + 1024
QUICK = {"prior": "tv", "solver.method": "paper", "solver.iterations": 3, "posterior.enabled": False}


class Served:
    """A server, and the settings that it reconstructs with."""

    def __init__(self) -> None:
        self.settings: Settings = load_settings(None, QUICK.items())
        self.server = Server(self._handle, hosts=["127.0.0.1"], port=0)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def _handle(self, messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        return iter(reconstruct_stream(messages, self.settings, cancelled=peer.cancelled, silent=peer.silent))

    def replay(self, *stream: bytes) -> list[tuple[int, bytes]]:
        """Send bytes as one client; return what comes, up to the server's CLOSE and the end of its stream."""
        with ScriptedPeer.dial(self.server.addresses[0]) as peer:
            peer.send(*stream)
            return peer.take_all()

    def close(self) -> None:
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.server.close()


@pytest.fixture
def served() -> Iterator[Served]:
    running = Served()
    yield running
    running.close()


def recorded(data_folder: Path, name: str) -> bytes:
    return (data_folder / "wire" / f"{name}.bin").read_bytes()


def phantom(data_folder: Path) -> np.ndarray:
    """Return the images of the same readouts as Gadgetron sent them to its external node, by numpy alone."""
    return root_sum_of_squares(captured(data_folder, "external_acquisitions")[1])


@pytest.mark.parametrize("name", CLIENTS)
def test_the_right_images_come_back_and_both_sides_close(name, served, data_folder):
    results = served.replay(recorded(data_folder, name))

    assert [number for number, _ in results] == [IMAGE, IMAGE, CLOSE]
    assert_is_phantom(images_of(results), phantom(data_folder))
    for repetition, (_, body) in enumerate(results[:2]):
        assert struct.unpack_from("<H", body, 2) == (5,)  # float
        assert struct.unpack_from("<3H", body, 16) == (64, 64, 1)
        assert struct.unpack_from("<H", body, 104) == (repetition,)
        assert struct.unpack_from("<2H", body, 126) == (repetition + 1, 1)  # number and series
        for attribute in (b"DataRole", b"ImageProcessingHistory", b"ImageType", b"Keep_image_geometry"):
            assert b"<name>%s</name>" % attribute in body


def test_the_two_clients_get_the_same_pixels(served, data_folder):
    one, other = (images_of(served.replay(recorded(data_folder, name))) for name in CLIENTS)

    np.testing.assert_array_equal(one, other)


def test_two_scans_at_once_get_each_its_own(served, data_folder):
    stream = recorded(data_folder, "client_fire")
    half = len(stream) // 2
    with (
        ScriptedPeer.dial(served.server.addresses[0]) as first,
        ScriptedPeer.dial(served.server.addresses[0]) as second,
    ):
        first.send(stream[:half])
        second.send(stream)
        ahead = second.take_all()
        first.send(stream[half:])
        behind = first.take_all()

    np.testing.assert_array_equal(images_of(ahead), images_of(behind))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_that_sends_parameters_gets_the_pixels_of_scanners(name, served, data_folder):
    """FIRE and OpenRecon: a TEXT after the header; values are texts."""
    stream = recorded(data_folder, name)
    (header_length,) = struct.unpack_from("<I", stream, NAME_BYTES + 2)
    start = NAME_BYTES + 6 + header_length
    parameters = {"version": "1.1.0", "parameters": {"config": "default", "solverIterations": "2"}}
    text = script.text_message(TEXT, json.dumps(parameters).encode())

    results = served.replay(stream[:start], text, stream[start:])

    images = [body for number, body in results if number == IMAGE]
    assert [struct.unpack_from("<H", body, 2)[0] for body in images] == [2, 2]  # int16
    assert all(b"<name>EBM_Iterations</name><value>2</value>" in body for body in images)
    assert_is_phantom(images_of(results), phantom(data_folder))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_that_goes_without_waiting_leaves_the_server_to_the_next(name, served, data_folder):
    stream = recorded(data_folder, name)
    with ScriptedPeer.dial(served.server.addresses[0]) as peer:
        peer.send(stream[: len(stream) // 2])

    assert [number for number, _ in served.replay(stream)] == [IMAGE, IMAGE, CLOSE]


def test_the_header_may_come_before_the_config(served, data_folder):
    stream = recorded(data_folder, "client_gadgetron")
    (header_length,) = struct.unpack_from("<I", stream, NAME_BYTES + 2)
    end = NAME_BYTES + 6 + header_length

    results = served.replay(stream[NAME_BYTES:end], stream[:NAME_BYTES], stream[end:])

    assert_is_phantom(images_of(results), phantom(data_folder))
