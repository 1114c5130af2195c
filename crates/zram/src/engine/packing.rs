//! Extents: neighbouring pages that are compressed as one object. A page is marked while its extent
//! is made.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use block::IoError;
use objects::{Compressed, Object};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Compressor, EXTENT_PAGES, ExtentPacker, PRIORITIES};
use zsmalloc::Room;

use super::Engine;
use super::contents::refused;
use crate::counts::Count;
use crate::engine::page_ops::Select;
use crate::engine::shared::{ENTRY_BYTES, Shared};
use crate::engine::slot::{Kind, Part, Slot};

/// What one thread needs to pack pages.
pub(crate) struct Packing {
    compressor: Arc<dyn Compressor>,
    packer: ExtentPacker,
    /// The number of the codec, and its priority.
    codec: u8,
    priority: u8,
    /// The pages of a group, one behind the other.
    pages: Vec<u8>,
    /// The last extent that was compressed.
    output: Vec<u8>,
}

impl Packing {
    /// Sets the levels ([`ExtentPacker::set_levels`]).
    pub(crate) fn set_levels(&mut self, low: Option<i32>, high: Option<i32>) {
        self.packer.set_levels(low, high);
    }

    /// Compresses some of the pages to `output`, and returns the length; `None` if they do not fit.
    fn compress(&mut self, members: Range<usize>) -> Option<usize> {
        let pages = &self.pages[members.start * PAGE_SIZE..members.end * PAGE_SIZE];
        self.packer.compress(pages, &mut self.output)
    }

    /// The length that this would have at most.
    fn length(&mut self, members: Range<usize>) -> Option<usize> {
        self.packer.length(&self.pages[members.start * PAGE_SIZE..members.end * PAGE_SIZE])
    }

    fn page(&mut self, member: usize) -> &mut Page {
        let bytes = &mut self.pages[member * PAGE_SIZE..(member + 1) * PAGE_SIZE];
        bytes.try_into().unwrap_or_else(|_| unreachable!("it is as long as a page"))
    }
}

/// A page that may be packed.
#[derive(Clone, Copy, Default)]
struct Member {
    index: usize,
    /// The bytes of the pool that its own object takes; 0 for a page of an extent.
    bytes: usize,
    /// The extent that it is in, or 0.
    entry: u32,
}

/// The pages of a group that may be packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packable {
    /// The kind of pages.
    pub(crate) select: Select,
    /// A bit for each page of the group, the lowest for the first.
    pub(crate) members: u32,
    /// Pages of whole extents are packed once more, too.
    pub(crate) again: bool,
}

impl Packable {
    /// All pages of a kind.
    pub(crate) fn all(select: Select) -> Packable {
        Packable { select, members: u32::MAX, again: false }
    }
}

/// What packing a group did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Packed {
    /// Pages that are in new extents.
    pub(crate) pages: u64,
    /// Bytes of the pool that this saved at least, if no page was used meanwhile.
    pub(crate) saved: u64,
    /// Nothing was saved, but pages were used meanwhile.
    pub(crate) in_use: bool,
}

/// How the pages of a group are put together: runs of pages that become extents. What is in none
/// gets an object of its own.
type Plan = [Range<usize>; 2];

impl Engine {
    /// What a thread needs to pack pages with the codec of a priority, at its level; `None` if the
    /// codec packs no pages, or there is none.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub(crate) fn packing(
        &self,
        reader: &Reader<'_>,
        priority: u8,
    ) -> Result<Option<Packing>, String> {
        let Some((codec, current)) = self.objects.codecs().current(reader, priority) else {
            return Ok(None);
        };
        let compressor = current.chosen.compressor.clone();
        let Some(packer) = compressor.packer().map_err(|error| error.0)? else {
            return Ok(None);
        };
        let packer = ExtentPacker::new(packer).map_err(|error| error.0)?;
        let room = |bytes| -> Result<Vec<u8>, String> {
            let mut room = Vec::new();
            room.try_reserve_exact(bytes).map_err(|_| format!("{bytes} bytes"))?;
            room.resize(bytes, 0);
            Ok(room)
        };
        // An object is smaller than a page.
        let (pages, output) = (room(EXTENT_PAGES * PAGE_SIZE)?, room(PAGE_SIZE - 1)?);
        Ok(Some(Packing { compressor, packer, codec, priority, pages, output }))
    }

    /// The same with the first codec that packs pages, from priority 1 on and the primary one last.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub(crate) fn any_packing(&self, reader: &Reader<'_>) -> Result<Option<Packing>, String> {
        for priority in (1..PRIORITIES as u8).chain([0]) {
            if let Some(packing) = self.packing(reader, priority)? {
                return Ok(Some(packing));
            }
        }
        Ok(None)
    }

    /// Whether the codec is still the one of its priority.
    pub(crate) fn is_current(&self, reader: &Reader<'_>, packing: &Packing) -> bool {
        let current = self.objects.codecs().current(reader, packing.priority);
        current.is_some_and(|(number, codec)| {
            number == packing.codec && Arc::ptr_eq(&codec.chosen.compressor, &packing.compressor)
        })
    }

    /// Packs the chosen pages of a group of up to [`EXTENT_PAGES`] pages if they take less memory
    /// then. Those that are in an extent are packed anew, or get objects of their own, if half of
    /// it is gone, or if it has room for a page that comes to it, or if that is asked for.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`; the pages have their contents.
    pub(crate) fn pack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        group: Range<usize>,
        which: Packable,
        packing: &mut Packing,
    ) -> Result<Packed, IoError> {
        let first = group.start;
        let is_chosen = |index: &usize| which.members >> (index - first) & 1 == 1;
        let slots = || group.clone().filter(is_chosen).map(|index| self.slots.peek(index));
        let select = which.select;
        let comes = slots().any(|slot| slot.object().is_some() && select.admits(slot));
        let packs = |slot: Slot| {
            let is_packed = matches!(slot.kind(), Kind::Shared(Part { packed: true, .. }));
            which.again && is_packed || self.packs(slot, select, comes)
        };
        let fits = slots().filter(|slot| packs(*slot));
        let is_part = |slot: Slot| matches!(slot.kind(), Kind::Shared(_));
        let (count, parts) = fits.fold((0, false), |(n, p), slot| (n + 1, p || is_part(slot)));
        if count < 2 && !parts {
            return Ok(Packed::default());
        }
        let mut members = [Member::default(); EXTENT_PAGES];
        let mut count = 0;
        for index in group.clone().filter(is_chosen) {
            let page = packing.page(count);
            if let Some(member) = self.take(reader, cpu, index, &packs, page) {
                members[count] = member;
                count += 1;
            }
        }
        let packed = self.pack_members(reader, cpu, &members[..count], which.again, packing);
        let unused = group.filter(|index| self.unmark(*index)).count();
        packed.map(|it| Packed { in_use: it.pages + it.saved == 0 && unused < count, ..it })
    }

    /// Whether a page may become a part of a new extent. `comes`: one of its group does that has
    /// an object of its own.
    fn packs(&self, slot: Slot, select: Select, comes: bool) -> bool {
        match slot.kind() {
            Kind::Stored(_) => select.admits(slot),
            Kind::Shared(Part { packed: true, entry, .. }) => {
                self.is_wasted(slot)
                    || comes && self.shared.peek(entry).is_some_and(|it| it.pages < EXTENT_PAGES)
            }
            _ => false,
        }
    }

    /// Whether a page is in an extent of which half the pages are gone.
    pub(crate) fn is_wasted(&self, slot: Slot) -> bool {
        let Kind::Shared(Part { packed: true, entry, .. }) = slot.kind() else { return false };
        let (shared, pages) = (self.shared.peek(entry), self.shared.count(entry));
        shared.is_some_and(|shared| 2 * pages <= shared.pages as u64)
    }

    /// Marks a page that `packs` says can be packed, and reads it.
    fn take(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        packs: &dyn Fn(Slot) -> bool,
        page: &mut Page,
    ) -> Option<Member> {
        if !packs(self.slots.peek(index)) || !self.mark(index, packs) {
            return None;
        }
        match self.read_marked(reader, cpu, index, page)?.kind() {
            Kind::Stored(object) => {
                let bytes = self.pool().slot_bytes(object.bytes());
                Some(Member { index, bytes, entry: 0 })
            }
            Kind::Shared(part) => Some(Member { index, bytes: 0, entry: part.entry }),
            _ => None,
        }
    }

    fn pack_members(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        members: &[Member],
        again: bool,
        packing: &mut Packing,
    ) -> Result<Packed, IoError> {
        let (now, count) = (self.bytes_now(members), members.len());
        let whole = if count > 1 { packing.compress(0..count) } else { None };
        if let Some(length) = whole.filter(|length| self.bytes_of(*length) < now) {
            let pages = self.make_extent(cpu, members, length, packing)?;
            let saved = (now - self.bytes_of(length)) as u64;
            return Ok(Packed { pages, saved, in_use: false });
        }
        // The present plan is as good as any at the low level. The high one makes it smaller.
        let most = now + usize::from(again);
        let Some((plan, bytes)) = self.best_plan(reader, cpu, members, most, packing) else {
            return Ok(Packed::default());
        };
        let mut packed = Packed { pages: 0, saved: (now - bytes) as u64, in_use: false };
        for run in plan.iter().filter(|run| !run.is_empty()) {
            if let Some(length) = packing.compress(run.clone()) {
                packed.pages += self.make_extent(cpu, &members[run.clone()], length, packing)?;
            }
        }
        for (n, member) in members.iter().enumerate() {
            if member.entry != 0 && !plan.iter().any(|run| run.contains(&n)) {
                self.make_single(reader, cpu, member.index, packing.priority, packing.page(n))?;
            }
        }
        Ok(packed)
    }

    /// The plan by which pages that do not go together take least memory, and the bytes; `None` if
    /// it is not less than `most`.
    fn best_plan(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        members: &[Member],
        most: usize,
        packing: &mut Packing,
    ) -> Option<(Plan, usize)> {
        let count = members.len();
        let plans: [Plan; 4] = [
            [0..0, 0..0],
            [0..count.saturating_sub(1), 0..0],
            [1.min(count)..count, 0..0],
            [0..count / 2, count / 2..count],
        ];
        let mut best = (most, None);
        for (n, plan) in plans.iter().enumerate() {
            let fits = |run: &Range<usize>| run.is_empty() || run.len() > 1;
            // Without an extent, only pages of another extent change.
            let changes = n > 0 || members.iter().any(|member| member.entry != 0);
            if !changes || n > 0 && count < 3 || !plan.iter().all(fits) {
                continue;
            }
            if let Some(bytes) = self.bytes_by(reader, cpu, members, plan, packing)
                && bytes < best.0
            {
                best = (bytes, Some((plan.clone(), bytes)));
            }
        }
        best.1
    }

    /// The bytes that the pages take by a plan at most; `None` if it is impossible.
    fn bytes_by(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        members: &[Member],
        plan: &Plan,
        packing: &mut Packing,
    ) -> Option<usize> {
        let mut bytes = 0;
        for run in plan.iter().filter(|run| !run.is_empty()) {
            bytes += self.bytes_of(packing.length(run.clone())?);
        }
        for (n, member) in members.iter().enumerate() {
            if plan.iter().any(|run| run.contains(&n)) {
                continue;
            }
            bytes += match member.entry {
                0 => member.bytes,
                _ => {
                    let (priority, page) = (packing.priority, packing.page(n));
                    let bytes = |made: objects::Packed<'_>| made.bytes();
                    let made = self.objects.compress(reader, cpu, priority, page, bytes)?;
                    self.pool().slot_bytes(made)
                }
            };
        }
        Some(bytes)
    }

    /// The bytes that an extent takes.
    fn bytes_of(&self, length: usize) -> usize {
        self.pool().slot_bytes(length) + ENTRY_BYTES as usize
    }

    /// The bytes that come free when all these pages leave their objects.
    fn bytes_now(&self, members: &[Member]) -> usize {
        let mut bytes = members.iter().map(|member| member.bytes).sum();
        for (n, member) in members.iter().enumerate() {
            let same = |other: &&Member| other.entry == member.entry;
            let is_first = members[..n].iter().find(same).is_none();
            if member.entry == 0 || !is_first {
                continue;
            }
            let leave = members.iter().filter(same).count() as u64;
            if let Some(shared) = self.shared.peek(member.entry)
                && self.shared.count(member.entry) <= leave
            {
                bytes += self.bytes_of(shared.object.bytes());
            }
        }
        bytes
    }

    /// Stores what was compressed last as the extent of these pages, and lets the slots of those
    /// name it that are still marked. Returns their number.
    fn make_extent(
        &self,
        cpu: Cpu,
        members: &[Member],
        length: usize,
        packing: &Packing,
    ) -> Result<u64, IoError> {
        let made = Compressed { bytes: &packing.output[..length], codec: packing.codec };
        let object = self.with_space(cpu, || {
            self.objects.store_packed(cpu, Room::All, made, None).map_err(refused)
        })?;
        let shared = Shared { object, pages: members.len() };
        let Some(entry) = self.enter(cpu, shared) else {
            self.release(cpu, Slot::stored(object));
            return Err(IoError::NoMemory);
        };
        let mut packed = 0;
        for (part, member) in members.iter().enumerate() {
            let new = Slot::shared(Part { entry, part: part as u8, packed: true, huge: false });
            packed += u64::from(self.join(cpu, member.index, entry, new));
        }
        self.drop_reference(cpu, entry);
        Ok(packed)
    }

    /// Enters a shared object, with one reference: the caller's. `None` if there is no room.
    pub(super) fn enter(&self, cpu: Cpu, shared: Shared) -> Option<u32> {
        if let Some(record) = &self.record {
            record.has_shared_objects();
        }
        let entry = self.shared.insert(shared)?;
        self.counts.add(cpu, Count::ComprBytes, shared.object.bytes() as i64);
        Some(entry)
    }

    /// Lets the slot of a page name a shared object if it is still marked: the commit point of
    /// packing and sharing. The caller has a reference to the object. Returns whether it did.
    pub(super) fn join(&self, cpu: Cpu, index: usize, entry: u32, new: Slot) -> bool {
        self.shared.hold(entry);
        let has_joined = self.replace_marked(cpu, index, new);
        if !has_joined {
            // The page was used meanwhile.
            self.drop_reference(cpu, entry);
        }
        has_joined
    }

    /// Gives a marked page of an extent an object of its own.
    fn make_single(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        priority: u8,
        page: &Page,
    ) -> Result<(), IoError> {
        let object: Object = self.with_space(cpu, || {
            let store = |packed: objects::Packed<'_>| packed.store(Room::All, None);
            let stored = self.objects.compress(reader, cpu, priority, page, store);
            stored.ok_or(IoError::Unsupported)?.map_err(refused)
        })?;
        let new = Slot::stored(object);
        if !self.replace_marked(cpu, index, new) {
            self.release(cpu, new);
        }
        Ok(())
    }
}
