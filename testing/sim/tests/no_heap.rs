//! After start-up the data path allocates nothing from the heap. The test is alone in its file,
//! because it replaces the allocator of the process. It counts only this thread's calls, because
//! the test harness has its own threads.
//!
//! It counts the calls of Rust's allocator. It does not see the calls of malloc in the codecs' C
//! code.

pub(crate) mod common;
#[path = "common/swap.rs"]
mod swap;

use std::sync::Arc;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
    ZeroMode,
};
use common::{Plan, Watched};
use sim::content::Fill;
use sim::swap::{Cache, FaultyDevice, PAGES as AREA, Policy, SwapPage};
use swap::INDEXES;
use testkit::CountingHeap;
use units::{Cpu, PAGE_SIZE};
use zram::{Select, Writeback};

const P: u64 = PAGE_SIZE as u64;
pub(crate) const PAGES: u64 = 512;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

/// Every kind of page, made beforehand.
pub(crate) fn contents() -> Vec<[u8; PAGE_SIZE]> {
    let fills = [
        Fill::Zeroes,
        Fill::Words(0x0123_4567_89ab_cdef),
        Fill::Words(0x7777_7777_7777_7777),
        Fill::Text(1),
        Fill::Text(2),
        Fill::Noise(3),
        Fill::Partly { noise: 4, parts: 20 },
        Fill::Partly { noise: 5, parts: 50 },
    ];
    fills
        .map(|fill| {
            let mut page = [0; PAGE_SIZE];
            fill.render(&mut page);
            page
        })
        .into()
}

/// Runs all operations of a frontend on every page. The CPUs vary, so that each has a stream.
pub(crate) fn work(disk: &Watched, contents: &[[u8; PAGE_SIZE]], round: u64) {
    let mut into = [0; PAGE_SIZE];
    for page in 0..PAGES {
        let (cpu, offset) = (Cpu(page as u32 % 3), page * P);
        let from = &contents[((page * 7 + round) % contents.len() as u64) as usize];
        let submit = |operation: Operation<'_>| {
            disk.disk.submit(cpu, operation).expect("there is space");
        };
        submit(Operation::Write { offset, from });
        submit(Operation::Read { offset, into: &mut into });
        assert!(into == *from, "page {page} is not what was stored");
        submit(Operation::Write { offset: offset + 100, from: &from[..50] });
        submit(Operation::Read { offset: offset + 3, into: &mut into[..99] });
        let length = P;
        match page % 4 {
            0 => submit(Operation::Discard { offset, length }),
            1 => submit(Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch }),
            2 => submit(Operation::WriteZeroes {
                offset: offset + 9,
                length: 77,
                mode: ZeroMode::KeepAllocated,
            }),
            _ => {}
        }
        submit(Operation::Flush);
    }
    disk.disk.compact().expect("the disk has a size");
    let told =
        disk.disk.extents(Cpu(0), 0, PAGES * P, &mut |_| std::ops::ControlFlow::Continue(()));
    told.expect("the range lies within the disk");
    assert!(disk.disk.stats().pages_stored > 0);
}

#[test]
fn the_data_path_allocates_nothing() {
    let contents = contents();
    for &algorithm in zcomp::ALGORITHMS {
        let disk = Plan::new(PAGES * P, algorithm).build();
        // No warm-up: the first page must allocate nothing, like every other page.
        for round in 0..4 {
            let calls = CountingHeap::calls_of(|| work(&disk, &contents, round));
            assert_eq!(calls, 0, "{algorithm}: round {round} called the heap");
        }
    }
}

#[test]
fn reading_what_was_written_back_allocates_nothing() {
    let contents = contents();
    for (compressed_writeback, log) in common::LAYOUTS {
        let plan = Plan { backing_pages: PAGES, ..Plan::new(PAGES * P, zcomp::ZSTD) };
        let disk = Plan { compressed_writeback, log, ..plan }.build();
        for page in 0..PAGES {
            let from = &contents[page as usize % contents.len()];
            disk.disk.store_page(Cpu(0), page, from).expect("there is space");
        }
        let all = Writeback { select: Some(Select::Any), pages: Vec::new() };
        disk.disk.writeback(&all).expect("there are blocks for all");
        let mut into = vec![0; (PAGES * P) as usize];
        let calls = CountingHeap::calls_of(|| {
            let read = Operation::Read { offset: 0, into: &mut into };
            disk.disk.submit(Cpu(1), read).expect("nothing fails");
            for page in 0..PAGES {
                let write = Operation::Write { offset: page * P + 9, from: &contents[0][..99] };
                disk.disk.submit(Cpu(2), write).expect("nothing fails");
            }
        });
        assert_eq!(calls, 0, "the heap was called");
        let reads = disk.disk.stats().backed_reads;
        assert!(reads > PAGES, "only {reads} pages were fetched");
    }
}

/// A device that ignores all operations and never uses the heap. The test does not read
/// written-back contents.
struct Nothing;

impl BlockDevice for Nothing {
    fn geometry(&self) -> Geometry {
        let page = PAGE_SIZE as u32;
        Geometry { bytes: AREA * P, minimum_block: page, preferred_block: page }
    }
    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, ..Abilities::default() }
    }
    fn perform(&self, _: Context, _: Operation<'_>) -> Result<(), IoError> {
        Ok(())
    }
    fn extents(&self, _: Cpu, _: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let _ = visit(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}

/// Runs all operations of swap on every page, with twice as many pages as the cache can hold.
fn swap_work(
    engine: &swap::Engine,
    device: &dyn BlockDevice,
    contents: &[[u8; PAGE_SIZE]],
    round: u64,
) {
    let mut into = [0; PAGE_SIZE];
    for offset in 0..AREA {
        let (cpu, swap_page) = (Cpu(offset as u32 % 3), SwapPage { area: 0, offset });
        let from = &contents[((offset * 7 + round) % contents.len() as u64) as usize];
        let _ = engine.store(cpu, swap_page, (offset % 3) as usize, from);
        let _ = engine.load(cpu, swap_page, &mut into);
        let at = offset * P;
        device.submit(cpu, Operation::Write { offset: at, from }).expect("there is space");
        device.submit(cpu, Operation::Read { offset: at, into: &mut into }).expect("it is there");
        match offset % 8 {
            0 => engine.invalidate_page(cpu, swap_page),
            1 => drop(engine.reclaim(cpu, 5)),
            2 => drop(engine.work()),
            5 => swap::recompress(&engine.zswap, cpu),
            3 => engine.shrink(cpu, 2),
            4 => device.submit(cpu, Operation::Discard { offset: at, length: P }).expect("it can"),
            _ => {}
        }
    }
}

#[test]
fn swapping_allocates_nothing() {
    let contents = contents();
    for &index in crate::INDEXES {
        for algorithm in 0..zcomp::ALGORITHMS.len() {
            let mut engine = swap::Engine::new(index, 3);
            engine.over_device = Box::new(|_| Arc::new(Nothing));
            engine.set(Policy::Compressor(algorithm));
            engine.set(Policy::MaxPool(AREA / 2 * P));
            engine.set(Policy::Shrinker(true));
            engine.zswap.set_auto(true).expect("there is memory");
            engine.swapon(0, FaultyDevice::new(AREA, 0, 0)).expect("it is off");
            let device = engine.device(0);
            for round in 0..4 {
                let calls =
                    CountingHeap::calls_of(|| swap_work(&engine, &device, &contents, round));
                let after = engine.zswap.stats();
                assert!(after.written_back_pages > 0, "{after:?}");
                assert_eq!(calls, 0, "{}, codec {algorithm}: round {round}", index.0);
            }
        }
    }
}
