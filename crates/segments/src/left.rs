//! The account of a log that another process left: from the words that it kept, and from the places
//! that slots name.

use alloc::vec::Vec;
use core::fmt;

use crate::header::Generation;
use crate::layout::{BLOCK_BYTES, Layout, LayoutError, Place, stored};
use crate::segment::{Segment, State};
use crate::segments::{NEW, SURVIVORS, Segments};
use crate::word::{Keep, Use, Word};

/// What another process left of a log. The caller claims the place of each slot that names one, and
/// then has the account with [`finish`](Left::finish).
///
/// # What follows
/// * A segment without objects is to be punched, whatever it was used for, unless it is free.
/// * The open segment of new objects goes on behind what was appended, with the next block.
/// * The open segment of survivors goes on behind the last object that lives there, with the next
///   block. What was appended behind that and never committed would else be missing when the rest
///   of the victim is copied: cleaning could not finish.
/// * A segment that was being cleaned is one like any other.
///
/// So no write of the process before may be under way any more: the caller has the device for
/// itself.
///
/// # Why cleaning finishes
/// What a segment of survivors has taken from the last victim, the victim has less. Each death
/// loses a part of one block there. A victim gains a 32nd of a segment at least, and two blocks, or
/// five with segments of 4 MiB, are for what is written together. So there is room for the rest of
/// it until the process has died more than four times while one segment was being cleaned.
pub struct Left {
    log: Segments,
    /// Where the last object in use ends, in each segment.
    ends: Vec<u32>,
}

/// No object can be at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misplaced {
    /// The log ends before it.
    Outside,
    /// Its segment is free.
    Free,
    /// Less was appended to its segment.
    Behind,
    /// The objects of its segment take more than was appended: some of them overlap.
    Crowded,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misplaced::Outside => "its place is beyond the end of the log",
            Misplaced::Free => "its place is in a segment of the log that is free",
            Misplaced::Behind => "its place is behind what was written to its segment of the log",
            Misplaced::Crowded => "its segment of the log has no room for all of its objects",
        })
    }
}

impl core::error::Error for Misplaced {}

impl Left {
    /// What is left of a log of this layout, where `words` has the word of each segment. Of a
    /// segment whose word cannot be, `bad` is told; no object is there.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn new(
        layout: Layout,
        words: impl Fn(u32) -> u64,
        mut bad: impl FnMut(u32),
    ) -> Result<Left, LayoutError> {
        let mut log = Segments::new(layout)?;
        log.free.clear();
        let mut ends = Vec::new();
        ends.try_reserve_exact(log.segments.len()).map_err(|_| LayoutError::NoMemory)?;
        ends.resize(log.segments.len(), 0);
        for (number, segment) in (0..).zip(&mut log.segments) {
            let word = Word::decode(words(number), layout.segment_bytes).unwrap_or_else(|| {
                bad(number);
                Word { youngest: 0, used: 0, is: Use::Closed, generation: Generation::FIRST }
            });
            let Word { youngest, used, generation, is } = word;
            let open = match is {
                Use::Free | Use::Closed => None,
                Use::New => Some(&mut log.open[NEW]),
                Use::Survivors => Some(&mut log.open[SURVIVORS]),
            };
            let state = match open {
                None if is == Use::Free => State::Free,
                // There is one at most.
                Some(open @ None) => {
                    *open = Some(number);
                    State::Open
                }
                None | Some(_) => State::Closed,
            };
            *segment = Segment { used, youngest, generation, state, ..Segment::UNUSED };
        }
        Ok(Left { log, ends })
    }

    /// A slot names this place, of an object of `length` bytes. Objects that overlap are found only
    /// if they take more than their segment has; their headers tell whose a place is.
    ///
    /// # Errors
    /// See [`Misplaced`]; nothing has changed.
    pub fn claim(&mut self, place: Place, length: u16) -> Result<(), Misplaced> {
        let number = self.log.segment_of(place);
        let (start, bytes) = (self.log.start(number), stored(length));
        let segment = self.log.segments.get_mut(number as usize).ok_or(Misplaced::Outside)?;
        if segment.state == State::Free {
            return Err(Misplaced::Free);
        }
        // Both are less than 2^23.
        let end = (place.byte() - start) as u32 + bytes;
        if end > segment.used {
            return Err(Misplaced::Behind);
        }
        if segment.live + bytes > segment.used {
            return Err(Misplaced::Crowded);
        }
        segment.live += bytes;
        self.log.live += u64::from(bytes);
        let last = &mut self.ends[number as usize];
        *last = end.max(*last);
        Ok(())
    }

    /// The account, after all places were claimed. `keeper` has the words that it was made from,
    /// and is told what changes, now and later.
    #[must_use]
    pub fn finish(self, keeper: Option<alloc::boxed::Box<dyn Keep>>) -> Segments {
        let Left { mut log, ends } = self;
        // As in a new log, the first free segment is on top.
        for number in (0..log.count()).rev() {
            let survivors = log.open[SURVIVORS] == Some(number);
            let segment = &mut log.segments[number as usize];
            match segment.state {
                State::Free => log.free.push(number),
                State::Open if segment.live > 0 => {
                    let end = if survivors { ends[number as usize] } else { segment.used };
                    segment.used = end.next_multiple_of(BLOCK_BYTES);
                    if survivors {
                        log.end = end;
                    }
                }
                // Without objects it is empty at once.
                _ => log.close(number),
            }
        }
        log.keep(keeper);
        log
    }
}
