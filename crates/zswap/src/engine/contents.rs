//! The contents of an entry: made from a page, turned back into a page, and freed.
//!
//! # Why unsafe
//! An entry names an object by a number. The index and the waits for readers promise that the
//! object is there.

use objects::{Compressed, Object, Packed, Shared};
use sync::Reader;
use tiers::WARM_PRIORITY;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Corrupt, fill, same_filled};
use zsmalloc::{Handle, Pass, Room, StoreError};

use super::Zswap;
use crate::Word;
use crate::counts::Count;
use crate::entry::{Content, Part};
use crate::outcome::{LoadError, Reject};

impl Zswap {
    /// Makes an object of a page, if it needs one. `may_refuse`: it is refused if it does not
    /// shrink.
    #[inline]
    pub(super) fn make(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        page: &Page,
        may_refuse: impl FnOnce() -> bool,
    ) -> Result<Content, Reject> {
        if self.policy.same_filled()
            && let Some(pattern) = same_filled(page)
        {
            return Ok(Content::SameFilled(pattern));
        }
        if !self.policy.non_same_filled() {
            return Err(Reject::Disabled);
        }
        // There will be no frame for the object.
        if self.pool().headroom() == 0 {
            return Err(Reject::NoMemory);
        }
        let ratio = self.policy.max_compression_ratio() as usize;
        let stored = self.objects.compress(reader, cpu, 0, page, |packed| {
            let bytes = packed.bytes();
            if bytes == PAGE_SIZE {
                // The page is stored uncompressed, so that pages are written back in the order they
                // were stored (SeongJae Park, linux-mm, "mm/zswap: store <PAGE_SIZE compression
                // failed page as-is", 2025); but it is refused if it could not be written back and
                // its owner can keep it.
                if ratio == 100 && may_refuse() {
                    return Err(Reject::Incompressible);
                }
            }
            if bytes * 100 / PAGE_SIZE > ratio {
                return Err(Reject::Poor);
            }
            packed.store(Room::Open, None).map(Content::Stored).map_err(refused)
        });
        stored.ok_or(Reject::Disabled)?
    }

    /// Fills `page` with the contents of an entry. The calling thread reads `retired`, which keeps
    /// the entry.
    pub(crate) fn expand(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        word: Word,
        page: &mut Page,
    ) -> Result<(), LoadError> {
        if word == Word::LOST {
            return Err(LoadError::Corrupt);
        }
        match self.entries.content(word.number()) {
            Content::SameFilled(pattern) => {
                fill(page, pattern);
                Ok(())
            }
            Content::Stored(object) => {
                // SAFETY: the object was stored here. While the entry is kept, its object is kept
                // too: `retired` frees it after all its readers have left. The engine enters no
                // readers but those that its objects were made with.
                let expanded = unsafe { self.objects.expand(reader, cpu, object, page) };
                self.counted(cpu, expanded)
            }
            Content::Part(Part { pack, part, .. }) => {
                let Shared { object, pages } = self.packs.get(pack);
                let part = (usize::from(part), pages);
                // SAFETY: the object was stored here. The entry is a reference to the pack, and
                // keeps its object. If compaction moves that, `retired` keeps its old place.
                let expanded =
                    unsafe { self.objects.decompress_part(reader, cpu, object, part, page) };
                self.counted(cpu, expanded)
            }
        }
    }

    fn counted(&self, cpu: Cpu, expanded: Result<(), Corrupt>) -> Result<(), LoadError> {
        expanded.map_err(|Corrupt| {
            self.counts.add(cpu, Count::DecompressFail, 1);
            LoadError::Corrupt
        })
    }

    /// Copies the object of an entry as it is, if its page is compressed without a dictionary by a
    /// codec that is taken. Returns the codec and the length. The calling thread reads `retired`,
    /// which keeps the entry.
    pub(crate) fn copy_packed(
        &self,
        reader: &Reader<'_>,
        word: Word,
        is_taken: &dyn Fn(&str) -> bool,
        into: &mut Page,
    ) -> Option<(&'static str, usize)> {
        if word == Word::LOST {
            return None;
        }
        let content = self.entries.content(word.number());
        let Content::Stored(object @ Object::Compressed { codec, length, .. }) = content else {
            return None;
        };
        let chosen = &self.objects.codecs().get(reader, codec)?.chosen;
        let name = chosen.compressor.name();
        if chosen.params.dictionary.is_some() || !is_taken(name) {
            return None;
        }
        // SAFETY: the object was stored here, and is kept as in `expand`.
        unsafe { self.objects.copy_to(object, &mut into[..length]) };
        Some((name, length))
    }

    /// Compresses a page again that `expand` has made, if a device takes it so. Returns the codec
    /// and the length.
    pub(crate) fn pack_again(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        is_taken: &dyn Fn(&str) -> bool,
        copy: &mut Page,
    ) -> Option<(&'static str, usize)> {
        let (_, codec) = self.objects.codecs().current(reader, WARM_PRIORITY)?;
        let name = codec.chosen.compressor.name();
        if codec.chosen.params.dictionary.is_some() || !is_taken(name) {
            return None;
        }
        let page = *copy;
        let bytes = |packed: Packed<'_>| {
            let bytes = packed.compressed()?.bytes;
            copy[..bytes.len()].copy_from_slice(bytes);
            Some(bytes.len())
        };
        let length = self.objects.compress(reader, cpu, WARM_PRIORITY, &page, bytes)??;
        Some((name, length))
    }

    /// Stores compressed bytes in place of `old`, if an entry still names that. The calling thread
    /// reads `retired`, which keeps the entry.
    pub(super) fn store_again(
        &self,
        cpu: Cpu,
        made: Compressed<'_>,
        old: Option<Object>,
    ) -> Result<Object, StoreError> {
        self.objects.store_packed(cpu, Room::Open, made, old)
    }

    /// Stores a page of a pack uncompressed.
    pub(super) fn store_whole(&self, cpu: Cpu, page: &Page) -> Result<Object, StoreError> {
        self.objects.store_huge(cpu, Room::Open, page)
    }

    /// Copies the object of an entry to the place that `pass` took for it. The calling thread reads
    /// `retired`, which keeps the entry; no entry names the place yet.
    pub(super) fn copy_to_place(&self, pass: &Pass<'_>, object: Object, to: Object) {
        // SAFETY: the object was stored here, and is kept as in `expand`. The place was taken for
        // it, and only the calling thread knows it.
        unsafe { pass.copy(object.handle(), to.handle()) }
    }

    /// Frees a place that no entry names: an object was moved away from it and no reader can hold
    /// it any more, or none was moved there.
    pub(super) fn free_place(&self, cpu: Cpu, place: Handle) {
        // SAFETY: the place was taken here. The calling thread alone knows it, and gives it up.
        unsafe { self.pool().free(cpu, place) }
    }

    /// Frees what an entry has in the pool, once, when no thread can find the entry or ever could.
    pub(super) fn free(&self, cpu: Cpu, content: Content) {
        match content {
            Content::SameFilled(_) => {}
            // SAFETY: the object was stored here, and no thread holds it: see above.
            Content::Stored(object) => unsafe { self.objects.free(cpu, object) },
            Content::Part(part) => self.drop_reference(cpu, part.pack),
        }
    }

    /// Drops a reference to a pack, and frees its object with the last one.
    pub(super) fn drop_reference(&self, cpu: Cpu, pack: u32) {
        if let Some(shared) = self.packs.drop_reference(pack) {
            // SAFETY: the object was stored here. No entry has a part of the pack: each dropped its
            // reference when no reader could hold the entry, or the part, any more.
            unsafe { self.objects.free(cpu, shared.object) }
        }
    }
}

fn refused(error: StoreError) -> Reject {
    match error {
        StoreError::OverLimit => Reject::PoolLimit,
        StoreError::NoMemory => Reject::NoMemory,
    }
}
