//! The log under a trace.

use anyhow::{Result, anyhow, bail};
use segments::{Layout, NoVictim, Pending, Place, Refused, Segments, stored};

use super::trace::{Event, Trace};

/// What was written, in the second half of a trace.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Bytes for pages that were written back: header, object, zeroes.
    pub new_bytes: u64,
    /// Bytes for what cleaning copied.
    pub copied_bytes: u64,
    /// Bytes that cleaning read.
    pub read_bytes: u64,
    /// Segments that were cleaned.
    pub cleaned: u64,
    /// Segments that were empty by themselves or by cleaning, and were punched.
    pub punched: u64,
}

struct Replay<'a> {
    log: Segments,
    trace: &'a Trace,
    /// Where each page is.
    places: Vec<Option<Place>>,
    /// The page that was written to each place, as its header says it, until it is written over.
    keys: Vec<u32>,
    now: u32,
    counts: Counts,
}

/// Replays a trace on a log.
///
/// # Errors
/// There is no such log, or it is full.
pub fn replay(trace: &Trace, layout: Layout) -> Result<Counts> {
    let log = Segments::new(layout)?;
    let units = u64::from(log.count()) * u64::from(layout.segment_bytes / segments::UNIT_BYTES);
    let mut replay = Replay {
        log,
        trace,
        places: vec![None; trace.lengths.len()],
        keys: vec![0; usize::try_from(units)?],
        now: 0,
        counts: Counts::default(),
    };
    for (number, event) in trace.events.iter().enumerate() {
        if number == trace.half {
            replay.counts = Counts::default();
        }
        match *event {
            Event::Second => replay.now += 1,
            Event::Free(page) => replay.free(page)?,
            Event::Write(page) => replay.write(page)?,
        }
    }
    Ok(replay.counts)
}

impl Replay<'_> {
    fn length(&self, page: u32) -> u16 {
        self.trace.lengths[page as usize]
    }

    fn free(&mut self, page: u32) -> Result<()> {
        let place = self.places[page as usize].take();
        let place = place.ok_or_else(|| anyhow!("page {page} is not on the device"))?;
        Ok(self.log.free(place, self.length(page))?)
    }

    fn write(&mut self, page: u32) -> Result<()> {
        let length = self.length(page);
        let pending = loop {
            match self.log.append(length.into(), self.now) {
                Ok(pending) => break pending,
                Err(Refused::Full) => self.make_room()?,
                Err(refused) => return Err(refused.into()),
            }
        };
        self.counts.new_bytes += u64::from(stored(length));
        self.commit(page, pending);
        Ok(())
    }

    fn commit(&mut self, page: u32, pending: Pending) {
        let place = self.log.written(pending);
        self.keys[place.word() as usize] = page;
        self.places[page as usize] = Some(place);
    }

    /// Cleans only when there is no room: the longer one waits, the more has been freed by itself.
    fn make_room(&mut self) -> Result<()> {
        let mut punched = false;
        while let Some(punch) = self.log.punch() {
            self.log.punched(punch);
            self.counts.punched += 1;
            punched = true;
        }
        if punched {
            return Ok(());
        }
        let victim = match self.log.victim(self.now) {
            Ok(victim) => victim,
            Err(NoVictim::PunchFirst) => return Ok(()),
            Err(why) => bail!("no room for a page, and no segment to clean: {why:?}"),
        };
        let bytes = victim.bytes();
        self.counts.read_bytes += bytes.end - bytes.start;
        self.counts.cleaned += 1;
        let mut offset = 0;
        while let Some(place) = victim.place(offset) {
            let page = self.keys[place.word() as usize];
            let length = self.length(page);
            offset += stored(length);
            if self.places[page as usize] != Some(place) {
                continue;
            }
            let copy = self.log.append_survivor(&victim, length.into())?;
            self.counts.copied_bytes += u64::from(stored(length));
            self.commit(page, copy);
            self.log.free(place, length)?;
        }
        match self.log.cleaned(victim) {
            segments::Cleaned::Empty => Ok(()),
            left => bail!("a segment was cleaned, and still {left:?}"),
        }
    }
}
