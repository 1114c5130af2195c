//! What an administrator turns, and what is checked for him.

use control::ControlError;
use sync::EventCount;
use sync::atomic::Ordering;
use units::Cpu;
use zcomp::{CODECS, Chosen};

use super::Zswap;
use crate::area::BATCH;
use crate::counts::Count;
use crate::index::Index;
use crate::memcg::Memcg;
use crate::policy::Policy;

impl<I: Index> Zswap<I> {
    /// The name of the codec that new pages are compressed with.
    #[must_use]
    pub fn compressor(&self) -> &'static str {
        let reader = self.readers.enter(Cpu(0));
        self.objects
            .codecs()
            .current(&reader, 0)
            .map_or("", |(_, codec)| codec.chosen.compressor.name())
    }

    /// Compresses new pages with the codec `name` from now on. Old ones stay as they are. The
    /// calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name, with those there are; `ENOMEM`, or `EBUSY` when pages made by
    /// too many other codecs are there. Nothing has changed then.
    pub fn set_compressor(&self, name: &str) -> Result<(), ControlError> {
        self.install((self.find_codec)(name)?)
    }

    pub(super) fn install(&self, chosen: Chosen) -> Result<(), ControlError> {
        let in_use = || {
            // Entries that wait to be freed have been read already.
            let used = (0..CODECS).filter(|number| self.by_codec.sum(*number) > 0);
            used.fold(0u32, |all, number| all | 1 << number)
        };
        self.objects.install(0, chosen, in_use)
    }

    /// The settings.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Lets the pool have at most `percent` of the memory, unless it is limited in bytes.
    ///
    /// # Errors
    /// `EINVAL` above 100.
    pub fn set_max_pool_percent(&self, percent: u32) -> Result<(), ControlError> {
        self.policy.set_max_pool_percent(percent)?;
        self.apply_limit();
        Ok(())
    }

    /// Lets the pool have at most `bytes`; 0 leaves it to the percentage.
    pub fn set_max_pool_bytes(&self, bytes: u64) {
        self.policy.set_max_pool_bytes(bytes);
        self.apply_limit();
    }

    /// So that stores that were admitted at once do not pass the limit together.
    pub(super) fn apply_limit(&self) {
        self.pool().set_limit(self.policy.max_frames().max(1));
        self.event.notify_all();
    }

    /// Rung when [`Zswap::work`] may have something to do.
    #[must_use]
    pub fn event(&self) -> &EventCount {
        &self.event
    }

    /// Is a store likely to have to make space?
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.reached_full.load(Ordering::Relaxed)
            || self.pool().frames() + BATCH as u64 >= self.policy.max_frames()
    }

    /// Checks every structure against every other, while nobody calls anything else.
    ///
    /// # Panics
    /// Says what contradicts what.
    pub fn validate(&self) {
        self.quiesce(Cpu(0));
        self.pool().validate();
        let mut pages = 0;
        for area in self.areas().into_iter().filter_map(|swap| self.area(swap)) {
            area.index.validate();
            pages += area.index.count();
            assert!(!area.any_page_locked(), "a page of area {} is locked at rest", area.swap);
        }
        let counted = self.counts.sum(Count::Pages);
        assert_eq!(pages, counted, "the indexes have {pages} pages, and {counted} are counted");
        let used = self.entries.touched() - self.entries.unused();
        assert_eq!(pages, used, "the indexes have {pages} pages, and {used} entries are used");
        let memcgs: u64 = self.memcgs().iter().map(Memcg::pages).sum();
        assert_eq!(pages, memcgs, "the indexes have {pages} pages, and memcgs {memcgs}");
        let objects = self.pool().stats().objects;
        let expected = pages - self.counts.sum(Count::SameFilled);
        assert_eq!(objects, expected, "{expected} pages have objects, and there are {objects}");
    }
}
