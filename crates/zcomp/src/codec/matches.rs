//! Finds what repeats in a few pages, for [`sequences`](super::sequences) to code.
//!
//! Many words of a program's pages are pointers, whose upper three bytes are those of others.
//! libzstd looks for matches as short as that from level 12 on alone. This finds them in one pass,
//! as its lazy levels do: of a match here and one that begins a byte later, the one is taken that
//! promises to save more bits. On dumps of programs the result is as long as that of level 12, or
//! one percent longer, in a sixth of the time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use units::PAGE_SIZE;

use super::judge::out_of_memory;
use super::names::ZSTD as NAME;
use super::sequences::{SHORTEST, Sequence, sequence};
use crate::{CodecError, EXTENT_PAGES};

/// The most bytes that are searched. A place among them fits into 16 bits.
const LONGEST: usize = EXTENT_PAGES * PAGE_SIZE;
const _: () = assert!(LONGEST < 1 << u16::BITS);
/// Three bytes are hashed to so many bits.
const THREE_BITS: u32 = 12;
/// Four bytes are hashed to so many bits.
const FOUR_BITS: u32 = 14;
/// So many places with the same hash of four bytes are looked at, the last ones.
const PLACES: usize = 16;
/// So many are, for a match that would take the place of one that begins a byte before.
const PLACES_LATER: usize = 4;
/// With a match as long as this at a distance that comes again, fewer places are looked at.
const GOOD: usize = 24;
/// A match as long as this is taken without a look at later ones.
const LONG: usize = 256;
/// After so many bytes without a match, one more of those that follow is left out each time.
const PATIENCE: usize = 64;
/// The last bytes of the input begin no match: words of eight bytes are compared.
const TAIL: usize = 8;

/// Bits that a byte costs that is in no match, about.
const BYTE: i32 = 5;
/// Bits that a match costs beside those of its distance.
const MATCH: i32 = 5;
/// Bits that a match costs whose distance is that of the last one, and of an earlier one.
const AGAIN: [i32; 2] = [5, 7];

/// The last distances before there was one.
const FIRST: [usize; 3] = [1, 4, 8];

/// Finds matches. It takes no memory later.
pub(super) struct Finder {
    places: Places,
    /// The bytes that were searched last, and what makes them up.
    searched: Vec<u8>,
    sequences: Vec<Sequence>,
}

/// Where bytes are. A place is kept as its number plus one; 0 is none.
struct Places {
    /// By the hash of three bytes: the last place with it.
    threes: Box<[u16; 1 << THREE_BITS]>,
    /// By the hash of four bytes: the last place with it.
    fours: Box<[u16; 1 << FOUR_BITS]>,
    /// By place: the one before with the same hash of four bytes. The remainder of a place by the
    /// length is the place itself, and needs no check.
    before: Box<[u16; LONGEST]>,
}

/// A match that could be taken.
#[derive(Clone, Copy)]
struct Match {
    length: usize,
    distance: usize,
    /// The bits that it saves.
    gain: i32,
}

impl Finder {
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub(super) fn new() -> Result<Finder, CodecError> {
        let (mut searched, mut sequences) = (Vec::new(), Vec::new());
        searched.try_reserve_exact(LONGEST).map_err(|_| out_of_memory(NAME))?;
        sequences.try_reserve_exact(LONGEST / SHORTEST + 1).map_err(|_| out_of_memory(NAME))?;
        let places = Places { threes: zeroes()?, fours: zeroes()?, before: zeroes()? };
        Ok(Finder { places, searched, sequences })
    }

    /// The sequences that make up `bytes`; the last one has no match.
    ///
    /// # Panics
    /// If there are more than [`LONGEST`] bytes.
    pub(super) fn find(&mut self, bytes: &[u8]) -> &[Sequence] {
        assert!(bytes.len() <= LONGEST, "{} bytes are to be searched", bytes.len());
        // In the first of the pages before, the same is found.
        match self.searched.starts_with(bytes) {
            true => self.cut(bytes.len()),
            false => self.search(bytes),
        }
        self.searched.clear();
        self.searched.extend_from_slice(bytes);
        &self.sequences
    }

    /// The bits of what was searched last, up to the end of each page, by the prices below.
    pub(super) fn shares(&self) -> [usize; EXTENT_PAGES] {
        let (mut ends, mut at, mut bits, mut recent) = ([0; EXTENT_PAGES], 0, 0, FIRST);
        let mut add = |length: usize, price: i32| {
            bits += price as usize;
            let ended = at / PAGE_SIZE..((at + length) / PAGE_SIZE).min(EXTENT_PAGES);
            ends[ended].fill(bits);
            at += length;
        };
        for it in &self.sequences {
            let [literals, length, distance] =
                [it.litLength, it.matchLength, it.offset].map(|it| it as usize);
            add(literals, literals as i32 * BYTE);
            let again = recent.iter().position(|it| *it == distance);
            let price = again.map_or_else(|| far(distance), |it| AGAIN[usize::from(it > 0)]);
            add(length, if length > 0 { price } else { 0 });
            recent = after(recent, distance);
        }
        ends
    }

    /// Leaves the sequences that make up the first `left` bytes.
    fn cut(&mut self, mut left: usize) {
        let bytes = |it: &Sequence| [it.litLength as usize, it.matchLength as usize];
        let mut whole = 0;
        for it in &self.sequences {
            let [literals, length] = bytes(it);
            let Some(less) = left.checked_sub(literals + length) else { break };
            (whole, left) = (whole + 1, less);
        }
        let Some(cut) = self.sequences.get(whole).copied() else { return };
        self.sequences.truncate(whole);
        let literals = bytes(&cut)[0].min(left);
        if left - literals >= SHORTEST {
            self.sequences.push(sequence(literals, left - literals, cut.offset as usize));
            left = 0;
        }
        self.sequences.push(sequence(left, 0, 0));
    }

    fn search(&mut self, bytes: &[u8]) {
        self.places.threes.fill(0);
        self.places.fours.fill(0);
        self.sequences.clear();
        let places = &mut self.places;
        let mut search = Search { bytes, places, entered: 0, recent: FIRST };
        let (mut at, mut taken) = (0, 0);
        while at + TAIL <= bytes.len() {
            let Some(mut found) = search.best(at, PLACES, at == taken) else {
                at += 1 + (at - taken) / PATIENCE;
                continue;
            };
            while found.length < LONG {
                let Some(better) = search.better(found, at + 1) else { break };
                (at, found) = (at + 1, better);
            }
            let Match { mut length, distance, .. } = found;
            while at > taken && at > distance && bytes[at - 1] == bytes[at - 1 - distance] {
                (at, length) = (at - 1, length + 1);
            }
            self.sequences.push(sequence(at - taken, length, distance));
            search.take(distance);
            at += length;
            taken = at;
        }
        self.sequences.push(sequence(bytes.len() - taken, 0, 0));
    }
}

fn zeroes<const N: usize>() -> Result<Box<[u16; N]>, CodecError> {
    let mut zeroes = Vec::new();
    zeroes.try_reserve_exact(N).map_err(|_| out_of_memory(NAME))?;
    zeroes.resize(N, 0);
    zeroes.into_boxed_slice().try_into().map_err(|_| out_of_memory(NAME))
}

/// What is known of the bytes up to a place.
struct Search<'a> {
    bytes: &'a [u8],
    places: &'a mut Places,
    /// The places below are known.
    entered: usize,
    /// The last distances, the latest first: they cost few bits.
    recent: [usize; 3],
}

impl Search<'_> {
    /// The match at a place that saves most bits, if one saves any, among the last distances and
    /// `places` places. `follows` says that a match ended there, so that the last distance cannot
    /// come again.
    #[inline]
    fn best(&mut self, at: usize, places: usize, follows: bool) -> Option<Match> {
        debug_assert!(self.entered <= at, "a place is looked at once");
        let mut best = Match { length: 0, distance: 0, gain: 0 };
        let four = self.four(at);
        for number in usize::from(follows)..self.recent.len() {
            let distance = self.recent[number];
            if distance <= at && three(self.four(at - distance)) == three(four) {
                let length = self.equal(at - distance, at);
                let gain = length as i32 * BYTE - AGAIN[usize::from(number > 0)];
                if gain > best.gain {
                    best = Match { length, distance, gain };
                }
            }
        }
        self.enter(at);
        let [last, mut place] = self.enter_one(at, four);
        for _ in 0..if best.length < GOOD { places } else { places / 4 } {
            let Some(from) = usize::from(place).checked_sub(1) else { break };
            place = self.places.before[from % LONGEST];
            // A longer match has the next byte, too.
            let longer = self.bytes.get(from + best.length) == self.bytes.get(at + best.length);
            if longer && self.four(from) == four {
                let (length, distance) = (self.equal(from, at), at - from);
                let gain = length as i32 * BYTE - far(distance);
                if gain > best.gain {
                    best = Match { length, distance, gain };
                }
            }
        }
        if best.gain == 0
            && let Some(from) = usize::from(last).checked_sub(1)
            && three(self.four(from)) == three(four)
        {
            let (length, distance) = (self.equal(from, at), at - from);
            let gain = length as i32 * BYTE - far(distance) - 1;
            best = Match { length, distance, gain };
        }
        (best.gain > 0).then_some(best)
    }

    /// The match at a later place that saves more than `than`.
    #[inline]
    fn better(&mut self, than: Match, at: usize) -> Option<Match> {
        if at + TAIL > self.bytes.len() {
            return None;
        }
        self.best(at, PLACES_LATER, false).filter(|later| later.gain > than.gain)
    }

    /// Notes that a match of this distance was taken.
    fn take(&mut self, distance: usize) {
        self.recent = after(self.recent, distance);
    }

    /// Makes the places below `end` known.
    #[inline]
    fn enter(&mut self, end: usize) {
        for place in self.entered..end {
            self.enter_one(place, self.four(place));
        }
    }

    /// Makes a place known, and returns the last ones with the same three and four bytes.
    #[inline]
    fn enter_one(&mut self, place: usize, four: u32) -> [u16; 2] {
        let known = place as u16 + 1;
        let last = mem::replace(&mut self.places.threes[hash(three(four), THREE_BITS)], known);
        let before = mem::replace(&mut self.places.fours[hash(four, FOUR_BITS)], known);
        self.places.before[place % LONGEST] = before;
        self.entered = place + 1;
        [last, before]
    }

    #[inline]
    fn four(&self, at: usize) -> u32 {
        let bytes: [u8; 4] = self.bytes[at..at + 4].try_into().unwrap_or_default();
        u32::from_le_bytes(bytes)
    }

    #[inline]
    fn eight(&self, at: usize) -> u64 {
        let bytes: [u8; 8] = self.bytes[at..at + 8].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    }

    /// How many bytes from `at` on are those from `from` on, a place before it.
    #[inline]
    fn equal(&self, from: usize, at: usize) -> usize {
        let (mut length, most) = (0, self.bytes.len() - at);
        while length + 8 <= most {
            match self.eight(from + length) ^ self.eight(at + length) {
                0 => length += 8,
                other => return length + (other.trailing_zeros() / 8) as usize,
            }
        }
        while length < most && self.bytes[from + length] == self.bytes[at + length] {
            length += 1;
        }
        length
    }
}

/// The last distances after a match.
fn after(recent: [usize; 3], distance: usize) -> [usize; 3] {
    let [first, second, third] = recent;
    match distance {
        _ if distance == first => recent,
        _ if distance == second => [second, first, third],
        _ => [distance, first, second],
    }
}

/// The first three of four bytes.
#[inline]
fn three(four: u32) -> u32 {
    four << 8
}

#[inline]
fn hash(bytes: u32, bits: u32) -> usize {
    (bytes.wrapping_mul(2_654_435_761) >> (u32::BITS - bits)) as usize
}

/// Bits that a match costs at a distance that does not come again, about.
#[inline]
fn far(distance: usize) -> i32 {
    MATCH + (distance as u32 + 3).ilog2() as i32
}
