//! Schemes with epochs that are broken, each in one way.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::sync::Mutex;

use designs::slots::Epoch;
use pagealloc::{MemoryProvider, NoMemory};
use sync::ReaderEpochs;
use units::Cpu;
use zram::Slot;
use zram::slots::{BitLock, SlotTable};

use crate::nearly;

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
