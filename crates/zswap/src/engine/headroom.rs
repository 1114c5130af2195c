//! Memory that is there before pages come, in a machine where it is provided ahead
//! ([`pagealloc::MemoryProvider::is_ahead`]).
//!
//! A store uses what is there: it takes no page fault and asks the system for nothing. When little
//! is left it notifies an event, and a thread beside the way of pages calls [`Zswap::provide`]. A
//! store that comes too late is refused at once.

use alloc::sync::Arc;

use pagealloc::Frames;
use sync::EventCount;
use sync::atomic::Ordering;
use units::Cpu;

use super::Zswap;
use crate::headroom::Headroom;
use crate::index::Index;

impl<I: Index> Zswap<I> {
    /// The zone its frames come from.
    #[must_use]
    pub fn zone(&self) -> &Arc<dyn Frames> {
        self.pool().zone()
    }

    /// Is memory provided ahead, so that stores wait for none?
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.provision.is_ahead()
    }

    /// Frames with memory that no object has, where it is provided ahead; elsewhere `u64::MAX`.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        self.pool().headroom()
    }

    /// Frames that the pool may still take.
    #[must_use]
    pub fn room_frames(&self) -> u64 {
        self.policy.max_frames().saturating_sub(self.pool().frames())
    }

    /// Sees to it that there is memory for what comes next, as far as the pool may grow, and tells
    /// whether all of it is there. It may wait for memory: for one thread, which holds nothing, and
    /// comes again when [`Zswap::memory_event`] is notified, or after a while if not all was to be
    /// had.
    pub fn provide(&self, cpu: Cpu, want: Headroom) -> bool {
        if !self.provision.is_ahead() {
            return true;
        }
        let provision = &self.provision;
        provision.asked.store(false, Ordering::Relaxed);
        let entries = self.entries.provide(want.entries);
        let mut all = entries == self.entries.capacity() || self.entries.left() >= want.entries;
        for area in self.areas().into_iter().filter_map(|swap| self.area(swap)) {
            all &= area.index.provide(entries, want.nodes);
        }
        let frames = want.frames.min(self.room_frames());
        all &= self.pool().provide(cpu, frames) >= frames;
        // More is asked for when a quarter of it was used; what could not be had is asked for after
        // a while.
        let low = frames.min(self.pool().headroom());
        provision.low_frames.store(low - low / 4, Ordering::Relaxed);
        let low = want.entries.min(self.entries.left());
        provision.low_entries.store(low - low / 4, Ordering::Relaxed);
        all
    }

    /// Rung when little memory is left of what was provided.
    #[must_use]
    pub fn memory_event(&self) -> &EventCount {
        &self.provision.event
    }

    /// Rings for memory when little is left. The calling thread holds nothing.
    #[inline]
    pub(crate) fn ask_for_memory(&self) {
        let provision = &self.provision;
        if provision.is_ahead()
            && (self.pool().headroom() < provision.low_frames.load(Ordering::Relaxed)
                || self.entries.left() < provision.low_entries.load(Ordering::Relaxed))
        {
            self.ring_for_memory();
        }
    }

    #[cold]
    fn ring_for_memory(&self) {
        let asked = &self.provision.asked;
        if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
            self.provision.event.notify_all();
        }
    }
}
