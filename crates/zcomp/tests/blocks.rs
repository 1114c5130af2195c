//! Blocks: bytes of any length, compressed as one.

use std::sync::Arc;

use testkit::Rng;
use zcomp::{ALGORITHMS, Corrupt, Params};

/// The codecs that have blocks.
const WITH_BLOCKS: [&str; 4] = ["lz4", "lz4hc", "zstd", "deflate"];
/// The longest block here.
const MOST: usize = 64 << 10;

/// Bytes that shrink about by half.
fn block(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut block = vec![0; length];
    for part in block.chunks_mut(64) {
        let half = part.len() / 2;
        rng.fill(&mut part[..half]);
    }
    block
}

fn params(codec: &str, rng: &mut Rng, with_dictionary: bool) -> Option<Params> {
    if !with_dictionary {
        return Some(Params::default());
    }
    let dictionary: Arc<[u8]> = block(rng, 4000).into();
    (codec != "deflate").then(|| Params { dictionary: Some(dictionary), ..Params::default() })
}

#[test]
fn blocks_of_any_length_come_back() {
    let mut rng = Rng::new(testkit::seed("blocks_of_any_length_come_back"));
    for codec in WITH_BLOCKS {
        for with_dictionary in [false, true] {
            let Some(params) = params(codec, &mut rng, with_dictionary) else { continue };
            let compressor = zcomp::open(codec, &params).expect("a codec");
            let mut state = compressor.block(MOST).expect("memory").expect("blocks");
            let (mut packed, mut back) = (vec![0; MOST * 2], vec![0; MOST + 1]);
            for length in [1, 2, 13, 100, 1000, 4095, 4096, 4097, 16_384, 40_000, MOST] {
                let block = block(&mut rng, length);
                let bytes = state.compress(&block, &mut packed).expect("room for all");
                assert!(length < 1000 || bytes < length, "{codec}: {length} became {bytes}");
                let whole = state.decompress(&packed[..bytes], &mut back[..length]);
                assert_eq!(whole, Ok(()), "{codec}, {length}");
                assert!(back[..length] == block, "{codec}, {length}");
                for other in [length - 1, length + 1] {
                    let wrong = state.decompress(&packed[..bytes], &mut back[..other]);
                    assert_eq!(wrong, Err(Corrupt), "{codec}: {other} of {length}");
                }
                let cut = state.decompress(&packed[..bytes - 1], &mut back[..length]);
                assert_eq!(cut, Err(Corrupt), "{codec}, {length}");
                // Where there is no room nothing is written behind it.
                let mut tight = vec![0xa5; bytes];
                assert_eq!(state.compress(&block, &mut tight[..bytes / 2]), None, "{codec}");
                assert!(tight[bytes / 2..].iter().all(|byte| *byte == 0xa5), "{codec}");
            }
        }
    }
}

#[test]
fn damage_stays_in_bounds() {
    let mut rng = Rng::new(testkit::seed("damage_stays_in_bounds"));
    for codec in WITH_BLOCKS {
        let compressor = zcomp::open(codec, &Params::default()).expect("a codec");
        let mut state = compressor.block(MOST).expect("memory").expect("blocks");
        let block = block(&mut rng, 20_000);
        let mut packed = vec![0; MOST];
        let bytes = state.compress(&block, &mut packed).expect("room");
        for _ in 0..2000 {
            let mut damaged = packed[..bytes].to_vec();
            let at = rng.below(bytes as u64) as usize;
            damaged[at] ^= 1 << rng.below(8);
            let mut back = vec![0xa5; 20_100];
            let _ = state.decompress(&damaged, &mut back[..20_000]);
            assert!(back[20_000..].iter().all(|byte| *byte == 0xa5), "{codec}");
        }
        assert_eq!(state.decompress(&packed[..bytes], &mut vec![0; 20_000]), Ok(()), "{codec}");
    }
}

#[test]
fn other_codecs_say_that_they_have_none() {
    for codec in ALGORITHMS.iter().filter(|codec| !WITH_BLOCKS.contains(codec)) {
        let compressor = zcomp::open(codec, &Params::default()).expect("a codec");
        assert!(compressor.block(MOST).expect("memory").is_none(), "{codec}");
    }
}
