//! rampack for C and C++: `librampack.so.0` and `rampack.h`.
//!
//! # Definitions
//! A *handle* is a pointer that a function with `_new` gives and one with `_free` takes back. A
//! *call* is all that a function does: it gives 0, or a negative number of Linux for an error, of
//! which [`rampack_last_error`] has the sentence.
//!
//! # Invariants
//! * No panic leaves a call: it is `-EIO`.
//! * A null pointer and a length that cannot be are errors.
//! * Structs of the caller begin with their size: they may get longer, and old programs work on.
//!
//! `include/rampack.h` is made of this crate by cbindgen; `tests/interface.rs` compares them.
//!
//! # Why unsafe
//! C names the functions, so their names stay as they are.

mod call;
mod caller;
mod calls;
mod disk;
mod instance;
mod serve;
mod store;

use std::ffi::{CStr, c_char};

pub use disk::*;
pub use instance::*;
pub use serve::*;
pub use store::*;

/// Bytes of a page: disks are as long as a whole number of them.
pub const RAMPACK_PAGE_SIZE: usize = 4096;
const _: () = assert!(RAMPACK_PAGE_SIZE == rampack::PAGE_SIZE);

const VERSION: &CStr = match CStr::from_bytes_with_nul(VERSION_BYTES.as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version with a zero in it"),
};
const VERSION_BYTES: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn rampack_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What the last call of this thread that failed has said: a sentence for people, "" if none
/// failed. It is there until another call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_last_error() -> *const c_char {
    call::last_error()
}
