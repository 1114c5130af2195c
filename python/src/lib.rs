//! rampack for Python: what is compressed. `package/rampack` makes a mapping of it.
//!
//! # Invariants
//! * Nobody compresses or decompresses with the lock of the interpreter held.
//! * What is compressed is a copy, or `bytes`: another thread may write to a buffer meanwhile.
//! * A child of `fork()` touches nothing of its parent: its threads are gone, and so is who would
//!   give locks back. It gets an error, and may make stores of its own.
#![forbid(unsafe_code)]

mod disk;
mod shared;
mod store;
mod value;

use pyo3::prelude::*;

pyo3::create_exception!(
    rampack,
    Error,
    pyo3::exceptions::PyException,
    "Something that rampack could not do."
);
pyo3::create_exception!(rampack, FullError, Error, "The limit of memory is reached.");

/// An error as Python has it.
fn raised(error: rampack::Error) -> PyErr {
    use pyo3::exceptions::{PyMemoryError, PyValueError};
    match error {
        rampack::Error::Full => FullError::new_err(error.to_string()),
        rampack::Error::NoMemory(_) => PyMemoryError::new_err(error.to_string()),
        rampack::Error::Invalid(_) | rampack::Error::OutOfRange => {
            PyValueError::new_err(error.to_string())
        }
        _ => Error::new_err(error.to_string()),
    }
}

#[pymodule]
mod _rampack {
    #[pymodule_export]
    use super::disk::Disk;
    #[pymodule_export]
    use super::shared::after_fork;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::{Error, FullError};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
