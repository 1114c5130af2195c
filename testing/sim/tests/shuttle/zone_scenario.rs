//! Small scenarios for page allocators: a few frames, and threads that allocate them, write to
//! them, and free their own and each other's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pagealloc::ZoneOptions;
use shuttle::rand::RngCore;
use shuttle::thread;
use sync::atomic::{AtomicU64, Ordering};
use testkit::Rng;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame, PAGE_SIZE};

use crate::design::{Design, Lender};
use crate::free::Free;

/// The number of CPUs. It is below the number of threads, so that some share a CPU.
const CPUS: usize = 2;
const THREADS: usize = 3;

/// Gives a macro the name and the scenario of each test.
macro_rules! all {
    ($tests:ident) => {
        $tests! {
            single_frames: Scenario::SINGLES;
            blocks_and_their_buddies: Scenario::BUDDIES;
            blocks_where_memory_is_short: Scenario::SHORT;
            the_last_frames: Scenario::LAST;
            draining: Scenario::DRAINED;
            memory_that_comes_and_goes: Scenario::COMING_AND_GOING;
        }
    };
}
pub(crate) use all;

/// A scenario: the frames, and the operations of the threads.
#[derive(Clone, Copy)]
pub struct Scenario {
    frames: u32,
    /// The orders of the blocks that threads allocate; of these those that the zone has.
    orders: &'static [u8],
    /// Blocks allocated before the threads begin, each as often as memory allows. Threads may free
    /// them. A zone without blocks has their frames allocated one by one.
    allocated_before: &'static [u8],
    /// The number of single frames that a thread may have and must get.
    quota: Option<usize>,
    /// One of this number of calls drains the zone.
    drains: u64,
    steps: usize,
}

impl Scenario {
    /// Single frames, and enough of them.
    pub const SINGLES: Scenario = Scenario {
        frames: 24,
        orders: &[0],
        allocated_before: &[],
        quota: None,
        drains: 24,
        steps: 9,
    };
    /// Blocks of several orders, so that buddies are freed at once.
    pub const BUDDIES: Scenario =
        Scenario { frames: 16, orders: &[0, 1, 1, 2], drains: u64::MAX, ..Scenario::SINGLES };
    /// The threads need more frames than there are.
    pub const SHORT: Scenario = Scenario { frames: 8, orders: &[0, 0, 1, 3], ..Scenario::SINGLES };
    /// Each thread takes its quota. Together the quotas are all frames.
    pub const LAST: Scenario =
        Scenario { frames: 6, quota: Some(2), steps: 12, ..Scenario::SINGLES };
    /// Pcp lists are emptied all the time.
    pub const DRAINED: Scenario =
        Scenario { frames: 12, orders: &[0, 0, 1], drains: 4, ..Scenario::SINGLES };
    /// 2 MiB blocks that are all but allocated come free as a whole and are allocated again.
    pub const COMING_AND_GOING: Scenario = Scenario {
        frames: 2 * FRAMES_PER_PAGEBLOCK,
        orders: &[0, 0, 0, 2, 9],
        allocated_before: &[8, 7, 6, 5, 4, 3],
        drains: 12,
        ..Scenario::SINGLES
    };
}

/// All scenarios, by name.
pub const SCENARIOS: [(&str, Scenario); 6] = [
    ("singles", Scenario::SINGLES),
    ("buddies", Scenario::BUDDIES),
    ("short", Scenario::SHORT),
    ("last", Scenario::LAST),
    ("drained", Scenario::DRAINED),
    ("coming_and_going", Scenario::COMING_AND_GOING),
];

type Tally = BTreeMap<&'static str, u64>;

thread_local! {
    /// All threads of a schedule are one of the system's.
    static TALLY: RefCell<Tally> = const { RefCell::new(Tally::new()) };
}

/// The counts of events since the last call.
pub fn tally() -> Tally {
    TALLY.take()
}

fn happened(what: &'static str) {
    TALLY.with_borrow_mut(|tally| *tally.entry(what).or_default() += 1);
}

/// A block that a thread holds, or as many single frames in a row.
#[derive(Clone, Copy)]
struct Held {
    frame: Frame,
    order: u8,
    stamp: u64,
}

struct Run {
    scenario: Scenario,
    zone: Arc<dyn Lender>,
    /// Whether a thread holds each frame.
    allocated: Mutex<Vec<bool>>,
    /// Blocks that any thread may free.
    mail: Mutex<Vec<Held>>,
    /// Accessed while a thread holds a block, so that other threads may run.
    moment: AtomicU64,
}

impl Scenario {
    /// Plays a schedule on a zone of this design.
    pub fn play(self, design: &Design) {
        let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
        let options = ZoneOptions {
            batch: 1 + rng.below(2) as usize,
            cache_high: 2 + rng.below(2) as usize,
            keep_free_blocks: rng.below(2) as u32,
            collapse: rng.one_in(2),
            ..ZoneOptions::new(CPUS, self.frames)
        };
        let run = Run {
            scenario: self,
            zone: (design.make)(&host::Mmap, options).into(),
            allocated: Mutex::new(vec![false; self.frames as usize]),
            mail: Mutex::new(Vec::new()),
            moment: AtomicU64::new(0),
        };
        let run = Arc::new(run);
        for wanted in self.allocated_before {
            for _ in 0..self.frames / FRAMES_PER_PAGEBLOCK {
                let held = run.borrow(Cpu(0), *wanted, &mut rng);
                run.mail.lock().unwrap().extend(held);
            }
        }
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (run, mut rng) = (run.clone(), rng.fork());
                thread::spawn(move || run.act(n, &mut rng))
            })
            .collect();
        let held = threads.into_iter().map(|it| it.join().expect("shuttle ends with a panic"));
        let held: Vec<Held> = held.flatten().collect();
        let judge = || {
            run.zone.validate();
            Free::of(&*run.zone, &run.allocated.lock().unwrap())
        };
        let free = judge();
        if design.merges {
            free.is_merged();
        }
        for (n, held) in held.into_iter().enumerate() {
            run.give_back(Cpu(n as u32), held);
        }
        while let Some(held) = run.post() {
            run.give_back(Cpu(0), held);
        }
        run.zone.drain();
        judge().is_at_rest(&vec![false; self.frames as usize]);
    }
}

impl Run {
    /// Runs thread `n` and returns the blocks it holds at the end.
    fn act(&self, n: usize, rng: &mut Rng) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..self.scenario.steps {
            let cpu = Cpu(n as u32 + u32::from(rng.one_in(8)));
            if rng.one_in(self.scenario.drains) {
                happened("drained");
                self.zone.drain();
                continue;
            }
            match rng.below(8) {
                0..4 if self.scenario.quota.is_none_or(|quota| held.len() < quota) => {
                    let wanted = *rng.pick(self.scenario.orders);
                    let wanted = if wanted > self.zone.largest() { 0 } else { wanted };
                    held.extend(self.borrow(cpu, wanted, rng));
                }
                4 if self.scenario.quota.is_none() && !held.is_empty() => {
                    let index = rng.below(held.len() as u64) as usize;
                    self.mail.lock().unwrap().push(held.swap_remove(index));
                }
                5 if self.scenario.quota.is_none() => {
                    if let Some(held) = self.post() {
                        happened("freed another's");
                        self.give_back(cpu, held);
                    }
                }
                _ if !held.is_empty() => {
                    let index = rng.below(held.len() as u64) as usize;
                    self.give_back(cpu, held.swap_remove(index));
                }
                _ => {}
            }
        }
        held
    }

    /// A block out of the mail, any of them.
    fn post(&self) -> Option<Held> {
        // Before the lock, of which shuttle does not know: nobody may come between under it.
        let turn = self.moment.fetch_add(1, Ordering::Relaxed) as usize;
        let mut mail = self.mail.lock().unwrap();
        turn.checked_rem(mail.len()).map(|index| mail.swap_remove(index))
    }

    fn lend(&self, cpu: Cpu, wanted: u8) -> Option<Frame> {
        if wanted <= self.zone.largest() {
            return self.zone.lend(cpu, wanted);
        }
        let first = self.zone.alloc(cpu)?;
        for n in 1..1 << wanted {
            assert_eq!(self.zone.alloc(cpu), Some(Frame(first.0 + n)), "the lowest frame first");
        }
        Some(first)
    }

    fn borrow(&self, cpu: Cpu, wanted: u8, rng: &mut Rng) -> Option<Held> {
        let Some(frame) = self.lend(cpu, wanted) else {
            happened("was told that memory is out");
            assert_eq!(self.scenario.quota, None, "None for a thread that may have so many frames");
            return None;
        };
        happened(if wanted == 0 { "borrowed a frame" } else { "borrowed a block" });
        let size = 1 << wanted;
        let end = frame.0 + size;
        assert!(frame.0.is_multiple_of(size) && end <= self.scenario.frames, "{frame:?}");
        for n in frame.0..end {
            let before = std::mem::replace(&mut self.allocated.lock().unwrap()[n as usize], true);
            assert!(!before, "frame {n} is allocated to two");
        }
        let held = Held { frame, order: wanted, stamp: rng.next_u64() };
        // SAFETY: the block is allocated to us, so it's ours to write.
        self.places(held).for_each(|place| unsafe { place.write(held.stamp) });
        self.check(held);
        Some(held)
    }

    fn check(&self, held: Held) {
        self.moment.fetch_add(1, Ordering::Relaxed);
        for place in self.places(held) {
            // SAFETY: the block is allocated to us, so it's ours to read.
            let found = unsafe { place.read() };
            assert_eq!(found, held.stamp, "somebody else wrote to {:?}", held.frame);
        }
    }

    fn give_back(&self, cpu: Cpu, held: Held) {
        self.check(held);
        let first = held.frame.0 as usize;
        let end = first + (1 << held.order);
        self.allocated.lock().unwrap()[first..end].fill(false);
        if held.order <= self.zone.largest() {
            return self.zone.take_back(cpu, held.frame, held.order);
        }
        (held.frame.0..end as u32).for_each(|frame| self.zone.free(cpu, Frame(frame)));
    }

    /// The first word of the first page, and the last of the last.
    fn places(&self, held: Held) -> impl Iterator<Item = *mut u64> {
        let start = held.frame.0 as usize * PAGE_SIZE;
        let end = start + (PAGE_SIZE << held.order);
        let base = self.zone.base().as_ptr();
        [start, end - 8].into_iter().map(move |offset| base.wrapping_add(offset).cast())
    }
}
