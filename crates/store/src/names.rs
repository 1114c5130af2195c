//! The regions in which layers outlive the process, by name.

use host::Memfds;

/// Bytes of a seal, which is kept of each sealed block. It begins with its number, 0 for a block
/// without one.
pub const SEAL_BYTES: u64 = 24;
#[cfg(feature = "seal")]
const _: () = assert!(SEAL_BYTES == seal::SEAL_BYTES as u64);

/// Stands between the name of a device and the number of its key.
const KEY: &str = ".key.";

/// Whether a region of this name is a key: only processes that were given its descriptor have it,
/// and the system shows no name for it.
#[must_use]
pub fn is_key(name: &str) -> bool {
    name.contains(KEY)
}

/// The beginning of the names of the keys of a device.
#[must_use]
pub fn key_of(name: &str) -> String {
    format!("{name}{KEY}")
}

/// The beginning of the names of the seals of a device.
#[must_use]
pub fn seals_of(name: &str) -> String {
    format!("{name}.seals.")
}

/// The beginning of the names of what is known of the segments of a log.
pub(crate) fn words_of(name: &str) -> String {
    format!("{name}.log.")
}

/// The beginning of the names of the places of pages in a log.
pub(crate) fn places_of(name: &str) -> String {
    format!("{name}.places.")
}

/// The numbers behind `beginning` in the names of regions that another process left, and nobody has
/// asked for yet.
pub(crate) fn left<'a>(memory: &Memfds, beginning: &'a str) -> impl Iterator<Item = u64> + 'a {
    memory
        .unused()
        .into_iter()
        .filter_map(move |region| region.strip_prefix(beginning)?.parse().ok())
}

/// The number of a new region, behind `beginning` in its name.
pub(crate) fn next(memory: &Memfds, beginning: &str) -> u64 {
    let regions = memory.regions();
    let numbers = regions.iter().filter_map(|region| region.name.strip_prefix(beginning));
    numbers.filter_map(|number| number.parse::<u64>().ok()).max().map_or(1, |last| last + 1)
}
