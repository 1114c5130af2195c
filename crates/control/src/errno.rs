//! Errors of the control plane: a kernel error number and a sentence.

use alloc::string::String;
use core::fmt;

/// A Linux error number, always positive (`EINVAL` is 22).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

macro_rules! errnos { ($($name:ident = $number:literal, $text:literal;)*) => {
    impl Errno {
        $(#[doc = $text] pub const $name: Errno = Errno($number);)*

        /// The symbol, such as `EINVAL`; `E?` for one this list does not hold.
        #[must_use]
        pub const fn name(self) -> &'static str {
            match self { $(Errno::$name => stringify!($name),)* _ => "E?" }
        }

        /// The meaning of the number, in words.
        #[must_use]
        pub const fn text(self) -> &'static str {
            match self { $(Errno::$name => $text,)* _ => "unknown error" }
        }
    }
} }

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EIO = 5, "input/output error";
    E2BIG = 7, "argument list too long";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    ENOTBLK = 15, "block device required";
    EBUSY = 16, "device or resource busy";
    EEXIST = 17, "file exists";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENOTTY = 25, "inappropriate ioctl for device";
    ENOSPC = 28, "no space left on device";
    EROFS = 30, "read-only file system";
    ERANGE = 34, "numerical result out of range";
    ENAMETOOLONG = 36, "file name too long";
    ENOSYS = 38, "function not implemented";
    EPROTO = 71, "protocol error";
    ENOTSUP = 95, "operation not supported";
}

/// The error of an operation: the error number of the kernel's attribute, and a sentence with the
/// reason and the allowed values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlError {
    /// The error number.
    pub errno: Errno,
    /// The sentence.
    pub message: String,
}

impl ControlError {
    /// An error with this number and sentence.
    pub fn new(errno: Errno, message: impl Into<String>) -> ControlError {
        ControlError { errno, message: message.into() }
    }

    /// [`Errno::EINVAL`] with a sentence.
    pub fn invalid(message: impl Into<String>) -> ControlError {
        ControlError::new(Errno::EINVAL, message)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.errno.name())
    }
}

impl core::error::Error for ControlError {}
