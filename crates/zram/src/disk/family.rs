//! An origin and its clones. What belongs to their engine is the origin's.

use alloc::sync::Arc;
use core::ops::Range;

use sync::atomic::Ordering;
use units::Cpu;

use crate::disk::Disk;

impl Disk {
    /// The device with the settings, the locks and the tiers of this one: the origin of a clone.
    #[inline]
    pub(crate) fn family(&self) -> &Disk {
        match &self.origin {
            // Relaxed: what is done under the locks looks at the size.
            Some(origin) if self.is_clone.load(Ordering::Relaxed) => origin,
            _ => self,
        }
    }

    /// The device that this one is a clone of.
    #[must_use]
    pub fn clone_of(&self) -> Option<&Arc<Disk>> {
        self.origin.as_ref().filter(|_| self.is_clone.load(Ordering::Relaxed))
    }

    /// The slots of the device itself.
    pub(crate) fn window(&self) -> Range<usize> {
        let reader = self.readers.enter(Cpu(0));
        let base = self.place.get(&reader).map_or(0, |place| place.base);
        base..base + self.pages()
    }

    /// Before this slot are those of the device, of its origin, and of all clones of that.
    pub(crate) fn reach(&self) -> usize {
        let family = self.family();
        let clones = family.with_engine(|engine| engine.windows().end()).unwrap_or(0);
        family.pages().max(clones)
    }
}
