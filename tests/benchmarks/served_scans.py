"""Scans of 256 x 256 pixels and 8 coils as bytes, and a client that sends and takes at the same time."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from synthetic_scan import Protocol, Spot, noise_readout, readout

from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Close, ConfigFile, Image, Message, ScanHeader, Text

N, N_COILS = 256, 8
NOISE_STD = 0.02


def protocol(n_slices: int) -> Protocol:
    """Return the geometry: fully sampled, no oversampling."""
    return Protocol(
        encoded=(N, N, 1),
        encoded_fov=(256.0, 256.0, 5.0),
        recon=(N, N, 1),
        recon_fov=(256.0, 256.0, 5.0),
        limits={"kspace_encoding_step_1": (0, N - 1, N // 2), "slice": (0, n_slices - 1, 0)},
    )


def head(n_slices: int) -> list[Message]:
    """Return what comes before the first slice."""
    noise = noise_readout(NOISE_STD, n_coils=N_COILS, n_samples=2000)
    return [ConfigFile("default"), ScanHeader(protocol(n_slices).xml()), noise]


def slice_readouts(number: int, seed: int = 1) -> list[Acquisition]:
    """Return the readouts of a slice: two spots seen by eight coils, and noise."""
    rng = np.random.default_rng([seed, number])
    angles = np.exp(2j * np.pi * np.arange(N_COILS) / N_COILS)
    spots = (
        Spot(x=-40.0, y=25.0, width=30.0, amplitudes=tuple(1 + 0.6 * angles)),
        Spot(x=30.0, y=-35.0, width=20.0, amplitudes=tuple(1 - 0.6 * angles)),
    )
    kspace = protocol(1).kspace(spots)
    kspace = kspace + NOISE_STD * (rng.normal(size=kspace.shape) + 1j * rng.normal(size=kspace.shape))
    last = (Flag.LAST_IN_SLICE,)
    return [
        readout(kspace[:, line], line, *(last if line == N - 1 else ()), slice=number) for line in range(N)
    ]


class Client:
    """Sends bytes from one thread, and takes messages in another."""

    def __init__(self, address: tuple[str, int], pieces: Iterable[bytes]) -> None:
        self.sock = socket.create_connection(address, 10)
        self.sock.settimeout(600)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.texts: list[str] = []
        self._pieces = pieces
        self._sender = threading.Thread(target=self._send, name="client")
        self._sender.start()

    def messages(self) -> Iterator[tuple[float, Message]]:
        """Yield each message with the time when all of it was here, up to CLOSE."""
        decoder = MrdDecoder()
        while data := self.sock.recv(2**20):
            decoder.feed(data)
            at = time.monotonic()
            for message in decoder.messages():
                if isinstance(message, Close):
                    return
                yield at, message

    def images(self) -> Iterator[tuple[float, Image]]:
        """Yield the images among them; of other answers only texts are expected."""
        for at, message in self.messages():
            if isinstance(message, Text):  # that a slice has no uncertainty images, say
                self.texts.append(message.text)
                continue
            assert isinstance(message, Image), message
            yield at, message

    def close(self) -> None:
        """Wait for the sender, and close the socket."""
        self._sender.join()
        self.sock.close()

    def _send(self) -> None:
        for piece in self._pieces:
            self.sock.sendall(piece)
        self.sock.sendall(encode(Close()))


def encoded(messages: Iterable[Message]) -> bytes:
    """Return messages as one piece."""
    return b"".join(map(encode, messages))


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
