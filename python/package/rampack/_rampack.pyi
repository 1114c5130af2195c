from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any, Self

VERSION: str

class Error(Exception):
    """Something that rampack could not do."""

class FullError(Error):
    """The limit of memory is reached."""

def after_fork() -> None: ...

class Store:
    def __new__(
        cls,
        limit: int | None = None,
        *,
        algorithm: str = "lz4",
        evict: bool = True,
        ttl: float | None = None,
        unit: int = 16384,
        group: bool = True,
        recompress: tuple[str, float] | None = None,
        _of: Store | None = None,
    ) -> Self: ...
    def put(self, key: str | bytes, value: Any, *, ttl: float | None = None) -> None:
        """Stores a value; after ``ttl`` seconds, rounded up, it is not found any more.

        It may go up to a second earlier.
        """

    def get(self, key: str | bytes, default: Any = None, *, out: Any = None) -> Any:
        """The value of a key, or ``default``.

        With ``out``, a writable buffer, the value is written into it: an array into one of the
        same dtype and shape, which is returned; bytes to its beginning, and a memoryview of what
        was filled is returned.
        """

    def get_many(self, keys: Iterable[str | bytes]) -> dict[str | bytes, Any]:
        """The values of those keys that have one, decompressed side by side with other threads."""

    def get_range(self, key: str | bytes, offset: int, length: int) -> bytes:
        """Bytes of a value from ``offset`` on, at most ``length``; those of an array as they lie.

        Only the units that they are in are decompressed. ``KeyError`` if there is no value.
        """

    def _put_many(
        self, pairs: Iterable[tuple[str | bytes, Any]], *, ttl: float | None = None
    ) -> None: ...
    def __getitem__(self, key: str | bytes) -> Any: ...
    def __setitem__(self, key: str | bytes, value: Any) -> None: ...
    def __delitem__(self, key: str | bytes) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str | bytes]: ...
    def clear(self) -> None:
        """Takes all values out."""

    def save(self, path: str | PathLike[str]) -> int:
        """Writes a snapshot of all values to a file, and returns their number.

        Other threads go on meanwhile: a value is in it as it was at some instant within this call.
        If it fails, the file is as it was.
        """

    def load(self, path: str | PathLike[str]) -> int:
        """Stores all values of a snapshot, in place of those of their keys; returns their number.

        ``ValueError`` for what is no whole snapshot, ``FullError`` if there is no room for all of
        it: the store has what it had then.
        """

    def set_limit(self, limit: int) -> None:
        """Limits memory to so many bytes from now on."""

    def _stats(self) -> list[int]: ...

class Disk:
    def __new__(cls, size: int, *, algorithm: str = "lz4", limit: int = 0) -> Self: ...
    @property
    def size(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def write(self, offset: int, data: Any) -> None: ...
    def discard(self, offset: int, length: int) -> None: ...
