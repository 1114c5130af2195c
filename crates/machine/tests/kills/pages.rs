//! The versions of a page: what each holds, and how it comes to be.

use block::{BlockDevice, Context, Operation};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};
use zram::Disk;

/// What a version does to the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Store,
    Discard,
    Zero,
    /// Replaces a part.
    Modify,
}

fn random(page: u64, version: u64) -> Rng {
    Rng::new(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version)
}

fn change_of(page: u64, version: u64) -> Change {
    match (version % 4, random(page, version).below(8)) {
        // Never twice in a row: what is modified is known.
        (1, _) if version > 1 => Change::Modify,
        (_, 0) => Change::Discard,
        (_, 1) => Change::Zero,
        _ => Change::Store,
    }
}

fn part(page: u64, version: u64) -> (std::ops::Range<usize>, u8) {
    let mut rng = random(page, version);
    let start = rng.below(PAGE_SIZE as u64 - 1) as usize;
    let length = 1 + rng.below((PAGE_SIZE - start) as u64) as usize;
    (start..start + length.min(PAGE_SIZE - start), rng.next_u64() as u8)
}

/// The page in a version. Version 0 is a page that was never written.
pub fn contents(page: u64, version: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    if version == 0 {
        return bytes;
    }
    match change_of(page, version) {
        Change::Discard | Change::Zero => {}
        Change::Modify => {
            bytes = contents(page, version - 1);
            let (range, value) = part(page, version);
            bytes[range].fill(value);
        }
        Change::Store => {
            let mut rng = random(page, version);
            match rng.below(7) {
                0 => bytes.fill(rng.next_u64() as u8),
                // An eight-byte pattern whose halves differ: an object of eight bytes.
                1 => {
                    let pattern = rng.next_u64().to_ne_bytes();
                    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&pattern));
                }
                // Digits: smaller by a strong codec only.
                6 => bytes.fill_with(|| b"0123456789abcdef"[rng.below(16) as usize]),
                kind => {
                    let random_words = [0, 0, 512, 60, 150, 300][kind as usize];
                    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
                        let value = if n < random_words { rng.next_u64() } else { version };
                        word.copy_from_slice(&value.to_ne_bytes());
                    }
                }
            }
        }
    }
    bytes
}

/// Makes the page its next version.
pub fn make(disk: &Disk, cpu: Cpu, (page, index): (u64, u64), version: u64) {
    let context = Context::waiting(cpu);
    let offset = index * PAGE_SIZE as u64;
    match change_of(page, version) {
        Change::Store => disk.store_page(cpu, index, &contents(page, version)).unwrap(),
        Change::Discard => disk.discard_pages(cpu, index, 1).unwrap(),
        Change::Zero => {
            let (mode, length) = (block::ZeroMode::KeepAllocated, PAGE_SIZE as u64);
            disk.perform(context, Operation::WriteZeroes { offset, length, mode }).unwrap();
        }
        Change::Modify => {
            let (range, value) = part(page, version);
            let from = vec![value; range.len()];
            let offset = offset + range.start as u64;
            disk.perform(context, Operation::Write { offset, from: &from }).unwrap();
        }
    }
}
