//! The use of a frame after its allocation.
//!
//! # Why unsafe
//! A frame is an address that the zone has allocated. This module writes to it.

use std::fmt;
use std::time::{Duration, Instant};

use pagealloc::Frames;
use sync::atomic::spin_hint;
use units::{Frame, PAGE_SIZE};

/// The use of each allocated frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// No use: the allocator alone.
    Raw,
    /// One line of the frame is written.
    Touch,
    /// The whole frame is zeroed, as the kernel does for a page fault.
    Zero,
    /// This many nanoseconds pass.
    Think(u32),
}

impl Mode {
    /// Parses the command line.
    ///
    /// # Errors
    /// The text is none of these.
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

    /// Prepares the use of frames of a zone.
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

/// Nanoseconds of one iteration of a spinning loop.
fn turn_ns() -> f64 {
    const TURNS: u32 = 2000;
    let tries = (0..15).map(|_| {
        let begun = Instant::now();
        (0..TURNS).for_each(|_| spin_hint());
        begun.elapsed()
    });
    // The shortest try: in the others the thread lost its CPU.
    let least = tries.min().unwrap_or(Duration::from_micros(20));
    (least.as_nanos() as f64 / f64::from(TURNS)).max(0.1)
}

/// A prepared use of frames.
#[derive(Clone, Copy)]
pub struct Handling<'a> {
    mode: Mode,
    zone: &'a dyn Frames,
    turns: u64,
}

impl Handling<'_> {
    /// Uses a frame, which has just been allocated to the caller.
    #[inline]
    pub fn handle(&self, frame: Frame) {
        let bytes = match self.mode {
            Mode::Raw => return,
            Mode::Think(_) => return (0..self.turns).for_each(|_| spin_hint()),
            Mode::Touch => 1,
            Mode::Zero => PAGE_SIZE,
        };
        assert!(frame.0 < self.zone.capacity(), "the zone allocated frame {}", frame.0);
        // SAFETY: frame `n` lies `n * 4096` bytes above the base. It is writable, as the zone
        // promises for allocated frames, and it is allocated to this caller alone.
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
