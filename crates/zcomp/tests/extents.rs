//! Extents: each page comes out of them as it went in, and damage is an error or another page.

use testkit::{Rng, seed};
use units::{PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, Corrupt, EXTENT_PAGES, ExtentPacker, Packer, Params, ZSTD, open};

/// Pages that have much in common.
fn pages(rng: &mut Rng, count: usize) -> Vec<u8> {
    let common = rng.next_u64();
    let word = |n: usize| (common ^ (n as u64 % 97)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count * PAGE_SIZE / 8).flat_map(|n| word(n % 512).to_le_bytes()).collect()
}

fn page_of(pages: &[u8], part: usize) -> &[u8] {
    &pages[part * PAGE_SIZE..(part + 1) * PAGE_SIZE]
}

#[test]
fn pages_come_out_of_extents_as_they_were() {
    let mut rng = Rng::new(seed("pages_come_out_of_extents_as_they_were"));
    let dictionary: Option<std::sync::Arc<[u8]>> = Some(pages(&mut rng, 2).into());
    for (level, dictionary) in [(None, None), (Some(1), None), (Some(9), dictionary)] {
        let params = Params { level, dictionary, ..Params::default() };
        let codec = open(ZSTD, &params).unwrap();
        let mut packer = codec.packer().unwrap().expect("zstd packs pages");
        let mut context = codec.context().unwrap();
        for count in 1..=EXTENT_PAGES {
            let (before, mut bytes) = (pages(&mut rng, count), vec![0; PAGE_SIZE]);
            let length = packer.compress(&before, &mut bytes).expect("they have much in common");
            assert!(packer.compress(&before, &mut bytes[..length - 1]).is_none());
            let mut page: Page = [0; PAGE_SIZE];
            for part in 0..count {
                context.decompress_part(&bytes[..length], (part, count), &mut page).unwrap();
                assert!(page == page_of(&before, part), "page {part} of {count}");
            }
            // No such page, and extents of another length.
            for part in [(count, count), (0, count + 1), (0, count - 1), (0, 1 << 40)] {
                let read = context.decompress_part(&bytes[..length], part, &mut page);
                assert_eq!(read, Err(Corrupt), "{part:?} of {count}");
            }
            for _ in 0..200 {
                let mut damaged = bytes[..length].to_vec();
                damaged[rng.below(length as u64) as usize] ^= 1 << rng.below(8);
                damaged.truncate(rng.below(length as u64 + 1) as usize);
                let _ = context.decompress_part(&damaged, (count - 1, count), &mut page);
            }
            // The context reads and makes pages as before.
            let mut single = vec![0; 2 * PAGE_SIZE];
            let length = context.compress(&page, &mut single).unwrap();
            let mut again = [1; PAGE_SIZE];
            context.decompress(&single[..length], &mut again).unwrap();
            assert!(again == page);
        }
    }
}

#[test]
fn a_higher_level_makes_extents_smaller_and_any_context_reads_them() {
    let codec = open(ZSTD, &Params::at_level(Some(1))).unwrap();
    let mut rng = Rng::new(seed("a_higher_level_makes_extents_smaller_and_any_context_reads_them"));
    let words: Vec<u64> = (0..40).map(|_| rng.next_u64()).collect();
    let text = (0..EXTENT_PAGES * PAGE_SIZE / 8).flat_map(|_| rng.pick(&words).to_le_bytes());
    let (before, mut bytes) = (text.collect::<Vec<u8>>(), vec![0; 4 * PAGE_SIZE]);
    let mut packer = codec.packer().unwrap().unwrap();
    let mut length = |level| {
        packer.set_level(level);
        packer.compress(&before, &mut bytes)
    };
    let (usual, lower, higher) = (length(None), length(Some(-5)), length(Some(9)));
    assert_eq!((usual, lower), (length(None), usual), "the codec's level is the least");
    assert_eq!(higher, length(Some(9)));
    assert!(higher < usual, "{higher:?} {usual:?}");
    let mut page: Page = [0; PAGE_SIZE];
    let bytes = &bytes[..higher.unwrap()];
    codec.context().unwrap().decompress_part(bytes, (3, EXTENT_PAGES), &mut page).unwrap();
    assert!(page == page_of(&before, 3));
}

/// At level `n` the bytes of an extent are `lengths[n]`, and each of them is `n`.
struct Planned {
    lengths: Vec<usize>,
    level: usize,
}

impl Packer for Planned {
    fn set_level(&mut self, level: Option<i32>) {
        self.level = level.unwrap_or(0) as usize;
    }

    fn compress(&mut self, _: &[u8], into: &mut [u8]) -> Option<usize> {
        let length = self.lengths[self.level];
        into.get_mut(..length)?.fill(self.level as u8);
        Some(length)
    }
}

#[test]
fn an_extent_is_found_out_at_one_level_and_made_at_another() {
    // The lengths at the low and the high level, and the level and length of what is made.
    let cases = [
        ((4000, 3600), Some((2, 3600)), "the high level is shorter"),
        ((4000, 4001), Some((1, 4000)), "the low level is shorter"),
        ((4300, 4000), Some((2, 4000)), "it fits at the high level alone"),
        ((4300, 4096), None, "it fits at no level"),
        ((4096, 4096), None, "a page is no fewer bytes than a page"),
        ((4700, 100), None, "the high level is not tried"),
    ];
    for ((low, high), made, why) in cases {
        let planned = Planned { lengths: vec![4000, low, high], level: 0 };
        let mut packer = ExtentPacker::new(Box::new(planned)).unwrap();
        let mut bytes = [9; PAGE_SIZE - 1];
        assert_eq!(packer.length(&[]), Some(4000), "the codec's level");
        assert_eq!(packer.compress(&[], &mut bytes), Some(4000));
        packer.set_levels(Some(1), Some(2));
        assert_eq!(packer.length(&[]), Some(low).filter(|low| *low < PAGE_SIZE), "{why}");
        let length = packer.compress(&[], &mut bytes);
        assert_eq!(length.map(|length| (bytes[length - 1], length)), made, "{why}");
    }
}

#[test]
fn other_codecs_pack_nothing() {
    for name in ALGORITHMS.iter().filter(|name| **name != ZSTD) {
        let codec = open(name, &Params::default()).unwrap();
        assert!(codec.packer().unwrap().is_none(), "{name}");
        let mut page = [0; PAGE_SIZE];
        let read = codec.context().unwrap().decompress_part(&[0; 64], (0, 2), &mut page);
        assert_eq!(read, Err(Corrupt), "{name}");
    }
}
