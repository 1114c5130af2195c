//! A log as a backing device. It may outlive its process: see [`crate::words`].

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use core::ops::Range;

use block::{BlockDevice, IoError};
use pagealloc::{MemoryProvider, NoMemory};
use sync::Reader;
use sync::atomic::Ordering;
use units::Cpu;

use crate::backed::Backed;
use crate::backing::{Backing, Misclaimed};
use crate::log::{LogStats, PageLog, span};
use crate::room::{Named, Places};
use crate::run::{RUN_PAGES, Run};
use crate::wanted::Wanted;
use crate::words::{LAYOUT_AT, Left, NotLeft, Words, layout_of, layout_word, whole};

impl Backing for PageLog {
    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn reading(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    fn read(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
        self.fetch(cpu, wanted);
    }

    fn batch(&self) -> Option<usize> {
        Some(RUN_PAGES)
    }

    fn is_log(&self) -> bool {
        true
    }

    fn run(&self, pages: usize, used: Option<Run>) -> Result<Run, TryReserveError> {
        Run::of_log(pages, used)
    }

    fn write(
        &self,
        places: &dyn Places,
        cpu: Cpu,
        run: &mut Run,
        now: u32,
        commit: &mut dyn FnMut(&mut Run),
    ) -> Result<(), IoError> {
        Named { log: self, places }.write(cpu, run, now, commit)
    }

    fn retire(&self, place: Backed) {
        let freed = self.account.lock().free(place.at.place(), place.form.length);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    fn span(&self, place: Backed) -> Range<u64> {
        let span = span(place);
        span.start..span.start + u64::from(span.bytes)
    }

    fn written_bytes(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    fn log_stats(&self) -> Option<LogStats> {
        Some(self.stats())
    }

    fn keep(&self, provider: &dyn MemoryProvider) -> Result<(), NoMemory> {
        self.keep_with(provider, 0)
    }

    fn recover(
        &self,
        provider: &dyn MemoryProvider,
        bad: &mut dyn FnMut(u32),
    ) -> Result<(), NotLeft> {
        let (layout, count) = {
            let account = self.account.lock();
            (account.layout(), account.count())
        };
        let words = Words::new(provider, count).map_err(|_| NotLeft::NoMemory)?;
        let was = match words.get(LAYOUT_AT) {
            0 => return Err(NotLeft::Nothing),
            word => layout_of(word),
        };
        // A larger device keeps the log that it had.
        let fits = was.bytes <= layout.bytes
            && was.segment_bytes <= layout.segment_bytes
            && was.bytes <= words.segments() * u64::from(was.segment_bytes);
        let size = || NotLeft::Size { log: was.bytes, device: whole(layout, count) };
        if !fits {
            return Err(size());
        }
        let log = segments::Left::new(was, |segment| words.get(1 + segment as usize), bad);
        let log = log.map_err(|error| match error {
            segments::LayoutError::NoMemory => NotLeft::NoMemory,
            _ => size(),
        })?;
        *self.left.lock() = Some(Left { log, words });
        Ok(())
    }

    fn claim(&self, place: Backed) -> Result<(), Misclaimed> {
        let mut left = self.left.lock();
        let left = left.as_mut().ok_or(Misclaimed::NothingLeft)?;
        let claimed = left.log.claim(place.at.place(), place.form.length);
        claimed.map_err(Misclaimed::Log)
    }

    fn adopt(&self) {
        if let Some(Left { log, words }) = self.left.lock().take() {
            *self.account.lock() = log.finish(Some(Box::new(words)));
        }
    }
}

impl PageLog {
    /// The time of the last object that was new.
    pub(crate) fn last_time(&self) -> u32 {
        self.account.lock().last_time()
    }

    /// [`Backing::keep`], with `flags` in the word of the layout.
    pub(crate) fn keep_with(
        &self,
        provider: &dyn MemoryProvider,
        flags: u64,
    ) -> Result<(), NoMemory> {
        let mut account = self.account.lock();
        // What was tried before is given up.
        account.keep(None);
        let words = Words::new(provider, account.count())?;
        words.set(LAYOUT_AT, layout_word(account.layout(), account.count()) | flags);
        account.keep(Some(Box::new(words)));
        Ok(())
    }

    /// Adds `flags` to the word of the layout that another process left.
    pub(crate) fn flag_left(&self, flags: u64) {
        if let Some(Left { words, .. }) = &*self.left.lock() {
            words.set(LAYOUT_AT, words.get(LAYOUT_AT) | flags);
        }
    }
}
