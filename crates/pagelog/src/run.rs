//! Objects that are written to the log together, in memory as they will be on the device.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::Range;

use segments::{BLOCK_BYTES, HEADER_BYTES, Pending, stored};
use units::{PAGE_SIZE, Page};

use crate::backed::{Backed, Coded, StoredAt};

/// The bytes of the largest object, with its header, in whole units.
const LARGEST: usize = stored(PAGE_SIZE as u16) as usize;
/// The most pages of a run: they fit into a segment, however little they shrank.
pub const RUN_PAGES: usize = (1 << 20) / LARGEST;
/// A run lies in two segments at most.
const PARTS: usize = 2;
const BLOCK: usize = BLOCK_BYTES as usize;

/// An object of a run.
pub struct Entry {
    /// The page.
    pub index: usize,
    /// The form of the object.
    pub form: Coded,
    /// Where it was before, if it is copied.
    pub(crate) old: Option<StoredAt>,
    /// Where its header begins in the memory of the run.
    pub(crate) from: usize,
    /// Its reservation, until it is committed.
    pub(crate) pending: Option<Pending>,
    /// Where it was written; `None` if it was not.
    pub(crate) at: Option<StoredAt>,
    /// Whether a slot names the place.
    pub is_named: bool,
}

impl Entry {
    /// Where it was written, and its form.
    pub fn written(&self) -> Option<Backed> {
        self.at.map(|at| Backed { at, form: self.form })
    }
}

/// Whole blocks of the device, and where they are in the memory of the run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) memory: Range<usize>,
}

impl Part {
    /// Lets it end with a block. Returns its end in memory.
    fn round_up(&mut self) -> usize {
        let Range { start, end } = self.memory;
        self.memory.end = start + (end - start).next_multiple_of(BLOCK);
        self.memory.end
    }
}

/// Objects: for a log one behind the other, each behind its header; for blocks a page each.
pub struct Run {
    pub(crate) bytes: Vec<u8>,
    used: usize,
    pub(crate) entries: Vec<Entry>,
    is_of_blocks: bool,
}

impl Run {
    /// A run with room for `pages` pages, 1 to [`RUN_PAGES`], however little they shrank.
    ///
    /// # Errors
    /// Memory is out.
    pub fn new(pages: usize) -> Result<Run, TryReserveError> {
        Run::of_log(pages, None)
    }

    /// The same: `used` if it is one.
    pub(crate) fn of_log(pages: usize, used: Option<Run>) -> Result<Run, TryReserveError> {
        let all = pages.clamp(1, RUN_PAGES) * LARGEST + PARTS * BLOCK;
        if let Some(run) = used.filter(|run| !run.is_of_blocks && run.bytes.len() == all) {
            return Ok(run);
        }
        let (mut bytes, mut entries) = (Vec::new(), Vec::new());
        bytes.try_reserve_exact(all)?;
        // Objects that shrank: as many as fit at least.
        entries.try_reserve_exact(all / stored(1) as usize)?;
        bytes.resize(all, 0);
        Ok(Run { bytes, used: 0, entries, is_of_blocks: false })
    }

    /// A run with a block for each of `pages` pages: `used` if it is one.
    pub(crate) fn of_blocks(pages: usize, used: Option<Run>) -> Result<Run, TryReserveError> {
        let all = pages * PAGE_SIZE;
        if let Some(run) = used.filter(|run| run.is_of_blocks && run.bytes.len() == all) {
            return Ok(run);
        }
        let (mut bytes, mut entries) = (Vec::new(), Vec::new());
        bytes.try_reserve_exact(all)?;
        entries.try_reserve_exact(pages)?;
        bytes.resize(all, 0);
        Ok(Run { bytes, used: 0, entries, is_of_blocks: true })
    }

    /// Whether a page surely fits.
    pub fn has_room(&self) -> bool {
        let most = if self.is_of_blocks { PAGE_SIZE } else { LARGEST + PARTS * BLOCK };
        self.used + most <= self.bytes.len()
    }

    fn header(&self) -> usize {
        if self.is_of_blocks { 0 } else { HEADER_BYTES }
    }

    /// The memory for the next object. The caller has asked whether there is [room](Run::has_room).
    pub fn page(&mut self) -> &mut Page {
        let at = self.used + self.header();
        let (pages, _) = self.bytes[at..].as_chunks_mut::<PAGE_SIZE>();
        &mut pages[0]
    }

    /// Adds the object of page `index`, which [`Run::page`] holds.
    pub fn add(&mut self, index: usize, form: Coded) {
        self.add_copy(index, form, None);
    }

    /// The same of an object that was elsewhere before.
    pub(crate) fn add_copy(&mut self, index: usize, form: Coded, old: Option<StoredAt>) {
        let end = self.used + taken(self.is_of_blocks, form.length);
        let from = self.used + self.header() + usize::from(form.length);
        self.bytes[from..end].fill(0);
        self.entries.push(Entry {
            index,
            form,
            old,
            from: self.used,
            pending: None,
            at: None,
            is_named: false,
        });
        self.used = end;
    }

    /// The objects.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The objects.
    pub fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// Bytes of all objects, with headers, in whole units: at most a MiB.
    pub(crate) fn stored_bytes(&self) -> u32 {
        self.entries.iter().map(|entry| stored(entry.form.length)).sum()
    }

    /// Forgets all objects but those that have no place.
    pub(crate) fn keep_unwritten(&mut self) {
        self.used = 0;
        let (bytes, is_of_blocks) = (&mut self.bytes, self.is_of_blocks);
        self.entries.retain_mut(|entry| {
            if entry.at.is_some() {
                return false;
            }
            let length = taken(is_of_blocks, entry.form.length);
            bytes.copy_within(entry.from..entry.from + length, self.used);
            entry.from = self.used;
            self.used += length;
            true
        });
    }

    /// Forgets all objects.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.used = 0;
    }

    /// The header and the object of an entry.
    pub(crate) fn object(&mut self, entry: usize) -> (&mut [u8], &[u8]) {
        let Entry { from, form, .. } = self.entries[entry];
        let (header, object) = self.bytes[from..].split_at_mut(HEADER_BYTES);
        (header, &object[..usize::from(form.length)])
    }

    /// The memory of a part.
    pub(crate) fn memory(&self, part: &Part) -> &[u8] {
        &self.bytes[part.memory.clone()]
    }

    /// Lays the objects that have places in parts, each as long as its blocks on the device. Each
    /// part begins with a block there. Objects without a place are behind all others.
    pub(crate) fn arrange(&mut self) -> [Part; PARTS] {
        let mut parts: [Part; PARTS] = Default::default();
        let (mut part, mut next) = (0, None);
        for n in 0..self.entries.len() {
            let at = self.entries[n].from;
            let Some(pending) = &self.entries[n].pending else {
                if next.is_some() {
                    self.shift(n, at, parts[part].round_up());
                }
                return parts;
            };
            let (byte, bytes) = (pending.place().byte(), stored(pending.length()));
            if next.is_some_and(|next| next != byte) {
                // The segment was full. What follows is in the next one.
                let to = parts[part].round_up();
                self.shift(n, at, to);
                part += 1;
            }
            let at = self.entries[n].from;
            if next != Some(byte) {
                parts[part] = Part { offset: byte, memory: at..at };
            }
            parts[part].memory.end = at + bytes as usize;
            next = Some(byte + u64::from(bytes));
        }
        let end = parts[part].memory.end;
        let to = parts[part].round_up();
        self.bytes[end..to].fill(0);
        parts
    }

    /// Moves the objects from entry `n` on, which begin at `at`, to `to` behind it, and fills the
    /// memory between with zeroes.
    fn shift(&mut self, n: usize, at: usize, to: usize) {
        self.bytes.copy_within(at..self.used, to);
        self.bytes[at..to].fill(0);
        self.entries[n..].iter_mut().for_each(|entry| entry.from += to - at);
        self.used += to - at;
    }
}

/// The bytes that an object of `length` bytes takes in a run.
fn taken(is_of_blocks: bool, length: u16) -> usize {
    if is_of_blocks { PAGE_SIZE } else { stored(length) as usize }
}
