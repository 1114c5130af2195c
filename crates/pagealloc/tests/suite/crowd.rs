//! Many threads, each frame with the name of the thread that has it, and the whole zone compared
//! with these names whenever all threads have come to an end.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;

use pagealloc::ZoneOptions;
use testkit::{Rng, seed};
use units::{Cpu, Frame};

use crate::free::Free;
use crate::model::{Held, Lender, Make, check_stamp, stamp};
use crate::provider::HeapProvider;

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(any(asan, miri)) { 4 } else { 12 };
const STEPS: usize = if cfg!(miri) { 50 } else { 700 };
const FRAMES: u32 = 1_200;

/// Whose each frame is: 0 for nobody.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn claim(&self, first: Frame, order: u8, thread: usize) {
        for frame in first.0..first.0 + (1 << order) {
            let before = self.0[frame as usize].swap(thread as u32 + 1, Ordering::Relaxed);
            assert_eq!(before, 0, "frame {frame} is allocated to two");
        }
    }

    fn give_up(&self, held: Held) {
        for frame in held.frame.0..held.frame.0 + held.frames() {
            let before = self.0[frame as usize].swap(0, Ordering::Relaxed);
            assert_ne!(before, 0, "frame {frame} was allocated and was nobody's");
        }
    }

    fn allocated(&self) -> Vec<bool> {
        self.0.iter().map(|owner| owner.load(Ordering::Relaxed) != 0).collect()
    }
}

/// A thread of a round.
struct Member<'a> {
    zone: &'a dyn Lender,
    owners: &'a Owners,
    number: usize,
    held: Vec<Held>,
    /// The most frames it may hold, if it is certain to get those.
    quota: Option<u32>,
    rng: Rng,
}

impl Member<'_> {
    fn act(mut self) -> Vec<Held> {
        for _ in 0..STEPS {
            // CPUs are shared, and change.
            let cpu = Cpu(self.number as u32 / 2 + u32::from(self.rng.one_in(10)));
            let wants = match self.quota {
                Some(quota) => (self.held.len() as u32) < quota && self.rng.below(8) < 5,
                None => self.rng.below(16) < 9,
            };
            if wants {
                self.borrow(cpu);
            } else if !self.held.is_empty() {
                let index = self.rng.below(self.held.len() as u64) as usize;
                self.give_back(cpu, index);
            }
            match self.rng.below(400) {
                0 => self.zone.drain(),
                1 => _ = self.zone.stats(),
                2 => self.zone.free_blocks(&mut |_, _| ()),
                _ => {}
            }
        }
        // At the end it has all that it may: so the last frames are looked for by all at once.
        while self.quota.is_some_and(|quota| (self.held.len() as u32) < quota) {
            self.borrow(Cpu(self.number as u32));
        }
        self.held
    }

    fn borrow(&mut self, cpu: Cpu) {
        let wanted = match self.quota {
            None if self.rng.one_in(6) => (self.rng.below(10) as u8).min(self.zone.largest()),
            _ => 0,
        };
        match self.zone.lend(cpu, wanted) {
            Some(frame) => {
                self.owners.claim(frame, wanted, self.number);
                self.held.push(stamp(self.zone, frame, wanted, self.rng.next_u64()));
            }
            None => {
                let holds = self.held.len();
                let quota = self.quota;
                assert!(
                    quota.is_none(),
                    "None for a thread that holds {holds} frames and may have {quota:?}: the \
                     quotas of all are no more than there is"
                );
            }
        }
    }

    fn give_back(&mut self, cpu: Cpu, index: usize) {
        let held = self.held.swap_remove(index);
        check_stamp(self.zone, held);
        self.owners.give_up(held);
        self.zone.take_back(cpu, held.frame, held.order);
    }
}

/// Rounds of threads that take any blocks, and rounds of threads that take single frames, in which
/// each may have so many that together they are all there are: then `None` is never right, in
/// whatever CPU's cache the last frames lie. What a thread holds in the end another one gives back.
pub fn crowds(make: Make) {
    let mut rng = Rng::new(seed("crowds"));
    let provider = HeapProvider::default();
    let options = ZoneOptions { keep_free_blocks: 0, ..ZoneOptions::new(2, FRAMES) };
    let zone = make(&provider, options);
    let zone = &*zone;
    let owners = &Owners((0..FRAMES).map(|_| AtomicU32::new(0)).collect());
    let mut held: Vec<Vec<Held>> = vec![Vec::new(); THREADS];
    for round in 0..ROUNDS {
        held.rotate_left(1);
        let quotas = (round % 2 == 1).then(|| quotas(&mut held, owners, zone, round));
        let members = held.drain(..).enumerate().map(|(number, held)| {
            let quota = quotas.map(|quotas| quotas[number]);
            Member { zone, owners, number, held, quota, rng: rng.fork() }
        });
        let members: Vec<Member<'_>> = members.collect();
        held = std::thread::scope(|scope| {
            let threads: Vec<_> =
                members.into_iter().map(|member| scope.spawn(move || member.act())).collect();
            let ends: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            ends.into_iter().map(|end| end.unwrap_or_else(|why| resume_unwind(why))).collect()
        });
        zone.validate();
        Free::of(zone, &owners.allocated());
    }
    for block in held.into_iter().flatten() {
        check_stamp(zone, block);
        owners.give_up(block);
        zone.take_back(Cpu(0), block.frame, block.order);
    }
    zone.drain();
    zone.validate();
    Free::of(zone, &owners.allocated()).is_at_rest(&owners.allocated());
    let released = provider.record_of(zone.base()).log().released.len() as u64;
    assert_eq!(zone.stats().returned_blocks, released, "blocks returned");
}

/// So many frames for each thread that they are all there are, one thread having most of them.
/// Larger blocks are given back first.
fn quotas(
    held: &mut [Vec<Held>],
    owners: &Owners,
    zone: &dyn Lender,
    round: usize,
) -> [u32; THREADS] {
    for held in held.iter_mut() {
        held.retain(|block| {
            let single = block.order == 0;
            if !single {
                check_stamp(zone, *block);
                owners.give_up(*block);
                zone.take_back(Cpu(1), block.frame, block.order);
            }
            single
        });
    }
    let mut quotas: [u32; THREADS] = std::array::from_fn(|n| held[n].len() as u32);
    let left = FRAMES - quotas.iter().sum::<u32>();
    for (n, quota) in quotas.iter_mut().enumerate() {
        *quota += if n == round / 2 % THREADS { left - 3 * (left / 10) } else { left / 10 };
    }
    quotas
}
