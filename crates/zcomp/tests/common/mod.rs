//! What the tests of this crate share.
#![allow(dead_code)]

pub mod broken;
pub mod guard;
pub mod pages;
pub mod reference;
pub mod suite;

use std::sync::Arc;

use testkit::Rng;
use zcomp::{CodecError, Compressor, Deflate, Eight42, Lz4, Lz4hc, Lzo, LzoRle, Params, Zstd};

pub type Codec = Box<dyn Compressor>;
pub type Open = fn(&Params) -> Result<Codec, CodecError>;

/// Every codec there is, in the kernel's order.
pub const CODECS: [(&str, Open); 7] = [
    (zcomp::LZO_RLE, |params| Ok(Box::new(LzoRle::new(params)?))),
    (zcomp::LZO, |params| Ok(Box::new(Lzo::new(params)?))),
    (zcomp::LZ4, |params| Ok(Box::new(Lz4::new(params)?))),
    (zcomp::LZ4HC, |params| Ok(Box::new(Lz4hc::new(params)?))),
    (zcomp::ZSTD, |params| Ok(Box::new(Zstd::new(params)?))),
    (zcomp::DEFLATE, |params| Ok(Box::new(Deflate::new(params)?))),
    (zcomp::EIGHT42, |params| Ok(Box::new(Eight42::new(params)?))),
];

/// Those that take a dictionary.
pub const WITH_DICTIONARY: [&str; 3] = [zcomp::LZ4, zcomp::LZ4HC, zcomp::ZSTD];

/// Levels of a codec, the outermost among them.
fn levels(name: &str) -> &'static [i32] {
    match name {
        zcomp::LZ4 => &[1, 8, 65_537],
        zcomp::LZ4HC => &[1, 2, 3, 9, 10, 12],
        zcomp::ZSTD => &[-131_072, -7, -1, 1, 7, 16, 22],
        zcomp::DEFLATE => &[0, 1, 9, 12],
        _ => &[],
    }
}

/// The codec called `name`.
pub fn open(name: &str, params: &Params) -> Result<Codec, CodecError> {
    let (_, open) = CODECS.iter().find(|codec| codec.0 == name).expect("a codec of that name");
    open(params)
}

/// Every codec at its default and at several levels, each with a name for messages.
pub fn codecs() -> Vec<(String, Codec)> {
    let mut codecs = Vec::new();
    for (name, open) in CODECS {
        let levels = levels(name).iter().map(|&level| Some(level));
        for level in std::iter::once(None).chain(levels) {
            codecs.push((format!("{name} {level:?}"), open(&Params::at_level(level)).unwrap()));
        }
    }
    codecs
}

/// The same with a dictionary, as far as they take one.
pub fn codecs_with(dictionary: &Arc<[u8]>) -> Vec<(String, Codec)> {
    let mut codecs = Vec::new();
    for name in WITH_DICTIONARY {
        let levels = levels(name).iter().map(|&level| Some(level));
        for level in std::iter::once(None).chain(levels) {
            let dictionary = Some(dictionary.clone());
            let params = Params { level, dictionary, ..Params::default() };
            let title = format!("{name} {level:?} with a dictionary");
            codecs.push((title, open(name, &params).unwrap()));
        }
    }
    codecs
}

/// What pages are made of, of this length.
pub fn dictionary(length: usize, seed: u64) -> Arc<[u8]> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::new();
    while bytes.len() < length {
        for (_, page) in pages::pages(&mut rng) {
            bytes.extend_from_slice(&page);
        }
    }
    bytes.truncate(length);
    bytes.into()
}
