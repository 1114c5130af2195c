//! Per-CPU counters: no two CPUs share a cache line.

use units::Cpu;

use crate::PerCpu;
use crate::atomic::{AtomicU64, Ordering};

/// `N` counters per CPU. An add touches the CPU's own lines; a read sums them. No call resets a
/// counter while a writer uses it: readers compute differences.
pub struct PerCpuCounters<const N: usize> {
    cpus: PerCpu<[AtomicU64; N]>,
}

impl<const N: usize> PerCpuCounters<N> {
    /// Makes the counters, all zero.
    #[must_use]
    pub fn new(cpus: usize) -> PerCpuCounters<N> {
        let zeroes = |_| core::array::from_fn(|_| AtomicU64::new(0));
        PerCpuCounters { cpus: PerCpu::new(cpus, zeroes) }
    }

    /// Adds `amount` to counter `which`. A negative amount lowers a gauge: the counter of one CPU
    /// may wrap, and the sum is still right.
    #[inline]
    pub fn add(&self, cpu: Cpu, which: usize, amount: i64) {
        self.cpus.get(cpu)[which].fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// The sum over all CPUs. While other threads add, it is the value at no single instant. A
    /// gauge that would be negative for that reason reads as zero.
    #[must_use]
    pub fn sum(&self, which: usize) -> u64 {
        let total = self
            .cpus
            .iter()
            .fold(0u64, |sum, cpu| sum.wrapping_add(cpu[which].load(Ordering::Relaxed)));
        (total as i64).max(0) as u64
    }

    /// Sets counter `which` to zero on every CPU. Call it only while no thread adds.
    pub fn clear(&self, which: usize) {
        for cpu in self.cpus.iter() {
            cpu[which].store(0, Ordering::Relaxed);
        }
    }
}
