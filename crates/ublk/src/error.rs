//! Errors of making or removing a device, with text for a person.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a device could not be made or removed.
#[derive(Debug)]
pub enum Error {
    /// The kernel offers no ublk here.
    NoDriver(io::Error),
    /// This process may not use io_uring, or the kernel's io_uring is not sufficient.
    NoUring(io::Error),
    /// The driver does not know the commands of Linux 6.4.
    TooOld,
    /// This user may not make block devices.
    NoPermission,
    /// The device or the options cannot be served.
    Unfit(&'static str),
    /// It is in use; nothing has changed.
    Busy(PathBuf),
    /// The operating system refused something else.
    System {
        /// The operation that failed.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::System { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoDriver(source) => write!(
                f,
                "no ublk on this machine (/dev/ublk-control: {source}): load the module with \
                 'modprobe ublk_drv' (Linux 6.4 or later)"
            ),
            Error::NoUring(source) => write!(
                f,
                "no io_uring for this process ({source}): ublk needs it; see the setting \
                 kernel.io_uring_disabled, and what a container forbids"
            ),
            Error::TooOld => {
                f.write_str("the ublk driver of this kernel is too old: it takes Linux 6.4")
            }
            Error::NoPermission => f.write_str("no permission to make a ublk device: run as root"),
            Error::Unfit(why) => write!(f, "this cannot be served by ublk: {why}"),
            Error::Busy(what) => write!(f, "{} is in use", what.display()),
            Error::System { doing, source } => write!(f, "cannot {doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::NoDriver(source) | Error::NoUring(source) | Error::System { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}
