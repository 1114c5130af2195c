//! The tiers of a device, and the moves of pages between them.
//!
//! | tier | form |
//! |---|---|
//! | hot | as every page is stored |
//! | warm | compressed with the codec of priority 1, or one object for equal pages |
//! | cold | packed: up to four neighbours compressed as one |
//! | out | on the backing device, if writes to it are allowed |
//!
//! A page goes down one tier at a time, for it is compared with other idle pages when it becomes
//! warm. If it is old enough to become cold, too, it is only compared, and packed by the next pass.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::ops::Range;

use block::IoError;
use objects::{Object, Packing, Recompressed};
use pagealloc::MemoryProvider;
use sync::{Reader, ReaderEpochs};
use tiers::{COLD, Memory, WARM, WARM_PRIORITY};
use units::{PAGE_SIZE, Page};
use zcomp::EXTENT_PAGES;

use crate::engine::{Alike, Engine, Packable, Packed};
use crate::engine::{Kind, Slot};
use crate::engine::{Recompression, Select};
use crate::resources::CPU;
use crate::tiering::fingerprints::{Fingerprints, fingerprint};

/// The tier of a page in memory; `None` if its slot holds nothing that could move.
pub(crate) fn tier_of(engine: &Engine, reader: &Reader<'_>, slot: Slot) -> Option<usize> {
    match slot.kind() {
        Kind::Stored(Object::Compressed { codec, .. }) => {
            Some(usize::from(engine.priority_of(reader, codec) > 0))
        }
        Kind::Stored(Object::Huge(_)) => Some(0),
        Kind::Shared(part) if part.packed => Some(COLD),
        Kind::Shared(_) => Some(WARM),
        _ => None,
    }
}

/// Whether a page may become a part of an extent, as its slot says.
pub(crate) fn packs(slot: Slot) -> bool {
    match slot.kind() {
        Kind::Stored(_) => !slot.is_incompressible(),
        Kind::Shared(part) => part.packed,
        _ => false,
    }
}

/// Whether memory comes free when this page leaves it. An object of several pages stays until all
/// have left; so only extents leave, whose pages are neighbours.
pub(crate) fn leaves(slot: Slot) -> bool {
    match slot.kind() {
        Kind::Stored(_) => true,
        Kind::Shared(part) => part.packed,
        _ => false,
    }
}

/// Pages of a group, a bit for each, the lowest for the first.
pub(crate) type Members = u32;

/// What is to be done with the pages of an aligned group.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Group {
    /// Its first page, and the page after its last.
    pub(crate) first: usize,
    /// See `first`.
    pub(crate) end: usize,
    /// Pages that become hot.
    pub(crate) up: Members,
    /// Hot pages that become warm.
    pub(crate) to_warm: Members,
    /// Those of them that are only compared with others, because they become cold soon.
    pub(crate) compared: Members,
    /// Pages that become cold.
    pub(crate) to_cold: Members,
    /// Those of them that are hot.
    pub(crate) hot: Members,
    /// Pages that may be in an extent with those.
    pub(crate) with_cold: Members,
    /// An extent is to be packed anew because half of its pages are gone.
    pub(crate) is_wasted: bool,
    /// What to remember of each page once it has moved.
    pub(crate) memories: [Memory; EXTENT_PAGES],
}

impl Group {
    /// The group of a page, of which nothing is to be done yet. No page has the number `end`.
    pub(crate) fn of(index: usize, end: usize) -> Group {
        let first = index / EXTENT_PAGES * EXTENT_PAGES;
        Group { first, end: (first + EXTENT_PAGES).min(end), ..Group::default() }
    }

    /// The pages of a set, and what to remember of them.
    pub(crate) fn pages(&self, members: Members) -> impl Iterator<Item = (usize, Memory)> + use<> {
        let (first, memories) = (self.first, self.memories);
        (0..EXTENT_PAGES)
            .filter(move |member| members >> member & 1 == 1)
            .map(move |member| (first + member, memories[member]))
    }

    /// Pages that would be packed.
    pub(crate) fn packs(&self) -> bool {
        self.is_wasted || self.to_cold != 0 && (self.to_cold | self.with_cold).count_ones() > 1
    }

    /// Hot pages that would become cold become warm if the group is not packed.
    pub(crate) fn settle(&mut self) {
        if !self.packs() {
            self.to_warm |= self.hot;
            self.to_cold &= !self.hot;
        }
    }

    /// Whether nothing is to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.up == 0 && self.to_warm == 0 && !self.packs()
    }
}

/// The pages of a device, and the present second.
pub(crate) struct Place<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) readers: &'a ReaderEpochs,
    pub(crate) provider: &'a dyn MemoryProvider,
    pub(crate) pages: usize,
    pub(crate) now: u32,
    /// How often pages were read, written and freed so far.
    pub(crate) uses: u64,
}

/// What one thread needs to move pages.
pub(crate) struct Mover {
    packing: Option<Packing>,
    fingerprints: Fingerprints,
    alike: Box<Alike>,
    page: Box<Page>,
}

impl Mover {
    /// For a device of `pages` pages.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub(crate) fn new(provider: &dyn MemoryProvider, pages: usize) -> Result<Mover, String> {
        let fingerprints = Fingerprints::new(provider, pages).map_err(|error| error.to_string())?;
        let alike = Alike::new().ok_or("no memory for the pages to compare")?;
        let page = Box::new([0; PAGE_SIZE]);
        Ok(Mover { packing: None, fingerprints, alike: Box::new(alike), page })
    }

    /// Prepares for a pass: finds the codec that packs pages now. Without one, or without memory
    /// for it, no page becomes cold. A device that has grown gets a larger table of fingerprints.
    pub(crate) fn begin(&mut self, place: &Place<'_>) {
        let Place { engine, readers, provider, pages, .. } = *place;
        if self.fingerprints.pages() < pages
            && let Ok(larger) = Fingerprints::new(provider, pages)
        {
            self.fingerprints = larger;
        }
        let reader = readers.enter(CPU);
        if !self.packing.as_ref().is_some_and(|it| engine.objects().is_current(&reader, it)) {
            self.packing = engine.objects().any_packing(&reader).unwrap_or(None);
        }
    }

    /// Whether pages can become cold.
    pub(crate) fn can_pack(&self) -> bool {
        self.packing.is_some()
    }

    /// Makes a hot page warm, or `compares` it only with those that became so before. The caller is
    /// no reader.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn warm(
        &mut self,
        place: &Place<'_>,
        index: usize,
        compares: bool,
    ) -> Result<Recompressed, IoError> {
        let from = place.engine.peek(index).object().map_or(0, Object::bytes);
        match self.share(place, index)? {
            true => Ok(Recompressed::Done { from, to: 0 }),
            false if compares => Ok(Recompressed::NoSmaller),
            false => self.recompress(place, index),
        }
    }

    fn recompress(&self, place: &Place<'_>, index: usize) -> Result<Recompressed, IoError> {
        let Place { engine, readers, .. } = *place;
        let (priority, select) = (WARM_PRIORITY, Select::Any);
        let how = Recompression { priority, select, threshold: 0, last: false };
        engine.recompress(&readers.enter(CPU), CPU, index, how)
    }

    /// Lets a page share the object of an equal page that became warm before. Returns whether it
    /// does.
    fn share(&mut self, place: &Place<'_>, index: usize) -> Result<bool, IoError> {
        let engine = place.engine;
        let Some(print) = self.print_of_own(engine, index) else { return Ok(false) };
        let other = self.fingerprints.swap(print, index);
        let Some(other) = other.filter(|other| *other != index) else { return Ok(false) };
        if self.print_of_own(engine, other) == Some(print) {
            // It was compared only. Its object becomes that of many pages.
            let _ = self.recompress(place, other);
        }
        let alike = &mut self.alike;
        let shared = engine
            .share(CPU, other, Select::Any, alike)
            .and_then(|_| engine.share(CPU, index, Select::Any, alike));
        engine.end_alike(CPU, alike);
        shared
    }

    /// The fingerprint of a page that shares no object.
    fn print_of_own(&mut self, engine: &Engine, index: usize) -> Option<u64> {
        let looked = engine.look_at(CPU, index, Select::Any, &mut self.page);
        (looked == Some(false)).then(|| fingerprint(&self.page))
    }

    /// Packs the pages of a group that become cold with those that may join them.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`; the pages have their contents. `Unsupported`: the codec was changed.
    pub(crate) fn pack(&mut self, place: &Place<'_>, group: &Group) -> Result<Packed, IoError> {
        let Place { engine, readers, .. } = *place;
        let reader = readers.enter(CPU);
        let packing = self.packing.as_mut().filter(|it| engine.objects().is_current(&reader, it));
        let Some(packing) = packing else { return Err(IoError::Unsupported) };
        let members = group.to_cold | group.with_cold;
        let pages: Range<usize> = group.first..group.end;
        let which = Packable { select: Select::Any, members, anew: group.hot };
        engine.pack(&reader, CPU, pages, which, packing)
    }

    /// Makes a page hot. Returns whether it did.
    pub(crate) fn raise(&self, place: &Place<'_>, index: usize) -> bool {
        let Place { engine, readers, .. } = *place;
        // Without space, it stays where it is.
        engine.raise(&readers.enter(CPU), CPU, index).unwrap_or(false)
    }
}
