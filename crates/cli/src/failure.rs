//! Turns errors of the operating system into a [`ControlError`] with a message.

use std::io;
use std::path::Path;

use rampack::control::{ControlError, Errno};

use crate::outlet;

/// Error numbers that system calls return and kernel attributes do not.
const MORE: [(i32, &str); 23] = [
    (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"),
    (libc::ENXIO, "ENXIO"),
    (libc::EBADF, "EBADF"),
    (libc::EDEADLK, "EDEADLK"),
    (libc::ENOTBLK, "ENOTBLK"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::EROFS, "EROFS"),
    (libc::EPIPE, "EPIPE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ELOOP, "ELOOP"),
    (libc::EPROTO, "EPROTO"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
];

/// The symbol of an error number, such as `EBUSY`; `E?` for an unknown number.
#[must_use]
pub fn symbol(errno: Errno) -> &'static str {
    match errno.name() {
        "E?" => MORE.iter().find(|known| known.0 == errno.0).map_or("E?", |known| known.1),
        name => name,
    }
}

/// The error of a failed system call. `what` says what was tried; the message adds why it failed.
#[must_use]
pub fn failed(what: impl AsRef<str>, error: &io::Error) -> ControlError {
    let errno = Errno(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => libc::EINVAL,
        io::ErrorKind::UnexpectedEof => libc::ECONNRESET,
        _ => libc::EIO,
    }));
    // The text of the standard library ends in "(os error 2)". It is cut off: the symbol replaces
    // it.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    ControlError::new(errno, format!("{}: {}", what.as_ref(), lower_first(text)))
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// An error as the program prints it: the message and the symbol.
#[must_use]
pub fn sentence(error: &ControlError) -> String {
    format!("{} ({})", error.message, symbol(error.errno))
}

/// A path as a word of a shell's command line.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Prints on standard error. A failed write is ignored: the terminal may be gone. If nobody reads
/// there, the text is dropped within a second.
pub fn say(text: &str) {
    outlet::STDERR.write(text.as_bytes());
}

/// The [`ControlError`] for an error of the FUSE frontend.
#[must_use]
pub fn frontend_error(error: &rampack::fuse::Error) -> ControlError {
    let errno = match error {
        rampack::fuse::Error::NoFuse(_) | rampack::fuse::Error::NoLoop(_) => Errno::ENODEV,
        rampack::fuse::Error::NoPermission { .. } => Errno::EPERM,
        rampack::fuse::Error::MountPoint { .. } | rampack::fuse::Error::Name { .. } => {
            Errno::EINVAL
        }
        rampack::fuse::Error::Busy { .. } => Errno::EBUSY,
        rampack::fuse::Error::System { doing, source } => {
            return failed(format!("cannot {doing}"), source);
        }
    };
    ControlError::new(errno, error.to_string())
}

/// The [`ControlError`] for an error of the ublk frontend.
#[must_use]
pub fn ublk_error(error: &rampack::ublk::Error) -> ControlError {
    let errno = match error {
        rampack::ublk::Error::NoDriver(_)
        | rampack::ublk::Error::NoUring(_)
        | rampack::ublk::Error::TooOld => Errno::ENODEV,
        rampack::ublk::Error::NoPermission => Errno::EPERM,
        rampack::ublk::Error::Unfit(_) => Errno::EINVAL,
        rampack::ublk::Error::Busy(_) => Errno::EBUSY,
        rampack::ublk::Error::System { source, .. } => {
            Errno(source.raw_os_error().unwrap_or(libc::EIO))
        }
    };
    ControlError::new(errno, error.to_string())
}

#[cfg(test)]
mod tests;
