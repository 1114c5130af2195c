//! The order of writeback: first in, first out, with a second chance for used entries.

use std::collections::VecDeque;

use super::SwapPage;

/// Entries of one CPU and one memcg, the oldest first.
#[derive(Clone, Default, Debug)]
pub struct Queue {
    entries: VecDeque<(SwapPage, bool)>,
}

impl Queue {
    /// Adds a new entry.
    pub fn push(&mut self, swap_page: SwapPage, used: bool) {
        self.remove(swap_page);
        self.entries.push_back((swap_page, used));
    }

    /// Marks an entry as used.
    pub fn touch(&mut self, swap_page: SwapPage) {
        self.entries
            .iter_mut()
            .filter(|entry| entry.0 == swap_page)
            .for_each(|entry| entry.1 = true);
    }

    /// Removes an entry.
    pub fn remove(&mut self, swap_page: SwapPage) {
        self.entries.retain(|entry| entry.0 != swap_page);
    }

    /// Takes the oldest entries that were not used since they were last the oldest, at most
    /// `count`. Each goes to the end again. An entry is examined twice only if all were used.
    pub fn take(&mut self, count: usize) -> Vec<SwapPage> {
        let mut taken = Vec::new();
        for _ in 0..2 {
            for _ in 0..self.entries.len() {
                if taken.len() == count {
                    break;
                }
                let Some((swap_page, used)) = self.entries.pop_front() else { break };
                self.entries.push_back((swap_page, false));
                if !used {
                    taken.push(swap_page);
                }
            }
            if !taken.is_empty() {
                break;
            }
        }
        taken
    }

    /// Clears the used mark of every entry.
    pub fn forget_uses(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.1 = false);
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
