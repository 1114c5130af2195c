//! Small scenarios: a disk with contents, users of its pages, and an administrator. Each schedule
//! draws their operations from its own random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::IoError;
use control::ControlError;
use shuttle::rand::RngCore;
use shuttle::thread;
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zcomp::Params;
use zram::{Budgets, Disk, Pack, Recompress, Select, Share, WhenFull, Writeback};

use crate::bench::{Design, Made};
use crate::history::{History, Version};
use crate::subjects;
use crate::tally::Tally;
// Each file of scenarios counts its own events, and the explorer asks that of its binary.
pub use crate::tally::tally;

#[path = "scenario_users.rs"]
mod scenario_users;
use scenario_users::User;

const P: u64 = PAGE_SIZE as u64;
/// Pages of the disk.
const PAGES: u64 = 64;
/// The first of the pages that no thread uses during a run.
const BALLAST: u64 = 16;
/// One of this number of schedules checks the structures at its end.
const LOOKED_THROUGH: u64 = 8;

/// Gives a macro the name and the scenario of each test.
macro_rules! all {
    ($tests:ident) => {
        $tests! {
            crowds: Scenario::CROWD;
            crowds_whose_readers_need_streams: Scenario::STREAMS;
            compaction: Scenario::COMPACTED;
            compaction_of_idle_pages: Scenario::IDLE;
            compaction_beside_post_processing: Scenario::COMPACTED_BESIDE;
            writeback: Scenario::WRITTEN_BACK;
            compressed_writeback_to_one_block: Scenario::ONE_BLOCK;
            writeback_to_one_block: Scenario::ONE_PLAIN_BLOCK;
            compressing_again_and_other_codecs: Scenario::RECOMPRESSED;
            packing_and_sharing: Scenario::DENSE;
            tiers: Scenario::TIERS;
            tiers_and_the_backing_device: Scenario::OUT;
            sharing: Scenario::SHARED;
            compaction_of_shared_objects: Scenario::SHARED_AND_MOVED;
            limits: Scenario::LIMITED;
            when_full_writers_wait: Scenario::WAITING;
            when_full_many_writers_wait: Scenario::CROWDED;
            when_full_pages_move_down: Scenario::PRESSED;
            sizes_and_resets: Scenario::RESET;
            everything: Scenario::EVERYTHING;
        }
    };
}
pub(crate) use all;

/// An operation of the administrator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Compact,
    MarkIdle,
    WriteBack(Select),
    WriteBackPages,
    Recompress(Select),
    Pack(Select),
    Share(Select),
    /// Time goes by, and pages move as the policy of the tiers wants it.
    Move,
    Switch,
    Limit,
    Streams,
    Resize,
    Reset,
    Stats,
    Peak,
}

/// A scenario: its threads and their operations.
#[derive(Clone, Copy)]
pub struct Scenario {
    users: usize,
    /// The number of steps of each thread.
    steps: usize,
    /// The number of shared pages.
    hot: u64,
    /// Whether users change parts of a shared page and have their own pages.
    own: bool,
    /// Objects of one size class stored before, and mostly discarded again.
    ballast: u64,
    actions: &'static [Action],
    /// The number of the administrator's operations.
    count: usize,
    algorithm: &'static str,
    /// Blocks of the backing device. Some pages are on it from the beginning.
    blocks: usize,
    compressed_writeback: bool,
    /// The limit of the device's memory in pages; 0 for none.
    limit: u64,
    /// What a write does at that limit.
    when_full: WhenFull,
    /// All pages are marked idle before the threads begin, and nobody uses them.
    idle: bool,
    /// The contents of shared pages are few, so that pages are often equal.
    alike: bool,
    /// Compactions by a thread of their own, beside the administrator.
    compactions: usize,
    /// Bytes a day that pages may take which leave for the backing device by themselves.
    a_day: u64,
}

impl Scenario {
    const BASE: Scenario = Scenario {
        users: 3,
        steps: 4,
        hot: 1,
        own: true,
        ballast: 0,
        actions: &[],
        count: 0,
        algorithm: zcomp::LZO,
        blocks: 0,
        compressed_writeback: false,
        limit: 0,
        when_full: WhenFull::Fail,
        idle: false,
        alike: false,
        compactions: 0,
        a_day: 0,
    };
    /// Users alone, with a codec that readers need no stream for.
    pub const CROWD: Scenario = Scenario::BASE;
    /// Users who wait for streams: more than there are of them.
    pub const STREAMS: Scenario = Scenario {
        algorithm: zcomp::ZSTD,
        actions: &[Action::Streams],
        count: 2,
        ..Scenario::BASE
    };
    /// Objects that are moved while they are used.
    pub const COMPACTED: Scenario =
        Scenario { users: 2, ballast: 12, actions: &[Action::Compact], count: 2, ..Scenario::BASE };
    /// Objects that are moved while they are written back or compressed again.
    pub const COMPACTED_BESIDE: Scenario = Scenario {
        users: 1,
        ballast: 12,
        actions: &[
            Action::WriteBack(Select::Any),
            Action::WriteBack(Select::Idle),
            Action::MarkIdle,
            Action::Recompress(Select::Any),
        ],
        count: 3,
        algorithm: zcomp::LZ4,
        blocks: 3,
        compactions: 3,
        ..Scenario::BASE
    };
    /// Objects that are moved while their pages are idle.
    pub const IDLE: Scenario = Scenario {
        users: 1,
        steps: 0,
        hot: 0,
        own: false,
        ballast: 40,
        actions: &[Action::Compact],
        count: 1,
        blocks: 40,
        idle: true,
        ..Scenario::BASE
    };
    /// Pages that move to blocks, of which there are few.
    pub const WRITTEN_BACK: Scenario = Scenario {
        users: 2,
        actions: &[
            Action::WriteBack(Select::Any),
            Action::WriteBack(Select::Huge),
            Action::WriteBack(Select::Idle),
            Action::WriteBackPages,
            Action::MarkIdle,
        ],
        count: 3,
        blocks: 2,
        ..Scenario::BASE
    };
    /// Pages that take turns on one block.
    pub const ONE_BLOCK: Scenario = Scenario {
        users: 2,
        hot: 2,
        own: false,
        steps: 3,
        actions: &[Action::WriteBack(Select::Any)],
        count: 2,
        blocks: 1,
        compressed_writeback: true,
        ..Scenario::BASE
    };
    /// The same without compression. A compressed page is looked at again after its block was read,
    /// so there a wrong block may go unnoticed.
    pub const ONE_PLAIN_BLOCK: Scenario =
        Scenario { compressed_writeback: false, ..Scenario::ONE_BLOCK };
    /// Pages that are made smaller, by codecs that change.
    pub const RECOMPRESSED: Scenario = Scenario {
        users: 2,
        actions: &[
            Action::Recompress(Select::Any),
            Action::Recompress(Select::Huge),
            Action::Recompress(Select::Idle),
            Action::MarkIdle,
            Action::Switch,
            Action::Switch,
        ],
        count: 3,
        algorithm: zcomp::LZ4,
        ..Scenario::BASE
    };
    /// Neighbours that are packed, and equal pages that share an object.
    pub const DENSE: Scenario = Scenario {
        users: 2,
        hot: 4,
        own: false,
        actions: &[
            Action::Pack(Select::Any),
            Action::Share(Select::Any),
            Action::Pack(Select::Idle),
            Action::MarkIdle,
            Action::WriteBack(Select::Any),
            Action::Recompress(Select::Any),
            Action::Switch,
        ],
        count: 4,
        algorithm: zcomp::ZSTD,
        blocks: 3,
        compressed_writeback: true,
        alike: true,
        ..Scenario::BASE
    };
    /// Pages that move between tiers by themselves.
    pub const TIERS: Scenario = Scenario {
        actions: &[Action::Move, Action::Move, Action::Move, Action::Compact],
        algorithm: zcomp::LZ4,
        blocks: 0,
        ..Scenario::DENSE
    };
    /// Pages that also leave for the backing device by themselves, and come back.
    pub const OUT: Scenario = Scenario {
        actions: &[Action::Move],
        count: 6,
        blocks: 3,
        compressed_writeback: true,
        a_day: u64::MAX,
        ..Scenario::TIERS
    };
    /// Shared objects alone.
    pub const SHARED: Scenario = Scenario {
        actions: &[Action::Share(Select::Any), Action::Share(Select::Any), Action::MarkIdle],
        count: 3,
        algorithm: zcomp::LZO,
        blocks: 0,
        ..Scenario::DENSE
    };
    /// Shared objects that are moved while they are used.
    pub const SHARED_AND_MOVED: Scenario = Scenario {
        actions: &[Action::Share(Select::Any), Action::Compact, Action::Compact],
        ballast: 12,
        count: 4,
        compactions: 2,
        ..Scenario::SHARED
    };
    /// Less memory than the users need.
    pub const LIMITED: Scenario = Scenario {
        algorithm: zcomp::ZSTD,
        actions: &[Action::Limit, Action::Stats, Action::Compact, Action::Peak],
        count: 2,
        limit: 3,
        ..Scenario::BASE
    };
    /// Less memory than the users need. They wait while pages move out, and there are blocks for
    /// all of them: none is refused. Pages move between tiers beside that.
    pub const WAITING: Scenario = Scenario {
        users: 3,
        actions: &[Action::Move, Action::Compact, Action::Recompress(Select::Any)],
        count: 3,
        blocks: 40,
        limit: 3,
        when_full: WhenFull::Wait,
        ..Scenario::TIERS
    };
    /// More users who wait, with fewer frames than users, and nothing that moves pages beside them.
    pub const CROWDED: Scenario = Scenario {
        users: 5,
        limit: 3,
        actions: &[Action::Stats],
        count: 1,
        alike: false,
        ..Scenario::WAITING
    };
    /// As `WAITING` without blocks: pages move down the tiers, for the users and beside them. Some
    /// are refused.
    pub const PRESSED: Scenario = Scenario {
        actions: &[Action::Move, Action::Compact, Action::Pack(Select::Any)],
        blocks: 0,
        limit: 3,
        ..Scenario::WAITING
    };
    /// A disk that ends and begins again, smaller or larger.
    pub const RESET: Scenario = Scenario {
        users: 2,
        hot: 2,
        own: false,
        actions: &[Action::Reset, Action::Resize, Action::WriteBack(Select::Any), Action::Compact],
        count: 3,
        blocks: 2,
        ..Scenario::BASE
    };
    /// All operations except resets.
    pub const EVERYTHING: Scenario = Scenario {
        users: 2,
        ballast: 6,
        actions: &[
            Action::Compact,
            Action::MarkIdle,
            Action::WriteBack(Select::Any),
            Action::WriteBackPages,
            Action::Recompress(Select::Any),
            Action::Share(Select::Any),
            Action::Pack(Select::Any),
            Action::Move,
            Action::Switch,
            Action::Limit,
            Action::Streams,
            Action::Resize,
            Action::Stats,
        ],
        count: 4,
        blocks: 3,
        compressed_writeback: true,
        limit: 12,
        ..Scenario::BASE
    };

    /// Runs one schedule of the scenario.
    pub fn play(&self, design: Design) {
        let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
        let run = Run {
            made: subjects::make(design, self.blocks),
            scenario: *self,
            history: History::default(),
            seconds: AtomicU32::new(1000),
        };
        run.set_up();
        let mut users: Vec<User> = (0..self.users).map(|n| User::new(n, rng.fork())).collect();
        run.fill(&mut rng, &mut users);
        let run = Arc::new(run);
        let threads: Vec<_> = users
            .into_iter()
            .map(|mut user| {
                let run = run.clone();
                thread::spawn(move || {
                    (0..run.scenario.steps).for_each(|_| user.act(&run));
                    user
                })
            })
            .collect();
        let compactor = (self.compactions > 0).then(|| {
            let run = run.clone();
            thread::spawn(move || {
                (0..run.scenario.compactions)
                    .for_each(|_| run.done(run.disk().compact().map(drop)));
            })
        });
        (0..self.count).for_each(|_| run.administer(&mut rng));
        if let Some(compactor) = compactor {
            compactor.join().expect("shuttle ends with a panic");
        }
        let users: Vec<_> = threads
            .into_iter()
            .map(|user| user.join().expect("shuttle ends with a panic"))
            .collect();
        run.end(&mut rng, users);
    }

    fn refuses(&self) -> bool {
        self.limit > 0 && (self.when_full == WhenFull::Fail || self.blocks == 0)
    }

    fn ends(&self) -> bool {
        self.actions.contains(&Action::Reset)
    }
}

struct Run {
    made: Made,
    scenario: Scenario,
    history: History,
    /// The second of the next move of pages.
    seconds: AtomicU32,
}

impl Run {
    fn disk(&self) -> &Disk {
        &self.made.disk
    }

    fn set_up(&self) {
        let (disk, scenario) = (self.disk(), &self.scenario);
        disk.set_algorithm(scenario.algorithm).expect("it is known");
        let is_auto = scenario.actions.contains(&Action::Move);
        let second = if is_auto { zcomp::ZSTD } else { zcomp::LZ4HC };
        disk.set_algorithm_at(1, second).expect("it is known");
        disk.set_track_access(is_auto).expect("it has no size");
        disk.set_auto(is_auto).expect("it keeps times of use");
        disk.set_mem_limit(scenario.limit * P);
        disk.set_when_full(scenario.when_full).expect("nothing is to spill");
        if scenario.blocks > 0 {
            disk.set_backing("backing").expect("there is one");
            disk.set_compressed_writeback(scenario.compressed_writeback).expect("it has no size");
            disk.set_writeback_batch(2).expect("that is a number");
        }
        if scenario.a_day > 0 {
            let budgets = Budgets { written_a_day: scenario.a_day, ..Budgets::default() };
            disk.set_budgets(budgets).expect("it has no size");
        }
        disk.set_disksize(PAGES * P).expect("there are addresses");
    }

    /// Fills the disk before the threads start.
    fn fill(&self, rng: &mut Rng, users: &mut [User]) {
        let (disk, scenario) = (self.disk(), &self.scenario);
        let mut page = [0; PAGE_SIZE];
        for index in 0..scenario.ballast {
            Version::new(true, BALLAST + index, 9, 1).render(&mut page);
            let stored = disk.store_page(Cpu(0), BALLAST + index, &page);
            self.made_it(stored);
        }
        for page in 0..scenario.hot {
            self.history.stored(page, Version::ZEROES, self.history.now());
            if !rng.one_in(8) {
                users[0].store_hot(self, page);
            }
        }
        if scenario.own {
            users.iter_mut().for_each(|user| user.store_own(self));
        }
        for index in 0..scenario.ballast {
            if index % 6 != 0 {
                disk.discard_pages(Cpu(0), BALLAST + index, 1).expect("discards succeed");
            }
        }
        if scenario.idle {
            disk.mark_idle(None).expect("it has a size");
        } else if scenario.blocks > 0 && !rng.one_in(4) {
            self.done(disk.writeback(&of_kind(Select::Any)));
        }
    }

    /// Whether the operation succeeded. In some scenarios some may fail.
    fn made_it(&self, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => true,
            Err(IoError::NoSpace | IoError::NoMemory) if self.scenario.refuses() => false,
            Err(IoError::NotReady | IoError::OutOfRange) if self.scenario.ends() => false,
            Err(error) => panic!("a request failed: {error}"),
        }
    }

    fn done(&self, result: Result<(), ControlError>) {
        match result {
            // No block is left, or no memory.
            Err(error) if [28, 12].contains(&error.errno.0) => {}
            // A page is there beyond the new end.
            Err(error)
                if self.scenario.actions.contains(&Action::Resize) && error.errno.0 == 16 => {}
            result => result.expect("an administrator may do this"),
        }
    }

    fn administer(&self, rng: &mut Rng) {
        let (disk, scenario) = (self.disk(), &self.scenario);
        match *rng.pick(scenario.actions) {
            Action::Compact => self.done(disk.compact().map(drop)),
            Action::MarkIdle => self.done(disk.mark_idle(None)),
            Action::WriteBack(select) => self.done(disk.writeback(&of_kind(select))),
            Action::WriteBackPages => {
                let first = rng.below(4);
                let pages = vec![(first, first + rng.below(3))];
                self.done(disk.writeback(&Writeback { select: None, pages }));
            }
            Action::Recompress(select) => {
                self.done(disk.recompress(&Recompress { select, ..Recompress::default() }));
            }
            Action::Pack(select) => {
                match disk.pack(&Pack { select, ..Pack::default() }) {
                    // No codec of the disk packs pages, where they change.
                    Err(error) if error.errno.0 == 22 => {}
                    done => self.done(done.map(drop)),
                }
            }
            Action::Share(select) => {
                // All pages have one fingerprint, so only the comparison tells them apart.
                let what = Share { select, max_pages: None };
                self.done(disk.share_by(&what, &|_| 7).map(drop));
            }
            Action::Move => {
                // Older than any page must be to move, so pages in use move as well.
                let seconds = self.seconds.fetch_add(500, Ordering::Relaxed);
                self.made.clock.set(seconds);
                self.done(disk.move_pages(1 << 40, &|| 0).map(drop));
            }
            Action::Switch => {
                let names = [zcomp::LZO, zcomp::LZ4, zcomp::LZO_RLE, zcomp::LZ4HC, zcomp::ZSTD];
                let (priority, name) = (rng.below(2) as u8, rng.pick(&names));
                self.done(disk.switch_algorithm(priority, name, Params::default()));
            }
            Action::Limit => disk.set_mem_limit((1 + rng.below(2 * scenario.limit)) * P),
            // Where there is one stream for good, that is all there may be.
            Action::Streams => drop(disk.set_max_streams(1 + rng.below(3) as u32)),
            Action::Resize => {
                // Without the last of the hot pages, without pages that nobody uses, or with more.
                let keep = if scenario.ends() { scenario.hot - 1 } else { PAGES / 2 };
                let pages = [keep, PAGES / 2, PAGES + 7][rng.below(3) as usize];
                self.done(disk.resize(pages * P));
                if rng.one_in(2) {
                    self.done(disk.resize(PAGES * P));
                }
            }
            Action::Reset => {
                let begun = self.history.now();
                disk.reset().expect("nobody has opened it");
                (0..scenario.hot).for_each(|page| {
                    self.history.stored(page, Version::ZEROES, begun);
                });
                self.set_up();
            }
            Action::Stats => drop(disk.stats()),
            Action::Peak => disk.reset_peak(),
        }
    }

    /// Checks the disk after all threads have ended: pages are as the models say, and nothing is
    /// left.
    fn end(&self, rng: &mut Rng, mut users: Vec<User>) {
        let disk = self.disk();
        disk.set_mem_limit(0);
        disk.resize(PAGES * P).expect("it can be as large as it was");
        users.iter_mut().for_each(|user| user.look_at_own(self));
        (0..self.scenario.hot).for_each(|page| users[0].load_hot(self, page));
        self.history.judge();
        if self.scenario.idle {
            disk.writeback(&of_kind(Select::Idle)).expect("there are blocks");
            let stats = disk.stats();
            assert_eq!(stats.backed_pages, stats.pages_stored, "pages are not idle any more");
        }
        Tally::add(&disk.stats(), &disk.density());
        let thoroughly = rng.one_in(LOOKED_THROUGH);
        if thoroughly {
            disk.validate();
            self.made.frames.validate();
        }
        disk.discard_pages(Cpu(0), 0, PAGES).expect("discards succeed");
        let stats = disk.stats();
        let left = [stats.pages_stored, stats.compressed_bytes, stats.pool_bytes];
        assert_eq!(left, [0; 3], "everything was discarded: {stats:?}");
        let left = [stats.same_filled_pages, stats.huge_pages, stats.backed_pages];
        assert_eq!(left, [0; 3], "everything was discarded: {stats:?}");
        assert_eq!(self.made.frames.stats().allocated, 0, "frames were not given back");
        if thoroughly {
            disk.validate();
            self.made.frames.validate();
            self.no_block_is_lost();
        }
    }

    fn no_block_is_lost(&self) {
        let (disk, blocks) = (self.disk(), self.scenario.blocks as u64);
        if blocks == 0 {
            return;
        }
        let mut page = [0; PAGE_SIZE];
        for index in 0..blocks {
            Version::new(true, index, 9, 2).render(&mut page);
            disk.store_page(Cpu(0), index, &page).expect("there is space");
        }
        disk.writeback(&of_kind(Select::Any)).expect("there are as many blocks");
        assert_eq!(disk.stats().backed_pages, blocks, "a block was lost");
        disk.discard_pages(Cpu(0), 0, PAGES).expect("discards succeed");
    }
}

fn of_kind(select: Select) -> Writeback {
    Writeback { select: Some(select), pages: Vec::new() }
}
