"""A folder in which every scan is kept that a server receives: written as it comes, tidied up behind it."""

import fcntl
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from gadget.errors import FileError, GadgetError
from gadget.spool.left_behind import record_of_left_behind
from gadget.spool.limits import SpoolLimits, remove_what_is_too_much
from gadget.spool.manifest import WHOLE, Manifest, ScanRecord, read_manifest
from gadget.spool.scan_names import HDF5_SUFFIX, SUFFIXES, new_name, scan_files, unfinished_files
from gadget.spool.spooled_scan import SpooledScan
from gadget.spool.stream_file import SUFFIX as STREAM_SUFFIX
from gadget.spool.stream_file import StreamWriter

logger = logging.getLogger(__name__)

SYNC_S = 2.0
"""Running scans are brought to the disk this often: what a loss of power can cost."""
LIMITS_S = 30.0
"""The limits are looked after this often, and after scans have ended."""
NICENESS = 10
"""Of the thread that tidies up."""
ROOM_FOR_A_COPY = 1.25
"""Room on the disk that is asked for before a scan is copied, in parts of its size."""

_OTHERS_MAY_WRITE = 0o022
_MOST_UNWRITTEN = 1000


class Spool:
    """The folder, and a thread that tidies up in it.

    The thread brings running scans to the disk, writes the list of scans, turns finished ones into HDF5
    files, and removes the oldest where a limit is passed. Of the folder's content only files with the names
    of scans are ever removed. What a crash left is put on the list when the next server starts.

    Parameters
    ----------
    folder
        Made, for its owner only, where it is missing. One process at a time can use it.

    Raises
    ------
    FileError
        The folder cannot be made or used, others may write to it, or another server uses it.
    """

    def __init__(self, folder: Path, limits: SpoolLimits = SpoolLimits()) -> None:
        self.folder = folder
        self.limits = limits
        self._handle = _locked(folder)
        self._manifest = Manifest(folder)
        self._numbers = count(1)
        self._left_behind = sorted({name for name, _ in scan_files(folder)})
        self._unwritten: deque[ScanRecord] = deque(
            maxlen=_MOST_UNWRITTEN
        )  # of the list, while it has no room
        self._to_copy: deque[str] = deque()
        self._next_look = self._next_limits = 0.0
        self._changed = threading.Condition()  # guards what follows
        self._running: dict[str, SpooledScan] = {}
        self._ended: deque[SpooledScan] = deque()
        self._is_idle = False
        self._stopping = False
        self._thread = threading.Thread(target=self._tidy_up, name="spool", daemon=True)
        self._thread.start()

    def watch(self, _address: str) -> SpooledScan:
        """Return the watch of a new connection; it makes a file when the first message comes."""
        return SpooledScan(self._create, self._retire)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until all scans that have ended are in their final form; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle and not self._ended, timeout_s)

    def close(self) -> None:
        """Stop to tidy up, soon; scans that have ended are then on the list, if not yet in HDF5."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        os.close(self._handle)

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _create(self, scan: SpooledScan) -> StreamWriter:
        """Give a scan its name, and its file; called by the thread that reads from the peer."""
        while True:
            name = new_name(scan.began, next(self._numbers))
            if any((self.folder / f"{name}{suffix}").exists() for suffix in SUFFIXES):
                continue
            scan.name = name
            with self._changed:
                self._running[name] = scan  # before there is a file: no limit may touch it
            return StreamWriter(self.folder / f"{name}{STREAM_SUFFIX}")

    def _retire(self, scan: SpooledScan) -> None:
        if scan.name is None:
            return  # a peer that came and went without a word
        with self._changed:
            self._ended.append(scan)
            self._changed.notify_all()

    def _tidy_up(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        self._safely(self._take_over)
        while True:
            is_last = self._stopping  # asked first: scans may end while this looks after others
            self._look_after_scans()
            if is_last:
                return
            while self._to_copy and not self._stopping:
                self._safely(self._copy, self._to_copy.popleft())
                self._apply_limits_if_due()
            self._apply_limits_if_due()
            with self._changed:
                self._is_idle = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ended or self._stopping, SYNC_S)
                self._is_idle = False

    def _safely(self, step: Callable[..., object], *arguments: object) -> None:
        """Do a step; what goes wrong is logged, and the thread lives on."""
        try:
            step(*arguments)
        except (OSError, GadgetError) as error:
            logger.error("spool: %s", error)
        except Exception as error:  # noqa: BLE001  # the spool must go on; the text may name a patient
            logger.error("spool: %s; this is a bug.", type(error).__name__)

    def _look_after_scans(self) -> None:
        """See to what cannot wait: running scans to the disk, ended ones on the list."""
        with self._changed:
            ended, running = list(self._ended), list(self._running.values())
            self._ended.clear()
        self._next_look = time.monotonic() + SYNC_S
        for scan in running:
            if scan.file is not None:
                self._safely(scan.file.sync)
        for scan in ended:
            self._finish(scan)
            self._next_limits = 0.0
        self._safely(self._write_list)

    def _finish(self, scan: SpooledScan) -> None:
        """Close the file of a scan that has ended, and put the scan on the list."""
        if scan.file is not None:
            scan.file.close()
        if scan.had_scan:
            record = scan.record()
            self._unwritten.append(record)
            if record.kept == WHOLE:
                self._to_copy.append(record.scan)
        elif scan.file is not None:  # a configuration, and nothing that it would be for
            self._safely(scan.file.path.unlink, True)
        with self._changed:
            self._running.pop(scan.name or "", None)

    def _write_list(self) -> None:
        while self._unwritten:
            self._manifest.append(self._unwritten[0])
            self._unwritten.popleft()

    def _take_over(self) -> None:
        """Put what a crash left on the list, and finish what was not finished."""
        for path in unfinished_files(self.folder):
            path.unlink(missing_ok=True)
        listed = {record.scan: record for record in read_manifest(self.folder)}
        for name in self._left_behind:
            if self._stopping:
                return
            self._safely(self._take_over_one, name, listed.get(name))

    def _take_over_one(self, name: str, record: ScanRecord | None) -> None:
        stream = self.folder / f"{name}{STREAM_SUFFIX}"
        if not stream.exists():
            return
        if record is None:
            record = record_of_left_behind(name, stream, stopped=self._is_stopping)
            if record is None:
                return
            logger.warning("spool: found %s: %s (%d readouts).", name, record.outcome, record.readouts)
            self._unwritten.append(record)
        if record.kept == WHOLE:
            self._to_copy.append(name)

    def _copy(self, name: str) -> None:
        """Turn a whole stream file into an HDF5 file; where that cannot be, it stays."""
        # not at the top: h5py takes long to load, and a server is to listen soon
        from gadget.spool.hdf5_copy import NotForHdf5, Stopped, copy_to_hdf5, is_copy

        stream, target = (self.folder / f"{name}{suffix}" for suffix in (STREAM_SUFFIX, HDF5_SUFFIX))
        state, disk = stream.stat(), os.statvfs(self.folder)
        try:
            if not target.exists():
                if disk.f_bavail * disk.f_frsize < ROOM_FOR_A_COPY * state.st_size:
                    raise FileError(f"no room for an HDF5 file of {name}; the stream file stays.")
                copy_to_hdf5(stream, target, stopped=self._is_stopping)
                os.utime(target, (state.st_mtime, state.st_mtime))
            elif not is_copy(stream, target, stopped=self._is_stopping):
                raise FileError(f"{target} is no copy of {stream}; both stay.")
        except NotForHdf5 as error:
            logger.info("spool: %s It stays a stream file.", error)
        except Stopped:
            logger.info("spool: %s stays a stream file until the next start.", name)
        else:
            stream.unlink()

    def _is_stopping(self) -> bool:
        """Asked between the messages of a scan that is read, which may take long: see to others meanwhile."""
        if time.monotonic() >= self._next_look:
            self._look_after_scans()
        return self._stopping

    def _apply_limits_if_due(self) -> None:
        if time.monotonic() >= self._next_limits:
            self._next_limits = time.monotonic() + LIMITS_S
            self._safely(self._apply_limits)

    def _apply_limits(self) -> None:
        remove_what_is_too_much(self.folder, self.limits, self._unfinished)

    def _unfinished(self) -> set[str]:
        """Names of the scans that run, and of those whose files are still to be turned into HDF5."""
        with self._changed:
            return {*self._running, *self._to_copy}


def _locked(folder: Path) -> int:
    """Make the folder, if need be, and return a handle on it that no other process has while it is open."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FileError(f"Cannot use {folder} as a spool: {error.strerror or error}.") from error
    try:
        if os.fstat(handle).st_mode & _OTHERS_MAY_WRITE:
            raise FileError(
                f"Others may write to the spool {folder}, which is to hold patient data. Make it its owner's "
                f"(chmod 700 {folder}), or name another folder."
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise FileError(f"Cannot write to the spool {folder}. Give it to the user of this server.")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise FileError(
            f"The spool {folder} is in use by another server. Stop that one, or name another folder."
        ) from error
    except OSError as error:
        os.close(handle)
        raise FileError(f"Cannot lock the spool {folder}: {error.strerror}. Use a local disk.") from error
    except FileError:
        os.close(handle)
        raise
    return handle
