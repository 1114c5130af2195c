//! The limits of a pool's size.

use units::PAGE_SIZE;

use crate::swap::FRAMES;

const P: u64 = PAGE_SIZE as u64;

/// The size at which a full cache with at most `max_pool` bytes takes pages again.
pub(in crate::swap) fn mark(max_pool: u64, accept: u32) -> u64 {
    limit(max_pool) / P * u64::from(accept) / 100 * P
}

/// The most bytes of the pool.
pub(in crate::swap) fn limit(max_pool: u64) -> u64 {
    if max_pool == 0 { u64::from(FRAMES) * P } else { max_pool }
}
