//! Errors.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Why there is no estimate.
#[derive(Debug)]
pub struct Error {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    pub error: io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Is it the lack of a right?
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }

    /// Is the process, or what else was named, not there, or not any more? The file of a process
    /// that ends while it is read is cut off.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let gone = [Errno::NOENT.raw_os_error(), Errno::SRCH.raw_os_error()];
        self.error.kind() == io::ErrorKind::UnexpectedEof
            || self.error.raw_os_error().is_some_and(|error| gone.contains(&error))
    }

    pub(crate) fn new(what: impl Into<String>, error: impl Into<io::Error>) -> Error {
        Error { what: what.into(), error: error.into() }
    }
}
