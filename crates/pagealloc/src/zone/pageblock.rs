//! A 2 MiB pageblock: a bit for each frame that is free, and a word that says how many there are
//! and who has the pageblock.
//!
//! Anybody may give frames to any block at any time, without a lock. Taking is for one thread at a
//! time: the holder of the CPU that has the pageblock *reserved*, or, if nobody has, the holder of
//! the zone's lock. So a bit that a taker has seen stays until he takes it away.
//!
//! A giver first adds to the count and then sets the bits; a taker first takes the bits and then
//! subtracts. So the count is never less than the bits that can be seen, and it is never negative.
//!
//! Which free list of the zone a pageblock belongs on is a function of its word
//! ([`State::free_list`]). Whoever changes the word so that the free list changes has to see to it
//! that the pageblock is put there, under the zone's lock: for a giver [`State::is_to_be_filed`]
//! tells. As all changes of the word are atomic read-modify-writes, exactly one of a giver and one
//! who unreserves the pageblock at the same moment finds that it is his to do. Under the lock the
//! word is looked at again.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::runs::{self, FRAMES, WORD_FRAMES, WORDS};

/// Free frames, among them those whose bits are about to be set.
const COUNT: u32 = 0x3ff;
/// Of how many frames the memory went back to the system when the pageblock was last trimmed.
const TRIMMED: u32 = 0x3ff << TRIMMED_SHIFT;
const TRIMMED_SHIFT: u32 = 10;
const RESERVED: u32 = 1 << 20;
const RESIDENT: u32 = 1 << 21;
const SETTLED: u32 = 1 << 22;

const _: () = assert!(FRAMES <= COUNT);

/// The word of a pageblock. All zeroes when fresh.
///
/// *Reserved*: somebody has it, and nobody else takes of it. *Resident*: was taken from since it
/// was last given back to the system as a whole. *Settled*: the system was asked to back it with a
/// huge page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct State(u32);

/// Where a pageblock is to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreeList {
    /// Nowhere: nothing of it is free, or it's reserved.
    Off,
    /// A part of it is free.
    Partial,
    /// It's free as a whole.
    Free {
        /// It has memory that it does not need.
        idle: bool,
    },
}

impl State {
    /// Free frames.
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
        self.0 & SETTLED != 0
    }

    /// Whether any of its free frames may have no memory because it was trimmed.
    pub fn was_trimmed(self) -> bool {
        self.0 & TRIMMED != 0
    }

    /// Whether the memory of some free frames could go back while others are allocated. What was
    /// trimmed, and of which nothing was taken since, has nothing new unless its count has changed.
    pub fn can_be_trimmed(self) -> bool {
        let news = self.count() != (self.0 & TRIMMED) >> TRIMMED_SHIFT;
        let partial = self.count() > 0 && self.count() < FRAMES;
        self.is_resident() && !self.is_reserved() && partial && news
    }

    /// Whether a huge page would be put to use: every frame is allocated.
    pub fn can_collapse(self) -> bool {
        self.0 & (RESIDENT | RESERVED | SETTLED | COUNT) == RESIDENT
    }

    /// The free list it belongs on.
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

    /// Somebody has it, and is going to take of it.
    pub fn reserved(self) -> State {
        State((self.0 | RESERVED | RESIDENT) & !TRIMMED)
    }

    /// Nobody has it any more.
    pub fn unreserved(self) -> State {
        State(self.0 & !RESERVED)
    }

    /// `frames` were taken out under the zone's lock.
    pub fn taken(self, frames: u32) -> State {
        State(((self.0 | RESIDENT) & !TRIMMED) - frames)
    }

    /// Who had it reserved has given all its memory back to the system.
    pub fn released(self) -> State {
        State(self.count())
    }

    /// Who had it reserved has given the memory of `frames` frames back to the system.
    pub fn trimmed(self, frames: u32) -> State {
        State(self.0 & !(RESERVED | SETTLED | TRIMMED) | frames << TRIMMED_SHIFT)
    }

    /// The system has been asked to back it with a huge page.
    pub fn collapsed(self) -> State {
        State(self.0 | SETTLED)
    }
}

/// A block. The bits have a cache line of their own, and neighbours share none.
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

    /// Its bits, of the moment.
    pub fn words(&self) -> [u64; WORDS] {
        core::array::from_fn(|word| self.free[word].load(Ordering::Relaxed))
    }

    /// Adds to the count; the bits are set next. Gives back what the word has become.
    #[inline]
    pub fn add(&self, frames: u32) -> State {
        State(self.state.fetch_add(frames, Ordering::Relaxed) + frames)
    }

    /// Takes back an addition for which there were no bits to set.
    #[cold]
    pub fn unadd(&self, frames: u32) {
        self.state.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Sets bits that were added, and tells which of them were set already, as none should be.
    #[inline]
    pub fn set(&self, word: usize, mask: u64) -> u64 {
        // Release pairs with the Acquire in `take`: who is allocated a frame comes after who had
        // it.
        self.free[word].fetch_or(mask, Ordering::Release) & mask
    }

    /// Takes bits, if they are set, and tells which were. Only for who may take.
    #[inline]
    fn take(&self, word: usize, mask: u64) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.free[word].fetch_and(!mask, Ordering::Acquire) & mask
    }

    /// Takes up to `into.len()` single frames, the lowest, and tells how many. They are numbered
    /// from `first` on. For who has the pageblock reserved.
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

    /// Takes the lowest block of an order from 0 to 8. For who has the pageblock reserved.
    pub fn take_run(&self, order: u8) -> Option<u32> {
        if self.state().count() < 1 << order {
            return None;
        }
        let at = self.take_bits(order)?;
        self.state.fetch_sub(1 << order, Ordering::Relaxed);
        Some(at)
    }

    /// The same under the zone's lock, of a pageblock that nobody has reserved, of orders 0 to 9.
    /// The word it has now tells the new free list.
    pub fn take_shelved(&self, order: u8) -> Option<(u32, State)> {
        if self.state().count() < 1 << order {
            return None;
        }
        let at = self.take_bits(order)?;
        Some((at, self.change(|state| state.taken(1 << order))))
    }

    fn take_bits(&self, order: u8) -> Option<u32> {
        let at = runs::find(&self.words(), order)?;
        for (word, mask) in runs::masks(at, 1 << order) {
            let taken = self.take(word, mask);
            debug_assert_eq!(taken, mask, "two take from one pageblock");
        }
        Some(at)
    }

    /// Takes all bits that can be seen and leaves the count as it is: they come back soon. For who
    /// has the pageblock reserved.
    pub fn take_out(&self) -> [u64; WORDS] {
        core::array::from_fn(|word| self.take(word, !0))
    }

    /// Whether every frame is free and can be seen to be.
    pub fn is_whole(&self) -> bool {
        self.words() == [!0; WORDS]
    }

    /// Changes the word, which others may be adding to, and gives back what it has become.
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

/// Writes the numbers of the set bits, ascending, and tells how many. There is room for them.
#[inline]
fn write_numbers(bits: u64, start: u32, into: &mut [u32]) -> usize {
    let count = bits.count_ones() as usize;
    let into = &mut into[..count];
    if bits == !0 {
        // The usual case, which the compiler makes a few instructions.
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
