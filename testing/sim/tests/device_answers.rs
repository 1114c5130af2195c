//! What the devices of swap areas answer is counted: reads and writes that fail, pages that a
//! device has changed, and pages that it has not answered for.

#[path = "common/swap.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use common::{Engine, INDEXES, swap_type};
use sim::swap::{Cache, FaultMode, FaultyDevice};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zswap::{AreaOptions, Stats};

const P: u64 = PAGE_SIZE as u64;
const PAGES: u64 = 64;

/// A device that says of each read that the page was changed, and whose next operation waits at
/// both barriers, each on request.
struct Strange {
    next: Arc<FaultyDevice>,
    changes: AtomicBool,
    waits: AtomicBool,
    came: Barrier,
    goes: Barrier,
}

impl Strange {
    fn new() -> Arc<Strange> {
        let next = FaultyDevice::new(PAGES, 7, 0);
        let [changes, waits] = [false; 2].map(AtomicBool::new);
        let [came, goes] = [2; 2].map(Barrier::new);
        Arc::new(Strange { next, changes, waits, came, goes })
    }
}

impl BlockDevice for Strange {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if self.waits.swap(false, Ordering::Relaxed) {
            self.came.wait();
            self.goes.wait();
        }
        match operation {
            Operation::Read { .. } if self.changes.load(Ordering::Relaxed) => Err(IoError::Corrupt),
            operation => self.next.perform(context, operation),
        }
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

/// A cache with an area over `device`, and 32 pages in it.
fn filled(device: &Arc<Strange>) -> (Engine, Arc<dyn BlockDevice>) {
    let engine = Engine::new(INDEXES[0], 2);
    let memcg = engine.zswap.memcg("default").expect("it is there");
    let options = AreaOptions { device: Some(device.clone() as Arc<dyn BlockDevice>), memcg };
    engine.zswap.swapon(swap_type(0), PAGES, options).expect("it is off");
    let area = engine.device(0);
    let mut data = vec![0; 32 * PAGE_SIZE];
    Rng::new(3).fill(&mut data);
    area.submit(Cpu(0), Operation::Write { offset: 0, from: &data }).expect("there is room");
    (engine, area)
}

fn read(area: &Arc<dyn BlockDevice>, page: u64, count: usize) -> Result<Vec<u8>, IoError> {
    let mut data = vec![0; count * PAGE_SIZE];
    area.submit(Cpu(1), Operation::Read { offset: page * P, into: &mut data })?;
    Ok(data)
}

/// What has failed: reads, pages among them that were changed, writes of both kinds.
fn failed(stats: &Stats) -> [u64; 4] {
    let Stats { read_back_failed, read_back_changed, writeback_failed, through_failed, .. } = stats;
    [*read_back_failed, *read_back_changed, *writeback_failed, *through_failed]
}

#[test]
fn reads_and_writes_that_fail_are_counted() {
    let device = Strange::new();
    let (engine, area) = filled(&device);
    let whole = read(&area, 0, 32).unwrap();
    device.next.set_mood(FaultMode::FailsWrites(1_000_000));
    // A reclaim ends with the first batch that fails, and under shuttle one has four pages.
    assert_eq!(engine.reclaim(Cpu(0), 4).written, 0);
    let stats = engine.zswap.stats();
    let attempts = stats.writeback_failed;
    assert!(attempts >= 4, "{stats:?}");
    assert_eq!(failed(&stats), [0, 0, attempts, 0]);
    assert_eq!((stats.asked, stats.answered), (attempts, attempts));
    assert_eq!(read(&area, 0, 32).unwrap(), whole, "all are in memory");
    device.next.set_mood(FaultMode::Well);
    assert_eq!(engine.reclaim(Cpu(0), 32).written, 32);
    assert_eq!(failed(&engine.zswap.stats()), [0, 0, attempts, 0]);
    device.next.set_mood(FaultMode::Gone);
    assert_eq!(read(&area, 3, 4), Err(IoError::Failed));
    assert_eq!(failed(&engine.zswap.stats()), [4, 0, attempts, 0]);
    device.next.set_mood(FaultMode::Well);
    device.changes.store(true, Ordering::Relaxed);
    assert_eq!(read(&area, 9, 2), Err(IoError::Corrupt));
    assert_eq!(failed(&engine.zswap.stats()), [6, 2, attempts, 0]);
    device.changes.store(false, Ordering::Relaxed);
    assert_eq!(read(&area, 0, 32).unwrap(), whole, "the device is well again");
    let stats = engine.zswap.stats();
    assert_eq!(failed(&stats), [6, 2, attempts, 0]);
    assert_eq!(stats.asked, stats.answered);
}

#[test]
fn a_page_that_nobody_takes_is_counted() {
    let device = Strange::new();
    let (engine, area) = filled(&device);
    engine.set(sim::swap::Policy::Enabled(false));
    device.next.set_mood(FaultMode::FailsWrites(1_000_000));
    let page = vec![7; 2 * PAGE_SIZE];
    let write = Operation::Write { offset: 40 * P, from: &page };
    assert_eq!(area.submit(Cpu(0), write), Err(IoError::Failed));
    assert_eq!(failed(&engine.zswap.stats()), [0, 0, 0, 2]);
    device.next.set_mood(FaultMode::Well);
    area.submit(Cpu(0), Operation::Write { offset: 40 * P, from: &page }).unwrap();
    assert_eq!(failed(&engine.zswap.stats()), [0, 0, 0, 2]);
    assert_eq!(engine.zswap.stats().through, 2);
}

#[test]
fn pages_wait_for_a_device_that_does_not_answer() {
    let device = Strange::new();
    let (engine, area) = filled(&device);
    assert_eq!(engine.reclaim(Cpu(0), 32).written, 32);
    let answered = engine.zswap.stats().answered;
    device.waits.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&area, 5, 3));
        device.came.wait();
        let stats = engine.zswap.stats();
        device.goes.wait();
        assert_eq!((stats.asked, stats.answered), (answered + 3, answered));
        assert!(reader.join().unwrap().is_ok());
    });
    let stats = engine.zswap.stats();
    assert_eq!((stats.asked, stats.answered), (answered + 3, answered + 3));
}
