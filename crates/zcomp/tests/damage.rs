//! Damage done to streams of our own decoders, all of it rather than some: every prefix, every
//! bit. (The suite does some of it to every codec.)

mod common;

use common::pages::{PAGE_SIZE, Page, pages};
use common::suite::{compress, decompress};
use common::{open, reference};
use testkit::Rng;
use zcomp::{Corrupt, Params};

const OURS: [&str; 3] = [zcomp::LZO, zcomp::LZO_RLE, zcomp::EIGHT42];

/// What a decoder that knows nothing of ours makes of them.
fn reference(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let decoded =
        if name == zcomp::EIGHT42 { reference::eight42(bytes) } else { reference::lzo(bytes) };
    decoded.map(|(page, _)| page)
}

/// Ours takes what the reference takes, and makes the same page of it.
fn agree(name: &str, bytes: &[u8], result: Result<Page, Corrupt>) {
    let wanted = reference(name, bytes);
    match (&result, &wanted) {
        (Ok(page), Some(wanted)) => assert!(page[..] == **wanted, "{name}: another page"),
        // The reference minds neither of these: zeros at the end, and which bits say so.
        (Err(Corrupt), Some(_)) => assert!(
            name == zcomp::EIGHT42 || bytes[bytes.len() - 3..] != [0x11, 0, 0],
            "{name}: refused what the reference takes: {bytes:?}"
        ),
        (Ok(_), None) => panic!("{name}: took what the reference refuses: {bytes:?}"),
        (Err(Corrupt), None) => {}
    }
}

#[test]
fn every_prefix_is_refused() {
    let mut rng = Rng::new(testkit::seed("every_prefix_is_refused"));
    for name in OURS {
        let codec = open(name, &Params::default()).unwrap();
        let mut context = codec.context().unwrap();
        for (kind, page) in pages(&mut rng) {
            let bytes = compress(&mut *context, &page).unwrap();
            for length in 0..bytes.len() {
                let result = decompress(&*codec, &mut *context, &bytes[..length]).unwrap();
                assert!(result == Err(Corrupt), "{name}, {kind}: took {length} bytes");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_taken_as_the_description_says() {
    let mut rng = Rng::new(testkit::seed("every_flipped_bit_is_taken_as_the_description_says"));
    for name in OURS {
        let codec = open(name, &Params::default()).unwrap();
        let mut context = codec.context().unwrap();
        for (_, page) in pages(&mut rng) {
            let mut bytes = compress(&mut *context, &page).unwrap();
            // Short ones whole, of long ones the beginning and the end.
            let length = bytes.len();
            for at in (0..length).filter(|at| *at < 64 || at + 24 > length) {
                for bit in 0..8 {
                    bytes[at] ^= 1 << bit;
                    let result = decompress(&*codec, &mut *context, &bytes).unwrap();
                    if name == zcomp::EIGHT42 {
                        // Its checksum lets no other page pass.
                        let noticed = result == Err(Corrupt) || result == Ok(page);
                        assert!(noticed, "{name}: bit {bit} of {at}: another page");
                    }
                    agree(name, &bytes, result);
                    bytes[at] ^= 1 << bit;
                }
            }
        }
    }
}

#[test]
fn noise_is_taken_as_the_description_says() {
    let mut rng = Rng::new(testkit::seed("noise_is_taken_as_the_description_says"));
    for name in OURS {
        let codec = open(name, &Params::default()).unwrap();
        let mut context = codec.context().unwrap();
        for _ in 0..6000 {
            let mut noise = vec![0; rng.range(1..64) as usize * 8];
            rng.fill(&mut noise);
            if rng.one_in(2) {
                noise[..2].copy_from_slice(&[17, 1]);
            }
            let result = decompress(&*codec, &mut *context, &noise).unwrap();
            agree(name, &noise, result);
        }
    }
}

/// Lengths that count on for ever come to an end.
#[test]
fn endless_lengths_are_refused() {
    for name in [zcomp::LZO, zcomp::LZO_RLE] {
        let codec = open(name, &Params::default()).unwrap();
        let mut context = codec.context().unwrap();
        for begin in [&[0][..], &[18, 7, 0x20], &[18, 7, 0x20, 0xff], &[18, 7, 0x10]] {
            let bytes = [begin, &[0; 2 * PAGE_SIZE]].concat();
            let result = decompress(&*codec, &mut *context, &bytes).unwrap();
            assert!(result == Err(Corrupt), "{name}: {begin:?}");
        }
    }
}
