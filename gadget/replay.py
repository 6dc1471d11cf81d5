"""The pipeline fed from a file: a recorded scan in, an image file out."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from gadget.errors import ScanError
from gadget.finished_slice import FinishedSlice
from gadget.image_file import ImageFile, new_image_file, refuse_same_file
from gadget.image_labels import StreamSummary
from gadget.picture_files import PictureFolder
from gadget.pipeline import reconstruct_stream
from gadget.reconstructor import Reconstructor
from gadget.scan_file import read_scan
from gadget.settings import Settings
from gadget.wire.messages import Acquisition, Image, Message, ScanHeader

logger = logging.getLogger(__name__)


def replay(
    scan: Path,
    out: Path,
    settings: Settings,
    *,
    group: str = "dataset",
    coils: Path | None = None,
    png: Path | None = None,
    overwrite: bool = False,
    reconstructor: Reconstructor | None = None,
    on_readout: Callable[[], None] = lambda: None,
    on_slice: Callable[[FinishedSlice], None] = lambda _finished: None,
) -> StreamSummary:
    """Reconstruct a recorded scan; the image file is written whole or not at all.

    Parameters
    ----------
    coils
        Where to keep the estimated coil maps, on the grid of the assembled k-space (after prewhitening).
        Slices whose image is a fallback have none.
    png
        A folder, made where it is missing, for pictures of each image: itself, its uncertainty, and where it
        is unusual under a local prior.
    on_readout, on_slice
        Called for each readout that is read, and for each image that is made.

    Raises
    ------
    GadgetError
        A file cannot be read or written, or the scan or its settings are faulty.
    """
    refuse_same_file(scan, out, coils)
    summary = StreamSummary()
    pictures = PictureFolder(png, overwrite=overwrite) if png else None
    with ExitStack() as files:
        images = files.enter_context(new_image_file(out, overwrite=overwrite))
        maps = files.enter_context(new_image_file(coils, overwrite=overwrite)) if coils else None

        def keep(finished: FinishedSlice) -> None:
            if maps is not None and finished.result.coils is not None:
                maps.append_coils(finished.result.coils, finished.image.header)
            if pictures is not None:
                pictures.add_typicality(finished)
            on_slice(finished)

        messages = _watched(read_scan(scan, group), [file for file in (images, maps) if file], on_readout)
        for reply in reconstruct_stream(
            messages, settings, reconstructor=reconstructor, summary=summary, on_slice=keep
        ):
            if isinstance(reply, Image):
                images.append_image(reply)
                if pictures is not None:
                    pictures.add(reply)
        if summary.n_images == 0:
            raise ScanError(
                f"{scan} gave no image: it has no imaging readouts, only noise, calibration or others."
            )
    return summary


def _watched(
    messages: Iterable[Message], files: list[ImageFile], on_readout: Callable[[], None]
) -> Iterator[Message]:
    for message in messages:
        if isinstance(message, ScanHeader):
            for file in files:
                file.write_header(message.text)
        elif isinstance(message, Acquisition):
            on_readout()
        yield message
