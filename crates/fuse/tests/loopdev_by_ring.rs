//! The tests of `loopdev.rs`, with requests that come by io_uring.

#[path = "loopdev.rs"]
mod tests;
