//! The kernel's names for the codecs that a build may lack.

/// Liblz4's fast codec.
pub const LZ4: &str = "lz4";
/// Liblz4's high codec.
pub const LZ4HC: &str = "lz4hc";
/// Libzstd's codec.
pub const ZSTD: &str = "zstd";
/// Libdeflate's codec.
pub const DEFLATE: &str = "deflate";
