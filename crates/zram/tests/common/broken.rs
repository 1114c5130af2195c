//! Slot schemes that are broken, each in one way. Tests of this crate and of `sim` must reject them.
// Each test binary uses a part of it.
#![allow(dead_code)]

use pagealloc::{MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering::SeqCst};
use units::Cpu;
use zram::Slot;
use zram::slots::{BitLock, SlotTable};

/// `cas` as publication: swaps without a lock and frees at once, so readers lose what they read.
pub struct FreesAtOnce(Box<[AtomicU64]>);

/// Reads the word and writes it back as two steps: displaced objects are lost or freed twice.
pub struct LosesUpdates(Box<[AtomicU64]>);

macro_rules! words {
    ($name:ident, $swap:expr) => {
        // SAFETY: none. It is broken, which tests must find out.
        unsafe impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(_: &dyn MemoryProvider, slots: usize, _: usize) -> Result<Self, NoMemory> {
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
#[macro_export]
macro_rules! nearly {
    ($name:ident: $base:ty, $state:ty { $($methods:tt)* }) => {
        // SAFETY: none. It is broken, which tests must find out.
        unsafe impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory> {
                Ok(Self(<$base>::new(provider, slots, cpus)?, <$state>::default()))
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
