"""A peer that does exactly what a test tells it: a scanner, a client, or Gadgetron with an external node.

It takes the stream apart with struct, from PROTOCOL.md, not with the codec under test.
"""

import contextlib
import math
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

CONFIG_NAME, CONFIG_TEXT, HEADER, CLOSE, TEXT, QUERY, RESPONSE, ERROR = range(1, 9)
ACQUISITION, IMAGE, RECON_DATA, IMAGE_ARRAY, WAVEFORM, BUCKET = 1008, 1022, 1023, 1024, 1026, 1050
PIXEL_BYTES = {1: 2, 2: 2, 3: 4, 4: 4, 5: 4, 6: 8, 7: 8, 8: 16}

CLOSE_BYTES = b"\x04\x00"
NAMED_CONFIG = struct.pack("<H1024s", CONFIG_NAME, b"default")


def text_message(message_id: int, text: bytes) -> bytes:
    return struct.pack("<HI", message_id, len(text)) + text


GADGETRON_CONFIG = text_message(CONFIG_TEXT, b'<?xml version="1.0"?>\n<configuration/>\n')
SCAN_HEADER = text_message(HEADER, b"<ismrmrdHeader/>")


def readout(n_samples: int = 16, n_channels: int = 2, *, counter: int = 0) -> bytes:
    """A readout of ones."""
    header = bytearray(340)
    struct.pack_into("<HQII", header, 0, 1, 0, 0, counter)
    struct.pack_into("<HHH", header, 34, n_samples, n_channels, n_channels)
    return struct.pack("<H", ACQUISITION) + header + np.ones(n_samples * n_channels, "<c8").tobytes()


def image(n_x: int, n_y: int, data_type: int = 5) -> bytes:
    header = bytearray(198)
    struct.pack_into("<HH", header, 0, 1, data_type)
    struct.pack_into("<3H", header, 16, n_x, n_y, 1)
    struct.pack_into("<H", header, 34, 1)
    pixels = bytes(n_x * n_y * PIXEL_BYTES.get(data_type, 1))
    return struct.pack("<H", IMAGE) + header + struct.pack("<Q", 0) + pixels


class ScriptedPeer:
    """One end of a connection."""

    def __init__(self, sock: socket.socket, seconds: float = 20.0) -> None:
        self.sock = sock
        sock.settimeout(seconds)

    @classmethod
    def dial(cls, address: tuple[str, int], seconds: float = 20.0) -> "ScriptedPeer":
        return cls(socket.create_connection(address, seconds), seconds)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.sock.sendall(piece)

    def send_byte_by_byte(self, data: bytes) -> None:
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(data)):
            self.sock.sendall(data[position : position + 1])

    def take(self, n_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < n_bytes:
            piece = self.sock.recv(n_bytes - len(data))
            if not piece:
                raise EOFError(f"the connection ended {n_bytes - len(data)} bytes too early")
            data += piece
        return bytes(data)

    def take_message(self) -> tuple[int, bytes]:
        """Return id and body of the next message."""
        (message_id,) = struct.unpack("<H", self.take(2))
        if message_id == CLOSE:
            return message_id, b""
        if message_id == TEXT:
            return message_id, self.take(*struct.unpack("<I", self.take(4)))
        if message_id == ERROR:
            return message_id, self.take(*struct.unpack("<Q", self.take(8)))
        if message_id == RESPONSE:
            return message_id, self.take(struct.unpack("<QQ", self.take(16))[1])
        if message_id == ACQUISITION:
            header = self.take(340)
            n_samples, _, n_channels = struct.unpack_from("<HHH", header, 34)
            (n_dimensions,) = struct.unpack_from("<H", header, 176)
            return message_id, header + self.take(n_samples * (4 * n_dimensions + 8 * n_channels))
        if message_id == IMAGE:
            header = self.take(198)
            (data_type,) = struct.unpack_from("<H", header, 2)
            n_x, n_y, n_z = struct.unpack_from("<3H", header, 16)
            (n_channels,) = struct.unpack_from("<H", header, 34)
            meta_length = self.take(8)
            meta = self.take(*struct.unpack("<Q", meta_length))
            pixels = self.take(n_x * n_y * n_z * n_channels * PIXEL_BYTES[data_type])
            return message_id, header + meta_length + meta + pixels
        if message_id == WAVEFORM:
            header = self.take(40)
            n_samples, n_channels = struct.unpack_from("<HH", header, 28)
            return message_id, header + self.take(4 * n_samples * n_channels)
        if message_id == IMAGE_ARRAY:
            return message_id, self._take_image_array()
        raise ValueError(f"message id {message_id} was not expected")

    def _take_image_array(self) -> bytes:
        """Pixels, headers, metas, no waveforms, and acquisition headers where their flag says so."""
        parts = [self._take_array(8), self._take_array(198), self.take(8)]
        for _ in range(*struct.unpack("<Q", parts[-1])):
            length = self.take(8)
            parts += [length, self.take(*struct.unpack("<Q", length))]
        parts.append(self.take(1))
        if parts[-1] != b"\0":
            raise ValueError("an image array with waveforms was not expected")
        parts.append(self.take(1))
        if parts[-1] != b"\0":
            parts.append(self._take_array(340))
        return b"".join(parts)

    def _take_array(self, item_bytes: int) -> bytes:
        n_axes = self.take(8)
        axes = self.take(8 * struct.unpack("<Q", n_axes)[0])
        n_items = math.prod(struct.unpack(f"<{len(axes) // 8}Q", axes))
        return n_axes + axes + self.take(n_items * item_bytes)

    def take_all(self) -> list[tuple[int, bytes]]:
        """Return all messages up to CLOSE, which must be the last, then check that the stream ends."""
        messages = [self.take_message()]
        while messages[-1][0] != CLOSE:
            messages.append(self.take_message())
        if rest := self.sock.recv(1):
            raise AssertionError(f"{rest!r} came after CLOSE")
        return messages

    def is_at_end_soon(self) -> None:
        """Read without looking until the other side closes or resets."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(65536):
                pass

    def vanish(self) -> None:
        """Close, as the kernel does for a process that dies."""
        self.sock.close()

    def reset(self) -> None:
        """Close with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def __enter__(self) -> "ScriptedPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


class ScriptedGadgetron:
    """Gadgetron's side of ``<execute type="python">``: listens, starts the module, waits for its call."""

    def __init__(
        self,
        module: str,
        target: str,
        *,
        import_from: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> None:
        self.seconds = seconds
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(seconds)
            path = os.pathsep.join([*map(str, import_from), *filter(None, sys.path)])
            settings = {"PYTHONPATH": path, "GADGETRON_EXTERNAL_LOG_LEVEL": "INFO", **(environment or {})}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gadgetron", str(listener.getsockname()[1]), module, target],
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.peer = ScriptedPeer(listener.accept()[0], seconds)

    def ends_within(self, seconds: float) -> int:
        """Return its exit code."""
        return self.process.wait(seconds)

    def log(self) -> str:
        return self.process.communicate(timeout=self.seconds)[0]

    def __enter__(self) -> "ScriptedGadgetron":
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.sock.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
