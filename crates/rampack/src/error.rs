//! The error of this crate.

use std::borrow::Cow;
use std::io;

use block::IoError;
use control::{ControlError, Errno};

/// Why something was not done. Whatever it is, what was stored is as it was, but where a variant
/// says otherwise.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A page or a range of bytes is past the end of the disk.
    #[error("the range passes the end of the disk")]
    OutOfRange,
    /// The limit of the disk is reached, and nothing could be made smaller.
    #[error("the memory limit is reached")]
    Full,
    /// The process, the system or [`Builder::memory`](crate::Builder::memory) has no memory left.
    #[error("{0}")]
    NoMemory(Cow<'static, str>),
    /// What was stored is damaged: it does not decompress.
    #[error("what is stored is damaged")]
    Corrupt,
    /// The buffer is too small for a value of so many bytes.
    #[error("the buffer is too small for the value of {0} bytes")]
    TooSmall(usize),
    /// A value is not allowed; the text says what is.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// It is in use; the text says by what.
    #[error("{0}")]
    Busy(Cow<'static, str>),
    /// This build, this system or this object cannot do that.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
    /// The system refused something.
    #[error("{message}")]
    System {
        /// Linux's number of the error.
        errno: i32,
        /// What was tried, and what the system said.
        message: Cow<'static, str>,
    },
}

impl Error {
    /// Linux's number of the error (`EINVAL` is 22).
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Error::OutOfRange | Error::TooSmall(_) | Error::Invalid(_) => Errno::EINVAL.0,
            Error::Full => Errno::ENOSPC.0,
            Error::NoMemory(_) => Errno::ENOMEM.0,
            Error::Corrupt => Errno::EIO.0,
            Error::Busy(_) => Errno::EBUSY.0,
            Error::Unsupported(_) => Errno::ENOTSUP.0,
            Error::System { errno, .. } => *errno,
        }
    }
}

impl From<IoError> for Error {
    #[cold]
    fn from(error: IoError) -> Error {
        match error {
            IoError::OutOfRange => Error::OutOfRange,
            IoError::NoSpace => Error::Full,
            IoError::NoMemory => Error::NoMemory("no memory is left".into()),
            IoError::Corrupt => Error::Corrupt,
            IoError::Unsupported => Error::Unsupported("the disk cannot do this".into()),
            other => Error::System { errno: other.errno(), message: other.to_string().into() },
        }
    }
}

impl From<ControlError> for Error {
    #[cold]
    fn from(ControlError { errno, message }: ControlError) -> Error {
        let message = Cow::Owned(message);
        match errno {
            Errno::ENOMEM => Error::NoMemory(message),
            Errno::EINVAL => Error::Invalid(message),
            Errno::EBUSY => Error::Busy(message),
            Errno::ENOTSUP => Error::Unsupported(message),
            Errno(errno) => Error::System { errno, message },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        io::Error::new(kind, error)
    }
}
