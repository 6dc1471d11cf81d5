"""Steps from which the layout of every message is put together.

A decoder of one message is a generator: it yields how many bytes it wants next, is sent exactly these, and
returns the message. So it needs no buffer of its own, and never sees where the stream was cut.
"""

import struct
from collections.abc import Generator, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.limits import Budget
from gadget.wire.messages import TEXT_ENCODING, TEXT_ERRORS

Result = TypeVar("Result")
ReadBytes = bytes | memoryview
Steps = Generator[int, ReadBytes, Result]
"""A decoder: yields the bytes it wants, returns its result."""

UINT32 = struct.Struct("<I")
UINT64 = struct.Struct("<Q")


def read_uint64(budget: Budget, what: str) -> Steps[int]:
    """Read one uint64."""
    value: int
    (value,) = UINT64.unpack((yield budget.claim(8, what)))
    return value


def read_flag(budget: Budget, what: str) -> Steps[bool]:
    """Read the byte that says whether something optional follows."""
    value = (yield budget.claim(1, what))[0]
    if value not in (0, 1):
        raise PeerProtocolError(f"The byte that says whether {what} follows is {value}; it must be 0 or 1.")
    return bool(value)


def text_of(raw: ReadBytes) -> str:
    """Turn bytes to text so that every byte, valid UTF-8 or not, comes back with :func:`bytes_of_text`."""
    return bytes(raw).decode(TEXT_ENCODING, TEXT_ERRORS)


def bytes_of_text(text: str) -> bytes:
    """Turn text to bytes."""
    return text.encode(TEXT_ENCODING, TEXT_ERRORS)


def array_of(raw: ReadBytes, dtype: DTypeLike, shape: Sequence[int], order: Any = "C") -> NDArray[Any]:
    """Return received bytes as a read-only array, without a copy."""
    if len(raw) == 0:
        empty = np.empty(shape, dtype, order)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(raw, dtype).reshape(shape, order=order)


def record_of(raw: ReadBytes, dtype: np.dtype[Any]) -> Any:
    """Return received bytes as one read-only header record."""
    return np.frombuffer(raw, dtype)[0]


def read_array(budget: Budget, dtype: DTypeLike, what: str) -> Steps[NDArray[Any]]:
    """Read Gadgetron's array: uint64 number of axes, uint64 lengths, then the elements in Fortran order.

    Its empty array has no axes at all; it becomes one of shape ``(0,)``.
    """
    n_axes = yield from read_uint64(budget, f"the number of axes of {what}")
    if n_axes > budget.limits.n_dimensions:
        raise PeerProtocolError(
            f"The array '{what}' claims {n_axes} axes; at most {budget.limits.n_dimensions} are accepted."
        )
    raw_shape = yield budget.claim(8 * n_axes, f"the shape of {what}")
    shape = struct.unpack(f"<{n_axes}Q", raw_shape) if n_axes else (0,)
    itemsize = np.dtype(dtype).itemsize
    # An empty array must not hide an absurd axis behind an axis of length 0.
    budget.check(itemsize * prod(max(n, 1) for n in shape), f"The array '{what}' of shape {shape}")
    raw = yield budget.claim(itemsize * prod(shape), f"The array '{what}' of shape {shape}")
    return array_of(raw, dtype, shape, order="F")


def array_parts(array: NDArray[Any], dtype: DTypeLike, what: str) -> list[ReadBytes]:
    """Write an array as :func:`read_array` reads it."""
    shape = () if array.shape == (0,) else array.shape
    return [
        struct.pack(f"<{1 + len(shape)}Q", len(shape), *shape),
        buffer_of(array, dtype, what, order="F"),
    ]


def buffer_of(array: NDArray[Any], dtype: DTypeLike, what: str, order: Any = "C") -> ReadBytes:
    """Return the bytes of an array; without a copy where its memory is already in the wanted order.

    The element type must be right already: a silent cast would change pixels or header fields.
    """
    wanted = np.dtype(dtype)
    if array.dtype != wanted:
        raise OwnProtocolError(
            f"{what} has element type {array.dtype}; the message needs {wanted}. Convert it first."
        )
    in_order = array.flags.c_contiguous if order == "C" else array.flags.f_contiguous
    if not in_order or array.size == 0 or wanted.names is not None:
        return array.tobytes(order=order)
    return array.ravel(order="K").view(np.uint8).data


def record_bytes(record: Any, dtype: np.dtype[Any], what: str) -> bytes:
    """Return the bytes of one header record, checked to be of the right kind."""
    if getattr(record, "dtype", None) != dtype or np.ndim(record) != 0:
        raise OwnProtocolError(
            f"{what} is {type(record).__name__} of dtype {getattr(record, 'dtype', None)}; it must be one "
            "record of the dtypes in gadget.wire.headers."
        )
    raw: bytes = record.tobytes()
    return raw
