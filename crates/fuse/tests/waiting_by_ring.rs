//! The tests of `waiting.rs`, with requests that come by io_uring.

#[path = "waiting.rs"]
mod tests;
