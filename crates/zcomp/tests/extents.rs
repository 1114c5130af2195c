//! Extents: each page comes out of them as it went in, and damage is an error or another page.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Rng, seed};
use units::{PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, Corrupt, EXTENT_PAGES, ExtentPacker, Packer, Params, ToPlan, ZSTD, open};

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
fn extents_of_anything_come_back_and_hold_pointers_well() {
    let mut rng = Rng::new(seed("extents_of_anything_come_back_and_hold_pointers_well"));
    let kinds = common::pages::pages(&mut rng);
    let pick = |rng: &mut Rng| -> Vec<u8> {
        let any = (0..=rng.below(EXTENT_PAGES as u64 - 1)).map(|_| rng.pick(&kinds).1);
        any.flatten().collect()
    };
    // Pointers into a heap, with words of any kind between: their upper bytes are the same.
    let pointer = |rng: &mut Rng| 0x7f3a_0000_0000 | rng.next_u64() & 0xff_ffff;
    let pointers: Vec<u8> = (0..EXTENT_PAGES * PAGE_SIZE / 16)
        .flat_map(|_| [pointer(&mut rng), rng.next_u64()].map(u64::to_le_bytes).concat())
        .collect();
    let by = |level: i32| {
        let codec = open(ZSTD, &Params::at_level(Some(level))).unwrap();
        let mut bytes = vec![0; 5 * PAGE_SIZE];
        codec.packer().unwrap().unwrap().compress(&pointers, &mut bytes).unwrap()
    };
    let mut inputs: Vec<Vec<u8>> = (0..300).map(|_| pick(&mut rng)).collect();
    inputs.extend([vec![0; 4 * PAGE_SIZE], pointers.clone()]);
    let (codec, mut bytes) = (open(ZSTD, &Params::default()).unwrap(), vec![0; 5 * PAGE_SIZE]);
    let (mut packer, mut context) = (codec.packer().unwrap().unwrap(), codec.context().unwrap());
    for input in &inputs {
        // All its pages, then the first ones, and then others.
        let all = input.len() / PAGE_SIZE;
        for pages in (1..=all).rev().map(|count| 0..count).chain((1..all).map(|first| first..all)) {
            let input = &input[pages.start * PAGE_SIZE..pages.end * PAGE_SIZE];
            let length = packer.compress(input, &mut bytes).unwrap();
            let (mut page, count): (Page, usize) = ([0; PAGE_SIZE], pages.len());
            for part in 0..count {
                context.decompress_part(&bytes[..length], (part, count), &mut page).unwrap();
                assert!(page == page_of(input, part), "page {part} of {pages:?}");
            }
            let fresh = codec.packer().unwrap().unwrap().compress(input, &mut bytes).unwrap();
            assert!(length <= fresh + fresh / 20 + 8, "{length} for {fresh}, {pages:?}");
        }
    }
    let mut length = |count: usize| packer.compress(&pointers[..count * PAGE_SIZE], &mut bytes);
    let lengths = [1, 2, 3, 4].map(|count| length(count).unwrap());
    let shares = packer.shares(&pointers).unwrap();
    for (share, length) in shares.into_iter().zip(lengths) {
        let about = lengths[3] * share / shares[3];
        assert!(about.abs_diff(length) < length / 20, "{about} for {length} of {shares:?}");
    }
    // From level 12 on libzstd weighs all ways through the pages.
    let [own, best] = [1, 12].map(by);
    assert!(own < best + best / 50, "{own} {best}");
}

#[test]
fn a_context_that_has_read_an_extent_tells_others_from_it() {
    let codec = open(ZSTD, &Params::default()).unwrap();
    let mut context = codec.context().unwrap();
    let mut packer = codec.packer().unwrap().unwrap();
    let mut rng = Rng::new(seed("a_context_that_has_read_an_extent_tells_others_from_it"));
    // Most are of the same length, and differ in a few bytes.
    let extents: Vec<(usize, Vec<u8>)> = (0..40)
        .map(|n| {
            let (count, mut before) = (2 + n % 3, vec![0; (2 + n % 3) * PAGE_SIZE]);
            before.iter_mut().step_by(401).for_each(|byte| *byte = rng.next_u64() as u8);
            let mut bytes = vec![0; 4 * PAGE_SIZE];
            let length = packer.compress(&before, &mut bytes).unwrap();
            bytes.truncate(length);
            (count, bytes)
        })
        .collect();
    for _ in 0..500 {
        let (count, mut bytes) = rng.pick(&extents).clone();
        // Some are damaged, or said to have other pages than they have.
        let number = rng.next_u64() as usize;
        if number.is_multiple_of(4) {
            let at = rng.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (number / 4 % 8);
        }
        let count = if number.is_multiple_of(5) { 2 + number / 5 % 3 } else { count };
        for part in 0..count {
            let (mut page, mut wanted) = ([1; PAGE_SIZE], [1; PAGE_SIZE]);
            let read = context.decompress_part(&bytes, (part, count), &mut page);
            let mut fresh = codec.context().unwrap();
            assert_eq!(read, fresh.decompress_part(&bytes, (part, count), &mut wanted));
            assert!(page == wanted || read.is_err());
        }
    }
}

/// An extent of `pages` pages has `lengths[pages - 1]` bytes. It counts what it makes.
struct Planned {
    lengths: [usize; EXTENT_PAGES],
    shares: Option<[usize; EXTENT_PAGES]>,
    made: Arc<AtomicUsize>,
}

impl Packer for Planned {
    fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let length = self.lengths[pages.len() / PAGE_SIZE - 1];
        into.get_mut(..length)?.fill(1);
        Some(length)
    }

    fn shares(&mut self, _: &[u8]) -> Option<[usize; EXTENT_PAGES]> {
        self.shares
    }
}

/// A packer with these lengths, and the number of extents that it made.
fn planned(
    lengths: [usize; EXTENT_PAGES],
    shares: Option<[usize; EXTENT_PAGES]>,
) -> (ExtentPacker, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let packer = Planned { lengths, shares, made: made.clone() };
    (ExtentPacker::new(Box::new(packer)).unwrap(), made)
}

/// The bytes of an extent of a length.
fn extent(length: usize) -> usize {
    assert!(length < PAGE_SIZE, "an extent of {length} bytes");
    length + 100
}

#[test]
fn a_run_is_compressed_once_until_a_page_changes() {
    for (length, made) in [(4000, Some(4000)), (4096, None), (4700, None)] {
        let (mut packer, count) = planned([length; EXTENT_PAGES], None);
        for _ in 0..2 {
            assert_eq!(packer.length(0..2), Some(length));
            assert_eq!(packer.compress(0..2).map(<[u8]>::len), made, "no shorter than a page");
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        packer.page(1)[7] = 7;
        assert_eq!(packer.length(0..2), Some(length));
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn the_pages_of_a_group_are_put_together_so_that_they_take_little() {
    let none = [0..0, 0..0];
    let group = ToPlan { pages: 4, now: 6000, anew: false };
    let packed = ToPlan { anew: true, ..group };
    // The lengths of extents of one to four pages, what a page takes by itself, the group, and the
    // plan with its bytes, of which an extent has 100 more than its length.
    let cases = [
        ([0, 2000, 3000, 4000], 1500, group, Some(([0..4, 0..0], 4100)), "all as one"),
        ([0, 2000, 3000, 4000], 1500, ToPlan { now: 4100, ..group }, None, "no less than now"),
        ([0, 2600, 3900, 5500], 1500, group, Some(([0..3, 0..0], 5500)), "the first is close"),
        ([0, 2600, 3900, 5100], 1500, group, Some(([0..2, 2..4], 5400)), "the best of all"),
        ([0, 2600, 4096, 5400], 1500, group, Some(([0..2, 2..4], 5400)), "three do not fit"),
        ([0, 2900, 4096, 5400], 1500, group, None, "two pairs are no less"),
        ([0, 2900, 4096, 5400], 1400, group, None, "as they are"),
        ([0, 2900, 4096, 5400], 1400, packed, Some((none.clone(), 5600)), "out of an extent"),
        ([0, 5000, 7500, 9999], 1500, group, None, "nothing fits"),
        (
            [0, 2000, 3900, 4200],
            1500,
            ToPlan { pages: 3, ..group },
            Some(([0..3, 0..0], 4000)),
            "3",
        ),
        (
            [0, 2000, 4096, 0],
            1500,
            ToPlan { pages: 3, ..group },
            Some(([0..2, 0..0], 3600)),
            "2 of 3",
        ),
        ([0, 4096, 0, 0], 1500, ToPlan { pages: 2, ..group }, None, "two that do not fit"),
        ([0, 0, 0, 0], 1500, ToPlan { pages: 1, ..packed }, Some((none, 1500)), "one is left"),
        ([0, 0, 0, 0], 1500, ToPlan { pages: 1, ..group }, None, "one"),
    ];
    for (lengths, alone, group, wanted, why) in cases {
        let (mut packer, count) = planned(lengths, None);
        let plan = packer.plan(group, extent, |_, _| Some(alone));
        let found = plan.as_ref().map(|plan| (plan.runs.clone(), plan.bytes));
        assert_eq!(found, wanted, "{why}");
        let before = count.load(Ordering::Relaxed);
        for run in plan.iter().flat_map(|plan| &plan.runs).filter(|run| !run.is_empty()) {
            let bytes = packer.compress(run.clone()).map(<[u8]>::len);
            assert_eq!(bytes, Some(lengths[run.len() - 1]), "{why}");
        }
        assert_eq!(count.load(Ordering::Relaxed), before, "{why}: it was made already");
        if why == "the first is close" {
            assert_eq!(before, 2, "nothing else was tried");
        }
    }
}

#[test]
fn what_promises_to_take_little_is_made_first() {
    let group = ToPlan { pages: 4, now: 7000, anew: false };
    let (pairs, first) = ([0..2, 2..4], [0..3, 0..0]);
    // Lengths, the shares of the pages, the plan, and how many extents were made.
    let cases = [
        ([0, 2700, 3850, 5200], [20, 40, 59, 80], (&first, 5450), 2, "it is good enough"),
        ([0, 2700, 3900, 5200], [1, 2, 4, 4], (&pairs, 5600), 3, "three promise not to fit"),
        ([0, 2750, 3900, 5200], [10, 20, 32, 40], (&first, 5500), 4, "better than the pairs"),
        ([0, 2500, 3900, 5200], [10, 20, 32, 40], (&pairs, 5200), 3, "pairs are good enough"),
        ([0, 4100, 3900, 5200], [10, 20, 33, 40], (&first, 5500), 3, "no pair fits"),
    ];
    for (lengths, shares, (runs, bytes), made, why) in cases {
        let (mut packer, count) = planned(lengths, Some(shares));
        let plan = packer.plan(group, extent, |_, _| Some(1500)).unwrap();
        assert_eq!((&plan.runs, plan.bytes), (runs, bytes), "{why}");
        assert_eq!(count.load(Ordering::Relaxed), made, "{why}");
    }
    let (mut packer, count) = planned([0, 4100, 3990, 6000], Some([1, 2, 4, 4]));
    let plan = packer.plan(group, extent, |_, _| Some(1500)).unwrap();
    assert_eq!(plan.runs, [1..4, 0..0], "the last three, if nothing else fits");
    assert_eq!(count.load(Ordering::Relaxed), 3);
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
