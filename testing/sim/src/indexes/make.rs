//! The function that makes an index for the suite, and the offsets that the suite tests most.

use zswap::Index;

/// Makes a fresh index for the given numbers of pages and entries.
pub type Make<'a> = &'a (dyn Fn(u64, u32) -> Box<dyn Index> + Sync);

/// Pages in each part of a split index, see `designs::indexes::PAGES_PER_PART`.
const PART: u64 = 1 << 14;

/// The offsets at the edges of nodes, levels and parts, for trees of any kind.
#[must_use]
pub fn edges(pages: u64) -> Vec<u64> {
    let mut edges: Vec<u64> = vec![0, 1, 2, 62, 63, 64, 65, 127, 128, 4095, 4096, 4097];
    for shift in [12, 14, 18, 24, 30, 32] {
        let edge = 1 << shift;
        edges.extend([edge - 1, edge, edge + 1]);
    }
    edges.extend([PART - 2, 2 * PART - 1, 2 * PART, pages / 2, pages.saturating_sub(2), pages - 1]);
    edges.retain(|edge| *edge < pages);
    edges.sort_unstable();
    edges.dedup();
    edges
}
