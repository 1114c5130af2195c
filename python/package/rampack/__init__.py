"""Keeps cold data compressed in memory.

>>> import rampack
>>> store = rampack.Store(limit=64 << 20)
>>> store["user:7"] = b"any bytes"
>>> store["user:7"]
b'any bytes'
>>> "user:8" in store, len(store)
(False, 1)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, overload

from . import _memo, _rampack
from ._rampack import Disk, Error, FullError

__all__ = ["Disk", "Error", "FullError", "Stats", "Store"]
__version__ = _rampack.VERSION

P = ParamSpec("P")
R = TypeVar("R")

os.register_at_fork(after_in_child=_rampack.after_fork)


class Stats(NamedTuple):
    """What a store has and takes."""

    values: int
    """Values."""
    data_bytes: int
    """Bytes of their keys and values, uncompressed."""
    memory_bytes: int
    """Bytes of memory that they take, tables among them."""
    hits: int
    """Reads that found a value."""
    misses: int
    """Reads that found none."""
    puts: int
    """Values stored so far."""
    evicted: int
    """Values that went because memory was needed, so far."""
    expired: int
    """Values whose lives ended, so far."""
    recompressed: int
    """Values, and groups of small ones, that were compressed once more, so far."""
    saved_bytes: int
    """Bytes of memory that this has saved, so far."""
    lost: int
    """Values that were lost because what another process left of them was damaged."""


def _pairs(values: Any) -> Iterable[tuple[Any, Any]]:
    if type(values) is dict:
        # Other threads may change it while pairs are stored.
        return list(values.items())
    return values.items() if isinstance(values, Mapping) else values


class _Items(ItemsView[str | bytes, Any]):
    """Without values that go meanwhile."""

    _mapping: Mapping[str | bytes, Any]

    def __iter__(self) -> Iterator[tuple[str | bytes, Any]]:
        for key in self._mapping:
            value = self._mapping.get(key)
            if value is not None:
                yield key, value


class _Values(ValuesView[Any]):
    """Without values that go meanwhile."""

    _mapping: Mapping[str | bytes, Any]

    def __contains__(self, value: object) -> bool:
        return any(value is it or value == it for it in self)

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in _Items(self._mapping))


class Store(_rampack.Store, MutableMapping[str | bytes, Any]):
    """A mapping of ``str`` or ``bytes`` to anything with a buffer, compressed in memory.

    Arrays of numpy come back as arrays, with dtype and shape, everything else as ``bytes``. Values
    have up to 16 MiB, keys up to 1023 bytes. Any number of threads may use a store; none holds the
    interpreter's lock while it compresses or decompresses. A child of ``fork()`` cannot use the
    stores of its parent, which raise ``RuntimeError`` there; it makes its own.

    * ``limit``: the most bytes of memory, 1 MiB at least. Without one, as much as there is.
    * ``algorithm``: lz4, lz4hc, zstd or deflate, also with a level as ``"zstd:9"``.
    * ``evict``: values that were not read lately go when memory is short; otherwise a put raises
      ``FullError``.
    * ``ttl``: values are not found any more after so many seconds.
    * ``unit``: values are compressed in units of so many bytes, 4096 to 65536.
    * ``group``: values of up to 1 KiB are compressed together, which takes half of the memory or
      less and some microseconds more for each read.
    * ``recompress``: a pair as ``("zstd", 60)``: values that were not read for so many seconds (it
      may take twice as long) are compressed once more, by lz4hc, zstd or deflate.

    >>> import numpy
    >>> store = Store(limit=8 << 20, algorithm="zstd", ttl=3600)
    >>> store["zeros"] = numpy.zeros((500, 500))
    >>> store["zeros"].shape, store.stats().memory_bytes < 500 * 500 * 8 // 2
    ((500, 500), True)
    >>> store.get("none", b"nothing")
    b'nothing'
    >>> sorted(store)
    ['zeros']
    """

    __slots__ = ()

    def put_many(
        self,
        values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (),
        *,
        ttl: float | None = None,
    ) -> None:
        """Stores the values of a mapping, or of pairs, without the interpreter's lock for all of
        them. If one fails, those before it are stored. ``update`` does the same.

        >>> store = Store()
        >>> store.put_many({"a": b"first", "b": b"second"})
        >>> store.update([("c", b"third")])
        >>> store.get_many(["a", "c", "none"])
        {'a': b'first', 'c': b'third'}
        >>> store.get_range("b", 2, 3)
        b'con'
        """
        self._put_many(_pairs(values), ttl=ttl)

    def update(self, values: Any = (), /, **more: Any) -> None:
        """Stores the values of a mapping, of pairs, or of what has ``keys()``, at once."""
        if not isinstance(values, Mapping) and hasattr(values, "keys"):
            values = ((key, values[key]) for key in values.keys())
        self._put_many(itertools.chain(_pairs(values), more.items()))

    def items(self) -> ItemsView[str | bytes, Any]:
        """Pairs of keys and values. A value that goes meanwhile, as when memory is short, is left
        out; so it is from ``values()``.

        >>> store = Store()
        >>> store["a"] = b"first"
        >>> list(store.items()), list(store.values())
        ([('a', b'first')], [b'first'])
        """
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """The values, decompressed one after the other."""
        return _Values(self)

    def copy(self) -> Self:
        """Another store with the values of this instant, which shares their memory.

        Each takes memory for what is put into it from then on. The limit is one for all copies, and
        counts what they share once.

        >>> store = Store()
        >>> store["key"] = b"before"
        >>> then = store.copy()
        >>> store["key"] = b"after"
        >>> then["key"]
        b'before'
        """
        return type(self).__new__(type(self), _of=self)

    __copy__ = copy

    def stats(self) -> Stats:
        """The statistics now.

        >>> Store().stats().values
        0
        """
        return Stats(*self._stats())

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<rampack.Store: {stats.values} values, {stats.memory_bytes} bytes>"

    @overload
    def memoize(self, function: Callable[P, R], /) -> _memo.Memoized[P, R]: ...

    @overload
    def memoize(
        self, /, *, ttl: float | None = None
    ) -> Callable[[Callable[P, R]], _memo.Memoized[P, R]]: ...

    def memoize(
        self, function: Callable[P, R] | None = None, /, *, ttl: float | None = None
    ) -> Any:
        """Keeps the results of a function in this store, pickled.

        Arguments are compared by their pickles, functions by name, code and what they have of the
        function around them. A result that is too long or finds no room is not kept. ``forget`` of
        what it gives, with the same arguments, takes a result out.

        >>> store = Store()
        >>> @store.memoize(ttl=3600)
        ... def square(n):
        ...     print("working")
        ...     return n * n
        >>> square(7), square(7)
        working
        (49, 49)
        >>> square.forget(7)
        >>> square(7)
        working
        49
        """
        if function is None:
            return lambda function: _memo.Memoized(self, function, ttl)
        return _memo.Memoized(self, function, ttl)
