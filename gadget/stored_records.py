"""Records of HDF5 files as others write them: in other orders, paddings, byte orders and number types."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError


def is_laid_out(dtype: np.dtype[Any]) -> bool:
    """Whether no two fields of a record share bytes; HDF5 crashes where it converts such records."""
    if dtype.names is None:
        return True
    end = 0
    for part, offset in sorted(
        ((kind, at) for kind, at, *_ in (dtype.fields or {}).values()), key=lambda f: f[1]
    ):
        if offset < end or not is_laid_out(part.base):
            return False
        end = offset + part.itemsize
    return end <= dtype.itemsize


def floats_of(stored: Any, name: str) -> NDArray[np.float32]:
    """Return stored samples as pairs of real and imaginary part, or points: one run of float32.

    Files hold float32; complex numbers, and records of two numbers, as others write them, are taken as well.
    """
    values = np.ascontiguousarray(stored)
    if values.dtype.names is not None and len(values.dtype.names) == 2:
        values = np.stack([values[part] for part in values.dtype.names], axis=-1)
    if np.iscomplexobj(values):
        return values.astype(np.complex64).reshape(-1).view(np.float32)
    if values.size and not (np.issubdtype(values.dtype, np.number)):
        raise ScanError(f"{name} holds {values.dtype} where numbers are needed. Check the converter.")
    return values.astype(np.float32, copy=False).reshape(-1)


def headers_of(stored: NDArray[Any], wanted: np.dtype[Any], path: Path) -> NDArray[Any]:
    """Copy header records field by field by name; layouts differ in order, padding and byte order."""
    headers = np.zeros(stored.shape, dtype=wanted)
    missing = _copy_fields(stored, headers, path)
    if missing:
        raise ScanError(
            f"Headers in {path} have no {', '.join(missing)}; they are not ISMRMRD headers of version 1."
        )
    return headers


def _copy_fields(stored: NDArray[Any], headers: NDArray[Any], path: Path) -> list[str]:
    """Copy what is there; return the names of the fields that are missing."""
    missing = []
    for name in headers.dtype.names or ():
        if name not in (stored.dtype.names or ()):
            missing.append(name)
        elif headers.dtype[name].names is not None:
            missing += [f"{name}.{lower}" for lower in _copy_fields(stored[name], headers[name], path)]
        else:
            try:
                headers[name] = stored[name]
            except (ValueError, TypeError) as error:
                raise ScanError(
                    f"The header field {name} in {path} holds {stored.dtype[name]}; "
                    f"{headers.dtype[name]} is needed. Check the converter."
                ) from error
    return missing
