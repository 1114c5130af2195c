//! What a reader found stays until it lets go.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sync::ReaderEpochs;
use units::Cpu;

use crate::{RACE, bounded, every, refused};

/// A manner of pinning: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    fn new() -> Self;
    fn read<R>(&self, cpu: usize, read: impl FnOnce() -> R) -> R;
    fn wait_for_readers(&self);
}

impl Manner for ReaderEpochs {
    fn new() -> ReaderEpochs {
        ReaderEpochs::new(2)
    }
    fn read<R>(&self, cpu: usize, read: impl FnOnce() -> R) -> R {
        let reader = self.enter(Cpu(cpu as u32));
        let result = read();
        drop(reader);
        result
    }
    fn wait_for_readers(&self) {
        ReaderEpochs::wait_for_readers(self);
    }
}

/// Values, of which one is published. One that was freed is never published again.
struct World<M> {
    readers: M,
    published: AtomicUsize,
    values: [UnsafeCell<usize>; 3],
}

// SAFETY: the reader epochs keep readers and the changer apart; loom checks that they do.
unsafe impl<M: Sync> Sync for World<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for World<M> {}

const FREED: usize = usize::MAX;

impl<M: Manner> World<M> {
    fn new() -> Arc<World<M>> {
        let values = std::array::from_fn(UnsafeCell::new);
        Arc::new(World { readers: M::new(), published: AtomicUsize::new(0), values })
    }

    /// Reads what is published, as a reader of a slot table would.
    fn read(&self, cpu: usize) -> usize {
        self.readers.read(cpu, || self.look())
    }

    fn look(&self) -> usize {
        // Acquire for the value itself; that it is still there is the readers' affair.
        let index = self.published.load(Ordering::Acquire);
        // SAFETY: loom checks that nobody changes it meanwhile.
        let value = self.values[index].with(|value| unsafe { *value });
        assert_ne!(value, FREED, "a freed value was read");
        value
    }

    /// Publishes the next value, waits until nobody reads the last one, and frees it.
    fn change(&self) {
        let last = self.published.load(Ordering::Relaxed);
        self.published.store(last + 1, Ordering::Release);
        self.readers.wait_for_readers();
        // SAFETY: loom checks that nobody reads it any more.
        self.values[last].with_mut(|value| unsafe { *value = FREED });
    }
}

/// A thread on each of `cpus` reads `reads` times while this one changes `changes` times.
fn run<M: Manner>(cpus: &[usize], reads: usize, changes: usize) {
    let world = World::<M>::new();
    let readers: Vec<_> = cpus
        .iter()
        .map(|cpu| {
            let (world, cpu) = (world.clone(), *cpu);
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..reads {
                    let value = world.read(cpu);
                    assert!(value >= last, "time went backwards");
                    last = value;
                }
            })
        })
        .collect();
    for _ in 0..changes {
        world.change();
    }
    assert_eq!(world.read(0), changes, "a reader after the change sees it");
    for reader in readers {
        reader.join().expect("no thread of the model panics");
    }
}

#[test]
fn nothing_is_freed_under_a_reader() {
    every(|| run::<ReaderEpochs>(&[1], 1, 1));
}

#[test]
fn nothing_is_freed_under_a_reader_who_reads_again() {
    every(|| run::<ReaderEpochs>(&[0], 2, 1));
}

/// A reader that saw the old phase may count itself only after the changer has looked there; that
/// it is still waited for in the next period is why the phase is turned twice.
#[test]
fn a_reader_may_sleep_through_two_grace_periods() {
    every(|| run::<ReaderEpochs>(&[1], 1, 2));
}

#[test]
fn readers_on_two_cpus_are_waited_for() {
    bounded(3, || run::<ReaderEpochs>(&[0, 1], 1, 1));
}

#[test]
fn readers_may_share_a_cpu() {
    bounded(3, || run::<ReaderEpochs>(&[1, 1], 1, 1));
}

#[test]
fn two_changers_take_turns() {
    bounded(2, || {
        let world = World::<ReaderEpochs>::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.read(1))
        };
        let changer = {
            let world = world.clone();
            // Its own grace period runs into the other's; nothing is changed.
            thread::spawn(move || world.readers.wait_for_readers())
        };
        world.change();
        reader.join().expect("no thread of the model panics");
        changer.join().expect("no thread of the model panics");
    });
}

#[test]
fn readers_nest() {
    every(|| {
        let world = World::<ReaderEpochs>::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let outer = world.readers.enter(Cpu(1));
                let first = world.look();
                drop(world.readers.enter(Cpu(1)));
                assert!(world.look() >= first);
                drop(outer);
            })
        };
        world.change();
        reader.join().expect("no thread of the model panics");
    });
}

/// What a reader did has happened for the changer, too, once the reader has left.
#[test]
fn readers_writes_are_seen_after_waiting() {
    every(|| {
        let (readers, open) = (ReaderEpochs::new(2), AtomicUsize::new(1));
        let shared = Arc::new((readers, open, AtomicUsize::new(0)));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (readers, open, written) = &*shared;
                let _reader = readers.enter(Cpu(1));
                let was_open = open.load(Ordering::Relaxed) == 1;
                if was_open {
                    written.fetch_add(1, Ordering::Relaxed);
                }
                was_open
            })
        };
        let (readers, open, written) = &*shared;
        open.store(0, Ordering::Relaxed);
        readers.wait_for_readers();
        let seen = written.load(Ordering::Relaxed);
        let was_open = reader.join().expect("no thread of the model panics");
        assert_eq!(seen, usize::from(was_open), "a write came after the gate was shut");
    });
}

/// A copy of the reader epochs, for one changer, with room for flaws.
struct Copy<F> {
    phase: AtomicUsize,
    readers: [[AtomicUsize; 2]; 2],
    flaw: std::marker::PhantomData<F>,
}

/// What is wrong with a copy.
trait Flaw: Send + Sync + 'static {
    const TURNS: usize = 2;
    const BARRIER: bool = true;
    const FENCES: bool = true;
    const RELEASE: Ordering = Ordering::Release;
    const CPUS: usize = 2;
}

impl<F: Flaw> Manner for Copy<F> {
    fn new() -> Copy<F> {
        let counter = || AtomicUsize::new(0);
        let readers = [[counter(), counter()], [counter(), counter()]];
        Copy { phase: counter(), readers, flaw: std::marker::PhantomData }
    }

    fn read<R>(&self, cpu: usize, read: impl FnOnce() -> R) -> R {
        let counter = &self.readers[cpu][self.phase.load(Ordering::Relaxed) & 1];
        counter.fetch_add(1, Ordering::Relaxed);
        if F::BARRIER {
            sync::atomic::barrier_after_rmw();
        }
        let result = read();
        counter.fetch_sub(1, F::RELEASE);
        result
    }

    fn wait_for_readers(&self) {
        for _ in 0..F::TURNS {
            if F::FENCES {
                sync::atomic::fence(Ordering::SeqCst);
            }
            let left_behind = self.phase.fetch_add(1, Ordering::Relaxed) & 1;
            if F::FENCES {
                sync::atomic::fence(Ordering::SeqCst);
            }
            for cpu in &self.readers[..F::CPUS] {
                while cpu[left_behind].load(Ordering::Acquire) != 0 {
                    thread::yield_now();
                }
            }
        }
        if F::FENCES {
            sync::atomic::fence(Ordering::SeqCst);
        }
    }
}

#[test]
fn a_faithful_copy_passes() {
    struct Faithful;
    impl Flaw for Faithful {}
    bounded(3, || run::<Copy<Faithful>>(&[1], 1, 2));
}

#[test]
fn turning_once_is_found() {
    struct OneTurn;
    impl Flaw for OneTurn {
        const TURNS: usize = 1;
    }
    // It takes two changes: the reader sees the phase before the first and counts itself after.
    refused(RACE, || run::<Copy<OneTurn>>(&[1], 1, 2));
}

#[test]
fn entering_without_a_barrier_is_found() {
    struct NoBarrier;
    impl Flaw for NoBarrier {
        const BARRIER: bool = false;
    }
    refused(RACE, || run::<Copy<NoBarrier>>(&[1], 1, 1));
}

#[test]
fn waiting_without_fences_is_found() {
    struct NoFences;
    impl Flaw for NoFences {
        const FENCES: bool = false;
    }
    refused(RACE, || run::<Copy<NoFences>>(&[1], 1, 1));
}

#[test]
fn leaving_without_release_is_found() {
    struct NoRelease;
    impl Flaw for NoRelease {
        const RELEASE: Ordering = Ordering::Relaxed;
    }
    refused(RACE, || run::<Copy<NoRelease>>(&[1], 1, 1));
}

#[test]
fn passing_a_cpu_by_is_found() {
    struct OneCpu;
    impl Flaw for OneCpu {
        const CPUS: usize = 1;
    }
    refused(RACE, || run::<Copy<OneCpu>>(&[1], 1, 1));
}
