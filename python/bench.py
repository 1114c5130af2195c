"""rampack.Store beside what else keeps values compressed: a dict of zstd blocks, blosc2, diskcache.

Each keeps the same values of 16 KiB, made of three kinds of data; then the table has the bytes of
memory (or of files) per byte of data, and the microseconds of a put and of a get in one thread.

    python bench.py [--values 2000] [--out DIRECTORY]
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import blosc2
import diskcache
import numpy
import zstandard

import rampack

VALUE = 16 << 10


class Figures(NamedTuple):
    """Of one subject."""

    name: str
    size: float
    """Bytes for each byte of data."""
    put: float
    """Microseconds."""
    get: float
    """Microseconds."""


def make(count: int) -> list[bytes]:
    """Values: records of JSON, numbers that change slowly, and texts."""
    generator, numbers = random.Random(7), numpy.random.default_rng(7)
    words = ["".join(generator.choices("etaoinshrdlu", k=generator.randint(2, 9))) for _ in range(900)]
    values = []
    for n in range(count):
        match n % 3:
            case 0:
                text = "".join(
                    f'{{"id": {n * 99 + i}, "name": "{generator.choice(words)}", '
                    f'"score": {generator.random():.3f}}}\n'
                    for i in range(400)
                )
                value = text.encode()
            case 1:
                value = numbers.normal(0, 3, VALUE // 4).cumsum().astype("i4").tobytes()
            case _:
                value = " ".join(generator.choices(words, k=4000)).encode()
        values.append(value[:VALUE].ljust(VALUE))
    return values


def measure(
    name: str,
    values: list[bytes],
    put: Callable[[str, bytes], Any],
    get: Callable[[str], bytes],
    size: Callable[[], int],
) -> Figures:
    """Puts all, gets all in another order, and compares them."""
    names = [f"key {n}" for n in range(len(values))]
    begun = time.perf_counter()
    for key, value in zip(names, values):
        put(key, value)
    stored = time.perf_counter() - begun
    order = list(range(len(values)))
    random.Random(5).shuffle(order)
    begun = time.perf_counter()
    read = [get(names[n]) for n in order]
    got = time.perf_counter() - begun
    if any(bytes(value) != values[n] for n, value in zip(order, read)):
        raise SystemExit(f"{name} gave another value back")
    each = 1e6 / len(values)
    return Figures(name, size() / (len(values) * VALUE), stored * each, got * each)


def of_dict(
    name: str, values: list[bytes], pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]
) -> Figures:
    """A dict of compressed bytes, with the bytes of its keys, objects and table."""
    kept: dict[str, bytes] = {}

    def put(key: str, value: bytes) -> None:
        kept[key] = pack(value)

    def size() -> int:
        objects = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in kept.items())
        return sys.getsizeof(kept) + objects

    return measure(name, values, put, lambda key: unpack(kept[key]), size)


def of_rampack(algorithm: str, values: list[bytes]) -> Figures:
    """A store."""
    store = rampack.Store(algorithm=algorithm)
    size = lambda: store.stats().memory_bytes  # noqa: E731
    return measure(f"rampack {algorithm}", values, store.__setitem__, store.__getitem__, size)


def of_diskcache(values: list[bytes]) -> Figures:
    """Files in a temporary directory; its memory is the cache of the system."""
    place = tempfile.mkdtemp()
    try:
        with diskcache.Cache(place, size_limit=1 << 40) as cache:
            return measure(
                "diskcache (files)", values, cache.set, cache.__getitem__, cache.volume
            )
    finally:
        shutil.rmtree(place)


def plot(rows: list[Figures]) -> str:
    """Three rows of bars, as SVG."""
    height, parts = 24, []
    panels = [("bytes per byte", 1), ("µs a put", 2), ("µs a get", 3)]
    for panel, (title, column) in enumerate(panels):
        left = 150 + panel * 230
        most = max(row[column] for row in rows)
        parts.append(f'<text x="{left}" y="16" font-weight="bold">{title}</text>')
        for n, row in enumerate(rows):
            y, width = 26 + n * height, 150 * row[column] / most
            colour = "#2a6" if row.name.startswith("rampack") else "#888"
            parts.append(
                f'<rect x="{left}" y="{y}" width="{width:.1f}" height="16" fill="{colour}"/>'
                f'<text x="{left + width + 4:.1f}" y="{y + 13}">{row[column]:.3g}</text>'
            )
    for n, row in enumerate(rows):
        parts.append(f'<text x="4" y="{39 + n * height}">{row.name}</text>')
    size = f'width="840" height="{34 + len(rows) * height}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Prints the table, and draws it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--values", type=int, default=2000)
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    options = arguments.parse_args()
    values = make(options.values)
    pack, unpack = zstandard.ZstdCompressor(3), zstandard.ZstdDecompressor()
    # One thread each, as the others have.
    blosc2.set_nthreads(1)
    lz4 = {"codec": blosc2.Codec.LZ4, "clevel": 5, "typesize": 1}
    rows = [
        of_rampack("lz4", values),
        of_dict("dict + blosc2 lz4", values, lambda it: blosc2.compress2(it, **lz4), blosc2.decompress2),
        of_rampack("zstd:3", values),
        of_dict("dict + zstd:3", values, pack.compress, unpack.decompress),
        of_diskcache(values),
    ]
    print(f"{len(values)} values of {VALUE >> 10} KiB\n")
    print("| | bytes a byte | put, µs | get, µs |\n|---|---:|---:|---:|")
    for row in rows:
        print(f"| {row.name} | {row.size:.3f} | {row.put:.1f} | {row.get:.1f} |")
    (options.out / "python.svg").write_text(plot(rows))


if __name__ == "__main__":
    main()
