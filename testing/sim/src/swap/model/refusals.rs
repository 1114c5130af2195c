//! The check of refusals: which pages a cache may refuse, and which it must refuse.

use units::{PAGE_SIZE, Page};

use super::Model;
use super::limits::mark;
use crate::swap::{Refusal, SwapPage, Totals};

const P: u64 = PAGE_SIZE as u64;

impl Model {
    /// The pool size at which a full cache takes pages again.
    pub(super) fn mark(&self) -> u64 {
        mark(self.max_pool, self.accept)
    }

    /// The reason for which the cache must refuse the page, if any.
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

    /// The reason for which the refusal is wrong, if any.
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

/// Pages that a store may take in addition: a frame for each object of a size class that shares no
/// frames with another class.
const ROOM: u64 = 8;

/// Whether the page repeats the same eight bytes.
pub(super) fn is_same_filled(page: &Page) -> bool {
    let (words, _) = page.as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}
