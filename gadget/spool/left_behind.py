"""What a server that was killed left in its spool."""

from collections.abc import Callable
from pathlib import Path

from gadget.spool.manifest import WHOLE, ScanRecord
from gadget.spool.scan_names import time_of
from gadget.spool.spooled_scan import readouts_in
from gadget.spool.stream_file import StreamReader
from gadget.wire.session import Dialect, dialect_of

CUT_OFF = "cut off: the server ended during this scan"
NOT_LISTED = "unknown: the server ended before this scan was put on the list"


def record_of_left_behind(name: str, stream: Path, *, stopped: Callable[[], bool]) -> ScanRecord | None:
    """Return what is known of a scan whose server did not live to put it on the list.

    Parameters
    ----------
    stopped
        Asked between messages; when it turns true, None is returned.

    Raises
    ------
    FileError
        The stream file cannot be read.
    """
    reader = StreamReader(stream)
    peer = Dialect.MRD
    n_readouts = 0
    for number, message in enumerate(reader):
        peer = dialect_of(message) if number == 0 else peer
        n_readouts += readouts_in(message)
        if stopped():
            return None
    began = time_of(name)
    return ScanRecord(
        scan=name,
        began="" if began is None else began.isoformat(timespec="seconds"),
        seconds=None,
        peer=peer.value,
        readouts=n_readouts,
        bytes=reader.n_bytes,
        images=None,
        outcome=CUT_OFF if reader.broken_off else NOT_LISTED,
        kept=reader.broken_off or WHOLE,
    )
