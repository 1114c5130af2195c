//! How long pages wait for their move if no more is remembered of each than how many passes came by
//! since its last use.

/// Passes in the time after which a page moves.
pub const PASSES: u32 = 8;
/// The most that a page waits, in times of that time: 255 passes can be remembered.
const MOST_WAITS: u32 = 16;

/// How many times that time a page waits after a pass in which `moved` pages moved, and `soon` were
/// used soon after that. A page that is used soon cost CPU time twice and gained little.
#[must_use]
pub fn waits_after(waits: u32, moved: u64, soon: u64) -> u32 {
    // A few uses say nothing.
    let moved = moved.max(64);
    if soon > moved / 4 {
        (waits * 2).min(MOST_WAITS)
    } else if soon < moved / 16 {
        (waits / 2).max(1)
    } else {
        waits
    }
}
