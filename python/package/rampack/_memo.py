"""Functions whose results are kept in a store."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import pickle
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from ._rampack import FullError

if TYPE_CHECKING:
    from . import Store

# The most bytes of a value.
LONGEST = 16 << 20

P = ParamSpec("P")
R = TypeVar("R")


def _contents(cell: types.CellType) -> object:
    """What is in a cell; nothing is in that of a function which is being made."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _identity(function: Callable[..., object]) -> bytes:
    """A function's name, its code, and what it has of the function around it.

    Where Python does not pickle that, it is this object alone.
    """
    function = getattr(function, "__func__", function)
    names = (getattr(function, "__module__", ""), getattr(function, "__qualname__", ""))
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    try:
        around = [_contents(cell) for cell in cells]
        brings = (around, getattr(function, "__defaults__", None))
        kinds = (getattr(function, "__kwdefaults__", None), None if code else function)
        return pickle.dumps((names, code and marshal.dumps(code), brings, kinds), 5)
    except Exception:  # What cannot be pickled says so in many ways.
        return os.urandom(16)


class Memoized(Generic[P, R]):
    """A function whose results are kept."""

    __wrapped__: Callable[P, R]

    def __init__(self, store: Store, function: Callable[P, R], ttl: float | None) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._store = store
        self._ttl = ttl
        # Results outlive the process, and others of the same name have none of them.
        self._identity = _identity(function)

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]:
        return self if instance is None else types.MethodType(self, instance)

    def _key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        # A method depends on its object as on an argument.
        instance = getattr(self.__wrapped__, "__self__", None)
        if not isinstance(instance, types.ModuleType):
            args = (instance, *args)
        words = pickle.dumps((self._identity, args, sorted(kwargs.items())), 5)
        return b"memoize:" + hashlib.blake2b(words, digest_size=32).digest()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._key(args, kwargs)
        kept = self._store.get(key)
        if kept is not None:
            return pickle.loads(kept)  # type: ignore[no-any-return]
        result = self.__wrapped__(*args, **kwargs)
        pickled = pickle.dumps(result, 5)
        if len(pickled) <= LONGEST:
            # What finds no room is not kept.
            with contextlib.suppress(FullError, MemoryError):
                self._store.put(key, pickled, ttl=self._ttl)
        return result

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Takes the result of these arguments out of the store."""
        self._store.pop(self._key(args, kwargs), None)
