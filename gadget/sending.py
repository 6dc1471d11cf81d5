"""A recorded scan to a server, and what comes back into an image file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from gadget.client import send_scan
from gadget.errors import PeerProtocolError
from gadget.finished_slice import RELIABLE as RELIABLE_OUTCOMES
from gadget.image_file import new_image_file, refuse_same_file
from gadget.image_meta import read_meta
from gadget.picture_files import PictureFolder
from gadget.scan_file import read_scan
from gadget.series import POSTERIOR_MEAN, POSTERIOR_STD, RECONSTRUCTION
from gadget.wire.messages import Acquisition, ConfigFile, Image, Message, ScanHeader, Text

ORDINARY = (RECONSTRUCTION.name, POSTERIOR_MEAN.name, POSTERIOR_STD.name)
"""``EBM_Image`` of images that are what was asked for; other servers' images have none."""
RELIABLE = tuple(outcome.name for outcome in RELIABLE_OUTCOMES)


@dataclass(slots=True)
class Received:
    """What a server sent back."""

    n_images: int = 0
    labelled: list[str] = field(default_factory=list)
    """A line for each image that is labelled as no ordinary reconstruction, and each text from the server."""
    rough: list[str] = field(default_factory=list)
    """A line for each uncertainty image that is not to be relied on."""


def send_and_keep(
    scan: Path,
    out: Path,
    host: str,
    port: int,
    *,
    config_name: str,
    group: str = "dataset",
    png: Path | None = None,
    overwrite: bool = False,
    on_readout: Callable[[], None] = lambda: None,
) -> Received:
    """Send a scan to a server; its images are written whole or not at all.

    Raises
    ------
    GadgetError
        A file cannot be read or written, the server cannot be reached, fails, or sends no image.
    """
    refuse_same_file(scan, out)
    received = Received()
    pictures = PictureFolder(png, overwrite=overwrite) if png else None
    with new_image_file(out, overwrite=overwrite) as images:
        for header in islice(read_scan(scan, group), 1):
            if isinstance(header, ScanHeader):
                images.write_header(header.text)
        messages = chain([ConfigFile(config_name)], _counted(read_scan(scan, group), on_readout))
        for reply in send_scan(messages, host, port):
            if isinstance(reply, Image):
                received.n_images += 1
                _take_note(received, reply)
                images.append_image(reply)
                if pictures is not None:
                    pictures.add(reply)
            elif isinstance(reply, Text):
                # An MRD server has no other way to report that it failed half-way.
                received.labelled.append(f"the server says: {reply.text}")
        if received.n_images == 0:
            reason = "; ".join(received.labelled) or "its log may say why"
            raise PeerProtocolError(f"The server at {host} port {port} sent no image: {reason}.")
    return received


def _counted(messages: Iterable[Message], on_readout: Callable[[], None]) -> Iterator[Message]:
    for message in messages:
        if isinstance(message, Acquisition):
            on_readout()
        yield message


def _take_note(received: Received, image: Image) -> None:
    """Keep the comment of an image whose meta says that it, or its uncertainty, is not to be relied on."""
    meta = read_meta(image)
    line = f"image {received.n_images}: {meta.get('ImageComments', meta.get('EBM_Image'))}"
    if meta.get("EBM_Image", ORDINARY[0]) not in ORDINARY:
        received.labelled.append(line)
    elif meta.get("EBM_Posterior", RELIABLE[0]) not in RELIABLE:
        received.rough.append(line)
