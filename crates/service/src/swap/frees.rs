//! How a swap device learns which pages the kernel has freed.
//!
//! The kernel tells a device of whole free clusters, by discards. Where programs can run in the
//! kernel ([`host::Frees`]), it tells of each page at once. The cache drops these pages a few times
//! a second ([`zswap::Zswap::sweep`]). The programs outlive the daemon with what else of the device
//! does, so the next one hears of pages that were freed before it came.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use host::{Before, Caller, Frees, Unheard};
use sync::Mutex;

use super::cache::Cache;
use super::report::SwapReport;

/// What [`SwapReport::frees_by`] says without programs in the kernel.
pub const DISCARDS: &str = "discards";

/// How a device learns of freed pages.
pub struct Hearing {
    frees: Option<Arc<Frees>>,
    /// Why pages are not heard of, or not all.
    lack: Mutex<Option<String>>,
}

impl Hearing {
    /// For a new device of so many pages, which nobody uses yet.
    pub fn begin(cache: &Cache, pages: u64) -> Hearing {
        Hearing::by(cache, Frees::of(pages))
    }

    /// For a device of the daemon before, which nobody serves yet, with the descriptors that it
    /// left for this.
    pub fn take_over(cache: &Cache, pages: u64, left: Vec<OwnedFd>) -> Hearing {
        let none = || Unheard("the daemon before it did not hear of them".into());
        let frees = if left.is_empty() { Err(none()) } else { Frees::of_kept(left, pages) };
        Hearing::by(cache, frees)
    }

    fn by(cache: &Cache, frees: Result<Frees, Unheard>) -> Hearing {
        let heard = frees.map(Arc::new).map_err(|unheard| unheard.0).and_then(|frees| {
            let heard = cache.hear_frees(frees.clone());
            heard.map(|()| frees).map_err(|error| error.message)
        });
        let (frees, lack) = match heard {
            Ok(frees) => (Some(frees), None),
            Err(lack) => (None, Some(lack)),
        };
        Hearing { frees, lack: Mutex::new(lack) }
    }

    /// Should the kernel discard free clusters?
    pub fn needs_discards(&self) -> bool {
        self.frees.is_none()
    }

    /// Hears of the pages of a part from now on, which `caller` has just swapped on. False if only
    /// discards can tell of them, which it lacks.
    pub fn swapped_on(&self, caller: Caller, before: Before, part: Range<u64>) -> bool {
        let Some(frees) = &self.frees else { return true };
        let heard = frees.hear(caller, before, part);
        let is_heard = heard.is_ok();
        if let Err(Unheard(why)) = heard {
            *self.lack.lock() = Some(why);
        }
        is_heard
    }

    /// Hears no more of the pages of a part, which was swapped off.
    pub fn swapped_off(&self, part: &Range<u64>) {
        if let Some(frees) = &self.frees {
            frees.forget(part);
        }
    }

    /// What the next daemon needs to hear of them.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.frees.as_ref().map(|frees| frees.descriptors()).into_iter().flatten().collect()
    }

    /// Writes a line to the log if pages are not heard of.
    pub fn say(&self, name: &str) {
        if let Some(lack) = &*self.lack.lock() {
            tracing::info!("{name} hears of freed pages by {DISCARDS} alone: {lack}");
        }
    }

    /// Adds what it knows to a report.
    pub fn report(&self, report: &mut SwapReport) {
        report.frees_by = self.frees.as_ref().map_or(DISCARDS, |frees| frees.function()).into();
        report.frees_lack = self.lack.lock().clone();
        report.freed_pages = self.frees.as_ref().map_or(0, |frees| frees.heard());
    }
}
