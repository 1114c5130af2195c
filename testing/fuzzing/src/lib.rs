//! The fuzz targets: one function for each place where rampack reads foreign bytes. It takes a byte
//! slice and panics on a fault.
//!
//! Two callers share these functions: the programs under `fuzz/`, which libFuzzer drives, and the
//! smoke tests of this crate, which feed seeded random and mutated inputs in every test run.

mod codecs;
mod disk_targets;
mod fuse_client;
mod nbd_client;
mod targets;

pub use codecs::{
    decompress, decompress_842, decompress_deflate, decompress_lz4, decompress_lzo, decompress_zstd,
};
pub use disk_targets::{attribute_stores, sealed_blocks};
pub use fuse_client::fuse_requests;
pub use targets::{TARGETS, Target, control_message, nbd_negotiation, nbd_requests, parse_size};

#[cfg(test)]
mod tests;
