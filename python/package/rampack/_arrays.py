"""Arrays of numpy as bytes and a description. Only who stores an array has this imported."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy
from numpy.lib.format import descr_to_dtype, dtype_to_descr

Array = numpy.ndarray[Any, numpy.dtype[Any]]


def pack(value: Any) -> tuple[Any, bytes]:
    """The bytes of an array, in the order of C, and what it is."""
    if isinstance(value, numpy.ma.MaskedArray):
        raise TypeError("a masked array has no buffer for its mask: store data and mask")
    array = numpy.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} has references and no values: pickle it")
    description = repr((dtype_to_descr(array.dtype), array.shape)).encode()
    if array.size == 0 or array.dtype.itemsize == 0:
        return b"", description
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8), description


@functools.lru_cache(maxsize=1024)
def _described(description: bytes) -> tuple[numpy.dtype[Any], tuple[int, ...]]:
    descr, shape = ast.literal_eval(description.decode())
    return descr_to_dtype(descr), shape


def unpack(data: bytearray, description: bytes) -> Array:
    """The array, over these bytes."""
    dtype, shape = _described(description)
    if not data:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(data, dtype).reshape(shape)


def check(out: Any, description: bytes) -> None:
    """Raises ValueError if the array cannot be written into ``out``."""
    dtype, shape = _described(description)
    if isinstance(out, numpy.ndarray) and (out.dtype, out.shape) != (dtype, shape):
        raise ValueError(f"out is {out.dtype} {out.shape}, and the value {dtype} {shape}")
