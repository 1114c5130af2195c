//! Slot tables alone: a few slots, threads that store and read, and objects that notice being read
//! or freed after they were freed. With few steps in between, rare races happen more often.

use std::sync::Arc;
use std::sync::Mutex;

use shuttle::rand::RngCore;
use shuttle::thread;
use sync::atomic::{AtomicU64, Ordering};
use testkit::Rng;
use units::Cpu;
use zram::slots::SlotTable;
use zram::{Kind, Object, Slot};
use zsmalloc::Handle;

use crate::bench::CPUS;

const SLOTS: usize = 2;
/// The first of the threads reads, the others store.
const THREADS: u32 = 4;
const READS: usize = 8;
const STORES: usize = 5;
/// The length of a read, in which other threads may store several times.
const MOMENTS: usize = 16;

/// The objects and their state.
#[derive(Default)]
struct Objects {
    live: Mutex<Vec<bool>>,
    /// Accessed during a read of an object, so that other threads may run.
    moment: AtomicU64,
}

impl Objects {
    fn make(&self) -> Slot {
        let mut live = self.live.lock().unwrap();
        live.push(true);
        Slot::stored(Object::Compressed {
            handle: Handle::from_raw(live.len() as u32),
            length: 100,
            codec: 0,
        })
    }

    fn number(slot: Slot) -> Option<usize> {
        match slot.kind() {
            Kind::Stored(object) => Some(object.handle().get() as usize - 1),
            _ => None,
        }
    }

    fn read(&self, slot: Slot) {
        let Some(number) = Objects::number(slot) else { return };
        for _ in 0..MOMENTS {
            assert!(self.live.lock().unwrap()[number], "object {number} was read after its end");
            self.moment.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn free(&self, slot: Slot) {
        let Some(number) = Objects::number(slot) else { return };
        let was_live = std::mem::replace(&mut self.live.lock().unwrap()[number], false);
        assert!(was_live, "object {number} was freed twice");
    }
}

struct Run<T> {
    table: T,
    objects: Objects,
}

impl<T: SlotTable> Run<T> {
    /// Runs thread `n`.
    fn act(&self, n: u32, rng: &mut Rng) {
        let cpu = Cpu(n);
        for _ in 0..if n == 0 { READS } else { STORES } {
            let index = if rng.one_in(4) { 1 } else { 0 };
            if n == 0 {
                self.table.load(cpu, index, |slot| self.objects.read(slot));
            } else if rng.one_in(8) {
                self.swap(cpu, index, Slot::EMPTY);
            } else {
                self.swap(cpu, index, self.objects.make());
            }
        }
    }

    fn swap(&self, cpu: Cpu, index: usize, new: Slot) {
        let old = self.table.update(index, |_| Some(new)).expect("nobody declines");
        self.table.retire(cpu, old, |slot| self.objects.free(slot));
    }
}

/// Plays a schedule with a table of this scheme.
pub fn play<T: SlotTable + 'static>() {
    let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
    let table = T::new(&host::Mmap, SLOTS, CPUS).expect("there are addresses");
    let run = Arc::new(Run { table, objects: Objects::default() });
    (0..SLOTS).for_each(|index| run.swap(Cpu(0), index, run.objects.make()));
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (run, mut rng) = (run.clone(), rng.fork());
            thread::spawn(move || run.act(n, &mut rng))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("shuttle ends with a panic"));
    (0..SLOTS).for_each(|index| run.swap(Cpu(0), index, Slot::EMPTY));
    run.table.quiesce(|slot| run.objects.free(slot));
    let lost = run.objects.live.lock().unwrap().iter().filter(|live| **live).count();
    assert_eq!(lost, 0, "objects were lost");
}
