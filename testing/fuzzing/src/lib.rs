//! Every place where rampack reads bytes it did not write, as a function of a byte slice that
//! panics when something is wrong.
//!
//! Two callers share these functions: the programs under `fuzz/`, which libFuzzer drives, and the
//! smoke tests of this crate, which run seeded random and mutated inputs with every test run.

mod codecs;
mod fuse_client;
mod nbd_client;
mod targets;

pub use codecs::{
    decompress, decompress_842, decompress_deflate, decompress_lz4, decompress_lzo, decompress_zstd,
};
pub use fuse_client::fuse_requests;
pub use targets::{TARGETS, Target, control_message, nbd_negotiation, nbd_requests, parse_size};

#[cfg(test)]
mod tests;
