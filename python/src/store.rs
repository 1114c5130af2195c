//! A store as Python calls it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList};
use rampack::StoreOptions;

use crate::raised;
use crate::shared::{self, Own};
use crate::value::{self, Key};

/// So many values, or so many bytes of them, are put or read at a time.
const MANY: usize = 64;
const MUCH: usize = 1 << 20;

/// Values by keys, compressed. See `rampack.Store`.
#[pyclass(name = "Store", module = "rampack._rampack", subclass, frozen)]
pub struct Store {
    store: Own<rampack::Store>,
    ttl: Option<Duration>,
}

fn duration(ttl: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = ttl else { return Ok(None) };
    let refused = || PyValueError::new_err(format!("ttl is {seconds}: a time in seconds, above 0"));
    match Duration::try_from_secs_f64(seconds) {
        Ok(ttl) if !ttl.is_zero() => Ok(Some(ttl)),
        _ => Err(refused()),
    }
}

/// Makes a file beside `path` that no other save has, and its name.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}.new"));
        match File::create_new(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return Ok((name.into(), made?)),
        }
    }
}

/// A pair of Python as it is stored.
fn stored_pair(pair: PyResult<Bound<'_, PyAny>>) -> PyResult<(Key, Vec<u8>)> {
    let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
    Ok((Key::of(&key)?, value::stored(&value)?))
}

impl Store {
    fn stored(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
        let (store, stored) = (self.store.get()?, Key::of(key)?);
        key.py().detach(|| store.get(stored.bytes())).map_err(raised)
    }

    fn set(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Duration>,
    ) -> PyResult<()> {
        let store = self.store.get()?;
        let (key, stored) = (Key::of(key)?, value::stored(value)?);
        let put = || match ttl {
            None => store.put(key.bytes(), &stored),
            Some(ttl) => store.put_for(key.bytes(), &stored, ttl),
        };
        value.py().detach(put).map_err(raised)
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (
        limit=None, *, algorithm="lz4", evict=true, ttl=None, unit=16384, group=true,
        recompress=None, _of=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        limit: Option<u64>,
        algorithm: &str,
        evict: bool,
        ttl: Option<f64>,
        unit: usize,
        group: bool,
        recompress: Option<(String, f64)>,
        _of: Option<PyRef<'_, Store>>,
    ) -> PyResult<Store> {
        if let Some(of) = _of {
            let store = of.store.get()?;
            let clone = of.py().detach(|| store.clone_contents()).map_err(raised)?;
            return Ok(Store { store: Own::new(clone, "Store"), ttl: of.ttl });
        }
        let algorithm = shared::algorithm(algorithm)?;
        let options = StoreOptions::new().algorithm(algorithm).evict(evict).unit(unit).group(group);
        let options = match limit {
            Some(limit) => options.limit(limit),
            None => options,
        };
        let options = match recompress {
            Some((algorithm, idle)) => {
                let idle = Duration::try_from_secs_f64(idle);
                let idle = idle.map_err(|error| PyValueError::new_err(format!("idle: {error}")))?;
                options.recompress(shared::algorithm(&algorithm)?, idle)
            }
            None => options,
        };
        let ttl = duration(ttl)?;
        let store = shared::rampack()?.store(options).map_err(raised)?;
        Ok(Store { store: Own::new(store, "Store"), ttl })
    }

    #[pyo3(signature = (key, value, *, ttl=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        self.set(key, value, duration(ttl)?.or(self.ttl))
    }

    #[pyo3(signature = (key, default=None, *, out=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match (self.stored(key)?, out) {
            (None, _) => Ok(default),
            (Some(stored), None) => value::object(key.py(), &stored).map(Some),
            (Some(stored), Some(out)) => value::write(&out, &stored).map(Some),
        }
    }

    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let (py, store) = (keys.py(), self.store.get()?);
        let (found, mut keys) = (PyDict::new(py), keys.try_iter()?);
        loop {
            let some: Vec<_> = keys.by_ref().take(MANY).collect::<PyResult<_>>()?;
            let is_last = some.len() < MANY;
            let stored: Vec<Key> = some.iter().map(Key::of).collect::<PyResult<_>>()?;
            let values = py.detach(|| {
                let stored: Vec<&[u8]> = stored.iter().map(Key::bytes).collect();
                store.get_many(&stored)
            });
            for (key, value) in some.into_iter().zip(values.map_err(raised)?) {
                if let Some(value) = value {
                    found.set_item(key, value::object(py, &value)?)?;
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// As `put` with each pair; some at a time are compressed without the lock of the interpreter.
    #[pyo3(signature = (pairs, *, ttl=None))]
    fn _put_many(&self, pairs: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<()> {
        let (store, ttl) = (self.store.get()?, duration(ttl)?.or(self.ttl));
        let (py, mut pairs) = (pairs.py(), pairs.try_iter()?);
        let mut end = None;
        while end.is_none() {
            let (mut some, mut bytes) = (Vec::new(), 0);
            while end.is_none() && some.len() < MANY && bytes < MUCH {
                match pairs.next().map(stored_pair) {
                    Some(Ok(pair)) => {
                        bytes += pair.1.len();
                        some.push(pair);
                    }
                    // Those before it are stored all the same.
                    Some(Err(error)) => end = Some(Err(error)),
                    None => end = Some(Ok(())),
                }
            }
            let put = || match ttl {
                None => {
                    let all = some.iter().map(|(key, value)| (key.bytes(), &value[..]));
                    store.put_many(&all.collect::<Vec<_>>())
                }
                Some(ttl) => {
                    some.iter().try_for_each(|(key, value)| store.put_for(key.bytes(), value, ttl))
                }
            };
            let done = py.detach(put).map_err(raised);
            // What the pairs raised comes first.
            if let Some(Err(error)) = end {
                return Err(error);
            }
            done?;
        }
        Ok(())
    }

    fn get_range<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        offset: usize,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, store, stored) = (key.py(), self.store.get()?, Key::of(key)?);
        let read = || value::part(store, stored.bytes(), offset, length);
        match py.detach(read).map_err(raised)? {
            Some(part) => Ok(PyBytes::new(py, &part)),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.stored(key)? {
            Some(stored) => value::object(key.py(), &stored),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(key, value, self.ttl)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.store.get()?.remove(Key::of(key)?.bytes()) {
            return Ok(());
        }
        Err(PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.store.get()?.contains(Key::of(key)?.bytes()))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.store.get()?.stats().values).unwrap_or(usize::MAX))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let store = self.store.get()?;
        let keys: Vec<Vec<u8>> = py.detach(|| store.keys().map(|(key, _)| key).collect());
        let keys: PyResult<Vec<_>> = keys.iter().map(|key| Key::object(py, key)).collect();
        PyList::new(py, keys?)?.try_iter()
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.get()?;
        py.detach(|| store.clear());
        Ok(())
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let store = self.store.get()?;
        let saved = py.detach(|| {
            let (new, file) = beside(&path)?;
            let write = || {
                let saved = store.save(&file)?;
                file.sync_all()?;
                fs::rename(&new, &path).map(|()| saved)
            };
            write().inspect_err(|_| _ = fs::remove_file(&new))
        });
        Ok(saved?)
    }

    fn load(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let (store, file) = (self.store.get()?, File::open(path)?);
        py.detach(|| store.load(file)).map_err(raised)
    }

    fn set_limit(&self, limit: u64) -> PyResult<()> {
        self.store.get()?.set_limit(limit).map_err(raised)
    }

    /// The numbers of `rampack.Stats`.
    fn _stats(&self) -> PyResult<[u64; 11]> {
        let it = self.store.get()?.stats();
        Ok([
            it.values,
            it.data_bytes,
            it.memory_bytes,
            it.hits,
            it.misses,
            it.puts,
            it.evicted,
            it.expired,
            it.recompressed,
            it.saved_bytes,
            it.lost,
        ])
    }
}
