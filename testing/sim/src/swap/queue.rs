//! The order in which entries leave: first in, first out, and a second chance for those used.

use std::collections::VecDeque;

use super::Spot;

/// Entries of one CPU and one tenant, the oldest first.
#[derive(Clone, Default, Debug)]
pub struct Queue {
    entries: VecDeque<(Spot, bool)>,
}

impl Queue {
    /// An entry is new.
    pub fn push(&mut self, spot: Spot, used: bool) {
        self.remove(spot);
        self.entries.push_back((spot, used));
    }

    /// An entry is used.
    pub fn touch(&mut self, spot: Spot) {
        self.entries.iter_mut().filter(|entry| entry.0 == spot).for_each(|entry| entry.1 = true);
    }

    /// An entry is gone.
    pub fn remove(&mut self, spot: Spot) {
        self.entries.retain(|entry| entry.0 != spot);
    }

    /// The oldest entries that have not been used since they last were the oldest, `count` at most,
    /// each put last again. Nobody is looked at twice, unless all have been used.
    pub fn take(&mut self, count: usize) -> Vec<Spot> {
        let mut taken = Vec::new();
        for _ in 0..2 {
            for _ in 0..self.entries.len() {
                if taken.len() == count {
                    break;
                }
                let Some((spot, used)) = self.entries.pop_front() else { break };
                self.entries.push_back((spot, false));
                if !used {
                    taken.push(spot);
                }
            }
            if !taken.is_empty() {
                break;
            }
        }
        taken
    }

    /// What was used is as if it had not been.
    pub fn forget_uses(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.1 = false);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
