//! A disk as Python calls it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rampack::{DiskOptions, PAGE_SIZE};

use crate::raised;
use crate::shared::{self, Own};
use crate::value::bytes_of;

/// Bytes by their offset, compressed in pages of 4096 bytes.
///
/// >>> import rampack
/// >>> disk = rampack.Disk(1 << 30)
/// >>> disk.write(5000, b"anything")
/// >>> disk.read(5000, 8)
/// b'anything'
/// >>> disk.memory_bytes < 1 << 20
/// True
#[pyclass(module = "rampack", frozen)]
pub struct Disk {
    disk: Own<rampack::Disk>,
}

#[pymethods]
impl Disk {
    #[new]
    #[pyo3(signature = (size, *, algorithm="lz4", limit=0))]
    fn new(size: u64, algorithm: &str, limit: u64) -> PyResult<Disk> {
        let algorithm = shared::algorithm(algorithm)?;
        let options = DiskOptions::new(size).algorithm(algorithm).mem_limit(limit);
        let disk = shared::rampack()?.disk(options).map_err(raised)?;
        Ok(Disk { disk: Own::new(disk, "Disk") })
    }

    /// Its size in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.disk.get()?.size())
    }

    /// Bytes of memory that it takes.
    #[getter]
    fn memory_bytes(&self) -> PyResult<u64> {
        Ok(self.disk.get()?.stats().memory_bytes)
    }

    /// Reads so many bytes. What was not written is zero.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let disk = self.disk.get()?;
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > disk.size()) {
            return Err(raised(rampack::Error::OutOfRange));
        }
        PyBytes::new_with(py, length, |into| {
            py.detach(|| disk.read_at(offset, into)).map_err(raised)
        })
    }

    /// Writes bytes.
    fn write(&self, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let disk = self.disk.get()?;
        let copy = bytes_of(data, 0)?;
        data.py().detach(|| disk.write_at(offset, &copy)).map_err(raised)
    }

    /// Frees bytes, whole pages, which are zero afterwards.
    fn discard(&self, offset: u64, length: u64) -> PyResult<()> {
        let page = PAGE_SIZE as u64;
        if !offset.is_multiple_of(page) || !length.is_multiple_of(page) {
            let message = format!("{offset} and {length} are not both multiples of {page}");
            return Err(PyValueError::new_err(message));
        }
        self.disk.get()?.discard(offset / page, length / page).map_err(raised)
    }
}
