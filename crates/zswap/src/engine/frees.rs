//! Invalidation of pages. Their entries are freed when no reader can hold them any more.

use objects::Object;
use sync::Reader;
use units::Cpu;
use zsmalloc::Handle;

use super::Zswap;
use crate::area::Area;
use crate::counts::Count;
use crate::entry::Content;
use crate::memcg::Memcg;
use crate::{Key, SwapType, Word};

/// Entries that are taken out of an index in one step.
const DROPS: usize = 64;

/// In place of the number of an entry in a retired word: what is above it is the place that an
/// object was moved away from, or the number of a pack that an entry was a reference to. No entry
/// has such a number.
const PLACE: u32 = 0;
const REFERENCE: u32 = u32::MAX;

/// The retired word of what an entry does not have any more.
pub(super) const fn leaving(old: Content) -> Option<u64> {
    let (what, kind) = match old {
        Content::SameFilled(_) => return None,
        Content::Stored(object) => (object.handle().get(), PLACE),
        Content::Part(part) => (part.pack, REFERENCE),
    };
    Some((what as u64) << 32 | kind as u64)
}

impl Zswap {
    /// Invalidates a page. Afterwards no thread is writing it to the device, or will.
    pub fn invalidate_page(&self, cpu: Cpu, key: Key) {
        let area = {
            let reader = self.readers.enter(cpu);
            let Some(area) = self.area_of(&reader, key) else { return };
            self.drop_page(&reader, cpu, area, key.offset);
            if !area.is_locked_after_removal(key.offset) {
                return;
            }
            area.clone()
        };
        area.wait_for(key.offset);
    }

    /// Takes a page out of the cache and clears its mark of the device.
    pub(crate) fn drop_page(&self, reader: &Reader<'_>, cpu: Cpu, area: &Area, offset: u64) {
        area.clear_on_device(cpu, offset);
        let word = area.index.remove(cpu, offset);
        area.clear_on_device(cpu, offset);
        if let Some(word) = word {
            self.dispose(reader, cpu, word);
        }
    }

    /// Invalidates all pages of an area, in the cache and on its device.
    pub fn invalidate_area(&self, cpu: Cpu, swap: SwapType) {
        if let Some(area) = self.area(swap) {
            self.empty(cpu, &area);
        }
    }

    pub(super) fn empty(&self, cpu: Cpu, area: &Area) {
        self.drop_range(cpu, area, 0, area.pages);
        area.wait_for_all();
        self.quiesce(cpu);
    }

    /// Takes pages out of the cache and clears their marks of the device.
    pub(crate) fn drop_range(&self, cpu: Cpu, area: &Area, first: u64, end: u64) {
        let mut at = first;
        while at < end {
            // One step takes as many as the array holds: an entry is disposed of outside the index.
            let next = (at | (DROPS as u64 - 1)).saturating_add(1).min(end);
            let (mut words, mut count) = ([None; DROPS], 0);
            area.clear_range_on_device(cpu, at..next);
            area.index.drain(cpu, at..next, &mut |_, word| {
                words[count] = Some(word);
                count += 1;
            });
            area.clear_range_on_device(cpu, at..next);
            if count > 0 {
                let reader = self.readers.enter(cpu);
                words.into_iter().flatten().for_each(|word| self.dispose(&reader, cpu, word));
            }
            at = next;
        }
    }

    /// Passes an entry that was taken out of its index to be freed when no reader can hold it any
    /// more. The calling thread reads no entries, and has no stream and no lock.
    pub(crate) fn dispose(&self, reader: &Reader<'_>, cpu: Cpu, word: Word) {
        if word == Word::LOST {
            return self.counts.add(cpu, Count::Lost, -1);
        }
        let number = word.number();
        let content = self.entries.close(number);
        // A memcg with pages is not removed.
        if let Some(memcg) = self.memcg_of(reader, number) {
            memcg.0.lru.leave(&self.entries, number);
            self.account(cpu, memcg, content, -1);
        }
        self.retired.retire(cpu, word.get(), |word| self.release(cpu, word));
    }

    /// Frees what a retired word names, which no thread can find: an entry with its object, or what
    /// an entry had before.
    pub(super) fn release(&self, cpu: Cpu, word: u64) {
        let old = (word >> 32) as u32;
        match word as u32 {
            PLACE => self.free_place(cpu, Handle::from_raw(old)),
            REFERENCE => self.drop_reference(cpu, old),
            number => {
                let content = self.entries.take_content(number);
                self.entries.give_back(cpu, number);
                self.free(cpu, content);
            }
        }
    }

    /// Frees the entries that wait to be freed; returns whether there were any. The calling thread
    /// is no reader and has no stream.
    pub(crate) fn quiesce(&self, cpu: Cpu) -> bool {
        self.retired.quiesce(|word| self.release(cpu, word))
    }

    /// Accounts for what an entry had in the pool, and has now.
    pub(super) fn account_replaced(&self, cpu: Cpu, memcg: &Memcg, old: Content, new: Content) {
        let bytes = new.bytes() as i64 - old.bytes() as i64;
        memcg.add(cpu, 0, bytes);
        self.counts.add(cpu, Count::Bytes, bytes);
        self.account_form(cpu, memcg, new, 1);
        self.account_form(cpu, memcg, old, -1);
    }

    fn account_form(&self, cpu: Cpu, memcg: &Memcg, content: Content, sign: i64) {
        let by_codec = |codec: u8| self.by_codec.add(cpu, usize::from(codec), sign);
        match content {
            Content::SameFilled(_) => self.counts.add(cpu, Count::SameFilled, sign),
            Content::Stored(Object::Huge(_)) => {
                self.counts.add(cpu, Count::Incompressible, sign);
                memcg.add_incompressible(cpu, sign);
            }
            Content::Stored(Object::Compressed { codec, .. }) => by_codec(codec),
            // An entry holds the whole pattern, so no object is a pattern.
            Content::Stored(Object::SameFilled(_)) => {}
            Content::Part(part) => {
                self.counts.add(cpu, Count::Packed, sign);
                by_codec(part.codec);
            }
        }
    }

    pub(crate) fn account(&self, cpu: Cpu, memcg: &Memcg, content: Content, sign: i64) {
        let bytes = sign * content.bytes() as i64;
        memcg.add(cpu, sign, bytes);
        self.counts.add(cpu, Count::Pages, sign);
        self.counts.add(cpu, Count::Bytes, bytes);
        self.account_form(cpu, memcg, content, sign);
    }
}
