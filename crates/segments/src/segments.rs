//! The account of all segments.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::choice;
use crate::header::{Generation, MOST_BYTES};
use crate::layout::{BLOCK_BYTES, Layout, LayoutError, Place, UNIT_BYTES, stored};
use crate::segment::{Segment, State};
use crate::word::{Keep, Use, Word};

/// Free segments that only survivors may use, so that cleaning can always finish: the survivors of
/// one segment need at most one more.
const RESERVE: usize = 1;

/// The account of a log's segments. See the crate. Calls need `&mut`: one thread at a time.
///
/// Times are of any clock of the caller that does not go back, in whole numbers such as seconds.
pub struct Segments {
    layout: Layout,
    pub(crate) segments: Vec<Segment>,
    /// Segments that may be opened.
    pub(crate) free: Vec<u32>,
    /// Segments to be punched.
    empty: Vec<u32>,
    /// Segments that are being punched.
    punching: u32,
    /// The open segment of new objects, and that of survivors.
    pub(crate) open: [Option<u32>; 2],
    /// Where the last object ends that was written to the open segment of survivors.
    pub(crate) end: u32,
    /// The segment that is being cleaned.
    cleaning: Option<u32>,
    pub(crate) live: u64,
    /// Keeps for another process what slots do not say.
    keeper: Option<Box<dyn Keep>>,
}

/// A segment that could not be cleaned is tried again after this time, in units of the clock.
const PAUSE: u32 = 60;

pub(crate) const NEW: usize = 0;
pub(crate) const SURVIVORS: usize = 1;

/// An object whose place is reserved and that is being written. It must go to
/// [`written`](Segments::written) or [`abandon`](Segments::abandon): until then its segment is not
/// cleaned.
#[must_use = "an object is written or abandoned"]
#[derive(Debug)]
pub struct Pending {
    place: Place,
    length: u16,
    generation: Generation,
}

impl Pending {
    /// Where the object is to be written. The bytes up to the next unit are zeroes.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Bytes of the object, without the header.
    #[must_use]
    pub fn length(&self) -> u16 {
        self.length
    }

    /// The generation for its header.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

/// A segment that is being cleaned. It must go to [`cleaned`](Segments::cleaned) or
/// [`put_back`](Segments::put_back): until then no other one is cleaned.
#[must_use = "a victim is cleaned or put back"]
#[derive(Debug)]
pub struct Victim {
    segment: u32,
    start: u64,
    used: u32,
    youngest: u32,
    /// When it was chosen.
    now: u32,
    generation: Generation,
}

impl Victim {
    /// The bytes of the device for [`walk`](crate::walk).
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.used)
    }

    /// The generation of its headers.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The place of the object that [`walk`](crate::walk) found at `offset`; `None` if the segment
    /// has no such place.
    #[must_use]
    pub fn place(&self, offset: u32) -> Option<Place> {
        if offset >= self.used {
            return None;
        }
        Place::at(self.start + u64::from(offset))
    }
}

/// A segment without objects, which is being punched. It must go to
/// [`punched`](Segments::punched): until then its space is not used.
#[must_use = "a segment that was punched may be used again"]
#[derive(Debug)]
pub struct Punch {
    segment: u32,
    bytes: Range<u64>,
}

impl Punch {
    /// The bytes of the device to punch or trim. Before that, whoever reads them must have left.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }
}

/// Why an object has no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Objects have 1 to 4096 bytes.
    Length(usize),
    /// No segment may be opened. Punching and cleaning may help.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Length(bytes) => {
                write!(f, "an object of {bytes} bytes: 1 to {MOST_BYTES} are allowed")
            }
            Refused::Full => write!(f, "the log is full"),
        }
    }
}

impl core::error::Error for Refused {}

/// No object that is in use can be there. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLive {
    /// The place.
    pub place: Place,
    /// The bytes of the object.
    pub length: u16,
}

impl fmt::Display for NotLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, byte) = (self.length, self.place.byte());
        write!(f, "no object of {length} bytes can be in use at byte {byte} of the log")
    }
}

impl core::error::Error for NotLive {}

/// Why there is no victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoVictim {
    /// One is being cleaned.
    Busy,
    /// Segments are empty or being punched, which makes room without cleaning.
    PunchFirst,
    /// No segment would gain enough, or none is there that nobody writes to.
    Nothing,
}

impl Segments {
    /// An empty log. Takes 28 bytes of memory for each segment.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn new(layout: Layout) -> Result<Segments, LayoutError> {
        let count = layout.segments()?;
        let (mut segments, mut free, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        segments.try_reserve_exact(count as usize).map_err(|_| LayoutError::NoMemory)?;
        for list in [&mut free, &mut empty] {
            list.try_reserve_exact(count as usize).map_err(|_| LayoutError::NoMemory)?;
        }
        segments.resize(count as usize, Segment::UNUSED);
        // The first segment is on top.
        free.extend((0..count).rev());
        let (open, cleaning, keeper) = ([None; 2], None, None);
        let (punching, live, end) = (0, 0, 0);
        Ok(Segments { layout, segments, free, empty, punching, open, end, cleaning, live, keeper })
    }

    /// From now on `keeper`, if there is one, is told the word of each segment that changes. It is
    /// told those of all segments that are not free now. The next process makes a
    /// [`Left`](crate::Left) of them.
    pub fn keep(&mut self, keeper: Option<Box<dyn Keep>>) {
        self.keeper = keeper;
        for (number, segment) in (0..).zip(&self.segments) {
            if segment.state != State::Free {
                self.note(number);
            }
        }
    }

    /// How the device is divided.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Has the word of a segment kept.
    fn note(&self, number: u32) {
        let Some(keeper) = &self.keeper else { return };
        let Segment { youngest, used, generation, state, .. } = self.segments[number as usize];
        let is = match self.open {
            [Some(open), _] if open == number => Use::New,
            [_, Some(open)] if open == number => Use::Survivors,
            _ if state == State::Free => Use::Free,
            _ => Use::Closed,
        };
        keeper.keep(number, Word { youngest, used, is, generation }.encode());
    }

    /// The number of segments.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.segments.len() as u32
    }

    /// The time of the last object that was new, or of the last cleaning that gained nothing.
    #[must_use]
    pub fn last_time(&self) -> u32 {
        self.segments.iter().map(|segment| segment.youngest).max().unwrap_or(0)
    }

    /// Bytes of all objects that are in use or being written, with headers, in whole units.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live
    }

    /// As long as [`live_bytes`](Segments::live_bytes) and a new object stay within this many bytes
    /// and no write fails, cleaning and punching make room for it.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let each = self.layout.segment_bytes - self.layout.least_gain();
        u64::from(self.count() - 2) * u64::from(each)
    }

    /// Segments that may be opened.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        self.free.len() as u32
    }

    /// Reserves a place for a new object of `length` bytes at the time `now`. If it does not fit
    /// into the open segment, that one is closed, even if no other can be opened.
    ///
    /// # Errors
    /// See [`Refused`]. The bytes that are live have not changed.
    pub fn append(&mut self, length: usize, now: u32) -> Result<Pending, Refused> {
        let length = checked(length)?;
        self.reserve(NEW, length, now, RESERVE)
    }

    /// Reserves a place for an object of a segment that is being cleaned. It keeps its age.
    ///
    /// # Errors
    /// See [`Refused`]. [`Refused::Full`] comes only after writes that failed: then the victim
    /// should be [put back](Segments::put_back).
    pub fn append_survivor(&mut self, of: &Victim, length: usize) -> Result<Pending, Refused> {
        let length = checked(length)?;
        self.reserve(SURVIVORS, length, of.youngest, 0)
    }

    /// Ends what is written together: the next object begins at a multiple of [`BLOCK_BYTES`].
    /// `of` is the victim if survivors were appended. They are padded once for each MiB of them,
    /// and once at the end. Returns the bytes of the device that are to be zeroes, if there are
    /// any. They count as free when the segment is cleaned.
    pub fn pad(&mut self, of: Option<&Victim>) -> Option<Range<u64>> {
        let number = self.open[if of.is_some() { SURVIVORS } else { NEW }]?;
        let start = self.start(number);
        let used = &mut self.segments[number as usize].used;
        let end = used.next_multiple_of(BLOCK_BYTES);
        let padding = start + u64::from(*used)..start + u64::from(end);
        *used = end;
        self.note(number);
        (!padding.is_empty()).then_some(padding)
    }

    /// Whether new objects that take `bytes`, at most a segment, have room before anything is
    /// cleaned or punched.
    #[must_use]
    pub fn has_room(&self, bytes: u32) -> bool {
        let rest = |number: u32| self.layout.segment_bytes - self.segments[number as usize].used;
        self.free.len() > RESERVE || self.open[NEW].is_some_and(|number| rest(number) >= bytes)
    }

    /// The life of the segment at a place; `None` if the place is outside.
    #[must_use]
    pub fn generation(&self, place: Place) -> Option<Generation> {
        let segment = self.segments.get(self.segment_of(place) as usize)?;
        Some(segment.generation)
    }

    fn reserve(
        &mut self,
        open: usize,
        length: u16,
        time: u32,
        reserve: usize,
    ) -> Result<Pending, Refused> {
        let bytes = stored(length);
        let fits = |segment: &Segment| segment.used + bytes <= self.layout.segment_bytes;
        let number = match self.open[open] {
            Some(number) if fits(&self.segments[number as usize]) => number,
            full => {
                if let Some(full) = full {
                    self.close(full);
                }
                self.open_one(open, reserve)?
            }
        };
        let segment = &mut self.segments[number as usize];
        let offset = segment.used;
        segment.used += bytes;
        segment.live += bytes;
        segment.pending += 1;
        segment.youngest = segment.youngest.max(time);
        self.live += u64::from(bytes);
        let generation = segment.generation;
        self.note(number);
        let byte = self.start(number) + u64::from(offset);
        // The layout has checked that places reach all segments.
        let place = Place::from_word((byte / u64::from(UNIT_BYTES)) as u32);
        Ok(Pending { place, length, generation })
    }

    fn open_one(&mut self, open: usize, reserve: usize) -> Result<u32, Refused> {
        if self.free.len() <= reserve {
            return Err(Refused::Full);
        }
        let number = self.free.pop().ok_or(Refused::Full)?;
        let segment = &mut self.segments[number as usize];
        debug_assert_eq!(segment.state, State::Free);
        *segment = Segment {
            generation: segment.generation.next(),
            state: State::Open,
            ..Segment::UNUSED
        };
        self.open[open] = Some(number);
        if open == SURVIVORS {
            self.end = 0;
        }
        // Its life, before anything is written in it.
        self.note(number);
        Ok(number)
    }

    /// Closes an open segment.
    pub(crate) fn close(&mut self, number: u32) {
        for open in self.open.iter_mut().filter(|open| **open == Some(number)) {
            *open = None;
        }
        self.segments[number as usize].state = State::Closed;
        self.note(number);
        self.settle(number);
    }

    /// Puts a segment on the list of empty ones if it is done.
    fn settle(&mut self, number: u32) {
        let segment = &mut self.segments[number as usize];
        if segment.is_done() {
            segment.state = State::Empty;
            self.empty.push(number);
        }
    }

    pub(crate) fn start(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.layout.segment_bytes)
    }

    pub(crate) fn segment_of(&self, place: Place) -> u32 {
        // At most 2^38 bytes over 2^20.
        (place.byte() / u64::from(self.layout.segment_bytes)) as u32
    }

    /// The object is on the device: its place may go to a slot. An object that nobody wants any
    /// more is freed afterwards like any other.
    pub fn written(&mut self, pending: Pending) -> Place {
        let number = self.segment_of(pending.place);
        self.segments[number as usize].pending -= 1;
        if self.open[SURVIVORS] == Some(number) {
            let start = pending.place.byte() - self.start(number);
            // Less than a segment.
            let end = start as u32 + stored(pending.length);
            self.end = self.end.max(end);
        }
        self.settle(number);
        pending.place
    }

    /// The object could not be written. A segment of new objects takes no more. It is cleaned like
    /// any other: a walk goes on behind the blocks that were not written. A segment of survivors
    /// stays open, because another one may not be there; it goes on behind them, while there is
    /// room.
    pub fn abandon(&mut self, pending: Pending) {
        let number = self.segment_of(pending.place);
        let bytes = stored(pending.length);
        let is_open = self.segments[number as usize].state == State::Open;
        if is_open && self.open[SURVIVORS] != Some(number) {
            self.close(number);
        }
        let segment = &mut self.segments[number as usize];
        segment.pending -= 1;
        // A place that was freed twice may have taken these bytes away.
        let bytes = bytes.min(segment.live);
        segment.live -= bytes;
        self.live -= u64::from(bytes);
        self.settle(number);
    }

    /// An object is not in use any more: no slot names its place.
    ///
    /// # Errors
    /// No object of this length can be there; nothing has changed. That the same object is freed
    /// twice is found only if its segment has too few bytes in use.
    pub fn free(&mut self, place: Place, length: u16) -> Result<(), NotLive> {
        let bytes = stored(length);
        let number = self.segment_of(place);
        let offset = place.byte() - self.start(number);
        let is_there = |segment: &&mut Segment| {
            let has =
                matches!(segment.state, State::Open | State::Closed | State::Victim | State::Kept);
            has && segment.live >= bytes && offset + u64::from(bytes) <= u64::from(segment.used)
        };
        let segment = self.segments.get_mut(number as usize);
        let segment = segment.filter(is_there).ok_or(NotLive { place, length })?;
        segment.live -= bytes;
        self.live -= u64::from(bytes);
        self.settle(number);
        Ok(())
    }

    /// Chooses the segment to clean at the time `now`, by cost and age. It is full, and nothing of
    /// it is being written. Looks at every segment.
    ///
    /// # Errors
    /// See [`NoVictim`].
    pub fn victim(&mut self, now: u32) -> Result<Victim, NoVictim> {
        if self.cleaning.is_some() {
            return Err(NoVictim::Busy);
        }
        let size = self.layout.segment_bytes;
        if !self.empty.is_empty() || self.punching > 0 {
            return Err(NoVictim::PunchFirst);
        }
        let least = self.layout.least_gain();
        let mut most = if self.free.is_empty() { self.rest() } else { size };
        let mut best = choice::best(&self.segments, size, (least, most), now);
        if best.is_none() && self.free.is_empty() && self.forget_failed() {
            most = self.rest();
            best = choice::best(&self.segments, size, (least, most), now);
        }
        if best.is_none() && !self.free.is_empty() {
            best = self.close_survivors(least);
        }
        if best.is_none() {
            best = self.kept_before(now.saturating_sub(PAUSE), (least, most));
        }
        let number = best.ok_or(match self.empty.is_empty() {
            true => NoVictim::Nothing,
            false => NoVictim::PunchFirst,
        })?;
        self.cleaning = Some(number);
        let start = self.start(number);
        let segment = &mut self.segments[number as usize];
        segment.state = State::Victim;
        let Segment { used, youngest, generation, .. } = *segment;
        Ok(Victim { segment: number, start, used, youngest, now, generation })
    }

    /// A segment to clean again whose objects were not all found before the time `before`: it may
    /// have been unreadable for a moment.
    fn kept_before(&self, before: u32, (least, most): (u32, u32)) -> Option<u32> {
        let size = self.layout.segment_bytes;
        let fits = |segment: &Segment| {
            let kept = segment.state == State::Kept && segment.pending == 0;
            kept && segment.youngest < before && segment.live <= most.min(size - least)
        };
        (0..).zip(&self.segments).find(|(_, segment)| fits(segment)).map(|(number, _)| number)
    }

    /// The bytes that surely fit into the open segment of survivors.
    fn rest(&self) -> u32 {
        let rest = |number: u32| self.layout.segment_bytes - self.segments[number as usize].used;
        self.open[SURVIVORS].map_or(0, rest).saturating_sub(self.layout.padding())
    }

    /// Has the segment of survivors go on where writes of them have failed. False if none has.
    fn forget_failed(&mut self) -> bool {
        let Some(number) = self.open[SURVIVORS] else { return false };
        let segment = &mut self.segments[number as usize];
        let end = self.end.next_multiple_of(BLOCK_BYTES);
        if segment.pending > 0 || segment.used <= end {
            return false;
        }
        segment.used = end;
        self.note(number);
        true
    }

    /// Closes the segment of survivors if enough of what was written there is free by now.
    fn close_survivors(&mut self, least: u32) -> Option<u32> {
        let number = self.open[SURVIVORS]?;
        let segment = &self.segments[number as usize];
        if segment.pending > 0 || segment.used - segment.live < least {
            return None;
        }
        self.close(number);
        // Without live objects it is empty at once.
        self.segments[number as usize].is_candidate().then_some(number)
    }

    /// All objects of the victim that the walk found are copied or were freed. If others are left,
    /// it is empty when they are freed, and is chosen again only when no other is, after 60 units
    /// of the clock.
    pub fn cleaned(&mut self, victim: Victim) {
        self.cleaning = None;
        let segment = &mut self.segments[victim.segment as usize];
        segment.state = State::Kept;
        segment.youngest = victim.now;
        self.settle(victim.segment);
    }

    /// Cleaning stops; the victim may be chosen again.
    pub fn put_back(&mut self, victim: Victim) {
        self.cleaning = None;
        self.segments[victim.segment as usize].state = State::Closed;
        self.settle(victim.segment);
    }

    /// A segment to punch; `None` if none is empty.
    pub fn punch(&mut self) -> Option<Punch> {
        let segment = self.empty.pop()?;
        self.segments[segment as usize].state = State::Punching;
        self.punching += 1;
        let start = self.start(segment);
        Some(Punch { segment, bytes: start..start + u64::from(self.layout.segment_bytes) })
    }

    /// The segment was punched, and its space may be used again. If the device could not punch it,
    /// this is right, too: only headers of the next life are read.
    pub fn punched(&mut self, punch: Punch) {
        self.punching -= 1;
        let segment = &mut self.segments[punch.segment as usize];
        (segment.state, segment.used) = (State::Free, 0);
        self.note(punch.segment);
        self.free.push(punch.segment);
    }
}

fn checked(length: usize) -> Result<u16, Refused> {
    match length {
        // At most 2^14.
        1..=MOST_BYTES => Ok(length as u16),
        _ => Err(Refused::Length(length)),
    }
}

#[cfg(test)]
impl Segments {
    /// All segments, for tests.
    pub(crate) fn all(&self) -> &[Segment] {
        &self.segments
    }
}
