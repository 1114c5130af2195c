//! Small scenarios of a swap cache: users of their own or of shared pages, and other threads that
//! write back, shrink, change settings and turn areas off. Each schedule draws their operations
//! from its own random numbers.

use std::cell::Cell;
use std::sync::Arc;

use shuttle::rand::RngCore;
use shuttle::thread;
use sim::swap::{Cache, FaultyDevice, Found, Model, PAGES, Policy, Refusal, SwapPage};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use crate::history::{History, Version};

/// One of this number of schedules checks the structures at its end.
const LOOKED_THROUGH: u64 = 8;
/// The number of moments at which other threads may run during an operation of the device.
const SLOWNESS: u64 = 12;

/// Makes a cache.
pub type MakeCache = Arc<dyn Fn() -> Arc<dyn Cache> + Send + Sync>;

/// An operation of the other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Some are written back.
    Reclaim,
    /// The background worker takes a step.
    Work,
    Shrink,
    Compressor,
    /// Pages are refused, or no more.
    Enabled,
    Limit,
    InFlight,
    Switch,
    /// All pages of another area are given up.
    OtherArea,
    /// Objects are moved together.
    Compact,
    /// Objects are replaced by smaller ones.
    Recompress,
}

/// Gives a macro the name and the scenario of each test.
macro_rules! all {
    ($tests:ident) => {
        $tests! {
            pages_are_written_back: Scenario::WRITTEN_BACK;
            two_write_back: Scenario::TWO_EVICTORS;
            pages_are_taken_out: Scenario::EXCLUSIVE;
            pages_are_refused: Scenario::REFUSED;
            limits: Scenario::LIMITED;
            crowds: Scenario::CROWD;
            compressors: Scenario::COMPRESSORS;
            areas_are_turned_off: Scenario::SWAPPED_OFF;
            objects_are_moved: Scenario::COMPACTED;
            objects_are_moved_and_taken_out: Scenario::COMPACTED_EXCLUSIVE;
            objects_are_recompressed: Scenario::RECOMPRESSED;
            pages_are_packed: Scenario::PACKED;
            everything: Scenario::EVERYTHING;
        }
    };
}
pub(crate) use all;

/// A scenario: its threads and their operations.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Threads with pages of their own.
    owners: usize,
    /// Threads that use the same page.
    crowd: usize,
    steps: usize,
    /// Whether a load removes the page.
    exclusive: bool,
    /// The number of other threads.
    others: usize,
    actions: &'static [Action],
    count: usize,
    /// The most bytes of the pool, in pages; 0 for any.
    limit: u64,
    /// Pages of one size class stored before, and mostly given up again.
    ballast: u64,
    /// These pages become packs, of which most are given up again, whole.
    packs: bool,
    /// Where in the area the pages of owners are.
    place: fn(u64) -> u64,
}

impl Scenario {
    const BASE: Scenario = Scenario {
        owners: 2,
        crowd: 0,
        steps: 4,
        exclusive: false,
        others: 1,
        actions: &[Action::Reclaim],
        count: 2,
        limit: 0,
        ballast: 0,
        packs: false,
        place: |number| 1 + number,
    };
    /// Objects are moved while they are used, written back and given up.
    pub const COMPACTED: Scenario = Scenario {
        actions: &[Action::Compact, Action::Compact, Action::Reclaim],
        others: 2,
        ballast: 12,
        ..Scenario::BASE
    };
    /// The same while loads take pages out.
    pub const COMPACTED_EXCLUSIVE: Scenario =
        Scenario { exclusive: true, actions: &[Action::Compact], ..Scenario::COMPACTED };
    /// Objects are replaced by smaller ones while they are used, moved, written back and given up.
    pub const RECOMPRESSED: Scenario = Scenario {
        actions: &[Action::Recompress, Action::Recompress, Action::Compact, Action::Reclaim],
        steps: 8,
        others: 2,
        count: 4,
        // Without neighbours, with which they would be packed.
        place: |number| 1 + number * 4,
        ..Scenario::BASE
    };
    /// Packs are made, moved and taken apart while their pages are used and written back.
    pub const PACKED: Scenario = Scenario {
        actions: &[Action::Recompress, Action::Recompress, Action::Compact, Action::Reclaim],
        owners: 3,
        steps: 8,
        others: 2,
        count: 4,
        ballast: 32,
        packs: true,
        place: |number| number,
        ..Scenario::BASE
    };
    /// Pages are written back while their owners use them.
    pub const WRITTEN_BACK: Scenario = Scenario::BASE;
    /// Two threads write back.
    pub const TWO_EVICTORS: Scenario =
        Scenario { owners: 1, steps: 5, others: 2, ..Scenario::BASE };
    /// Loads take pages out that are being written back.
    pub const EXCLUSIVE: Scenario = Scenario { exclusive: true, ..Scenario::BASE };
    /// Pages are refused while the ones before are written back, and their owners write the new
    /// ones to the device.
    pub const REFUSED: Scenario = Scenario {
        actions: &[Action::Reclaim, Action::Enabled, Action::Reclaim],
        count: 4,
        ..Scenario::BASE
    };
    /// Stores need more space than there is.
    pub const LIMITED: Scenario = Scenario {
        actions: &[Action::Work, Action::Limit, Action::Reclaim, Action::Shrink],
        count: 3,
        limit: 2,
        ..Scenario::BASE
    };
    /// Users of one page.
    pub const CROWD: Scenario = Scenario { owners: 0, crowd: 3, steps: 3, ..Scenario::BASE };
    /// Pages that were made by one codec are read, and written back, while another is chosen.
    pub const COMPRESSORS: Scenario = Scenario {
        owners: 1,
        crowd: 2,
        steps: 3,
        actions: &[Action::Compressor, Action::Reclaim],
        count: 3,
        ..Scenario::BASE
    };
    /// An area is turned off, and on, while its pages are written back.
    pub const SWAPPED_OFF: Scenario =
        Scenario { actions: &[Action::OtherArea, Action::Reclaim], ..Scenario::BASE };
    /// All of it.
    pub const EVERYTHING: Scenario = Scenario {
        others: 2,
        actions: &[
            Action::Reclaim,
            Action::Work,
            Action::Shrink,
            Action::Compressor,
            Action::Enabled,
            Action::Limit,
            Action::InFlight,
            Action::Switch,
            Action::OtherArea,
            Action::Compact,
            Action::Recompress,
        ],
        count: 3,
        limit: 3,
        ..Scenario::BASE
    };

    /// Runs one schedule of the scenario.
    pub fn play(&self, make: &MakeCache) {
        let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
        let devices_below = [0, 1].map(|_| FaultyDevice::new(PAGES, rng.next_u64(), SLOWNESS));
        devices_below.iter().for_each(|device_below| device_below.remember(false));
        let run =
            Run { cache: make(), devices_below, scenario: *self, history: History::default() };
        run.set_up();
        let run = Arc::new(run);
        let mut owners: Vec<Owner> =
            (0..self.owners).map(|n| Owner::new(n, rng.fork(), self.place)).collect();
        let mut crowd: Vec<User> = (0..self.crowd).map(|n| User::new(n, rng.fork())).collect();
        run.store_ballast();
        owners.iter_mut().for_each(|owner| owner.store(&run, 0));
        if let Some(user) = crowd.first_mut() {
            user.store(&run);
        }
        run.give_up_ballast();
        let crowd: Vec<_> = crowd
            .into_iter()
            .map(|mut user| {
                let run = run.clone();
                thread::spawn(move || {
                    (0..run.scenario.steps).for_each(|_| user.act(&run));
                })
            })
            .collect();
        let owners: Vec<_> = owners
            .into_iter()
            .map(|mut owner| {
                let run = run.clone();
                thread::spawn(move || {
                    (0..run.scenario.steps).for_each(|_| owner.act(&run));
                    owner
                })
            })
            .collect();
        let others: Vec<_> = (1..self.others)
            .map(|n| {
                let (run, mut rng) = (run.clone(), rng.fork());
                thread::spawn(move || run.meddle(&mut rng, n))
            })
            .collect();
        run.meddle(&mut rng, 0);
        others.into_iter().chain(crowd).for_each(|thread| thread.join().expect("shuttle panics"));
        let owners = owners.into_iter().map(|owner| owner.join().expect("shuttle panics"));
        let owners: Vec<Owner> = owners.collect();
        run.end(&mut rng, owners);
    }
}

struct Run {
    cache: Arc<dyn Cache>,
    devices_below: [Arc<FaultyDevice>; 2],
    scenario: Scenario,
    history: History,
}

/// The first of the pages that no thread uses during a run.
const BALLAST: u64 = 32;

/// The page that a crowd uses.
const HOT: SwapPage = SwapPage { area: 0, offset: 0 };

impl Run {
    fn set_up(&self) {
        Model::settings().into_iter().for_each(|policy| self.cache.set(policy));
        self.cache.set(Policy::Exclusive(self.scenario.exclusive));
        self.cache.set(Policy::MaxPool(self.scenario.limit * PAGE_SIZE as u64));
        self.cache.swapon(0, self.devices_below[0].clone()).expect("it is off");
        self.cache.swapon(1, self.devices_below[1].clone()).expect("it is off");
    }

    /// Stores pages that leave holes beside those of the owners.
    fn store_ballast(&self) {
        let mut page = [0; PAGE_SIZE];
        for offset in 0..self.scenario.ballast {
            Version::new(true, BALLAST + offset, 9, 1).render(&mut page);
            let swap_page = SwapPage { area: 0, offset: BALLAST + offset };
            self.cache.store(Cpu(0), swap_page, 0, &page).expect("there is space");
        }
    }

    fn give_up_ballast(&self) {
        if self.scenario.packs {
            self.cache.recompress(Cpu(0));
        }
        let stays = |offset: u64| match self.scenario.packs {
            true => offset / 4 % 6 == 0,
            false => offset % 6 == 0,
        };
        for offset in (0..self.scenario.ballast).filter(|offset| !stays(*offset)) {
            let swap_page = SwapPage { area: 0, offset: BALLAST + offset };
            self.cache.invalidate_page(Cpu(0), swap_page);
        }
    }

    fn meddle(&self, rng: &mut Rng, number: usize) {
        for _ in 0..self.scenario.count {
            self.meddle_once(rng, Cpu(number as u32));
        }
    }

    fn meddle_once(&self, rng: &mut Rng, cpu: Cpu) {
        let cache = &self.cache;
        match *rng.pick(self.scenario.actions) {
            Action::Reclaim => drop(cache.reclaim(cpu, 1 + rng.below(3))),
            Action::Work => drop(cache.work()),
            Action::Shrink => cache.shrink(cpu, 1 + rng.below(3)),
            Action::Compressor => cache.set(Policy::Compressor(rng.below(8) as usize)),
            Action::Enabled => cache.set(Policy::Enabled(rng.one_in(2))),
            Action::Limit => {
                cache.set(Policy::MaxPool(rng.below(2 * self.scenario.limit) * PAGE_SIZE as u64));
            }
            Action::InFlight => cache.set(Policy::InFlight(1 + rng.below(3) as u32)),
            Action::Switch => cache.set(Policy::MemcgWriteback(0, rng.one_in(2))),
            Action::OtherArea => self.other_area(rng, cpu),
            Action::Compact => cache.compact(cpu),
            Action::Recompress => cache.recompress(cpu),
        }
    }

    /// One thread alone uses another area, and turns it off and on again.
    fn other_area(&self, rng: &mut Rng, cpu: Cpu) {
        let (cache, mut page) = (&self.cache, [0; PAGE_SIZE]);
        for offset in 0..2 {
            Version::new(false, offset, 9, 1 + rng.below(9) as u32).render(&mut page);
            let _ = cache.store(cpu, SwapPage { area: 1, offset }, 0, &page);
        }
        cache.invalidate_area(cpu, 1);
        // Another thread may be doing the same.
        if cache.swapoff(1).is_ok() {
            let _ = cache.swapon(1, self.devices_below[1].clone());
        }
    }

    fn end(&self, rng: &mut Rng, owners: Vec<Owner>) {
        for owner in owners {
            owner.look_at_all(self);
        }
        if self.scenario.crowd > 0 {
            User::new(0, rng.fork()).load(self);
        }
        self.history.judge();
        let cache = &self.cache;
        let thoroughly = rng.one_in(LOOKED_THROUGH);
        if thoroughly {
            cache.validate();
        }
        Tally::add(&**cache);
        cache.invalidate_area(Cpu(0), 0);
        cache.invalidate_area(Cpu(0), 1);
        let left = cache.totals();
        assert_eq!((left.stored, left.memcg_pages[0]), (0, 0), "pages are left: {left:?}");
        assert_eq!((left.pool_bytes, left.memcg_bytes[0]), (0, 0), "bytes are left: {left:?}");
        assert_eq!(cache.swapoff(0), Ok(()), "nothing is left");
        if thoroughly {
            cache.validate();
        }
    }
}

/// Counts of events. A scenario without events proves nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    written_back: u64,
    fetched: u64,
    refused: u64,
    compacted: u64,
}

thread_local! {
    static TALLY: Cell<Tally> =
        const { Cell::new(Tally { written_back: 0, fetched: 0, refused: 0, compacted: 0 }) };
}

/// The tally so far; a new one begins.
pub fn tally() -> Tally {
    TALLY.take()
}

impl Tally {
    /// A schedule has been played with this cache.
    pub fn add(cache: &dyn Cache) {
        let (before, totals) = (TALLY.get(), cache.totals());
        TALLY.set(Tally {
            written_back: before.written_back + totals.written_back,
            refused: before.refused + totals.refused,
            compacted: before.compacted + totals.compacted,
            ..before
        });
    }

    fn fetched() {
        let before = TALLY.get();
        TALLY.set(Tally { fetched: before.fetched + 1, ..before });
    }
}

/// Pages that an owner has.
const OWN: usize = 2;

/// A thread with pages of its own: it knows each byte of them.
struct Owner {
    number: usize,
    place: fn(u64) -> u64,
    rng: Rng,
    stored: u32,
    newest: [Option<Version>; OWN],
}

impl Owner {
    fn new(number: usize, rng: Rng, place: fn(u64) -> u64) -> Owner {
        Owner { number, place, rng, stored: 0, newest: [None; OWN] }
    }

    fn cpu(&self) -> Cpu {
        Cpu(self.number as u32)
    }

    fn swap_page(&self, which: usize) -> SwapPage {
        SwapPage { area: 0, offset: (self.place)((self.number * OWN + which) as u64) }
    }

    fn act(&mut self, run: &Run) {
        let which = usize::from(self.rng.one_in(4));
        match self.rng.below(8) {
            0..=2 => self.store(run, which),
            3..=5 => self.load(run, which),
            _ => {
                run.cache.invalidate_page(self.cpu(), self.swap_page(which));
                self.newest[which] = None;
            }
        }
    }

    fn store(&mut self, run: &Run, which: usize) {
        self.stored += 1;
        let swap_page = self.swap_page(which);
        let version = Version::new(self.rng.one_in(2), swap_page.offset, self.number, self.stored);
        let mut page = [0; PAGE_SIZE];
        version.render(&mut page);
        match run.cache.store(self.cpu(), swap_page, 0, &page) {
            Ok(()) => {}
            // The owner writes the page to the device.
            Err(_) => run.devices_below[0].put(swap_page.offset, &page),
        }
        self.newest[which] = Some(version);
    }

    fn load(&mut self, run: &Run, which: usize) {
        let (swap_page, mut page) = (self.swap_page(which), [0xa5; PAGE_SIZE]);
        match (run.cache.load(self.cpu(), swap_page, &mut page), self.newest[which]) {
            (Found::Page, Some(version)) => {
                assert_eq!(Version::of(&page), version, "{swap_page:?} is another");
                if run.scenario.exclusive {
                    self.newest[which] = None;
                }
            }
            (Found::Nothing, Some(version)) => {
                let page = run.devices_below[0].peek(swap_page.offset);
                let page = page.unwrap_or_else(|| panic!("{swap_page:?} is nowhere"));
                assert_eq!(Version::of(&page), version, "{swap_page:?}, on the device, is another");
                Tally::fetched();
            }
            (Found::Nothing, None) => {}
            (found, known) => panic!("{swap_page:?} is {found:?}, and should be {known:?}"),
        }
    }

    fn look_at_all(mut self, run: &Run) {
        (0..OWN).for_each(|which| self.load(run, which));
    }
}

/// A thread that uses the shared page. The cache never refuses this page, because a thread that
/// writes to the device itself must lock the page meanwhile, as swap does.
struct User {
    number: usize,
    rng: Rng,
    stored: u32,
}

impl User {
    fn new(number: usize, rng: Rng) -> User {
        User { number, rng, stored: 0 }
    }

    fn act(&mut self, run: &Run) {
        if self.rng.one_in(2) { self.store(run) } else { self.load(run) }
    }

    fn store(&mut self, run: &Run) {
        self.stored += 1;
        let version = Version::new(self.rng.one_in(2), 0, self.number, self.stored);
        let mut page = [0; PAGE_SIZE];
        version.render(&mut page);
        let begun = run.history.now();
        let stored: Result<(), Refusal> = run.cache.store(Cpu(self.number as u32), HOT, 0, &page);
        assert_eq!(stored, Ok(()), "there is space");
        run.history.stored(HOT.offset, version, begun);
    }

    fn load(&mut self, run: &Run) {
        let mut page = [0xa5; PAGE_SIZE];
        let begun = run.history.now();
        match run.cache.load(Cpu(self.number as u32), HOT, &mut page) {
            Found::Page => {}
            Found::Nothing => {
                let found = run.devices_below[0].peek(HOT.offset).expect("it was stored");
                page.copy_from_slice(&found[..]);
                Tally::fetched();
            }
            Found::Corrupt => panic!("the page is corrupt"),
        }
        run.history.saw(HOT.offset, Version::of(&page), begun);
    }
}
