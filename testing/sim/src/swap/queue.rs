//! The order in which entries leave: first in, first out, and a second chance for those used.

use std::collections::VecDeque;

use super::SwapPage;

/// Entries of one CPU and one memcg, the oldest first.
#[derive(Clone, Default, Debug)]
pub struct Queue {
    entries: VecDeque<(SwapPage, bool)>,
}

impl Queue {
    /// An entry is new.
    pub fn push(&mut self, swap_page: SwapPage, used: bool) {
        self.remove(swap_page);
        self.entries.push_back((swap_page, used));
    }

    /// An entry is used.
    pub fn touch(&mut self, swap_page: SwapPage) {
        self.entries
            .iter_mut()
            .filter(|entry| entry.0 == swap_page)
            .for_each(|entry| entry.1 = true);
    }

    /// An entry is gone.
    pub fn remove(&mut self, swap_page: SwapPage) {
        self.entries.retain(|entry| entry.0 != swap_page);
    }

    /// The oldest entries that have not been used since they last were the oldest, `count` at most,
    /// each put last again. Nobody is looked at twice, unless all have been used.
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
