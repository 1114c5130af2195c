//! The tests of `swapfile_memory.rs`, with requests that come by io_uring.

#[path = "swapfile_memory.rs"]
mod tests;
