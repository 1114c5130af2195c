# %% [markdown]
# A table that is three times as large as the memory it takes: each column stays compressed, and one
# at a time is an array.

# %%
import numpy

import rampack

ROWS, COLUMNS = 200_000, 24
random = numpy.random.default_rng(7)
store = rampack.Store(limit=256 << 20, algorithm="zstd")

# %% Readings of sensors: they change slowly, and have three digits.
for n in range(COLUMNS):
    steps = random.normal(0, 0.02, ROWS).cumsum()
    store[f"sensor {n}"] = numpy.round(steps, 2)

# %% All columns are used, one after the other. The second time no array is made anew.
means = {name: store[name].mean() for name in store}
column = numpy.empty(ROWS)
largest = max(store.get(name, out=column).max() for name in store)

# %%
stats = store.stats()
print(f"{len(means)} columns of {ROWS} rows, the largest value is {largest:.2f}")
print(f"holds {stats.data_bytes / stats.memory_bytes:.1f} times the memory it takes")
