//! Retired words: the `epoch` scheme of slots. Readers enter and look once; writers publish by one
//! compare-and-swap, and what was displaced is freed when nobody can hold it.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use loom::thread;
use sync::Retired;
use units::Cpu;

use crate::{RACE, bounded, every, refused};

/// A manner of retiring: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    fn read<R>(&self, cpu: usize, read: impl FnOnce() -> R) -> R;
    fn retire(&self, cpu: usize, word: u64, free: impl FnMut(u64));
    fn quiesce(&self, free: impl FnMut(u64));
}

impl Manner for Retired {
    fn read<R>(&self, cpu: usize, read: impl FnOnce() -> R) -> R {
        let reader = Retired::read(self, Cpu(cpu as u32));
        let result = read();
        drop(reader);
        result
    }
    fn retire(&self, cpu: usize, word: u64, free: impl FnMut(u64)) {
        Retired::retire(self, Cpu(cpu as u32), word, free);
    }
    fn quiesce(&self, free: impl FnMut(u64)) {
        Retired::quiesce(self, free);
    }
}

const LIVE: u64 = 7;
const FREED: u64 = u64::MAX;

/// A slot, and the objects it may name. A new one is never one that was used before.
struct World<M> {
    manner: M,
    slot: AtomicU64,
    next: AtomicUsize,
    objects: [UnsafeCell<u64>; 6],
    freed: AtomicUsize,
}

// SAFETY: the epochs keep readers and those who free apart; loom checks that they do.
unsafe impl<M: Sync> Sync for World<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for World<M> {}

impl<M: Manner> World<M> {
    fn new(manner: M) -> Arc<World<M>> {
        let objects = std::array::from_fn(|n| UnsafeCell::new(if n == 0 { LIVE } else { 0 }));
        let (slot, next, freed) = (AtomicU64::new(0), AtomicUsize::new(1), AtomicUsize::new(0));
        Arc::new(World { manner, slot, next, objects, freed })
    }

    fn load(&self, cpu: usize) {
        self.manner.read(cpu, || {
            let index = self.slot.load(Ordering::Acquire);
            // SAFETY: loom checks that nobody changes it meanwhile.
            let object = self.objects[index as usize].with(|object| unsafe { *object });
            assert_eq!(object, LIVE, "a freed object was read");
        });
    }

    fn store(&self, cpu: usize) {
        let new = self.next.fetch_add(1, Ordering::Relaxed);
        // SAFETY: nobody knows it yet; loom checks.
        self.objects[new].with_mut(|object| unsafe { *object = LIVE });
        let mut old = self.slot.load(Ordering::Relaxed);
        while let Err(now) =
            self.slot.compare_exchange(old, new as u64, Ordering::AcqRel, Ordering::Relaxed)
        {
            old = now;
        }
        self.manner.retire(cpu, old, |word| self.free(word));
    }

    fn free(&self, word: u64) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        // SAFETY: loom checks that nobody reads it any more.
        self.objects[word as usize].with_mut(|object| unsafe {
            assert_eq!(*object, LIVE, "freed twice");
            *object = FREED;
        });
    }
}

/// Readers on CPUs, each reading once, beside threads that store a number of times on a CPU.
/// In the end all that was displaced has been freed.
fn run<M: Manner>(manner: M, readers: &[usize], writers: &[(usize, usize)]) {
    let world = World::new(manner);
    let mut others = Vec::new();
    for cpu in readers.iter().copied() {
        let world = world.clone();
        others.push(thread::spawn(move || world.load(cpu)));
    }
    for (cpu, stores) in writers[1..].iter().copied() {
        let world = world.clone();
        others.push(thread::spawn(move || (0..stores).for_each(|_| world.store(cpu))));
    }
    let (cpu, stores) = writers[0];
    (0..stores).for_each(|_| world.store(cpu));
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    world.load(0);
    world.manner.quiesce(|word| world.free(word));
    let stored: usize = writers.iter().map(|(_, stores)| stores).sum();
    assert_eq!(world.freed.load(Ordering::Relaxed), stored, "objects were lost");
}

/// A queue of one word is full at once: each displaced word waits for readers.
#[test]
fn a_full_queue_waits_for_readers() {
    bounded(3, || run(Retired::new(2, 1), &[1], &[(0, 1)]));
}

#[test]
fn readers_may_share_the_cpu_of_a_writer() {
    bounded(3, || run(Retired::new(1, 1), &[0], &[(0, 1)]));
}

/// With room for four a step is tried at each displaced word, and the first is freed without
/// waiting.
#[test]
fn nothing_is_held_after_its_grace_period() {
    bounded(3, || run(Retired::new(1, 4), &[0], &[(0, 3)]));
}

#[test]
fn two_readers_beside_a_writer() {
    bounded(2, || run(Retired::new(2, 4), &[0, 1], &[(0, 3)]));
}

#[test]
fn two_writers_beside_a_reader() {
    bounded(2, || run(Retired::new(2, 4), &[0], &[(0, 2), (1, 1)]));
    bounded(2, || run(Retired::new(1, 2), &[0], &[(0, 1), (0, 1)]));
}

/// Somebody asks for all memory while others use the slot.
#[test]
fn quiescing_beside_a_reader_and_a_writer() {
    bounded(2, || {
        let world = World::new(Retired::new(2, 4));
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.load(0))
        };
        let writer = {
            let world = world.clone();
            thread::spawn(move || world.store(1))
        };
        world.manner.quiesce(|word| world.free(word));
        reader.join().expect("no thread of the model panics");
        writer.join().expect("no thread of the model panics");
        world.manner.quiesce(|word| world.free(word));
        assert_eq!(world.freed.load(Ordering::Relaxed), 1);
    });
}

/// One wait serves the words that were there before it, and no others.
#[test]
fn two_that_quiesce_beside_a_reader() {
    bounded(2, || {
        let world = World::new(Retired::new(1, 4));
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.load(0))
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                world.store(0);
                world.manner.quiesce(|word| world.free(word));
            })
        };
        world.manner.quiesce(|word| world.free(word));
        reader.join().expect("no thread of the model panics");
        other.join().expect("no thread of the model panics");
        assert_eq!(world.freed.load(Ordering::Relaxed), 1);
    });
}

/// What is wrong with the copy, whose queue holds what its one writer displaced.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    None,
    /// Frees at once.
    AtOnce,
    /// Frees one epoch too early.
    Early,
    /// A reader counts itself and looks at the slot with nothing between.
    ReaderFence,
    /// The writer looks for readers with nothing after the displacement.
    WriterFence,
    /// Readers who leave release nothing.
    NoRelease,
    /// Who looks for readers does not acquire what they did.
    NoAcquire,
}

/// One CPU, one writer, and no lock: the writer alone turns.
struct Copy {
    flaw: Flaw,
    epoch: AtomicU32,
    readers: [AtomicU32; 2],
    queue: std::sync::Mutex<Vec<(u64, u32)>>,
}

impl Copy {
    fn new(flaw: Flaw) -> Copy {
        let readers = std::array::from_fn(|_| AtomicU32::new(0));
        Copy { flaw, epoch: AtomicU32::new(0), readers, queue: Default::default() }
    }

    /// Turns, if the readers of the phase before have left.
    fn try_flip(&self) {
        if self.flaw != Flaw::WriterFence {
            fence(Ordering::SeqCst);
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        let before = (epoch + 1) % 2;
        let order =
            if self.flaw == Flaw::NoAcquire { Ordering::Relaxed } else { Ordering::Acquire };
        if self.readers[before as usize].load(order) == 0 {
            self.epoch.store(epoch + 1, Ordering::Release);
        }
    }

    fn free_old(&self, mut free: impl FnMut(u64)) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let grace = match self.flaw {
            Flaw::AtOnce => 0,
            Flaw::Early => 1,
            _ => 2,
        };
        let all = std::mem::take(&mut *self.queue.lock().expect("it is never held for long"));
        for (word, then) in all {
            if epoch - then >= grace {
                free(word);
            } else {
                self.queue.lock().expect("as above").push((word, then));
            }
        }
    }
}

impl Manner for Copy {
    fn read<R>(&self, _: usize, read: impl FnOnce() -> R) -> R {
        let phase = self.epoch.load(Ordering::Relaxed) % 2;
        let counter = &self.readers[phase as usize];
        counter.fetch_add(1, Ordering::Relaxed);
        if self.flaw != Flaw::ReaderFence {
            fence(Ordering::SeqCst);
        }
        let result = read();
        let order =
            if self.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
        counter.fetch_sub(1, order);
        result
    }
    fn retire(&self, _: usize, word: u64, free: impl FnMut(u64)) {
        if self.flaw != Flaw::WriterFence {
            fence(Ordering::SeqCst);
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.queue.lock().expect("as above").push((word, epoch));
        self.try_flip();
        self.try_flip();
        self.free_old(free);
    }
    fn quiesce(&self, mut free: impl FnMut(u64)) {
        for _ in 0..3 {
            self.try_flip();
        }
        self.free_old(&mut free);
    }
}

fn copies(flaw: Flaw) {
    run(Copy::new(flaw), &[0], &[(0, 2)]);
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies(Flaw::None));
}

const FREED_UNDER_A_READER: &[&str] = &[RACE[0], "a freed object was read"];

#[test]
fn freeing_at_once_is_found() {
    refused(FREED_UNDER_A_READER, || copies(Flaw::AtOnce));
}

#[test]
fn freeing_too_early_is_found() {
    refused(FREED_UNDER_A_READER, || copies(Flaw::Early));
}

#[test]
fn reading_without_a_fence_is_found() {
    refused(FREED_UNDER_A_READER, || copies(Flaw::ReaderFence));
}

#[test]
fn looking_for_readers_without_a_fence_is_found() {
    refused(FREED_UNDER_A_READER, || copies(Flaw::WriterFence));
}

#[test]
fn leaving_without_release_is_found() {
    refused(RACE, || copies(Flaw::NoRelease));
}

#[test]
fn looking_for_readers_without_acquire_is_found() {
    refused(RACE, || copies(Flaw::NoAcquire));
}

/// The word of a slot, published and looked at with these orderings; nobody frees anything.
fn published(publish: Ordering, look: Ordering) {
    struct Shared(AtomicU64, [UnsafeCell<u64>; 2]);
    // SAFETY: the word orders the object before its readers; loom checks that it does.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    let shared = Arc::new(Shared(AtomicU64::new(0), Default::default()));
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || {
            let index = shared.0.load(look);
            // SAFETY: loom checks that nobody changes it meanwhile.
            let object = shared.1[index as usize].with(|object| unsafe { *object });
            assert_eq!(object, index, "an object was read before it was there");
        })
    };
    // SAFETY: nobody knows it yet; loom checks.
    shared.1[1].with_mut(|object| unsafe { *object = 1 });
    let swapped = shared.0.compare_exchange(0, 1, publish, Ordering::Relaxed);
    assert_eq!(swapped, Ok(0));
    reader.join().expect("no thread of the model panics");
}

#[test]
fn a_slot_is_published_with_its_object() {
    every(|| published(Ordering::AcqRel, Ordering::Acquire));
}

#[test]
fn publishing_without_release_is_found() {
    refused(RACE, || published(Ordering::Acquire, Ordering::Acquire));
}

#[test]
fn looking_without_acquire_is_found() {
    refused(RACE, || published(Ordering::AcqRel, Ordering::Relaxed));
}
