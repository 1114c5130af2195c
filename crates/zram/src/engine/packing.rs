//! Extents: neighbouring pages that are compressed as one object. A page is marked while its extent
//! is made.

use core::ops::Range;

use block::IoError;
use objects::{Compressed, Object, Packing, Shared, ToPlan};
use sync::Reader;
use units::{Cpu, Page};
use zcomp::EXTENT_PAGES;
use zsmalloc::Room;

use super::Engine;
use super::contents::refused;
use crate::counts::Count;
use crate::engine::page_ops::Select;
use crate::engine::slot::{Kind, Part, Slot};

/// A page that may be packed.
#[derive(Clone, Copy, Default)]
struct Member {
    index: usize,
    /// The bytes of the pool that its own object takes. For a page of an extent: those of the
    /// extent if all its pages leave it, and otherwise 0.
    bytes: usize,
    /// The extent that it is in, or 0.
    entry: u32,
    /// If it is left alone, it is compressed anew with the codec of this priority.
    anew: Option<u8>,
    /// Its slot names another object now.
    has_moved: bool,
}

impl Member {
    /// The bytes of its own object, if it has one.
    fn own(&self) -> Option<usize> {
        (self.entry == 0).then_some(self.bytes)
    }
}

/// The pages of a group that may be packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packable {
    /// The kind of pages.
    pub(crate) select: Select,
    /// A bit for each page of the group, the lowest for the first.
    pub(crate) members: u32,
    /// Those that are compressed anew if they are left alone, and the priority of the codec.
    pub(crate) anew: (u32, u8),
}

impl Packable {
    /// All pages of a kind.
    pub(crate) fn all(select: Select) -> Packable {
        Packable { select, members: u32::MAX, anew: (0, 0) }
    }
}

/// What packing a group did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Packed {
    /// Pages that are in new extents.
    pub(crate) pages: u64,
    /// Bytes of the pool that this saved.
    pub(crate) saved: u64,
    /// Pages that were left alone and compressed anew, and the bytes that this saved.
    pub(crate) alone: (u64, u64),
    /// Nothing was saved, but pages were used meanwhile.
    pub(crate) in_use: bool,
}

/// The bytes of the pool that come free when those of these pages leave their objects that `leave`.
fn freed(members: &[Member], leave: impl Fn(&Member) -> bool) -> usize {
    let comes_free = |(n, member): &(usize, &Member)| match member.entry {
        0 => leave(member),
        entry => {
            let is_in = |other: &&Member| other.entry == entry;
            !members[..*n].iter().any(|other| is_in(&other))
                && members.iter().filter(is_in).all(&leave)
        }
    };
    members.iter().enumerate().filter(comes_free).map(|(_, member)| member.bytes).sum()
}

impl Engine {
    /// Packs the chosen pages of a group of up to [`EXTENT_PAGES`] pages if they take less memory
    /// then. Those that are in an extent are packed anew, or get objects of their own, if half of
    /// it is gone, or if it has room for a page that comes to it. See [`Packable::anew`].
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
        let packs = |slot: Slot| self.packs(slot, select, comes);
        let fits = slots().filter(|slot| packs(*slot));
        let is_part = |slot: Slot| matches!(slot.kind(), Kind::Shared(_));
        let (fits, parts) = fits.fold((0, false), |(n, p), slot| (n + 1, p || is_part(slot)));
        let (anew, priority) = which.anew;
        if fits < 2 && !parts && anew == 0 {
            return Ok(Packed::default());
        }
        let mut members = [Member::default(); EXTENT_PAGES];
        let mut count = 0;
        for index in group.clone().filter(is_chosen) {
            let page = packing.page(count);
            if let Some(member) = self.take(reader, cpu, index, &packs, page) {
                let is_anew = anew >> (index - first) & 1 == 1;
                let of_part = (member.entry != 0).then_some(packing.priority());
                members[count] = Member { anew: of_part.or(is_anew.then_some(priority)), ..member };
                count += 1;
            }
        }
        let packed = self.pack_members(reader, cpu, &mut members[..count], packing);
        let unused = group.filter(|index| self.unmark(*index)).count();
        let is_nothing = |it: Packed| it.pages + it.saved + it.alone.0 == 0;
        packed.map(|it| Packed { in_use: is_nothing(it) && unused < fits, ..it })
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
                Some(Member { index, bytes, ..Member::default() })
            }
            Kind::Shared(part) => Some(Member { index, entry: part.entry, ..Member::default() }),
            _ => None,
        }
    }

    fn pack_members(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        members: &mut [Member],
        packing: &mut Packing,
    ) -> Result<Packed, IoError> {
        self.note_extents(members);
        let anew = members.iter().any(|member| member.anew.is_some());
        let group = ToPlan { pages: members.len(), now: freed(members, |_| true), anew };
        let alone = |n: usize, page: &Page| {
            let most = members[n].own();
            let Some(priority) = members[n].anew else { return most };
            let bytes = |made: objects::Packed<'_>| self.pool().slot_bytes(made.bytes());
            let made = self.objects.compress(reader, cpu, priority, page, bytes)?;
            Some(most.map_or(made, |most| made.min(most)))
        };
        let Some(plan) = packing.plan(&self.objects, group, alone) else {
            return Ok(Packed::default());
        };
        let (mut packed, mut made) = (Packed::default(), 0);
        for run in plan.runs.iter().filter(|run| !run.is_empty()) {
            if let Some(extent) = packing.compress(run.clone()) {
                let bytes = self.objects.extent_bytes(extent.bytes.len());
                let pages = self.make_extent(cpu, &mut members[run.clone()], extent)?;
                packed.pages += pages;
                made += if pages > 0 { bytes } else { 0 };
            }
        }
        for n in (0..members.len()).filter(|n| plan.leaves_alone(*n)) {
            let member = &mut members[n];
            let Some(bytes) = self.make_single(reader, cpu, *member, packing.page(n))? else {
                continue;
            };
            member.has_moved = true;
            made += bytes;
            if let Some(own) = member.own() {
                let (pages, before) = packed.alone;
                packed.alone = (pages + 1, before + own.saturating_sub(bytes) as u64);
            }
        }
        let saved = freed(members, |member| member.has_moved).saturating_sub(made) as u64;
        packed.saved = saved.saturating_sub(packed.alone.1);
        Ok(packed)
    }

    /// Notes the bytes of extents that all their pages leave.
    fn note_extents(&self, members: &mut [Member]) {
        for n in 0..members.len() {
            let entry = members[n].entry;
            let leave = members.iter().filter(|member| member.entry == entry).count() as u64;
            if entry != 0
                && let Some(shared) = self.shared.peek(entry)
                && self.shared.count(entry) <= leave
            {
                members[n].bytes = self.objects.extent_bytes(shared.object.bytes());
            }
        }
    }

    /// Stores the extent of these pages, and lets the slots of those name it that are still marked.
    /// Returns their number.
    fn make_extent(
        &self,
        cpu: Cpu,
        members: &mut [Member],
        made: Compressed<'_>,
    ) -> Result<u64, IoError> {
        let object = self.with_space(cpu, false, || {
            self.objects.store_packed(cpu, Room::All, made, None).map_err(refused)
        })?;
        let shared = Shared { object, pages: members.len() };
        let Some(entry) = self.enter(cpu, shared) else {
            self.release(cpu, Slot::stored(object));
            return Err(IoError::NoMemory);
        };
        let mut packed = 0;
        for (part, member) in members.iter_mut().enumerate() {
            let new = Slot::shared(Part { entry, part: part as u8, packed: true, huge: false });
            member.has_moved = self.join(cpu, member.index, entry, new);
            packed += u64::from(member.has_moved);
        }
        self.drop_reference(cpu, entry);
        Ok(packed)
    }

    /// Enters a shared object, with one reference: the caller's. `None` if there is no room.
    pub(super) fn enter(&self, cpu: Cpu, shared: Shared) -> Option<u32> {
        if let Some(record) = &self.record {
            record.has_shared_objects();
        }
        self.shared.provide(1);
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

    /// Compresses a marked page anew that was left alone, if it becomes smaller than it is by
    /// itself. Returns the bytes of the pool that it takes then.
    fn make_single(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        member: Member,
        page: &Page,
    ) -> Result<Option<usize>, IoError> {
        let Some(priority) = member.anew else { return Ok(None) };
        let bytes = |object: usize| self.pool().slot_bytes(object);
        let made: Option<Object> = self.with_space(cpu, false, || {
            let store = |packed: objects::Packed<'_>| {
                let is_smaller = member.own().is_none_or(|own| bytes(packed.bytes()) < own);
                is_smaller.then(|| packed.store(Room::All, None)).transpose()
            };
            let stored = self.objects.compress(reader, cpu, priority, page, store);
            stored.ok_or(IoError::Unsupported)?.map_err(refused)
        })?;
        let Some(made) = made else { return Ok(None) };
        if self.replace_marked(cpu, member.index, Slot::stored(made)) {
            return Ok(Some(bytes(made.bytes())));
        }
        self.release(cpu, Slot::stored(made));
        Ok(None)
    }
}
