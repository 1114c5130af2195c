//! A 2 MiB pageblock: a bit for each free frame, and a word with their count and the owner flags.
//!
//! Any thread may give frames to any block at any time, without a lock. Only one thread at a time
//! may take frames: the holder of the CPU that has the pageblock *reserved*, or, if no CPU has, the
//! holder of the zone's lock. So a bit that the taker has seen stays until the taker takes it.
//!
//! A giver first adds to the count and then sets the bits. A taker first takes the bits and then
//! subtracts. So the count is never less than the visible bits, and never negative.
//!
//! The free list of a pageblock is a function of its word ([`State::free_list`]). A thread that
//! changes the word so that the free list changes must put the pageblock there, under the zone's
//! lock. For a giver [`State::is_to_be_filed`] reports this. All changes of the word are atomic
//! read-modify-writes. So if a giver and a thread that unreserves the pageblock meet, exactly one
//! of them finds that it must do it. Under the lock the word is read again.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::runs::{self, FRAMES, WORD_FRAMES, WORDS};

/// Free frames, among them those whose bits are about to be set.
const COUNT: u32 = 0x3ff;
/// The number of frames whose memory went back to the system in the last trim.
const TRIMMED: u32 = 0x3ff << TRIMMED_SHIFT;
const TRIMMED_SHIFT: u32 = 10;
const RESERVED: u32 = 1 << 20;
const RESIDENT: u32 = 1 << 21;
const COLLAPSED: u32 = 1 << 22;

const _: () = assert!(FRAMES <= COUNT);

/// The word of a pageblock. All zeroes at first.
///
/// *Reserved*: a CPU or the housekeeping has it, and no other thread takes frames of it.
/// *Resident*: frames were taken since the whole pageblock was last given back to the system.
/// *Collapsed*: the system was asked to back it with a huge page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct State(u32);

/// The free list of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreeList {
    /// On no list: it has no free frame, or it is reserved.
    Off,
    /// A part of it is free.
    Partial,
    /// All of it is free.
    Free {
        /// Whether it has memory that it does not need.
        idle: bool,
    },
}

impl State {
    /// The number of free frames.
    #[inline]
    pub fn count(self) -> u32 {
        self.0 & COUNT
    }

    #[inline]
    pub fn is_reserved(self) -> bool {
        self.0 & RESERVED != 0
    }

    #[inline]
    pub fn is_resident(self) -> bool {
        self.0 & RESIDENT != 0
    }

    pub fn is_collapsed(self) -> bool {
        self.0 & COLLAPSED != 0
    }

    /// Whether a free frame may have no memory because the pageblock was trimmed.
    pub fn was_trimmed(self) -> bool {
        self.0 & TRIMMED != 0
    }

    /// Whether the memory of some free frames could go back while others are allocated. After a
    /// trim, a pageblock from which nothing was taken has new free frames only if its count
    /// changed.
    pub fn can_be_trimmed(self) -> bool {
        let news = self.count() != (self.0 & TRIMMED) >> TRIMMED_SHIFT;
        let partial = self.count() > 0 && self.count() < FRAMES;
        self.is_resident() && !self.is_reserved() && partial && news
    }

    /// Whether the memory of free frames could go back and the frames be withheld, where memory is
    /// provided ahead.
    pub fn can_be_withheld(self) -> bool {
        self.is_resident() && !self.is_reserved() && self.count() > 0
    }

    /// Free frames that may have memory, as far as threads that reserve no pageblock see.
    pub fn idle(self) -> u32 {
        match self.is_resident() && !self.is_reserved() {
            true => self.count().saturating_sub((self.0 & TRIMMED) >> TRIMMED_SHIFT),
            false => 0,
        }
    }

    /// Whether a huge page would be used in full: every frame is allocated.
    pub fn can_collapse(self) -> bool {
        self.0 & (RESIDENT | RESERVED | COLLAPSED | COUNT) == RESIDENT
    }

    /// The free list that the pageblock belongs on.
    pub fn free_list(self) -> FreeList {
        match self.count() {
            _ if self.is_reserved() => FreeList::Off,
            0 => FreeList::Off,
            FRAMES => FreeList::Free { idle: self.is_resident() },
            _ => FreeList::Partial,
        }
    }

    /// Whether the pageblock belongs on another free list now that `frames` frames were added to
    /// it. A reserved pageblock is on no free list; it is filed when it is no longer reserved.
    #[inline]
    pub fn is_to_be_filed(self, frames: u32) -> bool {
        !self.is_reserved() && (self.count() == frames || self.count() == FRAMES)
    }

    /// The state after a thread reserved the pageblock to take frames of it.
    pub fn reserved(self) -> State {
        State((self.0 | RESERVED | RESIDENT) & !TRIMMED)
    }

    /// The state after the reservation ended.
    pub fn unreserved(self) -> State {
        State(self.0 & !RESERVED)
    }

    /// The state after `frames` frames were taken under the zone's lock.
    pub fn taken(self, frames: u32) -> State {
        State(((self.0 | RESIDENT) & !TRIMMED) - frames)
    }

    /// The state after the holder of the reservation gave all memory back to the system.
    pub fn released(self) -> State {
        State(self.count())
    }

    /// The state after the holder of the reservation took `frames` frames to withhold them.
    pub fn withheld(self, frames: u32) -> State {
        State((self.0 & !(RESERVED | COLLAPSED)) - frames)
    }

    /// The state of a pageblock that is free as a whole and has no memory.
    pub fn dry() -> State {
        State(FRAMES)
    }

    /// The state after the holder of the reservation gave the memory of `frames` frames back to the
    /// system.
    pub fn trimmed(self, frames: u32) -> State {
        State(self.0 & !(RESERVED | COLLAPSED | TRIMMED) | frames << TRIMMED_SHIFT)
    }

    /// The state after the system was asked to back the pageblock with a huge page.
    pub fn collapsed(self) -> State {
        State(self.0 | COLLAPSED)
    }
}

/// A pageblock. The bits have a cache line of their own, which no neighbour shares.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Pageblock {
    free: [AtomicU64; WORDS],
    state: AtomicU32,
}

impl Pageblock {
    #[inline]
    pub fn state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// A snapshot of its bits.
    pub fn words(&self) -> [u64; WORDS] {
        core::array::from_fn(|word| self.free[word].load(Ordering::Relaxed))
    }

    /// Adds to the count; the caller sets the bits next. Returns the new state.
    #[inline]
    pub fn add(&self, frames: u32) -> State {
        State(self.state.fetch_add(frames, Ordering::Relaxed) + frames)
    }

    /// Subtracts an addition that had no bits to set.
    #[cold]
    pub fn unadd(&self, frames: u32) {
        self.state.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Sets bits that were added, and returns those that were set already. Any such bit is an
    /// error.
    #[inline]
    pub fn set(&self, word: usize, mask: u64) -> u64 {
        // Release pairs with the Acquire in `take`: the new owner of a frame comes after the old
        // one.
        self.free[word].fetch_or(mask, Ordering::Release) & mask
    }

    /// Takes bits that are set, and returns them. Only the thread that may take calls it.
    #[inline]
    fn take(&self, word: usize, mask: u64) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.free[word].fetch_and(!mask, Ordering::Acquire) & mask
    }

    /// Takes up to `into.len()` single frames, the lowest, and returns their number. They are
    /// numbered from `first` on. The caller has the pageblock reserved.
    pub fn pick(&self, first: u32, into: &mut [u32]) -> usize {
        let mut count = 0;
        for word in 0..WORDS {
            if count == into.len() {
                break;
            }
            let seen = self.free[word].load(Ordering::Relaxed);
            if seen != 0 {
                let taken = self.take(word, runs::lowest(seen, (into.len() - count) as u32));
                let start = first + word as u32 * WORD_FRAMES;
                count += write_numbers(taken, start, &mut into[count..]);
            }
        }
        if count > 0 {
            self.state.fetch_sub(count as u32, Ordering::Relaxed);
        }
        count
    }

    /// Takes the lowest frame of a pageblock that is not reserved. The caller holds the zone's
    /// lock. The returned state gives the new free list.
    pub fn take_lowest(&self) -> Option<(u32, State)> {
        let words = self.words();
        let word = words.iter().position(|word| *word != 0)?;
        let at = words[word].trailing_zeros();
        let taken = self.take(word, 1 << at);
        debug_assert_ne!(taken, 0, "two take from one pageblock");
        Some((word as u32 * WORD_FRAMES + at, self.change(|state| state.taken(1))))
    }

    /// Takes every frame of a pageblock that is not reserved, if all of its bits are visible. The
    /// caller holds the zone's lock. The returned state gives the new free list.
    pub fn take_whole(&self) -> Option<State> {
        if !self.is_whole() {
            return None;
        }
        let taken = self.take_out();
        debug_assert_eq!(taken, [!0; WORDS], "two take from one pageblock");
        Some(self.change(|state| state.taken(FRAMES)))
    }

    /// Takes all visible bits and leaves the count unchanged: the bits come back soon. The caller
    /// has the pageblock reserved.
    pub fn take_out(&self) -> [u64; WORDS] {
        core::array::from_fn(|word| self.take(word, !0))
    }

    /// Whether every frame is free and every bit is visible.
    pub fn is_whole(&self) -> bool {
        self.words() == [!0; WORDS]
    }

    /// Changes the word while other threads may add to it, and returns the new state.
    pub fn change(&self, change: impl Fn(State) -> State) -> State {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let next = change(State(seen));
            let result = self.state.compare_exchange_weak(
                seen,
                next.0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match result {
                Ok(_) => return next,
                Err(now) => seen = now,
            }
        }
    }
}

/// Writes the numbers of the set bits, ascending, and returns how many. `into` has room for them.
#[inline]
fn write_numbers(bits: u64, start: u32, into: &mut [u32]) -> usize {
    let count = bits.count_ones() as usize;
    let into = &mut into[..count];
    if bits == !0 {
        // The usual case, which compiles to a few instructions.
        for (place, number) in into.iter_mut().zip(start..) {
            *place = number;
        }
        return count;
    }
    let mut rest = bits;
    for place in into {
        *place = start + rest.trailing_zeros();
        rest &= rest - 1;
    }
    count
}

// Loom compiles this file into a test of its own.
#[cfg(all(test, not(loom)))]
mod tests;
