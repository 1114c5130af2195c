//! Parameters: which are taken, and what is said of the others.

mod common;

use std::sync::Arc;

use common::{CODECS, Codec, WITH_DICTIONARY};
use zcomp::Params;

/// Those that have levels: the lowest, the highest and the default one.
const LEVELS: [(&str, i32, i32, i32); 4] = [
    (zcomp::LZ4, 1, 65_537, 1),
    (zcomp::LZ4HC, 1, 12, 9),
    (zcomp::ZSTD, -131_072, 22, 3),
    (zcomp::DEFLATE, 0, 12, 6),
];

fn open(name: &str, params: &Params) -> Result<Codec, String> {
    common::open(name, params).map_err(|error| error.to_string())
}

fn level(level: i32) -> Params {
    Params::at_level(level)
}

fn window(bits: i32) -> Params {
    Params { window_bits: Some(bits), ..Params::default() }
}

fn dictionary(bytes: impl Into<Arc<[u8]>>) -> Params {
    Params { dictionary: Some(bytes.into()), ..Params::default() }
}

/// What is said when `name` refuses `params`; each of `parts` must be in it.
#[track_caller]
fn refused(name: &str, params: &Params, parts: &[&str]) {
    let Err(text) = open(name, params) else {
        panic!("{name} took {params:?}");
    };
    for part in [name].iter().chain(parts) {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn codecs_bear_the_kernels_names() {
    for (name, open) in CODECS {
        assert_eq!(open(&Params::default()).unwrap().name(), name);
    }
    let names = ["lzo-rle", "lzo", "lz4", "lz4hc", "zstd", "deflate", "842"];
    assert_eq!(CODECS.map(|codec| codec.0), names);
}

#[test]
fn levels_out_of_range_are_refused_by_name() {
    for (name, lowest, highest, _) in LEVELS {
        for number in [lowest, highest] {
            assert!(open(name, &level(number)).is_ok(), "{name} {number}");
        }
        for number in [lowest - 1, highest + 1, i32::MIN, i32::MAX] {
            let allowed = format!("{lowest} to {highest} are allowed");
            refused(name, &level(number), &[&number.to_string(), &allowed]);
        }
    }
    for name in [zcomp::LZO, zcomp::LZO_RLE, zcomp::EIGHT42] {
        for number in [-1, 0, 1] {
            refused(name, &level(number), &[&number.to_string(), "no levels"]);
        }
    }
}

/// A page of eight letters in no order.
fn letters() -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut numbers = testkit::Rng::new(1);
    for byte in &mut page {
        *byte = *numbers.pick(b"abcdefgh");
    }
    page
}

fn compressed(codec: &Codec, page: &[u8; 4096]) -> Vec<u8> {
    let mut into = [0; 8192];
    let length = codec.context().unwrap().compress(page, &mut into).unwrap();
    into[..length].to_vec()
}

/// Without a level a codec has its default: its output is that of the default, given by number.
#[test]
fn defaults_are_the_documented_ones() {
    let page = letters();
    for (name, _, _, default) in LEVELS {
        let of = |params: &Params| compressed(&open(name, params).unwrap(), &page);
        assert!(of(&Params::default()) == of(&level(default)), "{name}");
    }
}

#[test]
fn only_deflate_has_a_window() {
    for bits in [-15, -11, -8, 8, 11, 15] {
        assert!(open(zcomp::DEFLATE, &window(bits)).is_ok(), "{bits}");
    }
    for bits in [0, -7, 7, -16, 16, 31, i32::MIN, i32::MAX] {
        let parts = [&*bits.to_string(), "8 to 15 and -15 to -8 are allowed"];
        refused(zcomp::DEFLATE, &window(bits), &parts);
    }
    for (name, _) in CODECS.iter().filter(|codec| codec.0 != zcomp::DEFLATE) {
        refused(name, &window(-11), &["-11", "no window"]);
    }
}

/// As its documentation says: whoever reads a page has it in front of them.
#[test]
fn a_window_of_deflate_changes_nothing() {
    let page = letters();
    let whole = compressed(&open(zcomp::DEFLATE, &Params::default()).unwrap(), &page);
    for bits in [-15, -8, 8, 15] {
        let codec = open(zcomp::DEFLATE, &window(bits)).unwrap();
        assert!(compressed(&codec, &page) == whole, "{bits}");
    }
}

#[test]
fn dictionaries_that_cannot_be_used_whole_are_refused() {
    for name in WITH_DICTIONARY {
        assert!(open(name, &dictionary([7; 8])).is_ok(), "{name}");
        for length in [0, 1, 7] {
            refused(name, &dictionary(vec![7; length]), &[&length.to_string(), "8"]);
        }
    }
    for name in [zcomp::LZ4, zcomp::LZ4HC] {
        assert!(open(name, &dictionary(vec![7; 65_536])).is_ok(), "{name}");
        refused(name, &dictionary(vec![7; 65_537]), &["65537", "8 to 65536 are allowed"]);
    }
    assert!(open(zcomp::ZSTD, &dictionary(vec![7; 1 << 20])).is_ok());
    // It says that it is one of zstd's, and is not.
    let mut damaged = vec![0xff; 100];
    damaged[..4].copy_from_slice(&[0x37, 0xa4, 0x30, 0xec]);
    refused(zcomp::ZSTD, &dictionary(damaged), &["100", "damaged"]);
}

#[test]
fn codecs_without_dictionaries_say_who_has_them() {
    for (name, _) in CODECS.iter().filter(|codec| !WITH_DICTIONARY.contains(&codec.0)) {
        refused(name, &dictionary([7; 100]), &["takes no dictionary", "lz4, lz4hc and zstd"]);
    }
}
