"""Stores, as programs use them."""

from __future__ import annotations

import copy
import os
import pickle
import random
import threading
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy
import pytest

import rampack


@pytest.fixture
def store() -> rampack.Store:
    return rampack.Store()


def test_it_is_a_mapping(store: rampack.Store) -> None:
    assert isinstance(store, MutableMapping)
    store["a"] = b"1"
    store[b"a"] = b"2"
    store.update(c=b"3")
    assert dict(store) == {"a": b"1", b"a": b"2", "c": b"3"} == store
    assert (len(store), "a" in store, "b" in store) == (3, True, False)
    assert store.pop(b"a") == b"2" and store.pop(b"a", None) is None
    assert store.setdefault("c", b"other") == b"3"
    del store["c"]
    with pytest.raises(KeyError, match="c"):
        store["c"]
    with pytest.raises(KeyError):
        del store["c"]
    assert list(store.items()) == [("a", b"1")]
    store.clear()
    assert not store and store.get("a") is None and store.get("a", 7) == 7


def test_values_may_go_while_others_are_looked_at(store: rampack.Store) -> None:
    store.put_many({f"{n}": b"%d" % n for n in range(10)})
    pairs, values = iter(store.items()), iter(store.values())
    first, value = next(pairs), next(values)
    store.clear()
    store[first[0]] = b"new"
    store["later"] = b"later"
    assert first[1] == value and list(pairs) == list(values) == []
    assert sorted(store.items()) == sorted([(first[0], b"new"), ("later", b"later")])
    assert sorted(store.values()) == [b"later", b"new"] and b"new" in store.values()
    assert ("later", b"later") in store.items() and len(store.values()) == 2


def test_of_many_values_those_before_one_that_fails_are_stored(store: rampack.Store) -> None:
    with pytest.raises(TypeError, match="object has none"):
        store.put_many([("a", b"1"), ("b", object()), ("c", b"3")])
    with pytest.raises(TypeError, match="a key is str or bytes"):
        store.update([("d", b"4"), (5, b"5")], e=b"6")
    pairs = ((f"{n}", 100 // (100 - n) * b"x") for n in range(200))
    with pytest.raises(ZeroDivisionError):
        store.put_many(pairs, ttl=60)
    assert sorted(store) == sorted(["a", "d", *(f"{n}" for n in range(100))])


def test_of_many_values_some_at_a_time_are_in_memory(store: rampack.Store) -> None:
    waiting: list[int] = []

    def pairs() -> Iterator[tuple[str, bytes]]:
        for n in range(50):
            waiting.append(n - len(store))
            yield f"{n}", b"x" * (1 << 20)
        for n in range(50, 500):
            waiting.append(n - len(store))
            yield f"{n}", b"x"

    store.update(pairs())
    assert max(waiting[:50]) <= 1 and max(waiting) <= 64 and len(store) == 500
    found = store.get_many(f"{n}" for n in range(49, 501))
    assert len(found) == 451 and found["50"] == b"x" and "500" not in found


@pytest.mark.parametrize("value", [b"", b"x" * 100_000, bytearray(b"ab"), memoryview(b"abc")])
def test_what_has_a_buffer_comes_back_as_bytes(store: rampack.Store, value: Any) -> None:
    store["key"] = value
    assert store["key"] == bytes(value)
    into = bytearray(200_000)
    part = store.get("key", out=into)
    assert part == bytes(value) and into[: len(part)] == bytes(value)


ARRAYS = [
    numpy.arange(10, dtype="<f4"),
    numpy.arange(10, dtype=">i8"),
    numpy.zeros((3, 0, 2)),
    numpy.array(7.5),
    numpy.float64(7.5),
    numpy.arange(24).reshape(2, 3, 4)[:, ::2],
    numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4)),
    numpy.array(["2026-11-26", "NaT"], "M8[ns]"),
    numpy.array(["ab", "c"]),
    numpy.array([(1, 2.5)], [("a", "i4"), ("b", "f8", (2,))]),
    numpy.array([True, False]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_arrays_come_back_with_dtype_and_shape(store: rampack.Store, array: Any) -> None:
    store["key"] = array
    back = store["key"]
    assert isinstance(back, numpy.ndarray)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    back[...] = back  # It can be written.


def test_arrays_go_into_arrays(store: rampack.Store) -> None:
    array = numpy.random.default_rng(5).integers(0, 9, (50, 60))
    store["key"] = array
    out = numpy.empty_like(array)
    assert store.get("key", out=out) is out
    assert (out == array).all()
    with pytest.raises(ValueError, match=r"out is float64 \(50, 60\), and the value int64"):
        store.get("key", out=numpy.empty((50, 60)))
    with pytest.raises(ValueError, match="out has 7 bytes"):
        store.get("key", out=bytearray(7))
    with pytest.raises((BufferError, TypeError)):
        store.get("key", out=bytes(array.nbytes))


def test_what_cannot_be_kept_is_refused_in_words(store: rampack.Store) -> None:
    store["key"] = b"kept"
    with pytest.raises(TypeError, match="int has none"):
        store["key"] = 7
    with pytest.raises(TypeError, match="a key is str or bytes, not int"):
        store[7] = b""  # type: ignore[index]
    with pytest.raises(ValueError, match="1023"):
        store["k" * 1024] = b""
    with pytest.raises(ValueError, match="16777216|16 MiB"):
        store["key"] = bytes((16 << 20) + 1)
    with pytest.raises(TypeError, match="references"):
        store["key"] = numpy.array([object()])
    with pytest.raises(TypeError, match="masked"):
        store["key"] = numpy.ma.array([1], mask=[True])
    with pytest.raises(ValueError, match="no algorithm \"zip\""):
        rampack.Store(algorithm="zip")
    with pytest.raises(ValueError, match="1048576"):
        rampack.Store(limit=1000)
    with pytest.raises(ValueError, match="ttl"):
        rampack.Store(ttl=-1)
    assert store["key"] == b"kept"


def test_a_limit_makes_values_go_or_raises() -> None:
    random = numpy.random.default_rng(5)
    store = rampack.Store(2 << 20)
    for n in range(1000):
        store[f"{n}"] = random.bytes(5000)
    stats = store.stats()
    assert stats.memory_bytes <= 2 << 20 and 0 < stats.values < 1000
    assert stats.evicted + stats.values == 1000 and "999" in store
    kept = rampack.Store(2 << 20, evict=False)
    with pytest.raises(rampack.FullError):
        for n in range(1000):
            kept[f"{n}"] = random.bytes(5000)
    assert issubclass(rampack.FullError, rampack.Error) and len(kept) > 100


def test_lives_end() -> None:
    store = rampack.Store(ttl=1)
    store["short"] = b"1"
    store.put("long", b"2", ttl=3600)
    deadline = time.monotonic() + 30
    while "short" in store and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "short" not in store and store["long"] == b"2"


def test_statistics_count(store: rampack.Store) -> None:
    store["a"] = b"1" * 10_000
    store.get("a"), store.get("b")
    stats = store.stats()
    assert (stats.values, stats.hits, stats.misses, stats.puts) == (1, 1, 1, 1)
    assert 10_000 <= stats.data_bytes < 10_100
    assert "1 values" in repr(store)


def test_what_is_not_read_gets_smaller() -> None:
    store = rampack.Store(recompress=("zstd", 0))
    values = {f"{n}": " ".join(str(k * n % 997) for k in range(2000)) for n in range(200)}
    store.put_many({key: value.encode() for key, value in values.items()})
    deadline = time.monotonic() + 30
    while store.stats().saved_bytes == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    stats = store.stats()
    assert stats.recompressed > 0 and stats.saved_bytes > 0 and stats.lost == 0
    assert store["7"] == values["7"].encode()
    with pytest.raises(ValueError, match="idle"):
        rampack.Store(recompress=("zstd", -1))
    with pytest.raises(ValueError, match='no algorithm "zip"'):
        rampack.Store(recompress=("zip", 1))


def test_a_copy_is_of_one_instant_and_shares_memory() -> None:
    class Mine(rampack.Store):
        pass

    store = Mine(ttl=3600)
    random = numpy.random.default_rng(5)
    store.put_many({f"{n}": random.bytes(10_000) for n in range(500)})
    memory, first = store.stats().memory_bytes, store["1"]
    copies = [store.copy(), copy.copy(store)]
    assert store.stats().memory_bytes < memory + memory // 10
    store["1"] = b"other"
    copies[0]["2"] = b"another"
    assert isinstance(copies[0], Mine) and copies[0]["1"] == first == copies[1]["1"]
    assert store["2"] == copies[1]["2"] != copies[0]["2"]
    del store
    assert len(copies[1]) == 500 and copies[1]["1"] == first


def test_threads_see_whole_values(store: rampack.Store) -> None:
    faults: list[str] = []

    def work(seed: int) -> None:
        random = numpy.random.default_rng(seed)
        for _ in range(500):
            key = f"{random.integers(20)}"
            if random.integers(2):
                store[key] = bytes([random.integers(256)]) * int(random.integers(1, 40_000))
            elif (value := store.get(key)) is not None and len(set(value)) != 1:
                faults.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_the_interpreter_runs_while_a_store_compresses() -> None:
    store = rampack.Store(algorithm="zstd:19")
    value = numpy.random.default_rng(5).integers(0, 50, 2 << 20, "u1")
    done = threading.Event()

    def compress() -> None:
        store["key"] = value
        done.set()

    thread = threading.Thread(target=compress)
    before = time.process_time()
    thread.start()
    steps = 0
    while not done.is_set():
        time.sleep(0)
        steps += 1
    thread.join()
    # With the lock held the loop would stand still until the value is stored.
    assert steps > 100, f"{steps} steps in {time.process_time() - before} s"


def in_child(work: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_child_has_an_error_and_stores_of_its_own(store: rampack.Store) -> None:
    store["key"] = b"parent"
    disk = rampack.Disk(4096)

    def work() -> int:
        nonlocal store, disk
        for use in (lambda: store["key"], lambda: len(store), lambda: disk.read(0, 1)):
            try:
                use()
                return 1
            except RuntimeError as error:
                assert "fork()" in str(error)
        own = rampack.Store()
        own["key"] = b"child"
        del store, disk
        return 0 if own["key"] == b"child" else 2

    assert in_child(work) == 0
    assert store["key"] == b"parent"
    # The thread of upkeep is still there: lives end, without a read.
    store.put("short", b"", ttl=1)
    deadline = time.monotonic() + 30
    while store.stats().expired == 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert store.stats().expired == 1


def test_functions_are_memoized(store: rampack.Store) -> None:
    calls: list[tuple[Any, ...]] = []

    @store.memoize
    def add(a: int, b: Any = 2) -> Any:
        """Adds."""
        calls.append((a, b))
        return a + b

    assert (add(1), add(1), add(1, b=2), add(1, b=2)) == (3, 3, 3, 3)
    assert calls == [(1, 2), (1, 2)] and add.__doc__ == "Adds."
    assert (add(1, numpy.arange(3)) == [1, 2, 3]).all()
    add.forget(1)
    assert add(1) == 3 and len(calls) == 4

    @store.memoize(ttl=3600)
    def none() -> None:
        calls.append(())

    assert none() is None and none() is None and len(calls) == 5


class Scaled:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def of(self, n: int) -> int:
        return self.factor * n


def test_memoized_functions_are_told_apart(store: rampack.Store) -> None:
    def times(factor: int) -> Any:
        return store.memoize(lambda n: n * factor)

    assert [times(2)(3), times(3)(3), times(2)(4)] == [6, 9, 8]
    one, two = store.memoize(lambda n: n + 1), store.memoize(lambda n: n + 2)
    assert (one(1), two(1), one(1)) == (2, 3, 2)
    assert (store.memoize("ab".count)("a"), store.memoize("aa".count)("a")) == (1, 2)
    counts: Any = store.memoize(len), store.memoize(sum)
    assert (counts[0]([1, 2]), counts[1]([1, 2])) == (2, 3)
    methods = store.memoize(Scaled(2).of), store.memoize(Scaled(3).of)
    assert (methods[0](3), methods[1](3)) == (6, 9)
    kept: Any = type("Kept", (), {"of": store.memoize(Scaled.of)})
    with pytest.raises((AttributeError, pickle.PicklingError)):
        kept().of(3)  # Its class is in no module.


def test_a_result_that_is_not_kept_is_returned(store: rampack.Store) -> None:
    long = store.memoize(lambda: bytes(17 << 20))
    assert len(long()) == 17 << 20 == len(long())
    full = rampack.Store(limit=1 << 20, evict=False)
    noise = full.memoize(lambda n: random.Random(n).randbytes(100_000))
    assert all(len(noise(n)) == 100_000 for n in range(20))


def test_disks_hold_bytes_by_offset() -> None:
    disk = rampack.Disk(1 << 20, algorithm="zstd")
    disk.write(4090, b"across pages")
    disk.write(8192, numpy.arange(1024, dtype="u4"))
    assert disk.read(4088, 16) == b"\0\0across pages\0\0"
    assert (numpy.frombuffer(disk.read(8192, 4096), "u4") == numpy.arange(1024)).all()
    disk.discard(8192, 4096)
    assert disk.read(8192, 4096) == bytes(4096) and disk.size == 1 << 20
    for wrong in (lambda: disk.read(1 << 20, 1), lambda: disk.discard(1, 4096)):
        with pytest.raises(ValueError):
            wrong()


def test_many_at_once_are_as_one_by_one() -> None:
    store = rampack.Store(unit=4096)
    array = numpy.arange(10_000, dtype="i4").reshape(100, 100)
    values: dict[str | bytes, Any] = {f"k{n}": bytes([n % 256]) * (n * 7) for n in range(300)}
    store.put_many({**values, "array": array})
    assert len(store) == 301
    found = store.get_many([*values, "none", "array"])
    assert numpy.array_equal(found.pop("array"), array)
    assert found == values
    store.update([(b"pair", b"1")], word=b"2")
    assert store.get_many([b"pair", "word"]) == {b"pair": b"1", "word": b"2"}
    assert store.get_many([]) == {}
    with pytest.raises(TypeError, match="a key is str or bytes"):
        store.get_many(["word", 7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="has a buffer"):
        store.put_many({"good": b"", "bad": 7})
    assert store["good"] == b""
    store.put_many([("word", b"3")], ttl=3600)
    assert store["word"] == b"3"


def test_a_range_has_the_bytes_of_the_value_alone() -> None:
    store = rampack.Store(unit=4096)
    value = bytes(range(256)) * 100
    array = numpy.arange(5000, dtype="<u2")
    store.put_many({"bytes": value, "array": array, "empty": b""})
    whole = len(value)
    for offset, length in [(0, 10), (4090, 12), (whole - 5, 100), (whole, 1), (whole + 9, 1)]:
        assert store.get_range("bytes", offset, length) == value[offset : offset + length]
    assert store.get_range("array", 9998, 100) == array.tobytes()[9998:]
    assert store.get_range("empty", 0, 4) == b""
    with pytest.raises(KeyError):
        store.get_range("none", 0, 1)


def test_a_file_has_all_values(store: rampack.Store, tmp_path: Path) -> None:
    store.put_many({"array": numpy.arange(9), "bytes": b"as they are"})
    path = tmp_path / "values"
    assert store.save(path) == 2
    other = rampack.Store(algorithm="zstd", unit=4096)
    other["bytes"] = b"others"
    assert other.load(str(path)) == 2
    assert other["bytes"] == b"as they are"
    assert (other["array"] == numpy.arange(9)).all()
    path.write_bytes(path.read_bytes()[:-1])
    other["bytes"] = b"it stays"
    with pytest.raises(ValueError, match="damaged"):
        other.load(path)
    assert other["bytes"] == b"it stays"
    with pytest.raises(FileNotFoundError):
        other.load(tmp_path / "none")
    with pytest.raises(OSError):
        other.save(tmp_path / "none" / "values")


def test_saves_to_one_file_at_once_are_each_whole(store: rampack.Store, tmp_path: Path) -> None:
    store.put_many({f"{n}": os.urandom(3000) for n in range(2000)})
    path = tmp_path / "values"
    # What a process left that was ended meanwhile.
    (tmp_path / "values.0.new").write_bytes(b"left")
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                store.save(path)
                assert rampack.Store().load(path) == 2000
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert sorted(it.name for it in tmp_path.iterdir()) == ["values", "values.0.new"]
