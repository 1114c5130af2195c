//! The settings of an engine that an administrator changes, and the check of its structures.

use control::ControlError;
use sync::EventCount;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zcomp::{CODECS, Chosen};

use super::Zswap;
use crate::area::BATCH;
use crate::counts::Count;
use crate::memcg::Memcg;
use crate::policy::Policy;

impl Zswap {
    /// The name of the codec that new pages are compressed with.
    #[must_use]
    pub fn compressor(&self) -> &'static str {
        let reader = self.readers.enter(Cpu(0));
        self.objects
            .codecs()
            .current(&reader, 0)
            .map_or("", |(_, codec)| codec.chosen.compressor.name())
    }

    /// Compresses new pages with the codec `name` from now on. Stored objects keep their codec. The
    /// calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name; the message lists the known ones. `ENOMEM`, or `EBUSY` when
    /// stored objects use too many other codecs. Nothing has changed then.
    pub fn set_compressor(&self, name: &str) -> Result<(), ControlError> {
        self.install(0, (self.find_codec)(name)?)
    }

    /// Makes `chosen` the codec of a priority.
    pub(crate) fn install(&self, priority: u8, chosen: Chosen) -> Result<(), ControlError> {
        let in_use = || {
            // Entries that wait to be freed are not read any more.
            let used = (0..CODECS).filter(|number| self.by_codec.sum(*number) > 0);
            used.fold(0u32, |all, number| all | 1 << number)
        };
        self.objects.install(priority, chosen, in_use)
    }

    /// The settings of the engine.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Limits the pool to `percent` of the memory, unless it is limited in bytes.
    ///
    /// # Errors
    /// `EINVAL` above 100.
    pub fn set_max_pool_percent(&self, percent: u32) -> Result<(), ControlError> {
        self.policy.set_max_pool_percent(percent)?;
        self.apply_limit();
        Ok(())
    }

    /// Limits the pool to `bytes`; with 0 the percentage applies.
    pub fn set_max_pool_bytes(&self, bytes: u64) {
        self.policy.set_max_pool_bytes(bytes);
        self.apply_limit();
    }

    /// Sets the limit in the pool too, so that stores admitted at the same time do not exceed it
    /// together.
    pub(super) fn apply_limit(&self) {
        self.pool().set_limit(self.policy.max_frames().max(1));
        self.event.notify_all();
    }

    /// Notified when [`Zswap::work`] may have work.
    #[must_use]
    pub fn event(&self) -> &EventCount {
        &self.event
    }

    /// Whether a store will probably have to make space.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.reached_full.load(Ordering::Relaxed)
            || self.pool().frames() + BATCH as u64 >= self.policy.max_frames()
    }

    /// Whether the pool, or a memcg, is above its limit by more than leaves at a time: the limit
    /// was lowered.
    pub(super) fn is_far_above_limit(&self, whose: Option<&Memcg>) -> bool {
        let above = match whose {
            Some(memcg) => memcg.bytes().saturating_sub(memcg.max()) / PAGE_SIZE as u64,
            None => self.pool().frames().saturating_sub(self.policy.max_frames()),
        };
        above > BATCH as u64
    }

    /// Checks every structure against the others. Call it only while no thread makes another call.
    ///
    /// # Panics
    /// The message names the structures that contradict each other.
    pub fn validate(&self) {
        self.quiesce(Cpu(0));
        self.pool().validate();
        let mut pages = 0;
        for area in self.areas().into_iter().filter_map(|swap| self.area(swap)) {
            area.index.validate();
            pages += area.index.count();
            assert!(!area.any_page_locked(), "a page of area {} is locked at rest", area.swap);
        }
        pages -= self.counts.sum(Count::Lost);
        let counted = self.counts.sum(Count::Pages);
        assert_eq!(pages, counted, "the indexes have {pages} pages, and {counted} are counted");
        let used = self.entries.touched() - self.entries.unused();
        assert_eq!(pages, used, "the indexes have {pages} pages, and {used} entries are used");
        let memcgs: u64 = self.memcgs().iter().map(Memcg::pages).sum();
        assert_eq!(pages, memcgs, "the indexes have {pages} pages, and memcgs {memcgs}");
        let objects = self.pool().stats().objects;
        let (mut packs, mut parts) = (0, 0);
        self.packs.each(|_, _, references| {
            packs += 1;
            parts += references;
        });
        let packed = self.counts.sum(Count::Packed);
        assert_eq!(parts, packed, "packs have {parts} pages, and {packed} are counted");
        let expected = pages - self.counts.sum(Count::SameFilled) - packed + packs;
        assert_eq!(objects, expected, "pages and packs have {expected} objects, not {objects}");
    }
}
