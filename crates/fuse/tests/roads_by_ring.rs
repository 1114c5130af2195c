//! The tests of `roads.rs`, with requests that come by io_uring.

#[path = "roads.rs"]
mod tests;
