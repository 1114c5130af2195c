//! The target of a disk that is restored from bytes of anybody, and of a store that loads them.

use std::sync::{Arc, OnceLock};

use pagealloc::{Zone, ZoneOptions};
use units::{Cpu, PAGE_SIZE, Page};
use zram::snapshot::put_record;
use zram::{Disk, NoHostFiles, Pack, Resources, Restoring, Select, Share};

use crate::saved_values;

const CPU: Cpu = Cpu(0);
/// The letters and the version.
const HEAD: usize = 16;
const PAGES: u64 = 24;

fn new_disk() -> Arc<Disk> {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 4096)).expect("addresses");
    let resources = Resources::new(Arc::new(host::Mmap), Arc::new(zone), 1, Arc::new(NoHostFiles));
    let disk = Disk::new(0, Arc::new(resources));
    disk.set_mem_limit(4 << 20);
    disk
}

fn saved(disk: &Arc<Disk>) -> Vec<u8> {
    let (mut file, mut snapshot) = (Vec::new(), disk.snapshot(1).expect("it has a size"));
    while let Some(bytes) = snapshot.next_bytes().expect("nobody writes") {
        file.extend(bytes);
    }
    file
}

/// The bytes of a snapshot. If bit 2 of the first byte is set, see [`saved_values`].
///
/// If the first byte is even, the rest is the file. Otherwise it describes records: a kind, a
/// length of two bytes and the contents each, which get the right sums. Whatever it is, a disk is
/// refused and has no size, or is restored: then its pages can be read, or are refused one by one,
/// it can be saved again, and its memory comes back.
pub fn snapshots(input: &[u8]) {
    let Some((first, mut rest)) = input.split_first() else { return };
    if first & 4 != 0 {
        return saved_values::load(*first, rest);
    }
    let mut file = rest.to_vec();
    if first % 2 == 1 {
        file = whole()[..HEAD].to_vec();
        let mut number = 0;
        while let [kind, low, high, after @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
            put_record(&mut file, number, u32::from(*kind), &after[..length]);
            (rest, number) = (&after[length..], number + 1);
        }
    }
    let (disk, mut left) = (new_disk(), &file[..]);
    let mut source = |into: &mut [u8]| {
        let count = into.len().min(left.len()).min(100);
        into[..count].copy_from_slice(&left[..count]);
        left = &left[count..];
        Ok(count)
    };
    let how = Restoring { algorithms: first & 2 != 0, ..Restoring::default() };
    if let Err(error) = disk.restore(&mut source, how) {
        assert!(!error.message.is_empty());
        assert_eq!((disk.bytes(), disk.stats().pages_stored), (0, 0));
        disk.set_disksize(1 << 20).expect("the disk is as new");
        return;
    }
    let again = saved(&disk);
    disk.validate();
    let mut page = [0; PAGE_SIZE];
    for index in 0..(disk.bytes() / PAGE_SIZE as u64).min(2 * PAGES) {
        // What was compressed by nobody is refused when it is read.
        let _ = disk.load_page(CPU, index, &mut page);
    }
    let other = new_disk();
    let mut left = &again[..];
    let mut source = |into: &mut [u8]| {
        let count = into.len().min(left.len());
        into[..count].copy_from_slice(&left[..count]);
        left = &left[count..];
        Ok(count)
    };
    other.restore(&mut source, how).expect("it was saved just now");
    assert_eq!(other.stats().pages_stored, disk.stats().pages_stored);
    let pages = disk.bytes() / PAGE_SIZE as u64;
    disk.discard_pages(CPU, 0, pages).expect("it has a size");
    assert_eq!((disk.stats().compressed_bytes, disk.stats().pool_bytes), (0, 0));
}

fn page(number: u64) -> Page {
    let mut random = fastrand::Rng::with_seed(number % 9);
    let mut page = [0; PAGE_SIZE];
    match number % 3 {
        0 => page.fill(number as u8),
        1 => page[..200].fill_with(|| random.u8(..)),
        _ => page.fill_with(|| b"page of text"[random.usize(..12)]),
    }
    page
}

/// A snapshot of a disk with pages of most kinds.
fn whole() -> &'static [u8] {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    MADE.get_or_init(|| {
        let disk = new_disk();
        disk.set_algorithm("zstd").expect("it is known");
        disk.set_disksize(PAGES * PAGE_SIZE as u64).expect("addresses");
        for number in 0..PAGES {
            disk.store_page(CPU, number, &page(number)).expect("memory");
        }
        disk.share(&Share::default()).expect("memory");
        disk.mark_idle(None).expect("it has a size");
        disk.pack(&Pack { select: Select::Idle, ..Pack::default() }).expect("memory");
        saved(&disk)
    })
}

/// The same as records: kinds, lengths and contents.
fn described() -> Vec<u8> {
    let (mut rest, mut described) = (&whole()[HEAD..], vec![3]);
    while rest.len() >= 16 {
        let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        described.push(rest[0]);
        described.extend((length as u16).to_le_bytes());
        described.extend(&rest[16..16 + length]);
        rest = &rest[16 + length..];
    }
    described
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let file = [&[0], whole()].concat();
    let cut = file[..file.len() / 2].to_vec();
    let empty = new_disk();
    empty.set_disksize(PAGES * PAGE_SIZE as u64).expect("addresses");
    let mut seeds = vec![file, described(), cut, [vec![2], saved(&empty)].concat()];
    seeds.extend(saved_values::seeds());
    seeds
}
