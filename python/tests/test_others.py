"""The store of zarr, columns of pandas, and the documentation."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import runpy
import sys

import numpy
import pytest

import rampack


@pytest.mark.parametrize("name", ["rampack", "rampack.zarr"])
def test_examples_of_the_documentation(name: str) -> None:
    if name == "rampack.zarr":
        pytest.importorskip("zarr")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 3 and result.failed == 0


def test_the_example_of_a_disk() -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(rampack.Disk, "Disk", module=False)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_zarr_keeps_arrays_and_groups() -> None:
    zarr = pytest.importorskip("zarr")
    from rampack.zarr import Store

    store = Store(limit=64 << 20)
    group = zarr.create_group(store)
    data = numpy.arange(10_000).reshape(100, 100)
    array = group.create_array("deep/array", data=data, chunks=(30, 30), compressors=None)
    array.attrs["unit"] = "m"
    again = zarr.open_group(store, mode="r")["deep/array"]
    assert (again[:] == data).all() and (again[5:40:3, 7] == data[5:40:3, 7]).all()
    assert again.attrs["unit"] == "m"
    assert sorted(name for name, _ in group.members()) == ["deep"]
    sharded = group.create_array(
        "sharded", shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="i4"
    )
    sharded[:] = data
    assert (sharded[25:77, 3:9] == data[25:77, 3:9]).all()
    del group["deep"]
    assert not [key for key in store.values if "deep" in str(key)]
    with pytest.raises(ValueError, match="read-only|read only"):
        zarr.create_array(store.with_read_only(True), shape=1, dtype="i4")


def test_columns_of_pandas_go_as_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 2.5], "when": pandas.to_datetime(["2026", "2027"])})
    store = rampack.Store()
    for name in frame:
        store[name] = frame[name].to_numpy()
    back = pandas.DataFrame({name: store[name] for name in frame})
    pandas.testing.assert_frame_equal(back, frame)


def test_the_example_holds_three_times_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    example = pathlib.Path(__file__).parents[1] / "examples" / "three_times.py"
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert float(said.split("holds ")[1].split(" times")[0]) >= 3


def test_the_comparison_runs(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("zstandard", "blosc2", "diskcache"):
        pytest.importorskip(name)
    bench = pathlib.Path(__file__).parents[1] / "bench.py"
    sys.argv = ["bench.py", "--values", "50", "--out", str(tmp_path)]
    runpy.run_path(str(bench), run_name="__main__")
    assert "rampack lz4" in capsys.readouterr().out
    assert (tmp_path / "python.svg").read_text().startswith("<svg")
