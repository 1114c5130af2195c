//! The slot table that disks have, under loom: a slot, and the objects it names.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-zram --test loom_slots --release`, in a
//! target directory of its own. Without `--cfg loom` this file is empty. The table is the crate's
//! own, as it is shipped; only the memory below it is the model's (`pagealloc::LazyTable`).
//!
//! Beside it tables with one flaw at a time, which loom must refuse.
#![cfg(loom)]

#[path = "common/loom_memory.rs"]
mod provider;

use loom::model::Builder;
use pagealloc::{MemoryProvider, NoMemory};
use provider::Act::{Change, Claim, Discard, Load, Move, MoveOver, MoveTooSoon, Peek, Store};
use provider::{Act, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use units::Cpu;
use zram::Slot;
use zram::slots::{BitLock, Lines, SlotTable};

/// Every order of these acts, each a thread's, with at most `preemptions` switches away from a
/// thread that could go on.
fn bounded<T: SlotTable + 'static>(preemptions: usize, acts: &'static [Act]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || run::<T>(acts));
}

/// Every order.
fn every<T: SlotTable + 'static>(acts: &'static [Act]) {
    Builder::new().check(move || run::<T>(acts));
}

#[test]
fn what_a_slot_names_stays_while_it_is_read() {
    every::<BitLock>(&[Load, Store]);
    every::<BitLock>(&[Load, Discard]);
    bounded::<BitLock>(2, &[Load, Store, Store]);
    bounded::<BitLock>(2, &[Load, Load, Store]);
}

#[test]
fn what_is_displaced_is_freed_once() {
    every::<BitLock>(&[Store, Store]);
    every::<BitLock>(&[Store, Discard]);
    bounded::<BitLock>(2, &[Store, Store, Discard]);
}

#[test]
fn a_replacement_is_installed_only_if_nobody_stored_meanwhile() {
    bounded::<BitLock>(3, &[Change, Store]);
    bounded::<BitLock>(3, &[Change, Discard]);
    bounded::<BitLock>(2, &[Change, Change]);
}

#[test]
fn an_object_is_moved_only_if_the_slot_still_names_it() {
    bounded::<BitLock>(3, &[Move, Load]);
    bounded::<BitLock>(3, &[Move, Store]);
    bounded::<BitLock>(3, &[Move, Discard]);
    bounded::<BitLock>(2, &[Move, Change]);
    bounded::<BitLock>(2, &[Move, Store, Load]);
}

#[test]
fn a_glance_sees_a_slot_and_no_lock() {
    every::<BitLock>(&[Peek, Store]);
    every::<BitLock>(&[Peek, Claim]);
}

/// The table of clones: at first the slot is of a line that gets words of its own.
#[test]
fn lines_keep_what_their_slots_name() {
    every::<Lines>(&[Load, Store]);
    every::<Lines>(&[Store, Store]);
    bounded::<Lines>(3, &[Change, Store]);
    bounded::<Lines>(2, &[Load, Store, Discard]);
    bounded::<Lines>(3, &[Move, Store]);
    every::<Lines>(&[Peek, Claim]);
    Builder::new().check(provider::told::<Lines>);
}

/// A slot that nobody has written yet, in a part of the table that nobody has.
#[test]
fn the_first_store_is_seen_by_who_is_told_of_it() {
    Builder::new().check(provider::told::<BitLock>);
}

/// A table that is right but for what it does itself.
macro_rules! nearly {
    ($name:ident { $($methods:tt)* }) => {
        struct $name(BitLock);

        // SAFETY: none. Some are broken, which loom must find out.
        unsafe impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory> {
                Ok($name(BitLock::new(provider, slots, cpus)?))
            }
            fn count(&self) -> usize {
                self.0.count()
            }
            fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
                self.0.retire(cpu, displaced, free);
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

nearly!(HoldsNothing {
    fn load<R>(&self, _: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        read(self.0.peek(index))
    }
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot> {
        self.0.update(index, next)
    }
});

nearly!(ReadsAfterwards {
    fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        let slot = self.0.load(cpu, index, |slot| slot);
        read(slot)
    }
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot> {
        self.0.update(index, next)
    }
});

nearly!(DecidesBefore {
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        let old = self.0.peek(index);
        let new = next(old).ok_or(old)?;
        self.0.update(index, |_| Some(new)).map(|_| old)
    }
});

nearly!(DecidesAndReturnsAnother {
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        let seen = self.0.peek(index);
        let new = next(seen).ok_or(seen)?;
        self.0.update(index, |_| Some(new))
    }
});

/// Loom must find fault with the table; what it says must contain one of `complaints`.
fn refused<T: SlotTable + 'static>(complaints: &[&str], acts: &'static [Act]) {
    let checked = catch_unwind(AssertUnwindSafe(|| bounded::<T>(3, acts)));
    let payload = checked.expect_err("loom passed a table that is broken on purpose");
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(
        complaints.iter().any(|complaint| said.contains(complaint)),
        "loom refused the table, but for another reason: {said}"
    );
}

/// What is read was freed, or is being freed.
const FREED_UNDER_A_READER: &[&str] = &["Causality violation", "a freed object was read"];

#[test]
fn holding_nothing_is_found() {
    refused::<HoldsNothing>(FREED_UNDER_A_READER, &[Load, Store]);
}

#[test]
fn giving_back_a_place_before_it_is_left_is_found() {
    refused::<BitLock>(FREED_UNDER_A_READER, &[MoveTooSoon, Load]);
    let reasons = ["freed twice", FREED_UNDER_A_READER[0], FREED_UNDER_A_READER[1]];
    refused::<BitLock>(&reasons, &[MoveTooSoon, Store]);
}

#[test]
fn moving_an_object_over_a_newer_one_is_found() {
    let reasons = ["a store was replaced by an older page", "was lost"];
    refused::<BitLock>(&reasons, &[MoveOver, Store]);
}

#[test]
fn reading_what_the_lock_no_longer_keeps_is_found() {
    refused::<ReadsAfterwards>(FREED_UNDER_A_READER, &[Load, Store]);
}

#[test]
fn losing_what_somebody_stored_is_found() {
    refused::<DecidesBefore>(&["freed twice", "Causality violation"], &[Store, Store]);
}

#[test]
fn installing_what_was_made_of_old_contents_is_found() {
    let reasons = ["made of contents that were gone", FREED_UNDER_A_READER[0], "freed twice"];
    refused::<DecidesAndReturnsAnother>(&reasons, &[Change, Store]);
}
