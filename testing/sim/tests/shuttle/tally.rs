//! What happened in the schedules of disks.

use std::cell::Cell;

use zram::{Density, Stats};

/// Counts of the events in the schedules that this thread has run. A scenario without events proves
/// nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    compacted: u64,
    written_back: u64,
    fetched: u64,
    refused: u64,
    packed: u64,
    shared: u64,
}

thread_local! {
    static TALLY: Cell<Tally> = const {
        Cell::new(Tally {
            compacted: 0,
            written_back: 0,
            fetched: 0,
            refused: 0,
            packed: 0,
            shared: 0,
        })
    };
}

/// The tally so far; a new one begins.
pub fn tally() -> Tally {
    TALLY.take()
}

impl Tally {
    /// Adds what a disk counted.
    pub fn add(stats: &Stats, density: &Density) {
        TALLY.set({
            let before = TALLY.get();
            Tally {
                compacted: before.compacted + stats.pages_compacted,
                written_back: before.written_back + stats.backed_writes,
                fetched: before.fetched + stats.backed_reads,
                refused: before.refused + stats.failed_writes,
                packed: before.packed + density.packed_pages,
                shared: before.shared + density.shared_pages,
            }
        });
    }
}
