//! The way of a request: from a range of bytes to the pages of the engine and back.

mod data_path;
mod ranges;
mod read_backing;
mod request;

pub(crate) use ranges::Stopped;
#[cfg(test)]
pub(crate) use ranges::{clip, touched_pages};
