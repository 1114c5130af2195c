//! Packing of pages: neighbours in a swap area, which mostly are of one program, are compressed as
//! one object, a *pack*, if they take less memory then.
//!
//! The pages of a group are copied out and compressed with nothing held but the codecs. Then the
//! pack gets its entry in the table of shared objects, and the entry of each page comes to name its
//! part of it, as recompression does it: that is the commit, page by page. A reference to the pack
//! is counted before it is made, and dropped when no reader can hold it any more.

use objects::{Compressed, Object, Packing, Plan, Shared, ToPlan};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{EXTENT_PAGES, Stream};

use super::Zswap;
use super::exchange::Exchanged;
use crate::Word;
use crate::entry::{Content, Due, Part};
use crate::warming::Tool;

/// What a pass wants to do with a page.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) due: Due,
    /// The passes that a page must rest.
    pub(super) passes: u8,
}

/// A page that may be packed, and what it had when it was copied out.
#[derive(Clone, Copy)]
struct Member {
    word: Word,
    now: Content,
}

/// The pages of a group that may be packed, in the first places, and what their entries had before
/// they got something else.
#[derive(Default)]
struct Group {
    members: [Option<Member>; EXTENT_PAGES],
    displaced: [Option<Content>; EXTENT_PAGES],
}

impl Group {
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }

    /// Whether the page of an entry got something else, or is in a pack that stays.
    fn has_moved(&self, number: u32) -> bool {
        let mut members = self.members().zip(&self.displaced);
        let own = members.find(|(member, _)| member.word.number() == number);
        own.is_some_and(|(member, old)| old.is_some() || member.is_part())
    }
}

/// What packing did.
#[derive(Clone, Copy, Default)]
pub(super) struct Packed {
    /// Pages that are in new packs.
    pub(super) pages: u64,
    /// Some pages have something else now.
    pub(super) has_moved: bool,
    /// Bytes of the pool that this saved at least, if all pages are still there; 0 if none moved.
    pub(super) saved: u64,
    /// Nothing is left to do with the page that was due.
    pub(super) is_done: bool,
}

impl Zswap {
    /// Packs the page of an entry with those of its group that rest, too. The calling thread is no
    /// reader, and has no stream and no lock that a reader may want.
    pub(super) fn pack(&self, cpu: Cpu, number: u32, wanted: Wanted, tool: &mut Tool) -> Packed {
        let is_last = wanted.due == Due::Last;
        let mut packed = Packed { is_done: is_last, ..Packed::default() };
        if !self.packs.has_room() {
            self.ring_for_memory();
            return packed;
        }
        // It keeps the codec, whose number is in no object yet.
        let reader = self.readers.enter(cpu);
        let Tool { stream, packing, .. } = tool;
        if !self.may_recompress() || !self.objects.is_current(&reader, packing) {
            return packed;
        }
        let mut group = self.gather(&reader, cpu, number, wanted, packing).unwrap_or_default();
        if let Some((plan, saved)) = self.plan(&group, (stream, packing)) {
            let tools = (stream, packing);
            packed.pages = self.carry_out(&reader, cpu, &mut group, &plan, tools);
            packed.has_moved = group.displaced.iter().any(Option::is_some);
            packed.saved = if packed.has_moved { saved } else { 0 };
        }
        packed.is_done |= group.has_moved(number);
        if is_last {
            group.members().for_each(|member| self.settle(cpu, member.word));
            // It may be none of them. A mark on another life keeps a page as it is, no more.
            self.entries.set_settled(number);
        }
        drop(reader);
        group.displaced.into_iter().flatten().for_each(|old| self.retire_old(cpu, old));
        packed
    }

    /// How the pages of a group take least memory, if it is less than now, and what that saves.
    fn plan(
        &self,
        group: &Group,
        (stream, packing): (&mut Stream, &mut Packing),
    ) -> Option<(Plan, u64)> {
        let (pages, is_packed) = (group.members().count(), group.members().any(Member::is_part));
        if pages < 2 && !is_packed {
            return None;
        }
        let now = self.bytes_now(group);
        let alone = |n: usize, page: &Page| self.alone(group.members[n]?, page, stream);
        let plan = packing.plan(&self.objects, ToPlan { pages, now, anew: is_packed }, alone)?;
        let saved = now.saturating_sub(plan.bytes) as u64;
        Some((plan, saved))
    }

    /// Puts the pages of a group together as planned. Returns how many are in new packs.
    fn carry_out(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        group: &mut Group,
        plan: &Plan,
        (stream, packing): (&mut Stream, &mut Packing),
    ) -> u64 {
        let mut packed = 0;
        for run in plan.runs.iter().filter(|run| !run.is_empty()) {
            let places = (&group.members[run.clone()], &mut group.displaced[run.clone()]);
            if let Some(made) = packing.compress(run.clone()) {
                packed += self.make_pack(reader, cpu, places, made);
            }
        }
        for n in (0..EXTENT_PAGES).filter(|n| plan.leaves_alone(*n)) {
            if let Some(member) = group.members[n].filter(Member::is_part) {
                let page = packing.page(n);
                group.displaced[n] = self.make_single(reader, cpu, member, page, stream);
            }
        }
        packed
    }

    /// Copies the pages of the group of an entry that may be packed with it. `None` if others will
    /// rest before long, so that it is better to wait for them.
    fn gather(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u32,
        Wanted { due, passes }: Wanted,
        packing: &mut Packing,
    ) -> Option<Group> {
        let _reading = self.retired.read(cpu);
        let own = self.named(reader, cpu, number)?;
        let (key, memcg) = (self.entries.key(number), self.entries.memcg(number));
        let area = self.area_of(reader, key)?;
        let first = key.offset / EXTENT_PAGES as u64 * EXTENT_PAGES as u64;
        let group = first..(first + EXTENT_PAGES as u64).min(area.pages);
        let (mut gathered, mut count, mut waits) = (Group::default(), 0, false);
        for word in group.filter_map(|offset| area.index.get(cpu, offset)) {
            if word == Word::LOST || self.entries.memcg(word.number()) != memcg {
                continue;
            }
            let now = self.entries.content(word.number());
            let packs = match now {
                Content::Stored(object) => matches!(object, Object::Compressed { .. }),
                Content::Part(part) => due == Due::Last || self.is_wasted(part.pack),
                Content::SameFilled(_) => false,
            };
            let rests = word == own || self.entries.rests(word.number(), passes);
            waits |= packs && !rests;
            if packs && rests && self.expand(reader, cpu, word, packing.page(count)).is_ok() {
                gathered.members[count] = Some(Member { word, now });
                count += 1;
            }
        }
        let goes_on = due == Due::Last || gathered.members().any(Member::is_part);
        (goes_on || !waits).then_some(gathered)
    }

    /// Whether half the pages of a pack are gone; a guess if it is given up meanwhile.
    pub(super) fn is_wasted(&self, pack: u32) -> bool {
        let (shared, pages) = (self.packs.peek(pack), self.packs.count(pack));
        shared.is_some_and(|shared| 2 * pages <= shared.pages as u64)
    }

    /// The bytes that come free when all these pages leave their objects.
    fn bytes_now(&self, group: &Group) -> usize {
        let pack_of = |member: &Member| match member.now {
            Content::Part(part) => Some(part.pack),
            _ => None,
        };
        let packs = || group.members().map(pack_of);
        let bytes = |(n, member): (usize, &Member)| match member.now {
            Content::SameFilled(_) => 0,
            Content::Stored(object) => self.pool().slot_bytes(object.bytes()),
            Content::Part(Part { pack, .. }) => {
                let is_first = packs().take(n).all(|other| other != Some(pack));
                let leave = packs().filter(|other| *other == Some(pack)).count() as u64;
                let shared = self.packs.peek(pack).filter(|_| self.packs.count(pack) <= leave);
                let bytes = |shared: Shared| self.objects.extent_bytes(shared.object.bytes());
                shared.filter(|_| is_first).map_or(0, bytes)
            }
        };
        group.members().enumerate().map(bytes).sum()
    }

    /// The bytes that a page takes by itself.
    fn alone(&self, member: Member, page: &Page, stream: &mut Stream) -> Option<usize> {
        let bytes = match member.now {
            Content::Stored(object) => object.bytes(),
            _ => self.compress_alone(page, stream).map_or(PAGE_SIZE, <[u8]>::len),
        };
        Some(self.pool().slot_bytes(bytes))
    }

    fn compress_alone<'s>(&self, page: &Page, stream: &'s mut Stream) -> Option<&'s [u8]> {
        stream.compress(page).filter(|bytes| bytes.len() <= self.pool().raw_threshold())
    }

    /// Makes a pack of these pages, and lets the entries of those name it that are still there.
    /// Returns their number, and puts what they had before beside them.
    fn make_pack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (members, displaced): (&[Option<Member>], &mut [Option<Content>]),
        made: Compressed<'_>,
    ) -> u64 {
        let codec = made.codec;
        let Ok(object) = self.store_again(cpu, made, None) else { return 0 };
        self.record.has_packs();
        let shared = Shared { object, pages: members.len() };
        let Some(pack) = self.packs.insert(shared) else {
            self.free(cpu, Content::Stored(object));
            return 0;
        };
        let mut packed = 0;
        for (n, (member, old)) in members.iter().flatten().zip(displaced).enumerate() {
            let part = Part { pack, part: n as u8, share: shared.share(), codec };
            let make = |_| {
                self.packs.hold(pack);
                Some(Content::Part(part))
            };
            let exchanged = self.put_in_place(reader, cpu, member.word, make);
            packed += u64::from(exchanged.is_some());
            *old = exchanged.map(|it| it.old);
        }
        self.drop_reference(cpu, pack);
        packed
    }

    /// Gives a page of a pack an object of its own. Returns what it had before.
    fn make_single(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        member: Member,
        page: &Page,
        stream: &mut Stream,
    ) -> Option<Content> {
        let Content::Part(Part { codec, .. }) = member.now else { return None };
        let bytes = self.compress_alone(page, stream);
        let make = |_| {
            let object = match bytes {
                Some(bytes) => self.store_again(cpu, Compressed { bytes, codec }, None),
                None => self.store_whole(cpu, page),
            };
            object.ok().map(Content::Stored)
        };
        let exchanged = self.put_in_place(reader, cpu, member.word, make);
        exchanged.map(|Exchanged { old, .. }| old)
    }

    /// A pass has nothing more to do with a page that was recompressed.
    fn settle(&self, cpu: Cpu, word: Word) {
        let _reading = self.retired.read(cpu);
        if self.entries.word(word.number()) == Some(word) {
            self.entries.set_settled(word.number());
        }
    }
}

impl Member {
    fn is_part(&self) -> bool {
        matches!(self.now, Content::Part(_))
    }
}
