//! Values that are not read are compressed once more, by a codec that makes them smaller.
//!
//! A pass goes over all values with heads of their own, and over all groups. It sets the idle bit
//! of each word; a read takes the bit away. So the next pass, at least [`Cold::after`] seconds
//! later, finds what was not read. As with all changes, the new objects are there before the word
//! (of a group: its word in the table) is swapped for theirs, if it is the same still. The thread
//! is a reader from its look at the word to the swap: what it read is not freed, so no other value
//! can have the same word meanwhile.

use alloc::vec::Vec;

use sync::Reader;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Room};

use super::{LARGE, Values};
use crate::head::{Form, HEAD_BYTES, Head};
use crate::index::END;
use crate::scratch::GROUP;
use crate::state::ColdPass;
use crate::word::{Left, Place, Word};
use crate::{At, MAX_KEY};

/// A value takes as long as a look at so many buckets, for each of its units.
const LOOKS_FOR_ONE: u64 = 64;

/// A head that takes the place of another one.
#[derive(Clone, Copy, Debug)]
struct Swap {
    new: Handle,
    /// What nothing names then: the old head with all that it names, or without.
    left: Left,
    saved: u64,
}

/// What became of a value or a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    /// It was read, or is another one by now.
    Stays,
    /// There was no room for it twice.
    NoRoom,
}

impl Values {
    /// Goes on with the pass, or begins one if it is time. It takes as long as a look at `budget`
    /// buckets. Returns whether there is more to do.
    pub(super) fn recompress(&self, at: At, budget: usize) -> bool {
        let Some(cold) = &self.cold else { return false };
        let Some(mut pass) = cold.pass.try_lock() else { return false };
        let pass = &mut *pass;
        if pass.place >= END && pass.group >= self.groups.end() {
            let is_time = pass.began.is_none_or(|began| at.now >= began.saturating_add(cold.after));
            if !is_time {
                return false;
            }
            (pass.store, pass.place, pass.group, pass.began) = (0, 0, 1, Some(at.now));
            pass.value = Vec::new();
        }
        let (mut left, mut idle) = (budget.max(1) as u64, Vec::new());
        while left > 0 && pass.place < END {
            left -= 1;
            self.look_for_idle(at.cpu, pass, &mut idle);
            for word in idle.drain(..) {
                let outcome = self.recompress_value(at.cpu, word, pass);
                if outcome == Outcome::NoRoom {
                    return false;
                }
                let units = pass.value.len().div_ceil(self.unit) as u64;
                left = left.saturating_sub(LOOKS_FOR_ONE * units);
            }
        }
        while left > 0 && pass.group < self.groups.end() {
            if self.recompress_group(at.cpu, pass.group, pass) == Outcome::NoRoom {
                return false;
            }
            pass.group += 1;
            left = left.saturating_sub(LOOKS_FOR_ONE / 4);
        }
        pass.place < END || pass.group < self.groups.end()
    }

    /// Adds the words of the next bucket that are idle, and have heads of their own that are not
    /// cold, to `idle`, and sets the idle bit of the others.
    fn look_for_idle(&self, cpu: Cpu, pass: &mut ColdPass, idle: &mut Vec<Word>) {
        let stores = self.stores();
        let Some(own) = stores.get(pass.store) else {
            pass.place = END;
            return;
        };
        let reader = self.retired.read(cpu);
        pass.place = own.index.scan(pass.place, idle);
        if pass.place >= END && pass.store + 1 < stores.len() {
            (pass.store, pass.place) = (pass.store + 1, 0);
        }
        idle.retain(|word| {
            let Place::Head(handle) = word.place() else { return false };
            let head = self.head_of(&reader, handle);
            // What waits for a group is not compressed yet.
            if head.cold || head.tried || head.form == Form::Filled || self.groups_with(head.value)
            {
                return false;
            }
            if !word.is_idle() {
                own.index.set_idle(*word);
            }
            word.is_idle()
        });
    }

    fn recompress_value(&self, cpu: Cpu, word: Word, pass: &mut ColdPass) -> Outcome {
        pass.value.clear();
        let (swap, named, bytes) = {
            let writer = self.write(cpu);
            let found = writer.stores().find(word).filter(|found| found.is_idle());
            let Some(Place::Head(old)) = found.map(Word::place) else { return Outcome::Stays };
            let head = self.head_of(&writer, old);
            if head.value < 8 {
                return Outcome::Stays;
            }
            pass.value.resize(head.value, 0);
            if self.read_head(&writer, cpu, old, head, 0, &mut pass.value).is_err() {
                return Outcome::Stays;
            }
            let mut bytes = [0; HEAD_BYTES + MAX_KEY];
            self.copy_object(&writer, old, &mut bytes[..HEAD_BYTES + head.key]);
            let key = &bytes[HEAD_BYTES..HEAD_BYTES + head.key];
            let cold = Head { form: Form::Raw, cold: true, ..head };
            let made = self.make_units(cpu, Room::All, &mut pass.making, cold, key, &pass.value);
            let swap = made.ok().and_then(|made| self.smaller(&writer, cpu, old, Some(made)));
            let Some(swap) = swap else { return Outcome::NoRoom };
            let next = Word::head(word.fingerprint(), swap.new, word.expires());
            let named = writer.stores().rename(word, next) > 0;
            (swap, named, head.data())
        };
        let outcome = self.settle_swap(cpu, swap, named);
        if named && bytes >= LARGE {
            self.quiesce(cpu);
        }
        outcome
    }

    /// Compresses a group once more if most of its members are idle, and sets their idle bits.
    fn recompress_group(&self, cpu: Cpu, number: u32, pass: &mut ColdPass) -> Outcome {
        let ColdPass { making, value: members, .. } = pass;
        members.clear();
        let (swap, named) = {
            let reader = self.retired.read(cpu);
            let Some(group) = self.groups.get(number).filter(|group| group.live > 0) else {
                return Outcome::Stays;
            };
            let head = self.head_of(&reader, group.head);
            if head.cold || head.tried || !self.copy_group(&reader, cpu, number, members) {
                return Outcome::Stays;
            }
            let (mut live, mut idle) = (0, 0);
            let stores = self.stores();
            self.each_member(&stores, number, members, |_, word, _, _| {
                live += 1;
                if word.is_idle() {
                    idle += 1;
                } else {
                    stores.iter().for_each(|own| own.index.set_idle(word));
                }
            });
            if live == 0 || idle * 4 < live * 3 {
                return Outcome::Stays;
            }
            let mut made = None;
            if let Some(length) = making.block.compress(members, &mut making.packed[..GROUP]) {
                let (packed, list) = (&making.packed[..length], &mut making.list);
                let stored = self.store_group(cpu, Room::All, members.len(), true, packed, list);
                let Ok(stored) = stored else { return Outcome::NoRoom };
                made = Some(stored);
            }
            let swap = self.smaller(&reader, cpu, group.head, made);
            let Some(swap) = swap else { return Outcome::NoRoom };
            let named = self.groups.move_to(number, group.head, swap.new);
            (swap, named)
        };
        self.settle_swap(cpu, swap, named)
    }

    /// What takes the place of `old`: `made`, or, if that is larger, a copy of the old head that
    /// says so, lest the next pass tries again. `None` if there is no room for the copy.
    fn smaller(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        old: Handle,
        made: Option<Handle>,
    ) -> Option<Swap> {
        if let Some(new) = made {
            let saved = self.slots_of(reader, old).checked_sub(self.slots_of(reader, new));
            if let Some(saved) = saved {
                return Some(Swap { new, left: Left::Head(old), saved });
            }
            self.free_head(cpu, new);
        }
        let head = Head { tried: true, ..self.head_of(reader, old) };
        let mut bytes = [0; PAGE_SIZE];
        let bytes = &mut bytes[..head.object_bytes()];
        self.copy_object(reader, old, bytes);
        bytes[..HEAD_BYTES].copy_from_slice(&head.encode());
        let new = self.store(cpu, Room::All, bytes).ok()?;
        Some(Swap { new, left: Left::Object(old), saved: 0 })
    }

    /// Retires what was there before, or frees what was made if nothing names it.
    fn settle_swap(&self, cpu: Cpu, Swap { new, left, saved }: Swap, named: bool) -> Outcome {
        let is_whole = matches!(left, Left::Head(_));
        if named {
            self.retire(cpu, left);
            if let Some(cold) = &self.cold {
                cold.recompressed.fetch_add(u64::from(is_whole), Ordering::Relaxed);
                cold.saved.fetch_add(saved, Ordering::Relaxed);
            }
            return Outcome::Done;
        }
        if is_whole {
            self.free_head(cpu, new);
        } else {
            self.free_object(cpu, new);
        }
        Outcome::Stays
    }

    /// The bytes of memory that a head and all that it names take.
    fn slots_of(&self, reader: &Reader<'_>, handle: Handle) -> u64 {
        let mut bytes = self.pool.slot_bytes(self.head_of(reader, handle).object_bytes());
        self.each_part(reader, handle, &mut |_, length| bytes += self.pool.slot_bytes(length));
        bytes as u64
    }
}
