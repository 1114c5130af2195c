//! The log as the model sees it: with numbers instead of tokens, so that it can be broken.

use std::collections::HashMap;
use std::ops::Range;

use segments::{
    Cleaned, Layout, LayoutError, NoVictim, Pending, Place, Punch, Refused, Segments, Victim,
};

/// A log that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// An object is freed two times.
    FreesTwice,
    /// Some objects are never freed.
    LosesFrees,
    /// The victim is the segment that is open.
    VictimIsOpen,
    /// The victim has objects that are being written.
    VictimIsWritten,
    /// A segment is used again before it was punched.
    ReusesBeforePunch,
    /// A segment is punched while it has objects.
    PunchesLive,
    /// Two objects have one place.
    Overlaps,
    /// No segment is ever cleaned.
    NeverCleans,
    /// New objects take the reserve.
    NoReserve,
    /// What follows a flush begins in its last block.
    NeverPads,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Flaw; 10] = [
        Flaw::FreesTwice,
        Flaw::LosesFrees,
        Flaw::VictimIsOpen,
        Flaw::VictimIsWritten,
        Flaw::ReusesBeforePunch,
        Flaw::PunchesLive,
        Flaw::Overlaps,
        Flaw::NeverCleans,
        Flaw::NoReserve,
        Flaw::NeverPads,
    ];
}

pub struct Adapter {
    log: Segments,
    flaw: Option<Flaw>,
    segment_bytes: u64,
    pending: HashMap<Place, Pending>,
    victim: Option<Victim>,
    punches: HashMap<u64, Punch>,
    last: Option<Place>,
    calls: u64,
}

impl Adapter {
    pub fn new(layout: Layout, flaw: Option<Flaw>) -> Result<Adapter, LayoutError> {
        Ok(Adapter {
            log: Segments::new(layout)?,
            flaw,
            segment_bytes: layout.segment_bytes.into(),
            pending: HashMap::new(),
            victim: None,
            punches: HashMap::new(),
            last: None,
            calls: 0,
        })
    }

    /// Whether the flaw shows in this call: in some calls.
    fn shows(&mut self, flaw: Flaw) -> bool {
        self.calls += 1;
        self.flaw == Some(flaw) && self.calls.is_multiple_of(64)
    }

    pub fn append(&mut self, length: usize, now: u32) -> Result<Place, Refused> {
        if self.flaw == Some(Flaw::ReusesBeforePunch) {
            while let Some(punch) = self.log.punch() {
                self.log.punched(punch);
            }
        }
        if self.shows(Flaw::Overlaps)
            && let Some(last) = self.last
        {
            return Ok(last);
        }
        let pending = match self.log.append(length, now) {
            Err(Refused::Full) if self.flaw == Some(Flaw::NoReserve) => {
                match self.log.victim(now) {
                    // As a survivor, it takes the reserve.
                    Ok(victim) => {
                        let pending = self.log.append_survivor(&victim, length);
                        self.log.put_back(victim);
                        pending?
                    }
                    Err(_) => return Err(Refused::Full),
                }
            }
            pending => pending?,
        };
        Ok(self.take(pending))
    }

    pub fn append_survivor(&mut self, length: usize) -> Result<Place, Refused> {
        let Some(victim) = &self.victim else { return Err(Refused::Full) };
        let pending = self.log.append_survivor(victim, length)?;
        Ok(self.take(pending))
    }

    fn take(&mut self, pending: Pending) -> Place {
        let place = pending.place();
        self.last = Some(place);
        if self.flaw == Some(Flaw::VictimIsWritten) {
            return self.log.written(pending);
        }
        self.pending.insert(place, pending);
        place
    }

    pub fn written(&mut self, place: Place) {
        if let Some(pending) = self.pending.remove(&place) {
            self.log.written(pending);
        }
    }

    pub fn free(&mut self, place: Place, length: u16) -> bool {
        if self.shows(Flaw::LosesFrees) {
            return true;
        }
        if self.shows(Flaw::FreesTwice) {
            let _ = self.log.free(place, length);
        }
        self.log.free(place, length).is_ok()
    }

    pub fn victim(&mut self, now: u32) -> Result<Range<u64>, NoVictim> {
        if self.flaw == Some(Flaw::NeverCleans) {
            return Err(NoVictim::Nothing);
        }
        let victim = self.log.victim(now)?;
        let mut bytes = victim.bytes();
        self.victim = Some(victim);
        if self.shows(Flaw::VictimIsOpen)
            && let Some(last) = self.last
        {
            let start = last.byte() / self.segment_bytes * self.segment_bytes;
            bytes = start..start + self.segment_bytes;
        }
        Ok(bytes)
    }

    /// Ends a flush, of survivors or of new objects.
    pub fn pad(&mut self, survivors: bool) -> Option<Range<u64>> {
        if self.flaw == Some(Flaw::NeverPads) {
            return None;
        }
        match (survivors, &self.victim) {
            (false, _) => self.log.pad(None),
            (true, Some(victim)) => self.log.pad(Some(victim)),
            (true, None) => None,
        }
    }

    pub fn cleaned(&mut self) -> Option<Cleaned> {
        self.victim.take().map(|victim| self.log.cleaned(victim))
    }

    pub fn put_back(&mut self) {
        if let Some(victim) = self.victim.take() {
            self.log.put_back(victim);
        }
    }

    pub fn punch(&mut self) -> Option<Range<u64>> {
        let punch = self.log.punch()?;
        let bytes = punch.bytes();
        self.punches.insert(bytes.start, punch);
        if self.shows(Flaw::PunchesLive)
            && let Some(last) = self.last
        {
            let start = last.byte() / self.segment_bytes * self.segment_bytes;
            return Some(start..start + self.segment_bytes);
        }
        Some(bytes)
    }

    pub fn punched(&mut self, start: u64) {
        if let Some(punch) = self.punches.remove(&start) {
            self.log.punched(punch);
        }
    }

    pub fn live_bytes(&self) -> u64 {
        self.log.live_bytes()
    }

    pub fn capacity(&self) -> u64 {
        self.log.capacity()
    }
}
