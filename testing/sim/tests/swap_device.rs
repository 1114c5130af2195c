//! Runs the suite of block devices on swap areas as block devices. Meanwhile the cache writes pages
//! back, refuses them and writes them through, and every setting changes. Every byte must stay as
//! written, whatever fails on the device behind.

#[path = "common/swap.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use common::{Engine, INDEXES, Kind, swap_type};
use pagelog::{LogDevice, PageLog};
use sim::events::Weights;
use sim::model::Drive;
use sim::suite::{self, Crowd};
use sim::swap::{Cache, FRAMES, FaultMode, FaultyDevice, Model, Policy};
use testkit::{Rng, asked, seed};
use units::{Cpu, PAGE_SIZE};
use zswap::AreaOptions;

const P: u64 = PAGE_SIZE as u64;

/// An area as a device. Every few operations it acts on its stored pages as an administrator does.
/// Its drop checks that all counts add up, and that nothing is left after a discard of the
/// contents.
struct Watched {
    engine: Engine,
    device: Arc<dyn BlockDevice>,
    device_below: Arc<FaultyDevice>,
    submits: AtomicU32,
    meddle_every: u32,
    /// Whether the device behind fails at times.
    fails: bool,
    /// The device behind has a log.
    is_log: bool,
}

/// Pages of a device with a log, which has room for all that the tests store.
const LOG_PAGES: u64 = 8192;

impl Watched {
    fn new(index: Kind, bytes: u64, cpus: usize, meddle_every: u32, fails: bool) -> Watched {
        Watched::over(index, (bytes, false), cpus, meddle_every, fails)
    }

    fn over(
        index: Kind,
        (bytes, is_log): (u64, bool),
        cpus: usize,
        meddle_every: u32,
        fails: bool,
    ) -> Watched {
        let engine = Engine::new(index, cpus);
        Model::settings().into_iter().for_each(|policy| engine.set(policy));
        let (pages, memcg) = (bytes / P, engine.zswap.memcg("default").expect("it is there"));
        let device_below = FaultyDevice::new(if is_log { LOG_PAGES } else { pages }, 7, 1);
        device_below.remember(false);
        let mut below: Arc<dyn BlockDevice> = device_below.clone();
        if is_log {
            let log = PageLog::new(below, "below", cpus).expect("it is large enough");
            let zstd = zcomp::open(zcomp::ZSTD, &Default::default()).expect("a codec");
            let log = LogDevice::new(log, &host::Mmap, pages, &*zstd, cpus);
            below = Arc::new(log.expect("there is memory"));
        }
        let device = Some(below);
        let options = AreaOptions { device, memcg };
        engine.zswap.swapon(swap_type(0), pages, options).expect("it is off");
        let device = engine.device(0);
        let submits = AtomicU32::new(0);
        Watched { engine, device, device_below, submits, meddle_every, fails, is_log }
    }

    fn meddle(&self, number: u32) {
        let (engine, n) = (&self.engine, u64::from(number / 13));
        let cpu = Cpu(number);
        match number % 13 {
            0 | 3 | 6 => drop(engine.reclaim(cpu, 1 + n % 40)),
            1 | 7 => drop(engine.work()),
            2 => engine.set(Policy::Compressor(n as usize)),
            4 => engine.set(Policy::MaxPool([0, 8, 40, 150, 0][n as usize % 5] * P)),
            5 => engine.set(Policy::Enabled(!n.is_multiple_of(4))),
            8 => engine.set(Policy::Ratio([100, 50, 100, 100][n as usize % 4])),
            9 => engine.set(Policy::InFlight(1 + number % 70)),
            12 => engine.recompress(cpu),
            10 => engine.set(Policy::MemcgMax(0, [u64::MAX, 30 * P][n as usize % 2])),
            _ if self.fails => self.device_below.set_mood(match n % 6 {
                0 => FaultMode::FailsWrites(100_000),
                1 => FaultMode::FailsWrites(1_000_000),
                2 => FaultMode::Full,
                _ => FaultMode::Well,
            }),
            _ => engine.set(Policy::Accept([90, 100, 50][n as usize % 3])),
        }
    }

    fn end(&self) {
        self.device_below.set_mood(FaultMode::Well);
        self.engine.validate();
        // The users also write pages past the cache, besides the pages written back.
        let (most, own) = (self.device_below.most_writes(), 4 * 64);
        assert!(self.is_log || most <= 70 + own, "{most} pages were under way at once");
        let length = self.device.geometry().bytes;
        self.device.submit(Cpu(0), Operation::Discard { offset: 0, length }).expect("it can be");
        self.engine.validate();
        let (totals, stats) = (self.engine.totals(), self.engine.zswap.stats());
        assert_eq!([totals.stored, totals.pool_bytes, stats.on_device], [0; 3], "{stats:?}");
        assert_eq!(self.engine.swapoff(0), Ok(()), "nothing is left");
        assert_eq!(self.engine.frames.stats().allocated, 0, "frames were not given back");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.device.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let submits = self.submits.fetch_add(1, Ordering::Relaxed) + 1;
        if self.meddle_every > 0 && submits.is_multiple_of(self.meddle_every) {
            self.meddle(submits / self.meddle_every);
        }
        let result = self.device.perform(context, operation);
        // If neither the cache nor the device takes a page, the error is the device's.
        if self.fails && result == Err(IoError::Failed) { Err(IoError::NoSpace) } else { result }
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.device.extents(cpu, offset, length, visit)
    }
}

#[test]
fn areas_pass_the_suite() {
    let seed = seed("areas_pass_the_suite");
    for &index in crate::INDEXES {
        suite::block_device(seed, |bytes| Arc::new(Watched::new(index, bytes, 2, 0, false)));
    }
}

#[test]
fn meddled_areas_pass_the_suite() {
    let seed = seed("meddled_areas_pass_the_suite");
    for (&index, every) in crate::INDEXES.iter().cycle().zip([3, 5, 7, 2]) {
        suite::block_device(seed, |bytes| Arc::new(Watched::new(index, bytes, 2, every, false)));
    }
}

/// The device behind is a log, which takes the objects of the cache as they are.
#[test]
fn areas_in_front_of_a_log_pass_the_suite() {
    let seed = seed("areas_in_front_of_a_log_pass_the_suite");
    let index = INDEXES[0];
    let area = |bytes, every, fails| Watched::over(index, (bytes, true), 2, every, fails);
    suite::block_device(seed, |bytes| Arc::new(area(bytes, 3, false)));
    let make = |bytes| -> Arc<dyn BlockDevice> { Arc::new(area(bytes, 3, true)) };
    let drive = Drive { may_fill_up: true, ..Drive::new(seed, 3000) };
    suite::against_model(&make, 300 * P, drive);
    let crowd = Crowd { may_refuse: true, ..Crowd::new(seed) };
    let device = area(16 * P, 5, true);
    suite::hot_pages(&device, crowd);
    suite::neighbours(&device, crowd);
}

#[test]
fn failing_devices_lose_nothing() {
    let mut rng = Rng::new(seed("failing_devices_lose_nothing"));
    for &index in crate::INDEXES {
        let make =
            |bytes| -> Arc<dyn BlockDevice> { Arc::new(Watched::new(index, bytes, 2, 3, true)) };
        let drive = Drive { may_fill_up: true, ..Drive::new(rng.next_u64(), 3000) };
        suite::against_model(&make, 300 * P, drive);
        let device = Watched::new(index, 16 * P, 2, 5, true);
        let crowd = Crowd { may_refuse: true, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&device, crowd);
        suite::neighbours(&device, crowd);
    }
}

/// Many threads use their own pages and know every byte of them, and one thread acts as
/// administrator. `RAMPACK_EVENTS` makes the test longer.
#[test]
fn every_byte_stays_while_everything_changes() {
    let mut rng = Rng::new(seed("every_byte_stays_while_everything_changes"));
    let events = asked("RAMPACK_EVENTS", 48_000);
    const THREADS: u64 = 4;
    const PAGES: u64 = FRAMES as u64 / 3;
    for &index in crate::INDEXES {
        let device = Arc::new(Watched::new(index, THREADS * PAGES * P, 2, 40, true));
        let round = AtomicU32::new(0);
        let meddle = || device.meddle(round.fetch_add(1, Ordering::Relaxed));
        let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
        let events = events / THREADS as usize / crate::INDEXES.len();
        let drives = [(); THREADS as usize].map(|()| Drive {
            weights,
            may_fill_up: true,
            ..Drive::new(rng.next_u64(), events)
        });
        suite::owners(&device, PAGES, &drives, &meddle);
        let stats = device.engine.zswap.stats();
        println!("{}: {stats:?}", index.0);
        let moved = [stats.written_back_pages, stats.read_back, stats.through];
        assert!(moved.iter().all(|count| *count > 0), "{stats:?}");
    }
}
