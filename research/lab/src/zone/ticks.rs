//! A fast clock, read in a few nanoseconds: the processor's own, where it has one.
//!
//! # Why unsafe
//! The instruction that reads the processor's time stamp counter is an unsafe function. It takes no
//! argument and touches no memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::statistics::median;

/// The time in ticks. On x86-64 this is the time stamp counter, which all processors of the last
/// ten years run at one rate on all CPUs. It does not wait for earlier instructions, so a single
/// short time may be wrong by some nanoseconds; a sum of many is not. Elsewhere ticks are
/// nanoseconds of the system's clock.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn now() -> u64 {
    // SAFETY: it reads a register; every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time in ticks, which here are nanoseconds of the system's clock.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The length of ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Clock {
    /// Ticks in a nanosecond.
    pub ticks_per_ns: f64,
    /// Ticks between two consecutive readings: a part of every measured time.
    pub reading: f64,
}

/// The time of a calibration.
const CALIBRATION: Duration = Duration::from_millis(20);

impl Clock {
    /// Compares ticks with the system's clock.
    pub fn calibrate() -> Clock {
        let (begun, first) = (Instant::now(), now());
        let mut elapsed = begun.elapsed();
        while elapsed < CALIBRATION {
            elapsed = begun.elapsed();
        }
        let ticks = now().saturating_sub(first);
        let readings = (0..2001).map(|_| {
            let first = now();
            black_box(now()).saturating_sub(first) as f64
        });
        let reading = median(readings.collect::<Vec<_>>());
        Clock { ticks_per_ns: (ticks as f64 / elapsed.as_nanos() as f64).max(1e-3), reading }
    }

    /// Nanoseconds of `ticks` ticks.
    pub fn ns(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_and_are_nanoseconds_after_division() {
        let clock = Clock::calibrate();
        assert!(clock.ticks_per_ns > 0.0 && clock.reading >= 0.0, "{clock:?}");
        let (begun, first) = (Instant::now(), now());
        while begun.elapsed() < Duration::from_millis(2) {}
        // Generous, and one-sided: this thread may be taken off its CPU between the two clocks.
        assert!(clock.ns(now().saturating_sub(first) as f64) > 1e6);
    }
}
