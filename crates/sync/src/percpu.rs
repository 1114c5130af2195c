//! One item per CPU, each on cache lines of its own.

use units::Cpu;

use crate::CachePadded;

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
