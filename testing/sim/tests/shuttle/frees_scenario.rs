//! Small scenarios of frees that are heard: users take slots, write, read and free them, as the
//! kernel does, while another thread sweeps and others write pages back. A slot has one user at a
//! time, so each read must return what that user wrote last.

use std::sync::Arc;

use block::{BlockDevice, Operation};
use shuttle::rand::RngCore;
use shuttle::sync::Mutex;
use shuttle::thread;
use sim::swap::{Cache, FaultyDevice, Model, PAGES, Policy};
use sync::atomic::{AtomicU64, Ordering};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zswap::AreaOptions;

use crate::common::swap_type;
use crate::device_scenario::MakeEngine;
use crate::history::Version;
use crate::scenario::Tally;

const P: u64 = PAGE_SIZE as u64;
const SLOWNESS: u64 = 4;
/// The number of slots that users share. There are fewer than users could have.
const SLOTS: u64 = 2;
const USERS: usize = 2;

/// Gives a macro the name and the scenario of each test.
macro_rules! frees_all {
    ($tests:ident) => {
        $tests! {
            frees_are_heard: Frees { device: false, evicts: false, through: false };
            frees_of_written_back_pages_are_heard:
                Frees { device: true, evicts: true, through: false };
            frees_of_written_through_pages_are_heard:
                Frees { device: true, evicts: true, through: true };
        }
    };
}
pub(crate) use frees_all as all;

/// A scenario: what happens beside users and sweeps.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The area has a device.
    pub device: bool,
    /// A thread writes pages back.
    pub evicts: bool,
    /// The cache refuses pages at times, which go to the device.
    pub through: bool,
}

struct Run {
    device: Arc<dyn BlockDevice>,
    bits: Arc<Vec<AtomicU64>>,
    /// The slots that nobody uses.
    unused: Mutex<Vec<u64>>,
}

impl Scenario {
    /// Runs one schedule of the scenario.
    pub fn play(&self, make: &MakeEngine) {
        let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
        let below = FaultyDevice::new(PAGES, rng.next_u64(), SLOWNESS);
        below.remember(false);
        let engine = Arc::new(make());
        Model::settings().into_iter().for_each(|policy| engine.set(policy));
        let device = self.device.then_some(below as Arc<dyn BlockDevice>);
        let memcg = engine.zswap.memcg("default").expect("it is there");
        let options = AreaOptions { device, memcg };
        engine.zswap.swapon(swap_type(0), PAGES, options).expect("it is off");
        let bits = Arc::new(vec![AtomicU64::new(0)]);
        engine.zswap.hear_frees(swap_type(0), bits.clone()).expect("there are bits for all");
        let unused = Mutex::new((0..SLOTS).collect());
        let run = Arc::new(Run { device: engine.device(0), bits, unused });
        let users: Vec<_> = (0..USERS)
            .map(|number| {
                let mut user = User { number, rng: rng.fork(), run: run.clone(), stored: 0 };
                thread::spawn(move || (0..3).for_each(|_| user.act()))
            })
            .collect();
        let evicts = self.evicts.then(|| {
            let (engine, through, mut rng) = (engine.clone(), self.through, rng.fork());
            thread::spawn(move || {
                for _ in 0..3 {
                    if through {
                        engine.set(Policy::Enabled(rng.one_in(2)));
                    }
                    engine.reclaim(Cpu(1), 2);
                }
            })
        });
        (0..3).for_each(|_| _ = engine.zswap.sweep(Cpu(0)));
        users.into_iter().chain(evicts).for_each(|it| it.join().expect("shuttle panics"));
        Tally::add(&*engine);
        // Nobody uses a slot any more. A free may be lost: a sweep that found the page before took
        // its bit.
        engine.zswap.sweep(Cpu(0));
        engine.validate();
        let all = Operation::Discard { offset: 0, length: PAGES * P };
        assert_eq!(run.device.submit(Cpu(0), all), Ok(()));
        let (left, stats) = (engine.totals(), engine.zswap.stats());
        assert_eq!((left.stored, stats.on_device), (0, 0), "pages are left: {stats:?}");
        assert_eq!(engine.swapoff(0), Ok(()), "nothing is left");
    }
}

struct User {
    number: usize,
    rng: Rng,
    run: Arc<Run>,
    stored: u32,
}

impl User {
    /// Takes a slot, uses it, and frees it.
    fn act(&mut self) {
        let slot = {
            let mut unused = self.run.unused.lock().expect("shuttle panics");
            if unused.is_empty() {
                return;
            }
            let which = self.rng.below(unused.len() as u64) as usize;
            unused.swap_remove(which)
        };
        for _ in 0..1 + self.rng.below(2) {
            let wrote = self.write(slot);
            for _ in 0..self.rng.below(3) {
                let saw = self.read(slot);
                assert_eq!(saw, wrote, "slot {slot} is in use, and its page was dropped");
            }
        }
        // Relaxed is enough: the lock orders it before the next use.
        self.run.bits[0].fetch_or(1 << slot, Ordering::Relaxed);
        self.run.unused.lock().expect("shuttle panics").push(slot);
    }

    fn write(&mut self, slot: u64) -> Version {
        self.stored += 1;
        let version = Version::new(self.rng.one_in(2), slot, self.number, self.stored);
        let mut page = [0; PAGE_SIZE];
        version.render(&mut page);
        let write = Operation::Write { offset: slot * P, from: &page };
        assert_eq!(self.run.device.submit(Cpu(self.number as u32), write), Ok(()));
        version
    }

    fn read(&self, slot: u64) -> Version {
        let mut page = [0xa5; PAGE_SIZE];
        let read = Operation::Read { offset: slot * P, into: &mut page };
        assert_eq!(self.run.device.submit(Cpu(self.number as u32), read), Ok(()));
        Version::of(&page)
    }
}
