//! The probe at a zone's locks: a book for each CPU, written by its thread alone.

use std::sync::Arc;

use pagealloc::{LockClass, LockTrace};
use sync::atomic::{AtomicU64, Ordering};
use sync::{CachePadded, Mutex};
use units::Cpu;

use super::histogram::Histogram;
use super::ticks::{self, Clock};

/// The phase of a thread while it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The thread allocates.
    Alloc,
    /// The thread frees.
    Free,
}

const PHASES: usize = 2;
const GATES: usize = LockClass::ALL.len();
/// In place of a phase: calls are not recorded.
const DEAF: u64 = PHASES as u64;

/// A probe. Clones record to the same books.
#[derive(Clone)]
pub struct LockStat(Arc<[CachePadded<Book>]>);

/// The book of a CPU.
struct Book {
    phase: AtomicU64,
    entries: [[Entry; GATES]; PHASES],
}

/// The entry of a CPU, a phase and a lock class. Counters are relaxed, and written without an
/// atomic read-modify-write: one thread uses the CPU, and the counters are read after that thread's
/// end. So the lock of `holds` has no contention either.
struct Entry {
    taken: AtomicU64,
    shut: AtomicU64,
    waited: AtomicU64,
    held: AtomicU64,
    pages: AtomicU64,
    holds: Mutex<Histogram>,
}

impl Entry {
    fn new() -> Entry {
        let zero = || AtomicU64::new(0);
        let holds = Mutex::new(Histogram::default());
        Entry { taken: zero(), shut: zero(), waited: zero(), held: zero(), pages: zero(), holds }
    }
}

#[inline]
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl LockStat {
    /// A probe for this many CPUs. It counts nothing until [`LockStat::listen`] is called.
    pub fn new(cpus: usize) -> LockStat {
        let book = |_| {
            let entries = std::array::from_fn(|_| std::array::from_fn(|_| Entry::new()));
            CachePadded::new(Book { phase: AtomicU64::new(DEAF), entries })
        };
        LockStat((0..cpus.max(1)).map(book).collect())
    }

    /// Starts or stops the recording of a CPU. Called by the CPU's own thread.
    #[inline]
    pub fn listen(&self, cpu: Cpu, phase: Option<Phase>) {
        let phase = match phase {
            Some(Phase::Alloc) => 0,
            Some(Phase::Free) => 1,
            None => DEAF,
        };
        self.0[cpu.index(self.0.len())].phase.store(phase, Ordering::Relaxed);
    }

    #[inline]
    fn entry(&self, cpu: Cpu, class: LockClass) -> Option<&Entry> {
        let book = &self.0[cpu.index(self.0.len())];
        let phase = book.phase.load(Ordering::Relaxed);
        book.entries.get(phase as usize).map(|lock_classes| &lock_classes[class as usize])
    }

    /// The sums over all CPUs. Called when no thread works any more.
    pub fn locks(&self, clock: &Clock) -> LockTimes {
        let mut locks = LockTimes::default();
        for (phase, lock_classes) in locks.0.iter_mut().enumerate() {
            for (class, sum) in lock_classes.iter_mut().enumerate() {
                for book in &*self.0 {
                    sum.add(&book.entries[phase][class], clock);
                }
            }
        }
        locks
    }
}

impl LockTrace for LockStat {
    const WATCHES: bool = true;

    #[inline]
    fn now(&self) -> u64 {
        ticks::now()
    }

    #[inline]
    fn took(&self, cpu: Cpu, class: LockClass, waited: u64) {
        let Some(entry) = self.entry(cpu, class) else { return };
        add(&entry.taken, 1);
        if waited > 0 {
            add(&entry.shut, 1);
            add(&entry.waited, waited);
        }
    }

    #[inline]
    fn left(&self, cpu: Cpu, class: LockClass, held: u64, pages: u64) {
        let Some(entry) = self.entry(cpu, class) else { return };
        add(&entry.held, held);
        add(&entry.pages, pages);
        entry.holds.lock().add(held);
    }
}

/// The sums of a phase and a lock class.
#[derive(Default)]
pub struct Sum {
    /// Number of times the lock was taken.
    pub taken: f64,
    /// Number of times the lock was not free at the first try.
    pub shut: f64,
    /// Nanoseconds of waiting, without the clock's own time.
    pub waited_ns: f64,
    /// Nanoseconds of holding, without the clock's own time.
    pub held_ns: f64,
    /// Frames that moved under the lock.
    pub pages: f64,
    /// The time of each hold.
    pub holds: Histogram,
}

impl Sum {
    fn add(&mut self, entry: &Entry, clock: &Clock) {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed) as f64;
        let net = |ticks: f64, times: f64| clock.ns((ticks - times * clock.reading).max(0.0));
        let (taken, shut) = (get(&entry.taken), get(&entry.shut));
        self.taken += taken;
        self.shut += shut;
        self.waited_ns += net(get(&entry.waited), shut);
        self.held_ns += net(get(&entry.held), taken);
        self.pages += get(&entry.pages);
        self.holds.merge(&entry.holds.lock());
    }
}

/// All records.
#[derive(Default)]
pub struct LockTimes([[Sum; GATES]; PHASES]);

impl LockTimes {
    /// The sums of a phase and a lock class.
    pub fn of(&self, phase: Phase, class: LockClass) -> &Sum {
        &self.0[phase as usize][class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hears_by_cpu_phase_and_gate_and_only_when_it_listens() {
        let clock = Clock { ticks_per_ns: 2.0, reading: 4.0 };
        let lock_stat = LockStat::new(2);
        lock_stat.took(Cpu(0), LockClass::Write, 7);
        lock_stat.listen(Cpu(0), Some(Phase::Alloc));
        lock_stat.listen(Cpu(1), Some(Phase::Free));
        for cpu in [Cpu(0), Cpu(1)] {
            lock_stat.took(cpu, LockClass::Write, 24);
            lock_stat.left(cpu, LockClass::Write, 104, 16);
        }
        lock_stat.took(Cpu(1), LockClass::Head, 0);
        lock_stat.listen(Cpu(0), None);
        lock_stat.took(Cpu(0), LockClass::Write, 1000);
        let locks = lock_stat.clone().locks(&clock);
        let alloc = locks.of(Phase::Alloc, LockClass::Write);
        assert_eq!((alloc.taken, alloc.shut, alloc.pages), (1.0, 1.0, 16.0));
        assert_eq!((alloc.waited_ns, alloc.held_ns), (10.0, 50.0));
        let head = locks.of(Phase::Free, LockClass::Head);
        assert_eq!((head.taken, head.shut, head.waited_ns), (1.0, 0.0, 0.0));
        let free = locks.of(Phase::Free, LockClass::Write);
        assert_eq!((free.taken, free.held_ns, free.holds.count()), (1.0, 50.0, 1));
        assert_eq!(locks.of(Phase::Alloc, LockClass::Read).taken, 0.0);
    }
}
