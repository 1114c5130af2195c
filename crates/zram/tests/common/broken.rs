//! Slot schemes that are broken, each in one way. Tests of this crate and of `sim` must reject them.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::sync::Mutex;

use pagealloc::{NoMemory, World};
use sync::ReaderEpochs;
use sync::atomic::{AtomicU64, Ordering::SeqCst};
use units::Cpu;
use zram::Slot;
use zram::slots::{BitLock, Epoch, SlotTable};

/// `cas` as publication: swaps without a lock and frees at once, so readers lose what they read.
pub struct FreesAtOnce(Box<[AtomicU64]>);

/// Reads the word and writes it back as two steps: displaced objects are lost or freed twice.
pub struct LosesUpdates(Box<[AtomicU64]>);

macro_rules! words {
    ($name:ident, $swap:expr) => {
        impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(_: &dyn World, slots: usize, _: usize) -> Result<Self, NoMemory> {
                // A disk asks for room to grow, which none of these tests uses.
                let slots = slots.min(1 << 13);
                Ok(Self((0..slots).map(|_| AtomicU64::new(0)).collect()))
            }
            fn count(&self) -> usize {
                self.0.len()
            }
            fn load<R>(&self, _: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
                read(self.peek(index))
            }
            fn update(
                &self,
                index: usize,
                mut next: impl FnMut(Slot) -> Option<Slot>,
            ) -> Result<Slot, Slot> {
                let old = self.peek(index);
                match next(old) {
                    Some(new) => $swap(&self.0[index], old, new),
                    None => Err(old),
                }
            }
            fn retire(&self, _: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
                free(displaced);
            }
            fn peek(&self, index: usize) -> Slot {
                Slot::from_word(self.0[index].load(SeqCst))
            }
            fn next_touched(&self, from: usize, end: usize) -> usize {
                from.min(end)
            }
            fn touched(&self, _: usize) -> u64 {
                0
            }
            fn prefetch(&self, _: usize) {}
        }
    };
}

words!(FreesAtOnce, |word: &AtomicU64, _, new: Slot| {
    Ok::<Slot, Slot>(Slot::from_word(word.swap(new.word(), SeqCst)))
});
words!(LosesUpdates, |word: &AtomicU64, old, new: Slot| {
    std::thread::yield_now();
    word.store(new.word(), SeqCst);
    Ok::<Slot, Slot>(old)
});

/// A scheme that is right but for `load`, `retire` or `quiesce`.
macro_rules! nearly {
    ($name:ident: $base:ty, $state:ty { $($methods:tt)* }) => {
        impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(world: &dyn World, slots: usize, cpus: usize) -> Result<Self, NoMemory> {
                Ok(Self(<$base>::new(world, slots, cpus)?, <$state>::default()))
            }
            fn count(&self) -> usize {
                self.0.count()
            }
            fn update(
                &self,
                index: usize,
                next: impl FnMut(Slot) -> Option<Slot>,
            ) -> Result<Slot, Slot> {
                self.0.update(index, next)
            }
            fn peek(&self, index: usize) -> Slot {
                self.0.peek(index)
            }
            fn next_touched(&self, from: usize, end: usize) -> usize {
                self.0.next_touched(from, end)
            }
            fn touched(&self, end: usize) -> u64 {
                self.0.touched(end)
            }
            fn prefetch(&self, index: usize) {
                self.0.prefetch(index);
            }
            $($methods)*
        }
    };
}

/// The bit lock, but that readers look at the word without locking it.
pub struct HoldsNothing(BitLock, ());

nearly!(HoldsNothing: BitLock, () {
    fn load<R>(&self, _: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        read(self.0.peek(index))
    }
    fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        self.0.retire(cpu, displaced, free);
    }
});

/// Epochs: readers enter, and nobody cares.
pub struct EpochOfNone(Epoch, ());

nearly!(EpochOfNone: Epoch, () {
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn retire(&self, _: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        free(displaced);
    }
});

/// Epochs: frees what was displaced two displacements ago, whoever still reads it.
pub struct EpochTooShort(Epoch, Mutex<VecDeque<Slot>>);

nearly!(EpochTooShort: Epoch, Mutex<VecDeque<Slot>> {
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn retire(&self, _: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        let mut waiting = self.1.lock().unwrap();
        waiting.push_back(displaced);
        let ripe = if waiting.len() > 2 { waiting.pop_front() } else { None };
        drop(waiting);
        ripe.into_iter().for_each(free);
    }
    fn quiesce(&self, free: impl FnMut(Slot)) -> bool {
        // All that is left.
        let waiting = std::mem::take(&mut *self.1.lock().unwrap());
        let any = !waiting.is_empty();
        waiting.into_iter().for_each(free);
        any
    }
});

/// Epochs by hand: a displaced word is freed `RIPE` epochs after the one it was displaced in.
pub struct ByHand<const RIPE: u32> {
    readers: ReaderEpochs,
    waiting: Mutex<VecDeque<(Slot, u32)>>,
}

impl<const RIPE: u32> Default for ByHand<RIPE> {
    fn default() -> ByHand<RIPE> {
        ByHand { readers: ReaderEpochs::new(2), waiting: Mutex::default() }
    }
}

impl<const RIPE: u32> ByHand<RIPE> {
    fn ripe(&self) -> Option<Slot> {
        let epoch = self.readers.epoch();
        let mut waiting = self.waiting.lock().unwrap();
        let (slot, then) = *waiting.front()?;
        (epoch.wrapping_sub(then) >= RIPE).then(|| {
            waiting.pop_front();
            slot
        })
    }
}

macro_rules! epoch_by_hand {
    ($name:ident, $ripe:literal) => {
        nearly!($name: BitLock, ByHand<$ripe> {
            fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
                let _reading = self.1.readers.enter(cpu);
                read(self.0.peek(index))
            }
            fn retire(&self, _: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
                let epoch = self.1.readers.epoch();
                self.1.waiting.lock().unwrap().push_back((displaced, epoch));
                self.1.readers.try_flip();
                while let Some(slot) = self.1.ripe() {
                    free(slot);
                }
            }
            fn quiesce(&self, mut free: impl FnMut(Slot)) -> bool {
                let waiting = std::mem::take(&mut *self.1.waiting.lock().unwrap());
                let any = !waiting.is_empty();
                self.1.readers.wait_for_readers();
                waiting.into_iter().for_each(|(slot, _)| free(slot));
                any
            }
        });
    };
}

/// Frees one epoch too early, forgetting that the number it dates a word by may be out of date:
/// that somebody has looked for readers already, and has yet to say that they left.
pub struct EpochTooEarly(BitLock, ByHand<2>);
/// The same, in time: the flaw is what is rejected.
pub struct EpochInTime(BitLock, ByHand<3>);

epoch_by_hand!(EpochTooEarly, 2);
epoch_by_hand!(EpochInTime, 3);
