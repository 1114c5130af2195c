//! What every index of a swap area must pass, alone and under many threads.
//!
//! The parts can be called one by one; [`index`] calls all of them. Each panics with what it found,
//! and with the seed where chance is involved.
//!
//! * [`against_model`], [`small_worlds`], [`vast`]: one thread, and a map that says what is right.
//! * [`owners`]: every word that was put in comes out once, whoever takes it.
//! * [`neighbours`]: what nobody touches is found, whatever happens beside it.
//! * [`versions`]: a lookup gives what was there between its beginning and its end.
//! * [`histories`]: of a few calls at once, results that some order of them explains.

mod alone;
mod crowd;
mod history;
mod numbers;

use zswap::Index;

pub use alone::{against_model, small_worlds, vast};
pub use crowd::{neighbours, owners, versions};
pub use history::{Call, History, Outcome, histories};
pub use numbers::{Numbers, word};

/// Makes an index for so many pages and entries, which was never used.
pub type Make<'a> = &'a (dyn Fn(u64, u32) -> Box<dyn Index> + Sync);

/// The whole suite.
///
/// # Panics
/// When the index breaks the contract of [`Index`].
pub fn index(seed: u64, make: Make<'_>) {
    small_worlds(make);
    vast(make);
    against_model(seed, make);
    owners(seed, make);
    neighbours(seed, make);
    versions(seed, make);
    histories(seed, make);
}

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
