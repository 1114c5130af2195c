//! What the parts of the suite are given, and where they look most closely.

use zswap::Index;

/// Makes an index for so many pages and entries, which was never used.
pub type Make<'a> = &'a (dyn Fn(u64, u32) -> Box<dyn Index> + Sync);

/// Offsets at which trees of any kind have their edges: of nodes, of levels, of parts.
#[must_use]
pub fn edges(pages: u64) -> Vec<u64> {
    let mut edges: Vec<u64> = vec![0, 1, 2, 62, 63, 64, 65, 127, 128, 4095, 4096, 4097];
    let part = zswap::PAGES_PER_PART;
    for shift in [12, 14, 18, 24, 30, 32] {
        let edge = 1 << shift;
        edges.extend([edge - 1, edge, edge + 1]);
    }
    edges.extend([part - 2, 2 * part - 1, 2 * part, pages / 2, pages.saturating_sub(2), pages - 1]);
    edges.retain(|edge| *edge < pages);
    edges.sort_unstable();
    edges.dedup();
    edges
}
