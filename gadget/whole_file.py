"""Write small files whole or not at all."""

import os
import tempfile
from pathlib import Path

from gadget.errors import FileError


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise where a file cannot be written as asked, before any work is done for it."""
    if path.is_dir():
        raise FileError(f"{path} is a folder; the name of a file is needed.")
    if path.exists() and not overwrite:
        raise FileError(f"{path} exists; choose another name, or ask for it to be replaced (--overwrite).")
    if not path.parent.is_dir():
        raise FileError(f"Cannot write {path}: there is no folder {path.parent}. Make it first.")


def write_whole_file(path: Path, content: bytes | memoryview, *, overwrite: bool = False) -> None:
    """Put the content under the name at once; a crash or a full disk leaves what was there before.

    Only the owner can read the file: scans and images may show a patient.
    """
    refuse_existing(path, overwrite=overwrite)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
