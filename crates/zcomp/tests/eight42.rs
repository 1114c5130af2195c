//! 842: that every code is written and read, and a page by hand.

mod common;

use common::pages::{PAGE_SIZE, Page, pages, random};
use common::reference::{self, Met};
use common::suite::{compress, decompress};
use testkit::Rng;
use zcomp::{Compressor, Corrupt, Eight42, Params};

fn codec() -> Eight42 {
    Eight42::new(&Params::default()).unwrap()
}

/// Compresses, lets the reference read it, and tells which codes it met.
fn written(page: &Page) -> Met {
    let codec = codec();
    let context = &mut *codec.context().unwrap();
    let bytes = compress(context, page).unwrap();
    assert_eq!(bytes.len() % 8, 0);
    let (back, met) = reference::eight42(&bytes).expect("a stream");
    assert!(back == page);
    assert!(decompress(&codec, context, &bytes).unwrap() == Ok(*page));
    met
}

/// Random pages whose blocks are put together of pieces from shortly before.
fn pieces(rng: &mut Rng) -> Page {
    let mut page = random(rng);
    for at in (512..PAGE_SIZE).step_by(8) {
        let mut place = at;
        while place < at + 8 {
            let size = *rng.pick(&[2, 2, 4, 8]);
            if place % size == 0 {
                if rng.one_in(2) {
                    let from = at - rng.range(1..60) as usize * 8 / size * size;
                    page.copy_within(from..from + size, place);
                }
                place += size;
            }
        }
    }
    page
}

#[test]
fn every_code_is_written() {
    let mut rng = Rng::new(testkit::seed("every_code_is_written"));
    let mut met = Met::new();
    let mut all: Vec<Page> = (0..64).map(|_| pieces(&mut rng)).collect();
    all.extend(pages(&mut rng).into_iter().map(|(_, page)| page));
    for page in all {
        for (name, count) in written(&page) {
            *met.entry(name).or_default() += count;
        }
    }
    // 26 of pieces, and three of their own.
    assert_eq!(met.len(), 29, "{met:?}");
}

/// Blocks that repeat, and zeros, of every number, beginning everywhere.
#[test]
fn runs_of_every_length_come_back() {
    let mut rng = Rng::new(testkit::seed("runs_of_every_length_come_back"));
    for zero in [false, true] {
        for blocks in (1..140).chain([255, 256, 257, 511, 512]) {
            for first in [0, 1, 5] {
                let mut page = random(&mut rng);
                let block: [u8; 8] = if zero { [0; 8] } else { *b"aroundwe" };
                for place in page.chunks_exact_mut(8).skip(first).take(blocks) {
                    place.copy_from_slice(&block);
                }
                written(&page);
            }
        }
    }
}

/// A piece is found again as far back as indexes reach (unless its place in the table was taken
/// meanwhile), and never further.
#[test]
fn indexes_reach_as_far_as_they_should() {
    let mut rng = Rng::new(testkit::seed("indexes_reach_as_far_as_they_should"));
    for (size, name, reach) in [(2, "I2", 512), (4, "I4", 2048), (8, "I8", 2048)] {
        let (mut sought, mut found) = (0, 0);
        for start in [0, 8, 504, 512, 1024] {
            for back in [8, 16, 504, 512, 520, 1024, 2040, 2048, 2056, 3000] {
                let back = back / 8 * 8;
                let at = start + back;
                if at + 8 > PAGE_SIZE {
                    continue;
                }
                let mut page = random(&mut rng);
                // Noise has no two pieces of four bytes in common, but some of two.
                page.copy_within(start..start + size, at);
                let met = written(&page);
                if size > 2 {
                    let seen = met.keys().any(|code| code.contains(name));
                    assert!(!seen || back <= reach, "{name} from {back} back at {start}");
                    sought += usize::from(back <= reach);
                    found += usize::from(seen);
                }
            }
        }
        assert!(found * 2 >= sought, "{name}: {found} of {sought}");
    }
}

/// Bits in the order they are read.
struct Bits(Vec<bool>);

impl Bits {
    fn put(mut self, number: u64, bits: u32) -> Bits {
        self.0.extend((0..bits).rev().map(|bit| number >> bit & 1 == 1));
        self
    }

    fn bytes(mut self) -> Vec<u8> {
        while !self.0.len().is_multiple_of(64) {
            self.0.push(false);
        }
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        self.0.chunks(8).map(byte).collect()
    }
}

/// "abcdefgh", then zeros: by hand from the description. The checksum is that of the page.
fn by_hand(sum: u64) -> Bits {
    let mut bits = Bits(Vec::new()).put(0, 5);
    for letter in b"abcdefgh" {
        bits = bits.put((*letter).into(), 8);
    }
    // 511 blocks of zeros: one, then 510 more, 64 at a time.
    bits = bits.put(0x1c, 5);
    for _ in 0..7 {
        bits = bits.put(0x1b, 5).put(63, 6);
    }
    bits.put(0x1b, 5).put(510 - 7 * 64 - 1, 6).put(0x1e, 5).put(sum, 32)
}

#[test]
fn a_page_by_hand() {
    let mut page = [0; PAGE_SIZE];
    page[..8].copy_from_slice(b"abcdefgh");
    let codec = codec();
    let context = &mut *codec.context().unwrap();
    let bytes = compress(context, &page).unwrap();
    // The checksum stands behind these bits.
    let start = 5 + 64 + 5 + 8 * 11 + 5;
    let bit = |at: usize| u64::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let sum = (start..start + 32).fold(0, |sum, at| sum << 1 | bit(at));
    assert!(bytes == by_hand(sum).bytes());
    let read = |bytes: &[u8], context: &mut dyn zcomp::Context| {
        decompress(&codec, context, bytes).unwrap()
    };
    assert!(read(&by_hand(sum).bytes(), context) == Ok(page));
    for (what, bytes) in [
        ("another checksum", by_hand(sum ^ 1).bytes()),
        ("bits after the end", by_hand(sum).put(1, 1).bytes()),
        ("a repeat of nothing", Bits(vec![]).put(0x1b, 5).put(0, 6).bytes()),
        ("an index to nothing", Bits(vec![]).put(25, 5).put(0, 8).bytes()),
        ("short data", Bits(vec![]).put(0x1d, 5).put(1, 3).put(7, 8).bytes()),
        ("no code", Bits(vec![]).put(0x1a, 5).bytes()),
        ("no code", Bits(vec![]).put(0x1f, 5).bytes()),
        ("an end at once", Bits(vec![]).put(0x1e, 5).put(0, 32).bytes()),
    ] {
        assert!(read(&bytes, context) == Err(Corrupt), "{what}");
    }
    // Eight bytes more are no filling.
    let longer = [by_hand(sum).bytes(), vec![0; 8]].concat();
    assert!(read(&longer, context) == Err(Corrupt));
}
