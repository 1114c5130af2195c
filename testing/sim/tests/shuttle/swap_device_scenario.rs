//! Small scenarios of a swap area as a block device: users that write, read and discard the same
//! pages, and other threads that write back, refuse pages, and change settings.

use std::sync::Arc;

use block::{BlockDevice, IoError, Operation};
use shuttle::rand::RngCore;
use shuttle::sync::Mutex;
use shuttle::thread;
use sim::swap::{Cache, FaultyDevice, Model, PAGES, Policy};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use crate::common::Engine;
use crate::history::{History, Version};
use crate::scenario::Tally;

const P: u64 = PAGE_SIZE as u64;
const SLOWNESS: u64 = 12;
/// The number of shared pages.
const HOT: u64 = 2;

/// An operation of the other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Reclaim,
    Work,
    Compressor,
    Enabled,
    Limit,
    /// A thread discards everything and turns the area off.
    Swapoff,
}

/// Makes an engine.
pub type MakeEngine = Arc<dyn Fn() -> Engine + Send + Sync>;

/// Gives a macro the name and the scenario of each test.
macro_rules! devices_all {
    ($tests:ident) => {
        $tests! {
            devices_are_written_back: Device::WRITTEN_BACK;
            devices_are_written_back_by_two: Device::TWO_EVICTORS;
            devices_are_written_through: Device::WRITTEN_THROUGH;
            devices_with_limits: Device::LIMITED;
            devices_are_turned_off: Device::SWAPPED_OFF;
            everything_of_devices: Device::EVERYTHING;
        }
    };
}
pub(crate) use devices_all as all;

/// A scenario: its threads and their operations.
#[derive(Clone, Copy)]
pub struct Scenario {
    users: usize,
    steps: usize,
    actions: &'static [Action],
    others: usize,
    count: usize,
    limit: u64,
}

impl Scenario {
    const BASE: Scenario =
        Scenario { users: 2, steps: 4, actions: &[Action::Reclaim], others: 1, count: 3, limit: 0 };
    /// Pages are written back while they are used.
    pub const WRITTEN_BACK: Scenario = Scenario::BASE;
    /// Two threads write back at once.
    pub const TWO_EVICTORS: Scenario = Scenario { others: 2, count: 2, ..Scenario::BASE };
    /// Pages go past the cache now and then.
    pub const WRITTEN_THROUGH: Scenario =
        Scenario { actions: &[Action::Enabled, Action::Reclaim], count: 4, ..Scenario::BASE };
    /// There is less space than the users need.
    pub const LIMITED: Scenario = Scenario {
        users: 3,
        steps: 3,
        actions: &[Action::Limit, Action::Work, Action::Reclaim],
        limit: 2,
        ..Scenario::BASE
    };
    /// The area is turned off when nothing is there, and on again.
    pub const SWAPPED_OFF: Scenario =
        Scenario { actions: &[Action::Swapoff, Action::Reclaim], ..Scenario::BASE };
    /// All operations except swapoff.
    pub const EVERYTHING: Scenario = Scenario {
        users: 3,
        steps: 3,
        actions: &[
            Action::Reclaim,
            Action::Work,
            Action::Compressor,
            Action::Enabled,
            Action::Limit,
        ],
        others: 2,
        limit: 3,
        ..Scenario::BASE
    };

    fn ends(&self) -> bool {
        self.actions.contains(&Action::Swapoff)
    }

    /// Runs one schedule of the scenario.
    pub fn play(&self, make: &MakeEngine) {
        let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
        let device_below = FaultyDevice::new(PAGES, rng.next_u64(), SLOWNESS);
        device_below.remember(false);
        let engine = make();
        Model::settings().into_iter().for_each(|policy| engine.set(policy));
        engine.set(Policy::MaxPool(self.limit * P));
        let device = Mutex::new(turned_on(&engine, &device_below));
        let history = History::default();
        let run = Arc::new(Run { engine, device, device_below, scenario: *self, history });
        let mut users: Vec<User> =
            (0..self.users).map(|n| User { number: n, rng: rng.fork(), stored: 0 }).collect();
        (0..HOT).for_each(|page| {
            run.history.stored(page, Version::ZEROES, run.history.now());
            users[0].write(&run, page, 1);
        });
        let users: Vec<_> = users
            .into_iter()
            .map(|mut user| {
                let run = run.clone();
                thread::spawn(move || (0..run.scenario.steps).for_each(|_| user.act(&run)))
            })
            .collect();
        let others: Vec<_> = (1..self.others)
            .map(|n| {
                let (run, mut rng) = (run.clone(), rng.fork());
                thread::spawn(move || run.meddle(&mut rng, Cpu(n as u32)))
            })
            .collect();
        run.meddle(&mut rng, Cpu(0));
        users.into_iter().chain(others).for_each(|thread| thread.join().expect("shuttle panics"));
        run.end(&mut rng);
    }
}

/// Turns the area on. The device is of this area alone: the next one has its own.
fn turned_on(engine: &Engine, device_below: &Arc<FaultyDevice>) -> Arc<dyn BlockDevice> {
    engine.swapon(0, device_below.clone()).expect("it is off");
    engine.device(0)
}

struct Run {
    engine: Engine,
    device: Mutex<Arc<dyn BlockDevice>>,
    device_below: Arc<FaultyDevice>,
    scenario: Scenario,
    history: History,
}

impl Run {
    /// A request to the device of the area that was on last.
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        let device = self.device.lock().expect("shuttle panics").clone();
        device.submit(cpu, operation)
    }

    fn meddle(&self, rng: &mut Rng, cpu: Cpu) {
        for _ in 0..self.scenario.count {
            let engine = &self.engine;
            match *rng.pick(self.scenario.actions) {
                Action::Reclaim => drop(engine.reclaim(cpu, 1 + rng.below(3))),
                Action::Work => drop(engine.work()),
                Action::Compressor => engine.set(Policy::Compressor(rng.below(8) as usize)),
                Action::Enabled => engine.set(Policy::Enabled(rng.one_in(2))),
                Action::Limit => engine.set(Policy::MaxPool((1 + rng.below(4)) * P)),
                Action::Swapoff => {
                    let begun = self.history.now();
                    if rng.one_in(2) {
                        engine.invalidate_area(cpu, 0);
                        (0..HOT).for_each(|page| {
                            self.history.stored(page, Version::ZEROES, begun);
                        });
                    }
                    let begun = self.history.now();
                    if engine.swapoff(0).is_ok() {
                        (0..HOT).for_each(|page| {
                            self.history.stored(page, Version::ZEROES, begun);
                        });
                        let device = turned_on(engine, &self.device_below);
                        *self.device.lock().expect("shuttle panics") = device;
                    }
                }
            }
        }
    }

    fn made_it(&self, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => true,
            Err(IoError::NotReady) if self.scenario.ends() => false,
            Err(error) => panic!("a request failed: {error}"),
        }
    }

    fn end(&self, rng: &mut Rng) {
        let mut user = User { number: 0, rng: rng.fork(), stored: 1000 };
        (0..HOT).for_each(|page| user.read(self, page, 1));
        self.history.judge();
        if rng.one_in(8) {
            self.engine.validate();
        }
        Tally::add(&self.engine);
        let all = Operation::Discard { offset: 0, length: PAGES * P };
        assert_eq!(self.submit(Cpu(0), all), Ok(()));
        (0..HOT).for_each(|page| {
            let mut into = [0xa5; PAGE_SIZE];
            let read = Operation::Read { offset: page * P, into: &mut into };
            assert_eq!(self.submit(Cpu(0), read), Ok(()));
            assert!(into == [0; PAGE_SIZE], "page {page} survived its discard");
        });
        self.engine.validate();
        let left = self.engine.totals();
        assert_eq!((left.stored, left.pool_bytes), (0, 0), "pages are left: {left:?}");
        assert_eq!(self.engine.swapoff(0), Ok(()), "nothing is left");
    }
}

struct User {
    number: usize,
    rng: Rng,
    stored: u32,
}

impl User {
    fn cpu(&self) -> Cpu {
        Cpu(self.number as u32)
    }

    fn act(&mut self, run: &Run) {
        // Of several pages some may be stored before the area is turned off, and the rest refused.
        let count = if !run.scenario.ends() && self.rng.one_in(4) { 2 } else { 1 };
        let page = self.rng.below(HOT - count + 1);
        match self.rng.below(8) {
            0..=2 => self.write(run, page, count),
            3..=6 => self.read(run, page, count),
            _ => self.discard(run, page, count),
        }
    }

    fn write(&mut self, run: &Run, page: u64, count: u64) {
        let mut from = vec![0; (count * P) as usize];
        let (pages, _) = from.as_chunks_mut::<PAGE_SIZE>();
        let mut versions = Vec::new();
        for (n, contents) in (page..).zip(pages) {
            self.stored += 1;
            let version = Version::new(self.rng.one_in(2), n, self.number, self.stored);
            version.render(contents);
            versions.push((n, version));
        }
        let begun = run.history.now();
        let write = Operation::Write { offset: page * P, from: &from };
        if run.made_it(run.submit(self.cpu(), write)) {
            versions.into_iter().for_each(|(n, version)| run.history.stored(n, version, begun));
        } else {
            // Some of it may have been written before the area was turned off, and is gone.
        }
    }

    fn read(&mut self, run: &Run, page: u64, count: u64) {
        let mut into = vec![0xa5; (count * P) as usize];
        let begun = run.history.now();
        let read = Operation::Read { offset: page * P, into: &mut into };
        if run.made_it(run.submit(self.cpu(), read)) {
            let (pages, _) = into.as_chunks::<PAGE_SIZE>();
            for (n, contents) in (page..).zip(pages) {
                run.history.saw(n, Version::of(contents), begun);
            }
        }
    }

    fn discard(&mut self, run: &Run, page: u64, count: u64) {
        let begun = run.history.now();
        let discard = Operation::Discard { offset: page * P, length: count * P };
        if run.made_it(run.submit(self.cpu(), discard)) {
            (page..page + count).for_each(|n| run.history.stored(n, Version::ZEROES, begun));
        }
    }
}
