//! Small values are compressed together.
//!
//! A small value has a head of its own at first. Its word waits with those of its CPU until they
//! are enough for a group. The group is made of those that the index has still. Then each word is
//! swapped for that of the member, if it is the same still. The thread is a reader all the while:
//! no head that it found is freed, so no other value can have the same word meanwhile.
//!
//! A group is taken apart the same way: members get heads of their own again, and wait.

use alloc::vec::Vec;

use sync::Reader;
use units::Cpu;
use zsmalloc::{Handle, Room};

use super::Values;
use super::cloning::Writer;
use crate::family::{Count, Stores};
use crate::head::{Form, Head};
use crate::outcome::Reason;
use crate::scratch::GROUP;
use crate::state::{Apart, Pending};
use crate::word::{Left, MAX_MEMBERS, Place, Word};
use crate::{At, Evicted};

/// The values that become members of a group.
struct Members {
    heads: [Option<(Word, Handle)>; MAX_MEMBERS],
    count: usize,
    earliest: u32,
}

/// What became of a group.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Taken {
    /// Bytes of the members that went.
    pub(super) gone: usize,
    /// Whether some members could not be kept for want of memory.
    pub(super) short: bool,
}

impl Values {
    /// Lets a small value wait for others that become a group with it.
    pub(super) fn wait_for_group(&self, cpu: Cpu, word: Word, data: usize) {
        let batch = {
            let mut pending = self.pending.get(cpu).lock();
            if !pending.add(word, data) {
                return;
            }
            core::mem::take(&mut *pending)
        };
        self.make_members(cpu, &batch);
    }

    /// Makes a group of the values that words name, if the index has them still and if they get
    /// smaller together. The calling thread holds no lock and is no reader.
    fn make_members(&self, cpu: Cpu, pending: &Pending) {
        let mut members = Members { heads: [None; MAX_MEMBERS], count: 0, earliest: 0 };
        let mut buffer = self.take_buffer();
        let (mut made, mut lost) = (None, 0);
        {
            let writer = self.write(cpu);
            let stores = writer.stores();
            for word in pending.words() {
                self.gather(&writer, word, &mut members, &mut buffer);
            }
            if members.count > 1
                && let Some(head) = self.make_group(cpu, &buffer)
            {
                made = self.groups.add(head, (members.count, stores.len()), members.earliest);
                if made.is_none() {
                    self.free_head(cpu, head);
                }
            }
            if let Some(group) = made {
                for (number, member) in members.heads[..members.count].iter_mut().enumerate() {
                    let joined = member.map_or(0, |(word, _)| join(stores, word, group, number));
                    if joined == 0 {
                        *member = None;
                    }
                    lost += stores.len() - joined;
                }
            }
        }
        self.give_buffer(buffer);
        let Some(group) = made else { return };
        for (_, head) in members.heads[..members.count].iter().flatten() {
            self.retire(cpu, Left::Object(*head));
        }
        // One for its maker.
        (0..=lost).for_each(|_| self.leave_group(cpu, group));
        self.settle();
    }

    /// Adds a value to a group that is being made.
    fn gather(&self, writer: &Writer<'_>, word: Word, members: &mut Members, into: &mut Vec<u8>) {
        let found = writer.stores().find(word).map(Word::place);
        let Some(Place::Head(handle)) = found else { return };
        let head = self.head_of(writer, handle);
        let bytes = head.object_bytes();
        // A larger value may have come to have the word of one that waited.
        let is_small = head.form == Form::Raw && self.groups_with(head.value);
        if !is_small || into.len() + bytes > GROUP || members.count == MAX_MEMBERS {
            return;
        }
        let from = into.len();
        into.resize(from + bytes, 0);
        self.copy_object(writer, handle, &mut into[from..]);
        members.heads[members.count] = Some((word, handle));
        members.count += 1;
        if head.expires != 0 && (members.earliest == 0 || head.expires < members.earliest) {
            members.earliest = head.expires;
        }
    }

    /// Takes a group apart: see [`Apart`]. The calling thread holds no lock and is no reader.
    pub(super) fn take_apart(&self, at: At, group: u32, how: Apart) -> Taken {
        let mut buffer = self.take_buffer();
        let (mut taken, mut kept, mut gone) = (Taken::default(), 0, 0);
        let (mut loose, mut earliest) = ([None; MAX_MEMBERS], 0);
        let mut left = [const { None }; MAX_MEMBERS];
        {
            let (writer, alone) = (self.write(at.cpu), self.alone());
            let stores = if how == Apart::Clear { &alone } else { writer.stores() };
            if !self.copy_group(&writer, at.cpu, group, &mut buffer) {
                self.give_buffer(buffer);
                return taken;
            }
            // What a pass takes the mark from is known to the next by its number.
            let (mut stays, mut bytes) = ([false; MAX_MEMBERS], 0);
            self.each_member(stores, group, &buffer, |head, word, number, _| {
                stays[number] = match how {
                    Apart::Clear => false,
                    Apart::Keep | Apart::Expire => !head.is_over(at.now),
                    Apart::Evict => !head.is_over(at.now) && word.is_referenced(),
                };
                bytes += if stays[number] { head.object_bytes() } else { 0 };
                if how == Apart::Evict {
                    stores.iter().for_each(|own| own.index.unmark(word));
                }
            });
            if how == Apart::Evict && bytes * 2 > buffer.len() {
                self.give_buffer(buffer);
                return taken;
            }
            self.each_member(stores, group, &buffer, |head, word, number, range| {
                if stays[number] {
                    if how == Apart::Expire {
                        if head.expires != 0 && (earliest == 0 || head.expires < earliest) {
                            earliest = head.expires;
                        }
                        return;
                    }
                    match self.loosen(at.cpu, stores, word, &buffer[range]) {
                        Ok((_, 0)) => {}
                        Ok((word, words)) => {
                            loose[kept] = Some((word, head.data(), words));
                            kept += 1;
                        }
                        Err(()) => taken.short = true,
                    }
                    return;
                }
                let reason = if head.is_over(at.now) { Reason::Expired } else { Reason::Evicted };
                let (mut words, mut tell) = (0, None);
                stores.at_each(word, |own, chain, slot| {
                    if chain.take(slot).is_none() {
                        return;
                    }
                    words += 1;
                    if how == Apart::Clear {
                        own.count(at.cpu, Count::Data, -(head.data() as i64));
                    } else {
                        own.count_left(at.cpu, reason, head.data());
                        tell = tell.take().or_else(|| own.evicted.clone());
                    }
                });
                if words > 0 {
                    left[gone] = Some((words, range, reason, tell));
                    taken.gone += head.object_bytes();
                    gone += 1;
                }
            });
        }
        if how == Apart::Expire {
            self.groups.set_earliest(group, earliest);
        }
        for (words, range, reason, tell) in left[..gone].iter_mut().filter_map(Option::take) {
            let Some((_, key, value)) = crate::head::split(&buffer[range]) else { continue };
            if let Some(evicted) = tell {
                let read = |into: &mut [u8]| {
                    into.copy_from_slice(value);
                    Ok(())
                };
                evicted(&Evicted { key, length: value.len(), reason, read: &read });
            }
            (0..words).for_each(|_| self.leave_group(at.cpu, group));
            self.shrink(at.cpu);
        }
        self.give_buffer(buffer);
        for (word, data, words) in loose[..kept].iter().flatten() {
            (0..*words).for_each(|_| self.leave_group(at.cpu, group));
            self.wait_for_group(at.cpu, *word, *data);
        }
        taken
    }

    /// Gives a member a head of its own. Returns its word, and how many stores had the member.
    fn loosen(
        &self,
        cpu: Cpu,
        stores: &Stores<'_>,
        word: Word,
        bytes: &[u8],
    ) -> Result<(Word, usize), ()> {
        let head = self.store(cpu, Room::All, bytes).map_err(|_| ())?;
        let next = Word::head(word.fingerprint(), head, word.expires());
        let words = stores.rename(word, next);
        if words == 0 {
            self.free_object(cpu, head);
        }
        Ok((next, words))
    }

    /// Copies all members of a group to a buffer, if the group is there.
    pub(super) fn copy_group(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        group: u32,
        into: &mut Vec<u8>,
    ) -> bool {
        if self.groups.get(group).is_none_or(|group| group.live == 0) {
            return false;
        }
        let mut reading = sync::lock_one(&self.reading, cpu);
        let Ok(members) = self.group(reader, &mut reading, group) else { return false };
        into.extend_from_slice(members);
        true
    }

    /// Passes the members of a group that some of `stores` has to `see`: the head, the word, the
    /// number, and where the bytes of the member are. The calling thread is a reader, and found the
    /// group as one.
    pub(super) fn each_member(
        &self,
        stores: &Stores<'_>,
        group: u32,
        members: &[u8],
        mut see: impl FnMut(Head, Word, usize, core::ops::Range<usize>),
    ) {
        let (mut from, mut number) = (0, 0);
        while let Some((head, key, _)) = crate::head::split(&members[from..]) {
            let range = from..from + head.object_bytes();
            if range.end > members.len() || number == MAX_MEMBERS {
                return;
            }
            let fingerprint = self.fingerprint(key);
            let word = Word::member(fingerprint, group, number, head.expires != 0);
            if let Some(word) = stores.find(word) {
                see(head, word, number, range.clone());
            }
            (from, number) = (range.end, number + 1);
        }
    }

    /// An empty buffer with room for a group.
    fn take_buffer(&self) -> Vec<u8> {
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve_exact(GROUP);
        buffer
    }

    fn give_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < self.cpus {
            buffers.push(buffer);
        }
    }
}

/// Swaps the word of a value for that of a member, for all stores that have it. Returns how many.
fn join(stores: &Stores<'_>, word: Word, group: u32, number: usize) -> usize {
    let member = Word::member(word.fingerprint(), group, number, word.expires());
    stores.rename(word, member)
}
