//! The errors of an operation.

use core::fmt;

/// Why an operation failed. It is small and has no text, because the data path makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The range passes the end of the device.
    OutOfRange,
    /// Offset or length is not a multiple of the device's minimum block.
    Unaligned,
    /// The device has no size yet, or a reset is under way.
    NotReady,
    /// The device takes no changes.
    ReadOnly,
    /// The device's memory limit is reached. Stored data is intact.
    NoSpace,
    /// The system has no memory left. Stored data is intact.
    NoMemory,
    /// A stored object did not decompress to a page.
    Corrupt,
    /// The device does not support this operation.
    Unsupported,
    /// A device below failed.
    Failed,
    /// The device would have to wait under [`crate::Wait::No`]: it is to be asked again.
    WouldBlock,
}

impl IoError {
    /// The Linux error number for a frontend. Every error has one, so all frontends use the same.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            IoError::OutOfRange | IoError::Unaligned => 22,
            IoError::NotReady | IoError::Corrupt | IoError::Failed => 5,
            IoError::ReadOnly => 1,
            IoError::NoSpace => 28,
            IoError::NoMemory => 12,
            IoError::Unsupported => 95,
            IoError::WouldBlock => 11,
        }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoError::OutOfRange => "the range passes the end of the device",
            IoError::Unaligned => "offset or length is not a multiple of the block size",
            IoError::NotReady => "the device is not initialised",
            IoError::ReadOnly => "the device is read-only",
            IoError::NoSpace => "the device's memory limit is reached",
            IoError::NoMemory => "no memory is left",
            IoError::Corrupt => "stored data is corrupt",
            IoError::Unsupported => "the device cannot do this",
            IoError::Failed => "a device below failed",
            IoError::WouldBlock => "the device would have to wait",
        })
    }
}

impl core::error::Error for IoError {}
