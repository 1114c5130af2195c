//! What all stores and disks of the process are made of, and what of it a child of `fork()` has.

use std::mem::forget;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rampack::{Algorithm, Rampack};

use crate::raised;

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Only who holds the lock of the interpreter takes this one, so nobody has it at a fork.
static SHARED: Mutex<Option<(u32, Rampack)>> = Mutex::new(None);

fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Is called in the child, which has one thread.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The memory of this process.
pub fn rampack() -> PyResult<Rampack> {
    let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((of, rampack)) = &*shared
        && *of == forks()
    {
        return Ok(rampack.clone());
    }
    let made = Rampack::new().map_err(raised)?;
    // The parent's, if there is one, is left as it is.
    forget(shared.replace((forks(), made.clone())));
    Ok(made)
}

/// The algorithm of a name, as `zstd:9`.
pub fn algorithm(name: &str) -> PyResult<Algorithm> {
    name.parse().map_err(|error: rampack::UnknownAlgorithm| {
        pyo3::exceptions::PyValueError::new_err(error.to_string())
    })
}

/// Something that is of one process.
pub struct Own<T> {
    /// Always there; an option, so that a child can leave it.
    it: Option<T>,
    forks: u32,
    what: &'static str,
}

impl<T> Own<T> {
    /// Of this process.
    pub fn new(it: T, what: &'static str) -> Own<T> {
        Own { it: Some(it), forks: forks(), what }
    }

    /// The thing.
    ///
    /// # Errors
    /// `RuntimeError` in a child of `fork()`.
    pub fn get(&self) -> PyResult<&T> {
        if let Some(it) = self.it.as_ref().filter(|_| self.forks == forks()) {
            return Ok(it);
        }
        let what = self.what;
        Err(PyRuntimeError::new_err(format!(
            "this {what} is of the process that called fork(): make a {what} of this process"
        )))
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.forks != forks() {
            forget(self.it.take());
        }
    }
}
