"""Functions whose results are kept in a store."""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from . import Store

P = ParamSpec("P")
R = TypeVar("R")


class Memoized(Generic[P, R]):
    """A function whose results are kept."""

    __wrapped__: Callable[P, R]

    def __init__(self, store: Store, function: Callable[P, R], ttl: float | None) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._store = store
        self._ttl = ttl
        name = f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
        self._name = name.encode()

    def _key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        words = pickle.dumps((self._name, args, sorted(kwargs.items())), 5)
        return b"memoize:" + hashlib.blake2b(words, digest_size=32).digest()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._key(args, kwargs)
        kept = self._store.get(key)
        if kept is not None:
            return pickle.loads(kept)  # type: ignore[no-any-return]
        result = self.__wrapped__(*args, **kwargs)
        self._store.put(key, pickle.dumps(result, 5), ttl=self._ttl)
        return result

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Takes the result of these arguments out of the store."""
        self._store.pop(self._key(args, kwargs), None)
