//! The fuzz targets: one function for each place where rampack reads foreign bytes. It takes a byte
//! slice and panics on a fault.
//!
//! Two callers share these functions: the programs under `fuzz/`, which libFuzzer drives, and the
//! smoke tests of this crate, which feed seeded random and mutated inputs in every test run.

mod blocking;
mod codecs;
mod disk_targets;
mod fuse_client;
mod fuse_files;
mod fuse_numbers;
mod kept_table;
mod nbd_client;
mod plain_blocks;
mod put_off;
mod remote_stores;
mod saved_values;
mod segment_walk;
mod snapshots;
mod swap_contents;
mod targets;
mod value_store;
mod vhost_chains;

pub use codecs::{
    decompress, decompress_842, decompress_deflate, decompress_lz4, decompress_lzo,
    decompress_zstd, pack_pages,
};
pub use disk_targets::{attribute_stores, sealed_blocks};
pub use fuse_client::fuse_requests;
pub use fuse_files::fuse_files;
pub use kept_table::kept_table;
pub use plain_blocks::plain_blocks;
pub use put_off::nbd_put_off;
pub use remote_stores::remote_stores;
pub use segment_walk::segment_walk;
pub use snapshots::snapshots;
pub use swap_contents::swap_contents;
pub use targets::{TARGETS, Target, control_message, nbd_negotiation, nbd_requests, parse_size};
pub use value_store::value_store;
pub use vhost_chains::vhost_chains;

#[cfg(test)]
mod tests;
