//! Keys and values as they are stored.
//!
//! A key is a letter, `s` for a text and `b` for bytes, and its bytes. A value is its bytes and a
//! byte that says what it was: [`BYTES`], or [`ARRAY`], before which there are the description of
//! the array and the two bytes of its length.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

const BYTES: u8 = 0;
const ARRAY: u8 = 1;
/// The most bytes of a key, with its letter.
const MAX_KEY: usize = 1024;

/// A key as it is stored.
pub struct Key {
    bytes: [u8; MAX_KEY],
    length: usize,
}

impl Key {
    /// The key of a `str` or `bytes`.
    ///
    /// # Errors
    /// `TypeError` for something else, `ValueError` for one that is too long.
    pub fn of(key: &Bound<'_, PyAny>) -> PyResult<Key> {
        if let Ok(text) = key.cast::<PyString>() {
            Key::new(b's', text.to_str()?.as_bytes())
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            Key::new(b'b', bytes.as_bytes())
        } else {
            let name = key.get_type().name()?;
            Err(PyTypeError::new_err(format!("a key is str or bytes, not {name}")))
        }
    }

    fn new(letter: u8, key: &[u8]) -> PyResult<Key> {
        let mut bytes = [0; MAX_KEY];
        let length = 1 + key.len();
        let Some(place) = bytes.get_mut(1..length) else {
            let (long, most) = (key.len(), MAX_KEY - 1);
            return Err(PyValueError::new_err(format!(
                "the key has {long} bytes: a key has at most {most}"
            )));
        };
        place.copy_from_slice(key);
        bytes[0] = letter;
        Ok(Key { bytes, length })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The object of a stored key.
    pub fn object<'py>(py: Python<'py>, stored: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match stored {
            [b's', text @ ..] => {
                let text = std::str::from_utf8(text).map_err(|_| crate::Error::new_err("a key"))?;
                Ok(PyString::new(py, text).into_any())
            }
            other => Ok(PyBytes::new(py, other.get(1..).unwrap_or_default()).into_any()),
        }
    }
}

/// A copy of the bytes of an object with a buffer, with room for so many more.
///
/// # Errors
/// `TypeError` for another object, `BufferError` and `TypeError` for bytes that are not one piece.
pub fn bytes_of(value: &Bound<'_, PyAny>, more: usize) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        let mut copy = Vec::with_capacity(bytes.len() + more);
        copy.extend_from_slice(bytes);
        return Ok(copy);
    }
    let py = value.py();
    let buffer = buffer_of(value)?;
    let length = buffer.item_count();
    let mut copy = Vec::with_capacity(length + more);
    copy.resize(length, 0);
    buffer.copy_to_slice(py, &mut copy)?;
    Ok(copy)
}

/// The buffer of an object, as bytes.
fn buffer_of(value: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let Ok(view) = PyMemoryView::from(value) else {
        let name = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a value has a buffer, as bytes, bytearray, memoryview and numpy arrays have; {name} \
             has none"
        )));
    };
    PyBuffer::get(&view.call_method1(intern!(value.py(), "cast"), ("B",))?)
}

/// What is stored of a value.
///
/// # Errors
/// As for [`bytes_of`].
pub fn stored(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = value.py();
    let plain = value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyByteArray>()
        || !value.hasattr(intern!(py, "__array_interface__"))?;
    if plain {
        let mut stored = bytes_of(value, 1)?;
        stored.push(BYTES);
        return Ok(stored);
    }
    let packed = arrays(py)?.call_method1(intern!(py, "pack"), (value,))?;
    let (bytes, description): (Bound<'_, PyAny>, Vec<u8>) = packed.extract()?;
    let length = u16::try_from(description.len());
    let length = length.map_err(|_| PyValueError::new_err("the dtype has too many fields"))?;
    let mut stored = bytes_of(&bytes, description.len() + 3)?;
    stored.extend_from_slice(&description);
    stored.extend_from_slice(&length.to_le_bytes());
    stored.push(ARRAY);
    Ok(stored)
}

/// The bytes of a stored value, and the description if it is an array.
fn parts(stored: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    match stored.split_last()? {
        (&BYTES, bytes) => Some((bytes, None)),
        (&ARRAY, rest) => {
            let (rest, length) = rest.split_last_chunk()?;
            let at = rest.len().checked_sub(u16::from_le_bytes(*length).into())?;
            let (bytes, description) = rest.split_at(at);
            Some((bytes, Some(description)))
        }
        _ => None,
    }
}

/// The bytes `offset..offset + length` of a value of bytes or an array, as far as it has them;
/// `None`
/// if there is no value. What is decompressed is what they are in, and the end of the value.
pub fn part(
    store: &rampack::Store,
    key: &[u8],
    offset: usize,
    length: usize,
) -> Result<Option<Vec<u8>>, rampack::Error> {
    loop {
        let Some(stored) = store.len_of(key) else { return Ok(None) };
        let mut end = [0; 3];
        let from = stored.saturating_sub(end.len());
        let read = store.get_range(key, from, &mut end)?;
        let end = &end[..read.unwrap_or(0)];
        let more = match end {
            [.., BYTES] => 1,
            [low, high, ARRAY] => 3 + usize::from(u16::from_le_bytes([*low, *high])),
            _ => 0,
        };
        let most = stored.saturating_sub(more).saturating_sub(offset);
        let mut part = vec![0; length.min(most)];
        let read = store.get_range(key, offset, &mut part)?;
        // Another value may have come meanwhile.
        if read.is_some() && store.len_of(key) == Some(stored) {
            return Ok(Some(part));
        }
    }
}

/// The object of a stored value: `bytes`, or an array.
///
/// # Errors
/// What numpy raises.
pub fn object<'py>(py: Python<'py>, stored: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match parts(stored) {
        Some((bytes, None)) => Ok(PyBytes::new(py, bytes).into_any()),
        Some((bytes, Some(description))) => {
            let (bytes, description) = (PyByteArray::new(py, bytes), PyBytes::new(py, description));
            arrays(py)?.call_method1(intern!(py, "unpack"), (bytes, description))
        }
        None => Err(crate::Error::new_err("what is stored is no value of Python")),
    }
}

/// Writes a stored value into `out`, and returns it, or the part of it that was filled.
///
/// # Errors
/// `ValueError` if it is too short, or of another dtype or shape; `BufferError` if it cannot be
/// written.
pub fn write<'py>(out: &Bound<'py, PyAny>, stored: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let py = out.py();
    let parts = parts(stored);
    let (bytes, description) =
        parts.ok_or_else(|| crate::Error::new_err("what is stored is no value of Python"))?;
    if let Some(description) = description {
        let description = PyBytes::new(py, description);
        arrays(py)?.call_method1(intern!(py, "check"), (out, description))?;
    }
    let view = PyMemoryView::from(out)?.call_method1(intern!(py, "cast"), ("B",))?;
    let length = view.len()?;
    let long = bytes.len();
    if length < long || (description.is_some() && length > long) {
        let message = format!("out has {length} bytes, and the value {long}");
        return Err(PyValueError::new_err(message));
    }
    let part = view.get_item(pyo3::types::PySlice::new(py, 0, long as isize, 1))?;
    if long > 0 {
        PyBuffer::<u8>::get(&part)?.copy_from_slice(py, bytes)?;
    }
    Ok(if description.is_some() { out.clone() } else { part })
}

/// The module that knows numpy.
fn arrays<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    PyModule::import(py, intern!(py, "rampack._arrays"))
}
