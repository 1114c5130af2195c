//! The log as the model sees it: with numbers instead of tokens, so that it can be broken.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use segments::{
    Generation, Keep, Layout, LayoutError, Left, NoVictim, Pending, Place, Punch, Refused,
    Segments, Victim,
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
    /// A new life of a segment is not kept.
    ForgetsLives,
    /// What was appended is not kept.
    ForgetsUsed,
    /// A word is kept after the next process could need it.
    KeepsLate,
    /// Recovery closes the segment of survivors: a reserve that cleaning needs is gone.
    ClosesSurvivors,
    /// Recovery goes on behind survivors that were never committed.
    KeepsTails,
    /// Recovery claims an object that no slot names.
    ClaimsMore,
    /// Recovery forgets an object that a slot names.
    ClaimsLess,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Flaw; 17] = [
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
        Flaw::ForgetsLives,
        Flaw::ForgetsUsed,
        Flaw::KeepsLate,
        Flaw::ClosesSurvivors,
        Flaw::KeepsTails,
        Flaw::ClaimsMore,
        Flaw::ClaimsLess,
    ];
}

/// What outlives a process: the words of all segments, as of each change since the last death.
struct Words {
    now: Vec<u64>,
    /// Segments with the words that they had before, the latest change last.
    changes: Vec<(u32, u64)>,
}

/// Changes that a death can undo: it came before them.
const CHANGES: usize = 8;
const USED: u64 = 0x1_ffff << 32;
const USE: u64 = 3 << 49;
const SURVIVORS: u64 = 2 << 49;
const LIFE: u64 = 0xfff << 52;

struct Keeper(Arc<Mutex<Words>>, Option<Flaw>);

impl Keep for Keeper {
    fn keep(&self, segment: u32, mut word: u64) {
        let mut words = self.0.lock().unwrap();
        let was = words.now[segment as usize];
        let keep = |mask: u64, word: u64| word & !mask | was & mask;
        match self.1 {
            // The first life is always kept: a segment has one.
            Some(Flaw::ForgetsLives) if was & LIFE != 0 => word = keep(LIFE, word),
            // Only what it is used for.
            Some(Flaw::ForgetsUsed) if was & USE != 0 => word = keep(USED, word),
            _ => {}
        }
        words.now[segment as usize] = word;
        if words.changes.len() == CHANGES {
            words.changes.remove(0);
        }
        words.changes.push((segment, was));
    }
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
    words: Arc<Mutex<Words>>,
}

impl Adapter {
    pub fn new(layout: Layout, flaw: Option<Flaw>) -> Result<Adapter, LayoutError> {
        let mut log = Segments::new(layout)?;
        let words = Words { now: vec![0; log.count() as usize], changes: Vec::new() };
        let words = Arc::new(Mutex::new(words));
        log.keep(Some(Box::new(Keeper(words.clone(), flaw))));
        Ok(Adapter {
            log,
            words,
            flaw,
            segment_bytes: layout.segment_bytes.into(),
            pending: HashMap::new(),
            victim: None,
            punches: HashMap::new(),
            last: None,
            calls: 0,
        })
    }

    /// Notes where the next call begins: a death during it can undo changes since then.
    pub fn begin(&mut self) {
        if self.flaw != Some(Flaw::KeepsLate) {
            self.words.lock().unwrap().changes.clear();
        }
    }

    /// The process dies, the last `undone` changes before they were kept. Another one goes on with
    /// the objects that slots name.
    pub fn die(
        &mut self,
        undone: usize,
        named: impl Iterator<Item = (Place, u16)>,
    ) -> Result<(), String> {
        let layout = self.log.layout();
        let mut words = self.words.lock().unwrap();
        let late = if self.flaw == Some(Flaw::KeepsLate) { CHANGES } else { 0 };
        for _ in 0..undone.max(late) {
            let Some((segment, was)) = words.changes.pop() else { break };
            words.now[segment as usize] = was;
        }
        words.changes.clear();
        let flaw = self.flaw;
        let word = |segment: u32| match words.now[segment as usize] {
            word if flaw == Some(Flaw::ClosesSurvivors) && word & USE == SURVIVORS => word | USE,
            word => word,
        };
        let tails: Vec<Place> = (0..self.log.count())
            .filter(|segment| word(*segment) & USE == SURVIVORS && word(*segment) & USED != 0)
            .filter_map(|segment| {
                let start = u64::from(segment) * self.segment_bytes;
                let used = (word(segment) & USED) >> 32;
                Place::at(start + (used - 1) * 64)
            })
            .collect();
        let mut bad = None;
        let mut left = Left::new(layout, word, |segment| bad = Some(segment))
            .map_err(|error| error.to_string())?;
        if let Some(segment) = bad {
            return Err(format!("the word of segment {segment} cannot be"));
        }
        drop(words);
        let mut named = named.peekable();
        if flaw == Some(Flaw::ClaimsLess) {
            named.next();
        }
        let last = self.last.filter(|_| flaw == Some(Flaw::ClaimsMore)).map(|place| (place, 1));
        for (place, length) in named.chain(last) {
            left.claim(place, length).map_err(|error| format!("{place:?}: {error}"))?;
        }
        let mut extra = Vec::new();
        if flaw == Some(Flaw::KeepsTails) {
            extra.extend(tails.into_iter().filter(|place| left.claim(*place, 1).is_ok()));
        }
        self.log = left.finish(Some(Box::new(Keeper(self.words.clone(), flaw))));
        for place in extra {
            self.log.free(place, 1).map_err(|error| error.to_string())?;
        }
        (self.victim, self.last) = (None, None);
        self.pending.clear();
        self.punches.clear();
        Ok(())
    }

    /// The life of the segment at a place.
    pub fn generation(&self, place: Place) -> Option<Generation> {
        self.log.generation(place)
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

    /// Returns whether the segment is to be punched.
    pub fn cleaned(&mut self) -> bool {
        let Some(victim) = self.victim.take() else { return false };
        self.log.cleaned(victim);
        match self.log.victim(0) {
            Err(next) => next == NoVictim::PunchFirst,
            Ok(victim) => {
                self.log.put_back(victim);
                false
            }
        }
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
