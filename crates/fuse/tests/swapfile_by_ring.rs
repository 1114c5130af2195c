//! The tests of `swapfile.rs`, with requests that come by io_uring.

#[path = "swapfile.rs"]
mod tests;
