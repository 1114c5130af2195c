//! What may be refused, and what must be.

use units::{PAGE_SIZE, Page};

use super::Model;
use super::limits::mark;
use crate::swap::{Refusal, SwapPage, Totals};

const P: u64 = PAGE_SIZE as u64;

impl Model {
    /// A cache that was full takes pages again from here on.
    pub(super) fn mark(&self) -> u64 {
        mark(self.max_pool, self.accept)
    }

    /// Why a page must be refused, if it must.
    pub(super) fn must_refuse(&self, swap_page: SwapPage, page: &Page) -> Option<&'static str> {
        if !self.enabled {
            return Some("nothing is taken at present");
        }
        if !self.is_there(swap_page) {
            return Some("there is no such place");
        }
        let same = is_same_filled(page);
        if same && !self.same_filled && !self.non_same_filled {
            return Some("no pages are taken");
        }
        (!same && !self.non_same_filled).then_some("only same-filled pages are taken")
    }

    /// What speaks against a refusal, if anything does.
    pub(super) fn must_not_refuse(
        &self,
        swap_page: SwapPage,
        refusal: Refusal,
        page: &Page,
        before: &Totals,
        memcg: usize,
    ) -> Option<String> {
        let same = is_same_filled(page) && self.same_filled;
        let wrong = match refusal {
            Refusal::Disabled => self.enabled && (self.non_same_filled || same),
            Refusal::NoArea => self.is_there(swap_page),
            Refusal::TooLarge => self.ratio >= 100 || same,
            Refusal::Incompressible => same || self.writeback[memcg],
            Refusal::PoolLimit => !self.full && before.pool_bytes + ROOM * P < self.mark(),
            Refusal::MemcgLimit => {
                let (bytes, max) = (before.memcg_bytes[memcg], self.memcg_max[memcg]);
                bytes < max
            }
            Refusal::NoMemory | Refusal::NoEntry => !self.short,
        };
        wrong.then(|| {
            format!(
                "enabled {}, ratio {}, limit {} ({}%), full {}, memcg's limit {}, before \
                 {before:?}",
                self.enabled,
                self.ratio,
                self.max_pool,
                self.accept,
                self.full,
                self.memcg_max[memcg]
            )
        })
    }
}

/// Pages that a store may take beyond what it seems: a frame for each of the objects of a class
/// that shares frames with no other.
const ROOM: u64 = 8;

/// Is it the same eight bytes over and over?
pub(super) fn is_same_filled(page: &Page) -> bool {
    let (words, _) = page.as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}
