"""A worker process without torch: what it does with a scan is what the scan's configuration is named.

An answer to a readout is an image of ours with the readout's number (from 1); waveforms pass through.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import scripted_peer as script

from gadget.answering import Peer
from gadget.errors import GadgetError, ScanError
from gadget.settings import Settings
from gadget.wire.codec import MrdDecoder
from gadget.wire.messages import Acquisition, ConfigFile, Image, Message, Text, Waveform
from gadget.worker.channel import Channel
from gadget.worker.log_lines import log_to_front
from gadget.worker.process import OPTIONS, Worker
from gadget.worker.scan_request import ScanRequest

PATIENT = "Jane Doe"
RUNNING: list[str] = []


def image(number: int, comment: str = "") -> Image:
    """An image of ours."""
    meta = (
        "<ismrmrdMeta><meta><name>EBM_Image</name><value>RECONSTRUCTED</value></meta>"
        f"<meta><name>ImageComments</name><value>{comment}</value></meta></ismrmrdMeta>"
    )
    decoder = MrdDecoder()
    decoder.feed(script.image(3, 2))
    (plain,) = decoder.messages()
    assert isinstance(plain, Image)
    header = plain.header.copy()
    header["image_index"] = number
    header["attribute_string_len"] = len(meta)
    return Image(header, meta, plain.data)


def reconstruct(messages: Iterator[Message], request: ScanRequest, peer: Peer) -> Iterator[Message]:
    RUNNING.append(request.address)
    try:
        yield from _answers(messages, request, peer)
    finally:
        RUNNING.remove(request.address)


def _answers(messages: Iterator[Message], request: ScanRequest, peer: Peer) -> Iterator[Message]:
    what, number = "", 0
    for message in messages:
        if isinstance(message, ConfigFile):
            what = message.text
        elif isinstance(message, Text | Waveform):
            yield message
        elif isinstance(message, Acquisition):
            number += 1
            while what == "flood":
                yield image(number)
            if what == "slow":
                time.sleep(0.3)
            if what == "count":
                yield Text(f"{len(RUNNING)} running")
            if number == 3 and not request.fallback_only:
                _misbehave(what, peer)
            if what == "always die" and number == 3:
                os._exit(7)
            if number > request.n_images_sent:
                yield image(number, request.fallback_only or f"seed {request.settings.seed}")


def _misbehave(what: str, peer: Peer) -> None:
    match what:
        case "die":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "refuse":
            raise ScanError("The trajectory is a Lissajous figure.")
        case "fail":
            raise ValueError(PATIENT)
        case "hang":
            time.sleep(600)
        case "compute":
            while not peer.cancelled():
                time.sleep(0.01)


def load(settings: Settings) -> None:
    if settings.prior == "broken":
        raise GadgetError("prior: 'broken' is broken; mend it.")
    if settings.prior == "deadly":
        os._exit(7)


if __name__ == "__main__":
    object.__setattr__(OPTIONS, "grace_s", 3.0)  # frozen; here nobody else uses it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=json.loads(sys.argv[1])["channel"]))
    log_to_front(channel)
    Worker(channel, reconstruct=reconstruct, load=load).run()
