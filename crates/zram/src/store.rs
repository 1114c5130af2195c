//! The store of pages as the device sees it, whatever its variants.

use alloc::sync::Arc;

use block::{IoError, Visit};
use control::Fault;
use sync::Reader;
use units::{Cpu, Page};
use zcomp::{Chosen, OneStream};
use zsmalloc::Pool;

use crate::blocks::Backing;
use crate::slot::{Backed, Kind, Slot};

/// Where a page came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded {
    /// From memory: it is there.
    Page,
    /// It is on the backing device: whoever does I/O fetches the block, which must be kept from
    /// reuse by a reader of the backing device taken before the slot was looked at.
    Backed(Backed),
}

/// Which pages something is done to, of those that lie in memory and are not same-filled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Select {
    /// All of them.
    #[default]
    Any,
    /// Those nobody used since they were marked idle.
    Idle,
    /// Those that would not shrink.
    Huge,
    /// Those that would not shrink and are idle.
    HugeIdle,
    /// Those that no codec of the device makes smaller.
    Incompressible,
}

impl Select {
    /// Is this slot one of them?
    #[must_use]
    pub const fn admits(self, slot: Slot) -> bool {
        let huge = match slot.kind() {
            Kind::Huge(_) => true,
            Kind::Compressed { .. } => false,
            _ => return false,
        };
        match self {
            Select::Any => true,
            Select::Idle => slot.is_idle(),
            Select::Huge => huge,
            Select::HugeIdle => huge && slot.is_idle(),
            Select::Incompressible => slot.is_incompressible(),
        }
    }
}

/// How pages are to be compressed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recompression {
    /// By the codec of this priority, 1 to 3.
    pub priority: u8,
    /// These.
    pub select: Select,
    /// Only objects of at least so many bytes, and only results below it; 0 for any.
    pub threshold: usize,
    /// There is no codec of a higher priority: what does not shrink now never will.
    pub last: bool,
}

/// What became of a page that was to be compressed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recompressed {
    /// It was none to try, or it was used meanwhile.
    Skipped,
    /// The result took no less memory and was thrown away.
    InVain,
    /// It takes less memory now.
    Smaller,
}

/// A store of pages, whatever its variants. Indices must be below its capacity.
/// Every method may be called by any number of threads at once; the reader is one of the readers
/// the store's pool was made with.
pub trait PageStore: Send + Sync {
    /// Replaces a page.
    ///
    /// # Errors
    /// `NoSpace` or `NoMemory`; the page is as it was.
    fn store(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &Page,
    ) -> Result<(), IoError>;

    /// Reads a page, or tells where it is.
    ///
    /// # Errors
    /// `Corrupt`; what `page` holds then is undefined.
    fn load(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Result<Loaded, IoError>;

    /// Makes a page of the bytes that were fetched for it.
    ///
    /// # Errors
    /// `Corrupt`; what `page` holds then is undefined.
    fn unpack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        place: Backed,
        bytes: &Page,
        page: &mut Page,
    ) -> Result<(), IoError>;

    /// Replaces a page by what `edit` makes of it, as one step: no other change to the page comes
    /// between. `edit` may be run more than once, each time on the contents of the moment. A page
    /// on the backing device is only told of, unless `known` says what that place holds.
    ///
    /// # Errors
    /// As of `store` and `load`; the page is as it was.
    fn modify(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        known: Option<(Backed, &Page)>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError>;

    /// Empties `count` pages from `first` on.
    fn discard(&self, reader: &Reader<'_>, cpu: Cpu, first: usize, count: usize);

    /// Makes a page one of zeroes that is allocated.
    fn store_zeroes(&self, cpu: Cpu, index: usize);

    /// Tells what `count` pages from `first` on are, in runs of one kind.
    fn extents(&self, first: usize, count: usize, visit: Visit<'_>);

    /// The slot of a page as it was a moment ago; nothing it names may be touched.
    fn peek(&self, index: usize) -> Slot;

    /// The first index from `from` on that may have contents; `end` if there is none before it.
    fn next_touched(&self, from: usize, end: usize) -> usize;

    /// Changes what is known of a page, not its contents; `next` declines with nothing and may be
    /// run more than once. Tells whether it changed.
    fn alter(&self, index: usize, next: &mut dyn FnMut(Slot) -> Option<Slot>) -> bool;

    /// Puts a marked page into `block` as it is to be written back to place `block`, compressed as
    /// it is or not, and tells the place; nothing if it is marked no more.
    ///
    /// # Errors
    /// `Corrupt`.
    fn export(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        to: Export<'_>,
    ) -> Result<Option<Backed>, IoError>;

    /// Makes a page one that is at `place`, if it is still marked: the commit point of writeback.
    fn finish_writeback(&self, reader: &Reader<'_>, cpu: Cpu, index: usize, place: Backed) -> bool;

    /// Compresses a page again.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is as it was.
    fn recompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        how: Recompression,
    ) -> Result<Recompressed, IoError>;

    /// Makes `chosen` the codec of a priority, of all objects made from now on. Objects that
    /// are there keep theirs. The first `pages` pages are searched for codecs that nobody needs
    /// any more. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when objects of too many codecs are there; nothing has changed then.
    fn install(&self, priority: u8, chosen: Chosen, pages: usize) -> Result<(), Fault>;

    /// The priority a codec has, or had when its objects were made.
    fn priority_of(&self, reader: &Reader<'_>, codec: u8) -> u8;

    /// Lets at most `count` streams of each codec be used at once.
    ///
    /// # Errors
    /// [`OneStream`], and nothing has changed.
    fn limit_streams(&self, reader: &Reader<'_>, count: usize) -> Result<(), OneStream>;

    /// When a page was last used, in seconds of the machine's clock; nothing if that is not kept.
    fn last_access(&self, index: usize) -> Option<u32>;

    /// Where pages are written back to.
    fn backing(&self) -> Option<&Arc<Backing>>;

    /// The pool of objects. Objects of pages that were given up may still be in it.
    fn pool(&self) -> &Pool;

    /// Frees the objects of pages given up before, after waiting for their readers if need be.
    fn give_back(&self, cpu: Cpu);

    /// Pages it has room for.
    fn capacity(&self) -> usize;

    /// Bytes of memory the tables of the first `pages` pages take by now.
    fn table_bytes(&self, pages: usize) -> u64;

    /// The name of the slot scheme.
    fn scheme(&self) -> &'static str;

    /// How many streams there are for new objects.
    fn streams(&self, reader: &Reader<'_>) -> usize;
}

/// What a page is exported as.
pub struct Export<'a> {
    /// The bytes of the block.
    pub bytes: &'a mut Page,
    /// The block's number.
    pub block: u32,
    /// As it is in memory, or as a page.
    pub compressed: bool,
}
