//! A device in a log that outlives its process.

use core::fmt;

use pagealloc::{MemoryProvider, NoMemory};
use sync::atomic::Ordering;

use crate::backing::{Backing, Misclaimed};
use crate::device::LogDevice;
use crate::table::Whereabouts;
use crate::words::{HAS_CODECS, NotLeft};

/// A finding of [`LogDevice::recover`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// What was kept of this segment cannot be: no object is there.
    Segment(u32),
    /// The word of this page cannot be. Its reads fail until it is written again.
    Page(u64, Option<Misclaimed>),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Segment(number) => {
                write!(f, "what was kept of segment {number} of its log cannot be (K24)")
            }
            Finding::Page(page, None) => {
                write!(f, "page {page} of its log: it has a word that cannot be (K25)")
            }
            Finding::Page(page, Some(why)) => write!(f, "page {page} of its log: {why}"),
        }
    }
}

impl LogDevice {
    /// Lets the pages outlive the process from now on: another one has the memory of `words` and
    /// that of the table, which [`LogDevice::new`] was given. Nothing was written yet.
    ///
    /// # Errors
    /// Memory is out; the pages end with the process then.
    pub fn keep(&self, words: &dyn MemoryProvider) -> Result<(), NoMemory> {
        self.log.keep_with(words, HAS_CODECS)
    }

    /// Goes on with what another process left in the memory of `words` and of the table. `found`
    /// is told what cannot be. Nothing was done with this device yet, and no write of the other
    /// process is under way. If this process dies meanwhile, another can do the same.
    ///
    /// # Errors
    /// See [`NotLeft`]; nothing has changed.
    pub fn recover(
        &self,
        words: &dyn MemoryProvider,
        mut found: impl FnMut(Finding),
    ) -> Result<(), NotLeft> {
        self.log.recover(words, &mut |segment| found(Finding::Segment(segment)))?;
        for index in 0..self.table.len() {
            let why = match self.table.get(index) {
                Whereabouts::Logged(place) => match self.log.claim(place) {
                    Ok(()) => continue,
                    Err(why) => Some(why),
                },
                Whereabouts::Lost if !self.table.is_lost(index) => None,
                _ => continue,
            };
            self.table.set(index, Whereabouts::Lost);
            found(Finding::Page(index as u64, why));
        }
        self.log.flag_left(HAS_CODECS);
        self.log.adopt();
        self.written.store(self.log.last_time(), Ordering::Relaxed);
        Ok(())
    }
}
