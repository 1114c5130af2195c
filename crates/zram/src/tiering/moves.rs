//! The tiers of a device, and the moves of pages between them.
//!
//! | tier | form |
//! |---|---|
//! | hot | as every page is stored |
//! | warm | compressed with the codec of priority 1, or one object for equal pages |
//! | cold | packed: up to four neighbours compressed as one |
//! | out | on the backing device, if writes to it are allowed |
//!
//! A page is compared with other idle pages before it becomes warm. If it is old enough to become
//! cold, too, it is only compared, and the next pass packs it with its neighbours.

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
    /// Those of them that are only compared with others: the next pass packs them.
    pub(crate) to_compare: Members,
    /// Pages that become cold.
    pub(crate) to_cold: Members,
    /// Hot pages that were compared, and not compressed again yet: some of those that become cold,
    /// or warm if the group is not packed.
    pub(crate) compared: Members,
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

    /// Hot pages that cannot become cold, because no neighbour does, become warm; but they wait for
    /// neighbours that are compared.
    pub(crate) fn settle(&mut self) {
        if self.packs() {
            return;
        }
        let alone = self.to_cold & self.compared;
        self.to_cold &= !alone;
        if self.to_compare == 0 {
            self.to_warm |= alone;
            let memories = self.memories.iter_mut().enumerate();
            let of_alone = memories.filter(|(member, _)| alone >> member & 1 == 1);
            of_alone.for_each(|(_, memory)| *memory = memory.in_tier(WARM));
        }
    }

    /// Whether a set has a page of the group.
    pub(crate) fn has(&self, members: Members, index: usize) -> bool {
        members >> (index - self.first) & 1 == 1
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

    /// Makes a hot page warm. See [`Mover::compare`].
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn warm(
        &mut self,
        place: &Place<'_>,
        index: usize,
        is_compared: &dyn Fn(usize) -> bool,
    ) -> Result<Recompressed, IoError> {
        match self.compare(place, index, is_compared)? {
            Recompressed::NoSmaller => self.recompress(place, index),
            done => Ok(done),
        }
    }

    /// Makes a page warm that was compared. The caller is no reader.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn recompress(
        &self,
        place: &Place<'_>,
        index: usize,
    ) -> Result<Recompressed, IoError> {
        let Place { engine, readers, .. } = *place;
        let (priority, select) = (WARM_PRIORITY, Select::Any);
        let how = Recompression { priority, select, threshold: 0, last: false };
        engine.recompress(&readers.enter(CPU), CPU, index, how)
    }

    /// Lets a hot page share the object of an equal page that was compared before; `NoSmaller` if
    /// there is none. `is_compared` tells of pages that are still hot. The caller is no reader.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn compare(
        &mut self,
        place: &Place<'_>,
        index: usize,
        is_compared: &dyn Fn(usize) -> bool,
    ) -> Result<Recompressed, IoError> {
        let engine = place.engine;
        let from = engine.peek(index).object().map_or(0, Object::bytes);
        let Some(print) = self.print_of_own(engine, index)? else { return Ok(Recompressed::InUse) };
        let other = self.fingerprints.swap(print, index).filter(|other| *other != index);
        let Some(other) = other else { return Ok(Recompressed::NoSmaller) };
        // Its object becomes that of many pages.
        if is_compared(other) && self.print_of_own(engine, other) == Ok(Some(print)) {
            let _ = self.recompress(place, other);
        }
        let alike = &mut self.alike;
        let shared = engine
            .share(CPU, other, Select::Any, alike)
            .and_then(|_| engine.share(CPU, index, Select::Any, alike));
        engine.end_alike(CPU, alike);
        Ok(match shared? {
            true => Recompressed::Done { from, to: 0 },
            false => Recompressed::NoSmaller,
        })
    }

    /// The fingerprint of a page, if it shares no object.
    ///
    /// # Errors
    /// `Corrupt`.
    fn print_of_own(&mut self, engine: &Engine, index: usize) -> Result<Option<u64>, IoError> {
        let shares = engine.look_at(CPU, index, Select::Any, &mut self.page)?;
        Ok((shares == Some(false)).then(|| fingerprint(&self.page)))
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
        let anew = (group.compared, WARM_PRIORITY);
        let which = Packable { select: Select::Any, members, anew };
        engine.pack(&reader, CPU, pages, which, packing)
    }

    /// Makes a page hot. Returns whether it did.
    pub(crate) fn raise(&self, place: &Place<'_>, index: usize) -> bool {
        let Place { engine, readers, .. } = *place;
        // Without space, it stays where it is.
        engine.raise(&readers.enter(CPU), CPU, index).unwrap_or(false)
    }
}
