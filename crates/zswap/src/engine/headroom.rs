//! Memory that is provided before pages come, in a machine where
//! [`pagealloc::MemoryProvider::is_ahead`] is set.
//!
//! A store uses memory that is provided already: it takes no page fault and asks the system for
//! nothing. When little is left, the store notifies an event, and another thread calls
//! [`Zswap::provide`]. A store that finds no memory is refused at once.

use alloc::sync::Arc;

use pagealloc::Frames;
use sync::EventCount;
use sync::atomic::Ordering;
use units::Cpu;

use super::Zswap;
use crate::headroom::Headroom;

/// Packs for which memory is provided: those of a pass of a few seconds.
const PACKS_AHEAD: usize = 4096;

impl Zswap {
    /// The zone of the pool's frames.
    #[must_use]
    pub fn zone(&self) -> &Arc<dyn Frames> {
        self.pool().zone()
    }

    /// Whether memory is provided ahead, so that stores never wait for memory.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.provision.is_ahead()
    }

    /// Frames with memory that hold no object, if memory is provided ahead; otherwise `u64::MAX`.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        self.pool().headroom()
    }

    /// Frames that the pool may still take.
    #[must_use]
    pub fn room_frames(&self) -> u64 {
        self.policy.max_frames().saturating_sub(self.pool().frames())
    }

    /// Provides memory for the next pages, no more than the pool may grow. Returns whether all of
    /// it was provided. It may wait for memory. One thread calls it, which is no reader and holds
    /// no lock. The thread calls again when [`Zswap::memory_event`] is notified, or after a while
    /// if it returned false.
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
        if self.auto() {
            all &= self.provide_packs();
        }
        let frames = want.frames.min(self.room_frames());
        all &= self.pool().provide(cpu, frames) >= frames;
        // The event is notified when a quarter of the memory is used. Memory that could not be
        // provided is asked for again after a while.
        let low = frames.min(self.pool().headroom());
        provision.low_frames.store(low - low / 4, Ordering::Relaxed);
        let low = want.entries.min(self.entries.left());
        provision.low_entries.store(low - low / 4, Ordering::Relaxed);
        all
    }

    /// Provides memory for the next packs. It may wait for memory.
    pub(super) fn provide_packs(&self) -> bool {
        self.packs.provide(PACKS_AHEAD)
    }

    /// Notified when little of the provided memory is left.
    #[must_use]
    pub fn memory_event(&self) -> &EventCount {
        &self.provision.event
    }

    /// Notifies the event when little memory is left. The calling thread holds no lock.
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
    pub(super) fn ring_for_memory(&self) {
        let asked = &self.provision.asked;
        if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
            self.provision.event.notify_all();
        }
    }
}
