//! The clones of a device: their pages are recovered with those of the device.

use alloc::{collections::BTreeSet, format, sync::Arc, vec::Vec};

use control::{ControlError, Errno};
use units::{Cpu, PAGE_SIZE};

use super::Recovery;
use crate::counts::Counts;
use crate::engine::{Engine, LeftWindow, Slot, Table};
use crate::resources::Resources;

impl Recovery {
    /// Takes the windows of these clones, of a device of so many bytes. One that has none was being
    /// given up.
    ///
    /// # Errors
    /// `EINVAL` if what was left of them cannot be (K26); `ENOMEM`.
    pub(super) fn windows(
        engine: &Engine,
        resources: &Resources,
        (name, bytes): (&str, u64),
        clones: &[u32],
    ) -> Result<Vec<(LeftWindow, Arc<Counts>)>, ControlError> {
        if clones.is_empty() {
            return Ok(Vec::new());
        }
        let kept = engine.windows().keep(&*resources.memory_of(name, Table::Clones));
        kept.map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
        let mut left = engine.windows().left();
        left.sort_by_key(|window| window.pages.start);
        let (mut from, mut numbers) = ((bytes / PAGE_SIZE as u64) as usize, BTreeSet::new());
        for window in &left {
            if !window.can_be(from, engine.capacity()) || !numbers.insert(window.id) {
                let id = window.id;
                return Err(ControlError::invalid(format!("its clone zram{id} cannot be (K26)")));
            }
            from = window.pages.end;
        }
        left.retain(|window| clones.contains(&window.id));
        let taken = left.into_iter().map(|window| {
            let counts = Arc::new(Counts::new(resources.counting_cpus));
            engine.take_left(&window, counts.clone());
            (window, counts)
        });
        Ok(taken.collect())
    }

    /// Behind the last slot that somebody may have.
    pub(super) fn reach(&self) -> usize {
        let record = self.engine.record();
        let clones = record.map_or(0, |record| record.clones_at().end.min(self.engine.capacity()));
        let windows = self.clones.iter().map(|(window, _)| window.pages.end);
        windows.max().unwrap_or(0).max(clones).max(self.pages())
    }

    /// The window of a clone, if the slot is one of its pages.
    fn window_of(&self, index: usize) -> Option<&LeftWindow> {
        let windows = self.clones.iter().map(|(window, _)| window);
        let mut windows = windows.filter(|window| window.pages.contains(&index));
        windows.find(|window| index - window.pages.start < window.bytes as usize / PAGE_SIZE)
    }

    /// Whether a slot is one of the device or of a clone.
    pub(super) fn has(&self, index: usize) -> bool {
        index < self.pages() || self.window_of(index).is_some()
    }

    /// The number of the device that has a slot, and the page there.
    pub(super) fn page_of(&self, index: usize) -> (u32, usize) {
        match self.window_of(index).filter(|_| index >= self.pages()) {
            Some(window) => (window.id, index - window.pages.start),
            None => (self.disk.id(), index),
        }
    }

    /// Gives up what nobody has: a process was making or removing a clone there.
    pub(super) fn clear(&self, cpu: Cpu, index: usize) {
        let clones = self.engine.record().map(|record| record.clones_at());
        if clones.is_some_and(|clones| clones.contains(&index)) {
            self.engine.recover_page(cpu, index, |_| Slot::EMPTY);
        }
    }

    /// Looks at the pages of the device and its clones that have contents.
    pub(super) fn each(&self, mut look: impl FnMut(usize, Slot)) {
        self.engine.each(0..self.reach(), |index, slot| {
            if self.has(index) {
                look(index, slot);
            }
        });
    }
}
