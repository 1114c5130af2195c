//! One request: the parts of the device that it needs.

use block::IoError;
use sync::Reader;
use units::{Cpu, Page};

use crate::counts::{Count, Counts};
use crate::engine::Engine;
use crate::page_ops::Loaded;
use crate::resources::Design;
use crate::slot::Backed;

/// A request under way: its engine, its counters, its reader and its CPU. Every layer below the
/// device gets this value.
pub(crate) struct Request<'a, D: Design> {
    pub(crate) engine: &'a Engine<D>,
    pub(crate) counts: &'a Counts,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) cpu: Cpu,
}

impl<D: Design> Request<'_, D> {
    /// [`Engine::store`].
    #[inline]
    pub(crate) fn store(&self, index: usize, page: &Page) -> Result<(), IoError> {
        self.engine.store(self.reader, self.cpu, index, page)
    }

    /// [`Engine::load`].
    #[inline]
    pub(crate) fn load(&self, index: usize, page: &mut Page) -> Result<Loaded, IoError> {
        self.engine.load(self.reader, self.cpu, index, page)
    }

    /// [`Engine::modify`].
    pub(crate) fn modify(
        &self,
        index: usize,
        known: Option<(Backed, &Page)>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        self.engine.modify(self.reader, self.cpu, index, known, edit)
    }

    /// Counts a page read, and a failure if it failed.
    #[inline]
    pub(crate) fn count_read(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.count(Count::Reads, Count::FailedReads, result)
    }

    /// Counts a page write, and a failure if it failed.
    #[inline]
    pub(crate) fn count_write(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.count(Count::Writes, Count::FailedWrites, result)
    }

    #[inline]
    fn count(
        &self,
        done: Count,
        failed: Count,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        self.counts.add(self.cpu, done, 1);
        if result.is_err() {
            self.counts.add(self.cpu, failed, 1);
        }
        result
    }
}
