//! One item per CPU, each on cache lines of its own.

use units::Cpu;

use crate::{CachePadded, Mutex, MutexGuard};

/// One `T` per CPU.
pub struct PerCpu<T> {
    items: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Makes `cpus` items (at least one) with `make`.
    pub fn new(cpus: usize, mut make: impl FnMut(usize) -> T) -> PerCpu<T> {
        PerCpu { items: (0..cpus.max(1)).map(|n| CachePadded::new(make(n))).collect() }
    }

    /// The item of `cpu`, modulo the number of items.
    #[inline]
    pub fn get(&self, cpu: Cpu) -> &T {
        let n = cpu.0 as usize;
        // A modulo by an unknown number takes as long as a lock, and is hardly ever needed.
        let n = if n < self.items.len() { n } else { n % self.items.len() };
        &self.items[n]
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|item| &**item)
    }

    /// The number of items.
    #[must_use]
    pub fn count(&self) -> usize {
        self.items.len()
    }
}

/// Locks the item of `cpu`, modulo the number of items, or another one that is free. If none is,
/// waits for that of the CPU.
///
/// # Panics
/// If there are no items.
pub fn lock_one<T>(items: &[Mutex<T>], cpu: Cpu) -> MutexGuard<'_, T> {
    let own = cpu.0 as usize % items.len();
    let (before, from) = items.split_at(own);
    let free = from.iter().chain(before).find_map(Mutex::try_lock);
    free.unwrap_or_else(|| items[own].lock())
}
