"""What is raised when images cannot be used, and how a fault in a file becomes it."""

import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager


class DataError(Exception):
    """The images cannot be used; the text says which file, what was found and what to do."""


FAULTS_OF_A_FILE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What h5py, nibabel, numpy and pydicom raise on damaged files (found by damaging files in the tests)."""


@contextmanager
def reading(file: str, kind: str, *more_faults: type[Exception]) -> Iterator[None]:
    """Turn what a library raises on ``file`` into a ``DataError``; keep its warnings to ourselves.

    Warnings of DICOM libraries quote values of the file, which may be a patient's.
    """
    faults: tuple[type[Exception], ...] = FAULTS_OF_A_FILE + more_faults
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except faults as error:
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(
            f"{file} cannot be read as {kind}: {said[:300]}. "
            "Is it damaged or half copied? Replace it, or leave it out (exclude)."
        ) from error
