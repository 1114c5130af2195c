//! Statistics that no two CPUs share a cache line for.

use units::Cpu;

use crate::PerCpu;
use crate::atomic::{AtomicU64, Ordering};

/// `N` counters per CPU. Adding touches the CPU's own lines; reading sums them. Nothing resets
/// a writer's counter under it: readers take differences.
pub struct PerCpuCounters<const N: usize> {
    cpus: PerCpu<[AtomicU64; N]>,
}

impl<const N: usize> PerCpuCounters<N> {
    /// All zero.
    #[must_use]
    pub fn new(cpus: usize) -> PerCpuCounters<N> {
        let zeroes = |_| core::array::from_fn(|_| AtomicU64::new(0));
        PerCpuCounters { cpus: PerCpu::new(cpus, zeroes) }
    }

    /// Adds `amount` to counter `which`. A gauge is lowered by adding a negative number: CPUs
    /// wrap on their own and the sum comes out right.
    #[inline]
    pub fn add(&self, cpu: Cpu, which: usize, amount: i64) {
        self.cpus.get(cpu)[which].fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// The sum over all CPUs. Taken while others add, it is the value at no single instant; a
    /// gauge that would come out negative for that reason reads as zero.
    #[must_use]
    pub fn sum(&self, which: usize) -> u64 {
        let total = self
            .cpus
            .iter()
            .fold(0u64, |sum, cpu| sum.wrapping_add(cpu[which].load(Ordering::Relaxed)));
        (total as i64).max(0) as u64
    }

    /// Sets counter `which` to zero in every CPU; only while nobody adds.
    pub fn clear(&self, which: usize) {
        for cpu in self.cpus.iter() {
            cpu[which].store(0, Ordering::Relaxed);
        }
    }
}
