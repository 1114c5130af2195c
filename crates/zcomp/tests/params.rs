//! Levels: which are taken, and what is said of the others.

use zcomp::{CodecError, Compressor, Deflate, Lz4, Params, Zstd};

type Open = fn(&Params) -> Result<Box<dyn Compressor>, CodecError>;

const CODECS: [(&str, i32, i32, Open); 3] = [
    (zcomp::LZ4, 1, 65_537, |params| Ok(Box::new(Lz4::new(params)?))),
    (zcomp::ZSTD, -131_072, 22, |params| Ok(Box::new(Zstd::new(params)?))),
    (zcomp::DEFLATE, 0, 12, |params| Ok(Box::new(Deflate::new(params)?))),
];

#[test]
fn codecs_bear_the_kernels_names() {
    for (name, _, _, open) in CODECS {
        assert_eq!(open(&Params::default()).unwrap().name(), name);
    }
    assert_eq!(CODECS.map(|codec| codec.0), ["lz4", "zstd", "deflate"]);
}

#[test]
fn levels_out_of_range_are_refused_by_name() {
    for (name, lowest, highest, open) in CODECS {
        for level in [lowest, highest] {
            assert!(open(&Params::at_level(level)).is_ok(), "{name} {level}");
        }
        for level in [lowest - 1, highest + 1, i32::MIN, i32::MAX] {
            let Err(error) = open(&Params::at_level(level)) else {
                panic!("{name} took {level}");
            };
            let text = error.to_string();
            for part in [name, &level.to_string(), &format!("{lowest} to {highest} are allowed")] {
                assert!(text.contains(part), "{text:?} does not say {part:?}");
            }
        }
    }
}

/// Without a level a codec has its default: its output is that of the default, given by number.
#[test]
fn defaults_are_the_documented_ones() {
    let mut page = [0; 4096];
    let mut state = 1u32;
    for byte in &mut page {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = b"abcdefgh"[(state >> 29) as usize];
    }
    for ((name, _, _, open), default) in CODECS.into_iter().zip([1, 3, 6]) {
        let compress = |level| {
            let mut into = [0; 8192];
            let codec = open(&Params::at_level(level)).unwrap();
            let length = codec.context().unwrap().compress(&page, &mut into).unwrap();
            into[..length].to_vec()
        };
        assert!(compress(None) == compress(Some(default)), "{name}");
    }
}
