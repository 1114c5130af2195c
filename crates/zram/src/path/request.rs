//! One request: the parts of the device that it needs.

use alloc::sync::Arc;

use block::IoError;
use sync::Reader;
use units::{Cpu, Page};
use zsmalloc::Room;

use crate::counts::Counts;
use crate::engine::{Ahead, By, Engine, Fetched, Loaded, Maker};

/// A request under way: its engine, its counters, its reader, its CPU and its share of the memory.
/// Every layer below the device gets this value.
pub(crate) struct Request<'a> {
    pub(crate) engine: &'a Engine,
    /// The slot of the first page of the device.
    pub(crate) base: usize,
    /// The engine, to be shared by a request that ends its reader and goes on.
    pub(crate) shared: &'a Arc<Engine>,
    pub(crate) counts: &'a Counts,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) cpu: Cpu,
    /// Whose frames its stores take.
    pub(crate) room: Room,
}

impl<'a> Request<'a> {
    /// The slot of a page of the device.
    #[inline]
    pub(crate) fn slot(&self, page: u64) -> usize {
        self.base + page as usize
    }

    /// Who changes pages of the device.
    #[inline]
    pub(crate) fn by(&self) -> By<'a> {
        By { cpu: self.cpu, counts: Some(self.counts) }
    }

    #[inline]
    fn maker(&self) -> Maker<'a> {
        Maker { reader: self.reader, by: self.by(), room: self.room, breaks_cut: true }
    }

    /// [`Engine::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self, index: u64, part: Ahead) {
        self.engine.prefetch(self.slot(index), part);
    }

    /// [`Engine::store`].
    #[inline]
    pub(crate) fn store(&self, index: u64, page: &Page) -> Result<(), IoError> {
        self.engine.store(self.maker(), self.slot(index), page)
    }

    /// [`Engine::load`].
    #[inline]
    pub(crate) fn load(&self, index: u64, page: &mut Page) -> Result<Loaded, IoError> {
        self.engine.load(self.reader, self.cpu, self.slot(index), page)
    }

    /// [`Engine::modify`].
    pub(crate) fn modify(
        &self,
        index: u64,
        known: Option<Fetched<'_>>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        self.engine.modify(self.maker(), self.slot(index), known, edit)
    }

    /// Decompresses what was fetched from the place where page `index` was a moment ago. Returns
    /// false if it is not there now: then its codec may be gone.
    pub(crate) fn unpack(
        &self,
        index: u64,
        fetched: Fetched<'_>,
        page: &mut Page,
    ) -> Result<bool, IoError> {
        // While a slot names the place and this reader lives, the codec stays.
        if !self.engine.is_at(self.slot(index), fetched.place) {
            return Ok(false);
        }
        self.engine.unpack(self.reader, self.cpu, fetched, page).map(|()| true)
    }

    /// Counts a page read, and a failure if it failed.
    #[inline]
    pub(crate) fn count_read(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.counts.add_read(self.cpu, result)
    }

    /// Counts a page write, and a failure if it failed.
    #[inline]
    pub(crate) fn count_write(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.counts.add_write(self.cpu, result)
    }
}
