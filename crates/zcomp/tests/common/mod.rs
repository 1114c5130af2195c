//! What the tests of this crate share.
#![allow(dead_code)]

pub mod broken;
pub mod pages;
pub mod suite;

use zcomp::{Compressor, Deflate, Lz4, Params, Zstd};

/// Every codec at several levels, the outermost among them, each with a name for messages.
pub fn codecs() -> Vec<(String, Box<dyn Compressor>)> {
    let at = |level: Option<i32>| Params::at_level(level);
    let mut codecs: Vec<(String, Box<dyn Compressor>)> = Vec::new();
    for level in [None, Some(1), Some(8), Some(65_537)] {
        codecs.push((format!("lz4 {level:?}"), Box::new(Lz4::new(&at(level)).unwrap())));
    }
    for level in [None, Some(-131_072), Some(-7), Some(-1), Some(1), Some(7), Some(16), Some(22)] {
        codecs.push((format!("zstd {level:?}"), Box::new(Zstd::new(&at(level)).unwrap())));
    }
    for level in [None, Some(0), Some(1), Some(9), Some(12)] {
        codecs.push((format!("deflate {level:?}"), Box::new(Deflate::new(&at(level)).unwrap())));
    }
    codecs
}
