//! The model: which object is where, and what was written since a segment was punched.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use segments::{BLOCK_BYTES, Generation, Layout, NoVictim, Place, Refused, stored};
use testkit::Rng;

use crate::adapter::{Adapter, Flaw};

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub segments: u64,
    /// MiB of a segment.
    pub mib: u32,
    /// Live bytes, in percent of what the log says it holds.
    pub percent: u64,
    /// The process dies now and then, and another one goes on.
    pub deaths: bool,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    pub appended: u64,
    pub copied: u64,
    pub cleaned: u64,
    pub punched: u64,
    pub padded: u64,
    pub deaths: u64,
    /// Deaths while a segment was being cleaned.
    pub amid_cleaning: u64,
}

/// So often at most it dies while one segment is being cleaned.
const MOST_DEATHS: u32 = 4;
const BLOCK: u64 = BLOCK_BYTES as u64;

struct Object {
    key: u64,
    length: u16,
    written: bool,
    generation: Option<Generation>,
}

struct Model {
    log: Adapter,
    segment_bytes: u64,
    objects: BTreeMap<Place, Object>,
    slots: HashMap<u64, Place>,
    /// Bytes of each segment that were appended since it was punched.
    used: Vec<u64>,
    /// The segment of the last new object.
    open: Option<u64>,
    /// The segment that is being cleaned.
    victim: Option<u64>,
    live: u64,
    now: u32,
    /// When it dies; None: never.
    fate: Option<Rng>,
    /// Deaths since a segment was cleaned.
    deaths: u32,
    /// Where the last object ended at the last death, in segments to which nothing was appended
    /// since.
    left: Vec<Option<u64>>,
    /// The last life of each segment.
    lives: Vec<Option<Generation>>,
    summary: Summary,
}

/// Runs events on a log.
///
/// # Errors
/// What the log did wrong.
pub fn run(plan: Plan, flaw: Option<Flaw>, events: u64, rng: &mut Rng) -> Result<Summary, String> {
    let segment_bytes = plan.mib << 20;
    let bytes = plan.segments * u64::from(segment_bytes);
    let layout = Layout { bytes, segment_bytes };
    let mut model = Model {
        log: Adapter::new(layout, flaw).map_err(|error| error.to_string())?,
        segment_bytes: segment_bytes.into(),
        objects: BTreeMap::new(),
        slots: HashMap::new(),
        used: vec![0; plan.segments as usize],
        open: None,
        victim: None,
        live: 0,
        now: 0,
        fate: plan.deaths.then(|| Rng::new(rng.next_u64())),
        deaths: 0,
        left: vec![None; plan.segments as usize],
        lives: vec![None; plan.segments as usize],
        summary: Summary::default(),
    };
    let most = 4096;
    let limit = model.log.capacity() * plan.percent / 100;
    // About as many keys as fit, with half of them much more in use than the others.
    let keys = (limit / (most / 2)).max(4) * 3 / 2;
    for event in 0..events {
        model.now += u32::from(rng.one_in(16));
        model.dies_now(3000)?;
        let key = if rng.one_in(8) { rng.below(keys) } else { rng.below(keys / 8 + 1) };
        match rng.below(16) {
            0 => model.discard(key)?,
            // Seldom, so that some writes last longer than it takes to fill a segment.
            1 if rng.one_in(128) => model.finish_writes(),
            2 if rng.one_in(16) => model.background(rng)?,
            3 if rng.one_in(8) => model.flush(false)?,
            _ => {
                let length = match rng.below(8) {
                    0 => rng.range(1..65),
                    1 => most,
                    _ => rng.range(1..most + 1),
                };
                model.store(key, length as u16, limit, rng)?;
            }
        }
        let is = model.log.live_bytes();
        ensure(is == model.live, || {
            format!("event {event}: {is} bytes live, the model has {}", model.live)
        })?;
    }
    model.finish_writes();
    model.empty_it()?;
    Ok(model.summary)
}

impl Model {
    fn segment(&self, place: Place) -> u64 {
        place.byte() / self.segment_bytes
    }

    fn store(&mut self, key: u64, length: u16, limit: u64, rng: &mut Rng) -> Result<(), String> {
        while self.live + u64::from(stored(length)) > limit {
            // Too much is there: other keys go.
            let Some((_, place)) = self.slots.iter().next().map(|(k, p)| (*k, *p)) else { break };
            let key = self.objects[&place].key;
            self.discard(key)?;
        }
        self.log.begin();
        let place = match self.log.append(length.into(), self.now) {
            Err(Refused::Full) => {
                self.open = None;
                self.make_room(length)?
            }
            other => other.map_err(|error| error.to_string())?,
        };
        // Before the call returned, so nothing was written.
        if self.dies_amid(3000)? {
            return Ok(());
        }
        self.open = Some(self.segment(place));
        self.appended(place, (key, length), false)?;
        if !rng.one_in(8) {
            self.written(place);
        }
        self.commit(key, place)
    }

    /// The log must make room by itself, as long as nothing is being written.
    fn make_room(&mut self, length: u16) -> Result<Place, String> {
        self.finish_writes();
        for _ in 0..self.used.len() * 64 {
            self.log.begin();
            match self.log.append(length.into(), self.now) {
                Ok(place) => return Ok(place),
                Err(Refused::Full) => {}
                Err(error) => return Err(error.to_string()),
            }
            match self.log.victim(self.now) {
                Ok(bytes) => self.clean(bytes, None)?,
                Err(NoVictim::PunchFirst) => self.punch_all()?,
                Err(why) => {
                    return Err(format!("{} bytes live, {why:?}, and no room", self.live));
                }
            }
        }
        Err("cleaning makes no progress".to_string())
    }

    fn appended(
        &mut self,
        place: Place,
        (key, length): (u64, u16),
        survives: bool,
    ) -> Result<(), String> {
        let segment = self.segment(place);
        ensure(self.victim != Some(segment), || "appended to the victim".to_string())?;
        let number = segment as usize;
        ensure(number < self.used.len(), || format!("{place:?} is outside"))?;
        let (offset, bytes) = (place.byte() % self.segment_bytes, u64::from(stored(length)));
        if let Some(end) = self.left[number].take() {
            self.goes_on_at(number, (end, offset), survives)?;
        }
        ensure(offset == self.used[number], || {
            format!("an object at byte {offset} of a segment with {} written", self.used[number])
        })?;
        let generation = self.log.generation(place);
        if offset == 0 {
            ensure(self.lives[number] != generation, || format!("a second life {generation:?}"))?;
            self.lives[number] = generation;
        }
        ensure(self.lives[number] == generation, || format!("another life {generation:?}"))?;
        self.used[number] += bytes;
        ensure(self.used[number] <= self.segment_bytes, || "past the segment".to_string())?;
        self.live += bytes;
        self.summary.appended += 1;
        self.objects.insert(place, Object { key, length, written: false, generation });
        Ok(())
    }

    /// The next object begins with a block, or in another segment.
    fn flush(&mut self, survivors: bool) -> Result<(), String> {
        let padded = self.log.pad(survivors);
        if let Some(bytes) = &padded {
            let number = (bytes.start / self.segment_bytes) as usize;
            let used = self.used[number];
            let is_right =
                bytes.start % self.segment_bytes == used && bytes.end.is_multiple_of(4096);
            ensure(is_right, || format!("padded {bytes:?}, {used} were appended"))?;
            self.used[number] = bytes.end - number as u64 * self.segment_bytes;
            self.summary.padded += 1;
        }
        if survivors {
            return Ok(());
        }
        // The next object is where it begins, unless it needs another segment.
        let used = self.open.map_or(0, |segment| self.used[segment as usize]);
        ensure(used.is_multiple_of(4096), || format!("a flush ends at byte {used}"))
    }

    fn written(&mut self, place: Place) {
        self.log.written(place);
        if let Some(object) = self.objects.get_mut(&place) {
            object.written = true;
        }
    }

    fn finish_writes(&mut self) {
        for (place, object) in self.objects.iter_mut().filter(|(_, object)| !object.written) {
            self.log.written(*place);
            object.written = true;
        }
    }

    /// The commit: the slot names the new place, then the old one is freed.
    fn commit(&mut self, key: u64, place: Place) -> Result<(), String> {
        match self.slots.insert(key, place) {
            Some(old) => self.free(old),
            None => Ok(()),
        }
    }

    fn discard(&mut self, key: u64) -> Result<(), String> {
        self.slots.remove(&key).map_or(Ok(()), |place| self.free(place))
    }

    fn free(&mut self, place: Place) -> Result<(), String> {
        if self.objects.get(&place).is_some_and(|object| !object.written) {
            self.written(place);
        }
        let object = self.objects.remove(&place).ok_or("freed what is not there")?;
        self.live -= u64::from(stored(object.length));
        ensure(self.log.free(place, object.length), || format!("{place:?} cannot be freed"))
    }

    /// Cleaning and punching that nobody waits for.
    fn background(&mut self, rng: &mut Rng) -> Result<(), String> {
        if let Ok(bytes) = self.log.victim(self.now) {
            self.clean(bytes, Some(rng))?;
        }
        if rng.one_in(2) { self.punch_all() } else { Ok(()) }
    }

    /// Cleans a segment. With `rng`, users go on beside it, and it may be given up.
    fn clean(&mut self, bytes: Range<u64>, mut rng: Option<&mut Rng>) -> Result<(), String> {
        let segment = bytes.start / self.segment_bytes;
        ensure(self.open != Some(segment), || "the victim is open".to_string())?;
        let (is, used) = (bytes.end - bytes.start, self.used[segment as usize]);
        // A death may have come before anything was written to a place.
        let is_left = self.left[segment as usize].is_some_and(|end| is >= end);
        ensure(is == used || is_left, || {
            format!("the victim has {bytes:?}, {} were written", self.used[segment as usize])
        })?;
        self.victim = Some(segment);
        let inside = |word: u64| Place::at(word).ok_or("no place");
        let all: Vec<Place> = self
            .objects
            .range(inside(bytes.start)?..)
            .take_while(|(place, _)| place.byte() < bytes.end)
            .map(|(place, _)| *place)
            .collect();
        let is_written = |place: &Place| self.objects[place].written;
        ensure(all.iter().all(is_written), || "the victim is being written".to_string())?;
        for old in all {
            if let Some(rng) = rng.as_deref_mut() {
                if rng.one_in(32)
                    && let Some(object) = self.objects.get(&old)
                {
                    self.discard(object.key)?;
                }
                if rng.one_in(512) {
                    self.victim = None;
                    self.log.put_back();
                    return Ok(());
                }
            }
            let Some(&Object { key, length, .. }) = self.objects.get(&old) else { continue };
            self.log.begin();
            let place = self.log.append_survivor(length.into());
            let place = place.map_err(|error| format!("a survivor has no place: {error}"))?;
            if self.dies_amid(400)? {
                return Ok(());
            }
            self.appended(place, (key, length), true)?;
            if self.dies_now(400)? {
                return Ok(());
            }
            self.written(place);
            self.summary.copied += 1;
            self.commit(key, place)?;
            if self.dies_now(400)? {
                return Ok(());
            }
        }
        self.flush(true)?;
        self.victim = None;
        self.deaths = 0;
        self.summary.cleaned += 1;
        ensure(self.log.cleaned(), || "objects are left after cleaning".into())
    }

    fn punch_all(&mut self) -> Result<(), String> {
        while let Some(bytes) = self.log.punch() {
            let inside = |place: &&Place| bytes.contains(&place.byte());
            let lost = self.objects.keys().find(inside);
            ensure(lost.is_none(), || format!("punched with an object: {lost:?}"))?;
            if self.dies_now(50)? {
                return Ok(());
            }
            let segment = (bytes.start / self.segment_bytes) as usize;
            (self.used[segment], self.left[segment]) = (0, None);
            self.summary.punched += 1;
            self.log.punched(bytes.start);
        }
        Ok(())
    }

    /// Now and then it dies during the call to the log that began last: some of what the call
    /// changed was kept, and nothing was written.
    fn dies_amid(&mut self, seldom: u64) -> Result<bool, String> {
        let Some(fate) = &mut self.fate else { return Ok(false) };
        if self.deaths == MOST_DEATHS || !fate.one_in(seldom) {
            return Ok(false);
        }
        let undone = fate.below(5) as usize;
        self.die(undone).map(|()| true)
    }

    /// Now and then it dies.
    fn dies_now(&mut self, seldom: u64) -> Result<bool, String> {
        self.log.begin();
        self.dies_amid(seldom)
    }

    /// Another process has the words, and what slots name.
    fn die(&mut self, undone: usize) -> Result<(), String> {
        self.summary.deaths += 1;
        self.summary.amid_cleaning += u64::from(self.victim.is_some());
        self.deaths += 1;
        let named: Vec<Place> = self.slots.values().copied().collect();
        self.objects.retain(|place, object| self.slots.get(&object.key) == Some(place));
        self.live = self.objects.values().map(|object| u64::from(stored(object.length))).sum();
        let lengths = named.iter().map(|place| (*place, self.objects[place].length));
        self.log.die(undone, lengths)?;
        (self.open, self.victim) = (None, None);
        self.left = (0..self.used.len()).map(|segment| Some(self.end_of(segment as u64))).collect();
        for (place, object) in &mut self.objects {
            object.written = true;
            ensure(self.log.generation(*place) == object.generation, || {
                format!("{place:?} has a header of life {:?}", object.generation)
            })?;
        }
        Ok(())
    }

    /// Where the last object of a segment ends.
    fn end_of(&self, segment: u64) -> u64 {
        let start = segment * self.segment_bytes;
        let first = Place::at(start).unwrap_or(Place::from_word(u32::MAX));
        let all = self.objects.range(first..);
        let all = all.take_while(|(place, _)| place.byte() < start + self.segment_bytes);
        all.map(|(place, it)| place.byte() - start + u64::from(stored(it.length)))
            .max()
            .unwrap_or(0)
    }

    /// After a death a segment goes on at this offset.
    fn goes_on_at(
        &mut self,
        number: usize,
        (end, offset): (u64, u64),
        survives: bool,
    ) -> Result<(), String> {
        let (used, end) = (self.used[number], end.next_multiple_of(BLOCK));
        let right = match offset {
            0 => used == 0,
            offset if survives && offset == end => true,
            // What a call reserved before the death is not used.
            offset => !survives && offset.is_multiple_of(BLOCK) && offset >= used,
        };
        self.used[number] = offset;
        ensure(right, || {
            format!("it goes on at byte {offset} of a segment with {used} written, {end} in use")
        })
    }

    /// Frees everything: all but the open segments must come back.
    fn empty_it(&mut self) -> Result<(), String> {
        self.fate = None;
        let keys: Vec<u64> = self.slots.keys().copied().collect();
        for key in keys {
            self.discard(key)?;
        }
        self.punch_all()?;
        let (live, used) = (self.log.live_bytes(), self.used.iter().filter(|used| **used > 0));
        ensure(live == 0 && used.clone().count() <= 2, || {
            format!("{live} bytes live, {} segments in use", used.count())
        })
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
