//! Disks of the real stack, with checks during use and at the end.
// Each test binary uses a part of it.
#![allow(dead_code)]

pub mod bench;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use block::layer::{Fault, FaultPlan};
use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use pagealloc::Frames;
use sync::Mutex;
use units::{Cpu, PAGE_SIZE};
use zcomp::Params;
use zram::{Budgets, Clock, Disk, Pack, Recompress, Select, Share, WhenFull, Writeback};

use bench::{Bench, Design, Made};

/// The options of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub bytes: u64,
    pub algorithm: &'static str,
    pub level: Option<i32>,
    /// The device's own limit; 0 for none.
    pub mem_limit: u64,
    /// What a write does at that limit.
    pub when_full: WhenFull,
    /// Pages move by themselves whenever `move_pages` is called.
    pub auto: bool,
    /// The memory of the whole machine.
    pub memory: u64,
    pub cpus: usize,
    /// The number of operations between two compactions; 0 for none.
    pub compact_every: u32,
    /// Pages of the backing device; 0 for no backing device.
    pub backing_pages: u64,
    /// The backing device holds a log, which has room for a little more than these pages.
    pub log: bool,
    /// This number of a million writes to the backing device fail.
    pub backing_faults: u32,
    /// Writes compressed pages back.
    pub compressed_writeback: bool,
    /// The number of operations between two calls of `meddle`; 0 for none.
    pub meddle_every: u32,
    /// The design of its parts.
    pub design: Design,
    /// The limit of streams that is set before the disk has a size; 0 to leave it unset.
    pub max_streams: u32,
}

/// Pages of a segment.
const SEGMENT_PAGES: u64 = (1 << 20) / PAGE_SIZE as u64;
/// Pages of the smallest log.
pub const LOG_PAGES: u64 = 3 * SEGMENT_PAGES;

/// The ways in which pages lie on a backing device: compressed or not, and in a log.
pub const LAYOUTS: [(bool, bool); 3] = [(false, false), (true, false), (false, true)];

impl Plan {
    pub fn new(bytes: u64, algorithm: &'static str) -> Plan {
        Plan {
            bytes,
            algorithm,
            level: None,
            mem_limit: 0,
            when_full: WhenFull::Fail,
            auto: true,
            memory: 1 << 30,
            cpus: 3,
            compact_every: 0,
            backing_pages: 0,
            log: false,
            backing_faults: 0,
            compressed_writeback: false,
            meddle_every: 0,
            design: Design::PRODUCT,
            max_streams: 0,
        }
    }

    /// Whether there is one stream for ever.
    pub fn has_single_stream(self) -> bool {
        let streams = self.design.streams.0;
        streams == "mutex" || (streams == "single" && self.max_streams <= 1)
    }

    /// Of this many bytes, with a backing device for half of the pages and a few more.
    pub fn sized(self, bytes: u64) -> Plan {
        Plan { bytes, backing_pages: bytes / PAGE_SIZE as u64 / 2 + 8, ..self }
    }

    pub fn build(self) -> Watched {
        let Plan { design, memory, cpus, backing_pages, .. } = self;
        let plan = FaultPlan {
            seed: 7,
            reads_per_million: 0,
            changes_per_million: self.backing_faults,
            flushes_per_million: 0,
        };
        let backing_pages = match self.log {
            // Two of the segments are for survivors and for what is new.
            true => 2 * SEGMENT_PAGES + backing_pages.next_multiple_of(SEGMENT_PAGES),
            false => backing_pages,
        };
        let device_below = Tardy(Plain::new(backing_pages as usize * PAGE_SIZE));
        let device_below = Arc::new(Fault::new(device_below, plan));
        let frames = (memory / PAGE_SIZE as u64) as u32;
        let Made { disk, frames, clock } =
            Bench { design, cpus, frames, ..Bench::new(device_below) }.make();
        let (submits, round, meddling) = (0.into(), 0.into(), Mutex::new(()));
        let watched = Watched { disk, frames, clock, plan: self, submits, round, meddling };
        watched.set_up(self);
        watched
    }

    pub fn device(self) -> Arc<dyn BlockDevice> {
        Arc::new(self.build())
    }
}

/// The longest wait for something that takes no time.
pub const SOON: Duration = Duration::from_secs(120);

/// Does something on another thread, and waits for its end, but not for ever.
pub fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(what()));
    told.recv_timeout(SOON).expect("it ends")
}

/// A disk. Its drop checks that all counts of the stack add up, and that nothing is left after a
/// discard of its contents.
pub struct Watched {
    pub disk: Arc<Disk>,
    pub frames: Arc<dyn Frames>,
    clock: Arc<Clock>,
    plan: Plan,
    submits: AtomicU32,
    /// Calls of `meddle_next`.
    round: AtomicU32,
    /// The lock of `meddle`, because one of its steps may be several steps of the disk.
    meddling: Mutex<()>,
}

/// A device with slow reads, so that much may happen meanwhile.
struct Tardy(Plain);

impl BlockDevice for Tardy {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Read { .. } = operation {
            (0..3).for_each(|_| thread::yield_now());
        }
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}

impl Watched {
    /// Gives a disk without a size its settings and size.
    pub fn set_up(&self, plan: Plan) {
        self.disk.set_algorithm(plan.algorithm).expect("the algorithm is known");
        self.disk.set_params(Params::at_level(plan.level)).expect("the level is right");
        self.disk.set_mem_limit(plan.mem_limit);
        self.disk.set_algorithm_at(1, zcomp::ZSTD).expect("the algorithm is known");
        self.disk.set_track_access(true).expect("it has no size");
        self.disk.set_auto(plan.auto).expect("it keeps times of use");
        if plan.backing_pages > 0 {
            self.disk.set_backing_log(plan.log).expect("it has no backing device");
            self.disk.set_backing("backing").expect("there is one");
            self.disk.set_compressed_writeback(plan.compressed_writeback).expect("it has no size");
            // Pages also leave by themselves.
            let budgets = Budgets { written_a_day: 1 << 50, ..Budgets::default() };
            self.disk.set_budgets(budgets).expect("it has no size");
        }
        if plan.max_streams > 0 {
            self.disk.set_max_streams(plan.max_streams).expect("it has no size");
        }
        self.disk.set_when_full(plan.when_full).expect("it has no size");
        self.disk.set_disksize(plan.bytes).expect("there are addresses");
    }

    /// Runs the next of these operations.
    pub fn meddle_next(&self) {
        self.meddle(self.round.fetch_add(1, Ordering::Relaxed));
    }

    /// Runs one of the operations that an administrator may do on a device in use.
    pub fn meddle(&self, number: u32) {
        let _meddling = self.meddling.lock();
        let disk = &self.disk;
        let pages = disk.bytes() / PAGE_SIZE as u64;
        let of_kind = |select| Writeback { select: Some(select), pages: Vec::new() };
        let done = match number % 16 {
            0 => disk.mark_idle(None),
            1 | 4 => disk.writeback(&of_kind(Select::Idle)),
            2 => disk.recompress(&Recompress::default()),
            3 => disk.writeback(&of_kind(Select::Huge)),
            5 => {
                let first = u64::from(number) % pages;
                let last = (first + 5).min(pages - 1);
                disk.writeback(&Writeback { select: None, pages: vec![(first, last)] })
            }
            6 => {
                let names = zcomp::ALGORITHMS;
                let name = names[number as usize / 16 % names.len()];
                disk.switch_algorithm(0, name, Params::default())
            }
            7 => disk.compact().map(drop),
            8 => {
                let count = 1 + number % 3;
                let done = disk.set_max_streams(count);
                if count > 1 && self.plan.has_single_stream() {
                    assert_eq!(done.unwrap_err().errno, control::Errno::EINVAL);
                    assert_eq!(disk.max_streams(), 1);
                    Ok(())
                } else {
                    assert_eq!(disk.max_streams(), count);
                    done
                }
            }
            9 => disk.resize(disk.bytes() + PAGE_SIZE as u64).and_then(|()| {
                // No thread uses pages beyond the first size.
                disk.resize(disk.bytes() - PAGE_SIZE as u64)
            }),
            // What is packed or shared stays so through the next operations.
            10 => disk.mark_idle(None),
            11 => disk.share(&Share::default()).map(drop),
            12 => disk.pack(&Pack { select: Select::Idle, ..Pack::default() }).map(drop),
            13 => disk.share(&Share { select: Select::Idle, max_pages: Some(9) }).map(drop),
            14 => {
                // Pages that were not used since the time before last are old enough to move.
                self.clock.set(1000 + number.saturating_mul(40));
                disk.move_pages(1 << 40, &|| 0).map(drop)
            }
            _ => disk.recompress(&Recompress { select: Select::Idle, ..Recompress::default() }),
        };
        match done {
            // The backing device is full, a fault was injected, or the device is at its limit.
            Err(fault) if [28, 5, 12, 19].contains(&fault.errno.0) => {}
            done => done.expect("nothing else goes wrong"),
        }
    }

    /// Checks the structures, discards everything and checks that all memory came back.
    pub fn end(&self) {
        self.disk.validate();
        self.frames.validate();
        let length = self.disk.bytes();
        let allocated = self.frames.stats().allocated;
        assert!(
            allocated * 4096 <= self.disk.stats().pool_bytes,
            "{allocated} frames are allocated to nobody"
        );
        self.submit(Cpu(0), Operation::Discard { offset: 0, length }).expect("discards succeed");
        let stats = self.disk.stats();
        assert_eq!(
            [stats.pages_stored, stats.compressed_bytes, stats.orig_bytes, stats.pool_bytes],
            [0; 4],
            "everything was discarded: {stats:?}"
        );
        assert_eq!(
            [stats.same_filled_pages, stats.zero_pages, stats.huge_pages],
            [0; 3],
            "everything was discarded: {stats:?}"
        );
        assert_eq!(stats.backed_pages, 0, "blocks are still in use: {stats:?}");
        let log = self.disk.log_stats().unwrap_or_default();
        assert_eq!(log.live_bytes, 0, "objects of the log are still in use: {log:?}");
        assert_eq!(self.frames.stats().allocated, 0, "frames were not given back");
        self.disk.validate();
        self.frames.validate();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !thread::panicking() && self.disk.bytes() > 0 {
            self.end();
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.disk.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let submits = self.submits.fetch_add(1, Ordering::Relaxed) + 1;
        let Plan { compact_every, meddle_every, .. } = self.plan;
        if compact_every > 0 && submits.is_multiple_of(compact_every) {
            self.disk.compact().expect("the disk has a size");
        }
        if meddle_every > 0 && submits.is_multiple_of(meddle_every) {
            self.meddle(submits / meddle_every);
        }
        self.disk.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(cpu, offset, length, visit)
    }
}
