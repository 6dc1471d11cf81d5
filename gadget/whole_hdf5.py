"""Write HDF5 files whole or not at all, also where the disk is full."""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from gadget.errors import FileError
from gadget.whole_file import refuse_existing


@contextmanager
def new_hdf5_file(path: Path, *, overwrite: bool = False) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """Open a file; it appears under its name when the block ends without an error, not before.

    Until then it is a temporary file in the same folder, ``.NAME.*.part``. Only its owner can read it: it
    holds patient data. What is yielded beside the file raises if something could not be written so far; it
    is called at the end in any case.

    Raises
    ------
    FileError
        The file cannot be written as asked.
    """
    refuse_existing(path, overwrite=overwrite)
    try:
        # mkstemp makes a file for its owner only.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error}.") from error
    temporary = Path(name)
    try:
        target = _TolerantFile(handle)

        def check() -> None:
            if target.error is not None:
                raise FileError(f"Cannot write {path}: {target.error}.") from target.error

        try:
            with h5py.File(target, "w") as file:
                yield file, check
            check()
            _make_durable(handle, temporary, path)
        finally:
            os.close(handle)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _TolerantFile(io.RawIOBase):
    """A file for HDF5 that keeps its first failure for the asker, and goes on as if nothing had failed.

    HDF5 cannot close a file whose writes fail (a full disk): the process ends with a segmentation fault.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.error: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        return os.readv(self._handle, [buffer])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._handle, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._handle, 0, os.SEEK_CUR)

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        try:
            while rest and self.error is None:
                rest = rest[os.write(self._handle, rest) :]
        except OSError as error:
            self.error = error
        return len(memoryview(data).cast("B"))

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            self.error = self.error or error
        return size

    def flush(self) -> None:
        pass


def _make_durable(handle: int, temporary: Path, path: Path) -> None:
    """Put a complete file under its name so that a crash at any moment leaves the old file or the new one."""
    try:
        os.fsync(handle)
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error}.") from error
