//! What is done with a frame once it is there.
//!
//! # Why unsafe
//! A frame is an address that the zone allocates, and is written to as such.

use std::fmt;
use std::time::{Duration, Instant};

use pagealloc::Frames;
use sync::atomic::spin_hint;
use units::{Frame, PAGE_SIZE};

/// What is done with each frame that is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing: the allocator alone.
    Raw,
    /// One line of it is written.
    Touch,
    /// All of it is written with zeroes, as the kernel does for a page fault.
    Zero,
    /// So many nanoseconds go by.
    Think(u32),
}

impl Mode {
    /// From the command line.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &str) -> Result<Mode, String> {
        match text {
            "raw" => return Ok(Mode::Raw),
            "touch" => return Ok(Mode::Touch),
            "zero" => return Ok(Mode::Zero),
            _ => {}
        }
        let ns = text.strip_prefix("think=").and_then(|ns| ns.parse().ok());
        ns.filter(|ns| *ns <= 1_000_000).map(Mode::Think).ok_or_else(|| {
            format!("{text:?} is no mode: raw, touch, zero and think=NS (up to 1000000) are")
        })
    }

    /// Gets ready to do it, in a zone.
    #[must_use]
    pub fn ready(self, zone: &dyn Frames) -> Handling<'_> {
        let turns = match self {
            Mode::Think(ns) => (f64::from(ns) / turn_ns()).round() as u64,
            _ => 0,
        };
        Handling { mode: self, zone, turns }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Raw => f.write_str("raw"),
            Mode::Touch => f.write_str("touch"),
            Mode::Zero => f.write_str("zero"),
            Mode::Think(ns) => write!(f, "think={ns}"),
        }
    }
}

/// Nanoseconds of a turn of a spinning loop.
fn turn_ns() -> f64 {
    const TURNS: u32 = 2000;
    let tries = (0..15).map(|_| {
        let begun = Instant::now();
        (0..TURNS).for_each(|_| spin_hint());
        begun.elapsed()
    });
    // The shortest: in the others the thread was away.
    let least = tries.min().unwrap_or(Duration::from_micros(20));
    (least.as_nanos() as f64 / f64::from(TURNS)).max(0.1)
}

/// Ready to do it.
#[derive(Clone, Copy)]
pub struct Handling<'a> {
    mode: Mode,
    zone: &'a dyn Frames,
    turns: u64,
}

impl Handling<'_> {
    /// Does it. The frame has just been allocated to the caller.
    #[inline]
    pub fn handle(&self, frame: Frame) {
        let bytes = match self.mode {
            Mode::Raw => return,
            Mode::Think(_) => return (0..self.turns).for_each(|_| spin_hint()),
            Mode::Touch => 1,
            Mode::Zero => PAGE_SIZE,
        };
        assert!(frame.0 < self.zone.capacity(), "the zone allocated frame {}", frame.0);
        // SAFETY: frame `n` lies `n * 4096` bytes above the base, writable, as the zone promises
        // for what it has allocated, and the caller had it allocated to itself alone.
        unsafe {
            let at = self.zone.base().as_ptr().add(frame.0 as usize * PAGE_SIZE);
            match bytes {
                1 => at.write_volatile(1),
                _ => at.write_bytes(0, bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_shown() {
        for mode in [Mode::Raw, Mode::Touch, Mode::Zero, Mode::Think(2200)] {
            assert_eq!(Mode::parse(&mode.to_string()), Ok(mode));
        }
        for wrong in ["", "think", "think=", "think=-1", "think=2s", "zeroes", "think=9999999"] {
            let error = Mode::parse(wrong).expect_err(wrong);
            assert!(error.contains("think=NS"), "{error}");
        }
    }
}
