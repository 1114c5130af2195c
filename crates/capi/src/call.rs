//! What surrounds a call: its number, its sentence, and no panic.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use control::Errno;
use rampack::Error;

/// Why a call fails.
pub struct Failure {
    errno: Errno,
    message: Cow<'static, CStr>,
}

impl Failure {
    /// A failure with a sentence.
    pub fn new(errno: Errno, message: impl Into<String>) -> Failure {
        // What follows a zero cannot be told to C.
        let mut message = message.into();
        message.truncate(message.find('\0').unwrap_or(message.len()));
        let message = CString::new(message).unwrap_or_default();
        Failure { errno, message: Cow::Owned(message) }
    }

    /// A failure that is told without taking memory.
    pub const fn plain(errno: Errno, message: &'static CStr) -> Failure {
        Failure { errno, message: Cow::Borrowed(message) }
    }

    /// The negative number.
    pub fn number(&self) -> c_int {
        -self.errno.0
    }

    /// `-EINVAL`.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Errno::EINVAL, message)
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let errno = match error {
            Error::TooSmall(_) => Errno::ERANGE,
            _ => Errno(error.errno()),
        };
        Failure::new(errno, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// The sentence of the last failure of this thread.
pub fn last_error() -> *const c_char {
    // At its end a thread has no such values any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn remember(failure: Failure) -> c_int {
    let number = failure.number();
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.message);
    number
}

/// Does the work of a part of a call, and gives its number.
pub fn status(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match work() {
        Ok(()) => 0,
        Err(failure) => remember(failure),
    }
}

/// Does the work of a call, and gives what it returns.
pub fn call(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // What a panic leaves half done is in the library, whose locks are not poisoned: it was as
    // visible to other threads before.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => remember(failure),
        Err(panic) => remember(Failure::new(Errno::EIO, said(&*panic))),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a fault in rampack: {}", text.unwrap_or("a panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text is there until the next failure of this thread.
        unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_failure_is_a_number_and_a_sentence_of_its_thread() {
        assert_eq!((call(|| Ok(())), last()), (0, String::new()));
        assert_eq!(call(|| Err(Failure::invalid("no \0 more"))), -22);
        assert_eq!(last(), "no ");
        assert_eq!(call(|| Err(Error::TooSmall(7).into())), -34);
        assert!(last().contains("7 bytes"), "{}", last());
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!((call(|| Ok(())), last().is_empty()), (0, false));
    }

    #[test]
    fn no_panic_leaves_a_call() {
        assert_eq!(call(|| panic!("on {}", "purpose")), -5);
        assert_eq!(last(), "a fault in rampack: on purpose");
        assert_eq!(call(|| std::panic::panic_any(7)), -5);
        assert_eq!(last(), "a fault in rampack: a panic");
    }
}
