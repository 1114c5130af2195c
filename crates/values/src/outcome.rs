//! Errors and statistics.

use alloc::string::String;
use core::fmt;

use crate::{MAX_KEY, MAX_VALUE};

/// The reason why a store of values was not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoStore {
    /// An option or the codec is not allowed; the text says what is.
    Invalid(String),
    /// There is no memory, or no range of addresses.
    NoMemory(String),
    /// What another process left is of another kind, or damaged; the text says how. It is as it
    /// was.
    Left(String),
}

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoStore::Invalid(message) | NoStore::NoMemory(message) | NoStore::Left(message) => {
                f.write_str(message)
            }
        }
    }
}

impl core::error::Error for NoStore {}

/// The reason why a value was not stored. The store has what it had, less what was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PutError {
    /// The key has so many bytes, more than [`MAX_KEY`].
    KeyTooLong(usize),
    /// The value has so many bytes, more than [`MAX_VALUE`].
    ValueTooLong(usize),
    /// The limit is reached, and nothing is evicted, or the value alone is more than the limit
    /// allows.
    Full,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::KeyTooLong(bytes) => {
                write!(f, "the key has {bytes} bytes: {MAX_KEY} are allowed")
            }
            PutError::ValueTooLong(bytes) => {
                write!(f, "the value has {bytes} bytes: {MAX_VALUE} are allowed")
            }
            PutError::Full => f.write_str("there is no room for the value within the limit"),
        }
    }
}

impl core::error::Error for PutError {}

/// The reason why a value was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GetError {
    /// The value has so many bytes, more than the buffer.
    TooSmall(usize),
    /// The stored bytes give no value: memory was damaged.
    Corrupt,
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GetError::TooSmall(bytes) => {
                write!(f, "the buffer is too small for the value of {bytes} bytes")
            }
            GetError::Corrupt => f.write_str("the stored value is damaged"),
        }
    }
}

impl core::error::Error for GetError {}

/// The reason why a snapshot was not loaded. The store has what it had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// What a record says cannot be; the text says what.
    Wrong(String),
    /// This build cannot read it; the text says why.
    Codec(String),
    /// There is no room for it beside what is there.
    Full,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Wrong(message) | LoadError::Codec(message) => f.write_str(message),
            LoadError::Full => f.write_str("there is no room for the snapshot within the limit"),
        }
    }
}

impl core::error::Error for LoadError {}

/// Why a value left the store by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Its memory was needed.
    Evicted,
    /// Its life ended.
    Expired,
}

/// A value that left the store by itself, for [`crate::Options::evicted`].
pub struct Evicted<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) length: usize,
    pub(crate) reason: Reason,
    /// Reads the value to a buffer of its length.
    pub(crate) read: &'a dyn Fn(&mut [u8]) -> Result<(), GetError>,
}

impl Evicted<'_> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Why it left.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The length of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.length
    }

    /// Reads the value to the beginning of `into`, and returns its length.
    ///
    /// # Errors
    /// [`GetError`].
    pub fn read(&self, into: &mut [u8]) -> Result<usize, GetError> {
        let into = into.get_mut(..self.length).ok_or(GetError::TooSmall(self.length))?;
        (self.read)(into).map(|()| self.length)
    }
}

/// How far a walk over the keys has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cursor(pub(crate) u64);

/// A snapshot of the statistics. While other threads work, it is that of no single instant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Values.
    pub values: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// Bytes of memory: `pool_bytes`, the indexes of this store and of those that share its
    /// objects, and the table of groups.
    pub memory_bytes: u64,
    /// Bytes of the frames of all objects, with those of clones.
    pub pool_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// The most bytes of memory; `u64::MAX` for no limit.
    pub limit_bytes: u64,
    /// Groups of small values, with those of clones.
    pub groups: u64,
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Values stored.
    pub puts: u64,
    /// Values removed by a call.
    pub removes: u64,
    /// Values evicted.
    pub evicted: u64,
    /// Values taken out because their lives had ended.
    pub expired: u64,
    /// Values refused.
    pub refused: u64,
    /// Values and groups that were compressed once more, with those of clones.
    pub recompressed: u64,
    /// Bytes of memory that this has saved, so far.
    pub saved_bytes: u64,
    /// Values that were lost on the way from another process, because what it left of them was
    /// damaged.
    pub lost: u64,
}
