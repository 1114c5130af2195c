"""Arrays of zarr (version 3) in a rampack.Store.

What zarr hands over is compressed by the store: ``compressors=None`` leaves the work to it.

>>> import rampack.zarr, zarr
>>> store = rampack.zarr.Store(limit=64 << 20)
>>> array = zarr.create_array(store, shape=(1000, 1000), dtype="i4", compressors=None)
>>> array[:] = 7
>>> int(array[10:20, 10].sum())
70
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store as _Abstract,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype

from . import Store as _Store

__all__ = ["Store"]

# A store of zarr has a method ``list``.
_Buffers = list[Buffer | None]
_Keys = list[str]


def _part(request: ByteRequest | None) -> slice:
    match request:
        case None:
            return slice(None)
        case RangeByteRequest(start, end):
            return slice(start, end)
        case OffsetByteRequest(offset):
            return slice(offset, None)
        case SuffixByteRequest(suffix):
            return slice(-suffix, None) if suffix else slice(0, 0)
        case _:
            raise TypeError(f"no byte range: {request!r}")


class Store(_Abstract):
    """A store of zarr. It takes what ``rampack.Store`` takes, or such a store as ``values``."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(
        self, *, values: _Store | None = None, read_only: bool = False, **options: Any
    ) -> None:
        super().__init__(read_only=read_only)
        # A part of an array that went would read as its fill value.
        self.values = values if values is not None else _Store(**{"evict": False} | options)

    def with_read_only(self, read_only: bool = False) -> Store:
        return Store(values=self.values, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and other.values is self.values

    def __repr__(self) -> str:
        return f"<rampack.zarr.Store of {self.values!r}>"

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        if not self._is_open:
            await self._open()
        value = await asyncio.to_thread(self.values.get, key)
        if value is None:
            return None
        prototype = prototype or default_buffer_prototype()
        return prototype.buffer.from_bytes(value[_part(byte_range)])

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> _Buffers:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self.values

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not self._is_open:
            await self._open()
        await asyncio.to_thread(self.values.put, key, value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if key not in self.values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        self.values.pop(key, None)

    async def clear(self) -> None:
        self._check_writable()
        self.values.clear()

    def _keys(self) -> _Keys:
        return [key for key in self.values if isinstance(key, str)]

    async def list(self) -> AsyncIterator[str]:
        for key in self._keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self._keys():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        prefix = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
        seen = {
            key.removeprefix(prefix).split("/")[0]
            for key in self._keys()
            if key.startswith(prefix)
        }
        for name in seen:
            yield name
