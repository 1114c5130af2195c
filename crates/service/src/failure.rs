//! Turns errors of the operating system into a [`ControlError`] with a message.

use std::io;
use std::path::Path;

use control::{ControlError, Errno};
use host::errno;

use crate::outlet;

/// What fails if it is not known what is mounted.
pub const MOUNTS: &str = "cannot read the list of mounts";
/// Begins the limits in a message.
const LIMITED: &str = "this process is limited";

/// The symbol of an error number, such as `EBUSY`; `E?` for an unknown number.
#[must_use]
pub fn symbol(errno: Errno) -> String {
    match (errno.name(), nix::errno::Errno::from_raw(errno.0)) {
        ("E?", nix::errno::Errno::UnknownErrno) => "E?".to_owned(),
        // Numbers that system calls return and attributes of the kernel do not.
        ("E?", other) => format!("{other:?}"),
        (name, _) => name.to_owned(),
    }
}

/// The error of a failed system call. `what` says what was tried; the message adds why it failed.
#[must_use]
pub fn failed(what: impl AsRef<str>, error: &io::Error) -> ControlError {
    let errno = Errno(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => errno::EINVAL,
        io::ErrorKind::UnexpectedEof => errno::ECONNRESET,
        _ => errno::EIO,
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
    shown(&format!("{} ({})", error.message, symbol(error.errno)))
}

/// What is said where devices of the daemon before are served without a frontend that failed so.
#[must_use]
pub fn served_without(error: &ControlError) -> String {
    format!("the devices are served on without it: {}", sentence(error))
}

/// Text with paths of any bytes ([`machine::text_of`]), for a reader.
#[must_use]
pub fn shown(text: &str) -> String {
    String::from_utf8_lossy(&control::bytes_of(text)).into_owned()
}

/// The error with what limits the memory of this process, if it has none left.
#[must_use]
pub fn with_limits(error: ControlError) -> ControlError {
    let limits = match error.errno {
        Errno::ENOMEM if !error.message.contains(LIMITED) => host::limits_on_memory(),
        _ => String::new(),
    };
    match limits.is_empty() {
        true => error,
        false => {
            let message = format!("{}; {LIMITED}: {limits}", error.message);
            ControlError::new(error.errno, message)
        }
    }
}

/// `error`, with why what was left of it could not be cleaned up, if it could not.
#[must_use]
pub fn after(error: ControlError, cleaned: Result<(), ControlError>) -> ControlError {
    let Err(why) = cleaned else { return error };
    ControlError::new(error.errno, format!("{}; {}", error.message, why.message))
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
pub fn frontend_error(error: &fuse::Error) -> ControlError {
    let errno = match error {
        fuse::Error::NoFuse(_) | fuse::Error::NoLoop(_) => Errno::ENODEV,
        fuse::Error::NoPermission { .. } => Errno::EPERM,
        fuse::Error::MountPoint { .. } | fuse::Error::Name { .. } => Errno::EINVAL,
        fuse::Error::Busy { .. } => Errno::EBUSY,
        fuse::Error::System { doing, source } => {
            return failed(format!("cannot {doing}"), source);
        }
    };
    ControlError::new(errno, error.to_string())
}

/// The [`ControlError`] for an error of the ublk frontend.
#[must_use]
pub fn ublk_error(error: &ublk::Error) -> ControlError {
    let errno = match error {
        ublk::Error::NoDriver(_) | ublk::Error::NoUring(_) | ublk::Error::TooOld => Errno::ENODEV,
        ublk::Error::NoPermission => Errno::EPERM,
        ublk::Error::Unfit(_) => Errno::EINVAL,
        ublk::Error::Busy(_) => Errno::EBUSY,
        ublk::Error::System { source, .. } => Errno(source.raw_os_error().unwrap_or(errno::EIO)),
    };
    ControlError::new(errno, error.to_string())
}

#[cfg(test)]
mod tests;
