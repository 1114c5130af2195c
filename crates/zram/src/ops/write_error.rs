//! Errors of what goes through pages.

use alloc::format;

use block::IoError;
use control::{ControlError, Errno};

pub(crate) fn no_memory() -> ControlError {
    ControlError::new(Errno::ENOMEM, "no memory is left for the list of pages")
}

pub(crate) fn write_error(error: IoError, path: &str) -> ControlError {
    let errno = match error {
        IoError::NoSpace => Errno::ENOSPC,
        IoError::NoMemory => Errno::ENOMEM,
        _ => Errno::EIO,
    };
    let what = match error {
        IoError::NoSpace => "there is no space left for it".into(),
        error => format!("{error}"),
    };
    ControlError::new(errno, format!("some pages could not be written to {path}: {what}"))
}

pub(crate) fn ended_early(what: &str, error: IoError) -> ControlError {
    let errno = match error {
        IoError::NoSpace | IoError::NoMemory => Errno::ENOMEM,
        _ => Errno::EIO,
    };
    ControlError::new(errno, format!("pages were {what} only in part: {error}"))
}
