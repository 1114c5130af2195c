//! The swap areas of the process that is killed: one with a device below it, one without, one in a
//! log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, Operation, ZeroMode};
use host::Memfds;
use machine::{BelowSeen, HostSystem, Machine, SwapSeen};
use store::{Layout, Spec, Store};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};
use zram::HostFiles;
use zswap::{AreaOptions, SavedSwap, SwapDevice, SwapType, Zswap};

use crate::child::settle;
use crate::journal::Journal;
use crate::pages;

pub const WRITERS: usize = 2;
const AREAS: usize = 3;
const P: u64 = PAGE_SIZE as u64;
/// Pages of all areas.
const PAGES: usize = 2400;
/// Bytes of the log, behind what the device says of itself: little more than the pages take.
const LOG: u64 = 4 << 20;
/// Behind the pages in the journal: the limit of a memcg.
const LIMIT: usize = PAGES;
/// Much less than the pages need.
const POOL: u64 = 1 << 20;

/// A journal, and the first thing of swap areas in it.
type Of<'a> = (&'a Journal, usize);

fn area(number: usize) -> SwapType {
    SwapType::new(number).unwrap()
}

fn zswap(machine: &Machine) -> Arc<Zswap> {
    machine.swap_if_made().unwrap()
}

/// The area of a page, and its offset there.
fn place(page: usize) -> (usize, u64) {
    (page % AREAS, (page / AREAS) as u64)
}

/// Makes the areas, and returns the path of the device of the first one. That of the last has a 2
/// behind its name.
pub fn make(machine: &Machine, memory: &Memfds, directory: &Path) -> PathBuf {
    let below = directory.join("below");
    let bytes = (PAGES / AREAS * PAGE_SIZE) as u64;
    let log = format!("{}2", below.display());
    File::create(&below).unwrap().set_len(bytes).unwrap();
    File::create(&log).unwrap().set_len((1 << 20) + LOG).unwrap();
    let zswap = machine.kept_swap(memory).unwrap();
    zswap.set_max_pool_bytes(POOL);
    let pages = (PAGES / AREAS) as u64;
    let open = |path: &str| HostSystem.open_backing(path, None).unwrap();
    for number in 0..AREAS {
        let device = match number {
            0 => Some(open(below.to_str().unwrap())),
            1 => None,
            _ => {
                let spec = Spec::new(open(&log), &*log, Layout::Log(pages));
                Some(Store::open(spec.kept(memory, "swap2")).unwrap().device)
            }
        };
        // The pages of the area without a device stay in memory, and are a part of what fits.
        let memcg = zswap.memcg(["with", "without", "with"][number]).unwrap();
        zswap.swapon(area(number), pages, AreaOptions { device, memcg }).unwrap();
    }
    below
}

/// The areas for a look, with the path of the device of the first one.
pub fn seen(saved: SavedSwap, below: &Path) -> SwapSeen {
    let pages = (PAGES / AREAS) as u64;
    let log = (pages, (1 << 20) + LOG);
    let below = [(0, "", None), (2, "2", Some(log))].map(|(number, behind, logged)| BelowSeen {
        area: area(number),
        path: format!("{}{behind}", below.display()).into(),
        is_sealed: false,
        logged,
    });
    SwapSeen { saved, below: below.into() }
}

/// Tells the journal what holds before the first change.
pub fn begin(journal: &Journal, first: usize) {
    settle(journal, first + LIMIT, u64::MAX);
}

/// The page in a version: a whole page, or zeroes. Version 0 is a page that was never written.
fn contents(page: usize, version: u64) -> Page {
    // Even versions replace the whole page.
    pages::contents(1 << 20 | page as u64, 2 * version)
}

/// Compares everything with the journal, and settles what was under way. Returns how many versions
/// are there.
pub fn check(machine: &Machine, (journal, first): Of<'_>) -> u64 {
    let (zswap, mut bytes, mut versions) = (zswap(machine), [0; PAGE_SIZE], 0);
    for page in 0..PAGES {
        let (begun, done) = journal.get(first + page);
        let (number, offset) = place(page);
        let device = SwapDevice::new(zswap.clone(), area(number));
        let read = Operation::Read { offset: offset * P, into: &mut bytes };
        device.submit(Cpu(0), read).unwrap();
        let found = [begun, done].into_iter().find(|it| bytes == contents(page, *it));
        let Some(found) = found else {
            panic!(
                "page {offset} of area {number} is neither version {begun}, which was begun, nor \
                 {done}, done"
            );
        };
        settle(journal, first + page, found);
        versions += found;
    }
    let (begun, done) = journal.get(first + LIMIT);
    let limit = zswap.memcg("with").unwrap().max();
    assert!(limit == begun || limit == done, "a limit of {limit}, not {begun} or {done}");
    settle(journal, first + LIMIT, limit);
    versions
}

/// Makes new versions of the pages of one writer, and reads some of them.
pub fn write(writer: usize, mut rng: Rng, machine: &Machine, (journal, first): Of<'_>) {
    let (zswap, cpu) = (zswap(machine), Cpu(writer as u32));
    let devices: Vec<_> = (0..AREAS).map(|n| SwapDevice::new(zswap.clone(), area(n))).collect();
    let own = PAGES / WRITERS;
    let mut bytes = [0; PAGE_SIZE];
    loop {
        // Some pages are written more often, and few pages lie in the area without a device.
        let below = [own, own, 40][rng.below(3) as usize];
        let page = writer + WRITERS * rng.below(below as u64) as usize;
        let (number, offset) = place(page);
        let (_, done) = journal.get(first + page);
        let device = &devices[number];
        if rng.below(4) == 0 {
            let read = Operation::Read { offset: offset * P, into: &mut bytes };
            device.submit(cpu, read).unwrap();
            assert!(bytes == contents(page, done), "page {page} is not version {done}");
            continue;
        }
        let new = contents(page, done + 1);
        let (offset, length) = (offset * P, P);
        let mode = [ZeroMode::MayPunch, ZeroMode::KeepAllocated][rng.below(2) as usize];
        let operation = match (new == [0; PAGE_SIZE], rng.below(3)) {
            (true, 0) => Operation::Discard { offset, length },
            (true, 1) => Operation::WriteZeroes { offset, length, mode },
            _ => Operation::Write { offset, from: &new },
        };
        journal.begin(first + page, done + 1);
        match device.submit(cpu, operation) {
            Ok(()) => journal.done(first + page, done + 1),
            // The area without a device has more pages than fit. The old page is still there.
            Err(_) if number == 1 => settle(journal, first + page, done),
            Err(error) => panic!("page {page}: {error}"),
        }
    }
}

/// Does what an administrator and the background may do to a cache in use.
pub fn administer(mut rng: Rng, machine: &Machine, (journal, first): Of<'_>) {
    let (zswap, cpu) = (zswap(machine), Cpu(2));
    let memcg = zswap.memcg("with").unwrap();
    loop {
        match rng.below(10) {
            0 => _ = zswap.compact(cpu),
            1 | 2 => _ = zswap.reclaim(cpu, 1 + rng.below(100)),
            3 => _ = zswap.work(cpu),
            4 => {
                let name = ["lz4", "lzo-rle", "zstd", "842"][rng.below(4) as usize];
                zswap.set_compressor(name).unwrap();
            }
            8 => zswap.set_auto(rng.below(4) > 0).unwrap(),
            9 => {
                (0..9).for_each(|_| _ = zswap.recompress_old(cpu, 10_000_000_000, &|| 0));
            }
            5 => zswap.policy().set_enabled(rng.below(3) > 0),
            6 => _ = zswap.zone().maintain(8),
            _ => {
                let limit = (1 << 16) + rng.below(1 << 20);
                journal.begin(first + LIMIT, limit);
                memcg.set_max(limit);
                journal.done(first + LIMIT, limit);
            }
        }
    }
}
