//! The tests of `file.rs`, with requests that come by io_uring.

#[path = "file.rs"]
mod tests;
