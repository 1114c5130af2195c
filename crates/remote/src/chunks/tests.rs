//! A model: contents are numbers, and everything that takes time begins and ends in steps of its
//! own, in any order.

use std::collections::{BTreeMap, HashMap};

use testkit::Rng;

use super::*;

const CHUNKS: usize = 4;
/// The contents of a chunk that was discarded.
const NOTHING: u64 = 0;
/// The contents of a chunk below that the stores have alone.
const GONE: u64 = u64::MAX;

struct World {
    table: Table,
    rng: Rng,
    now: Millis,
    next: u64,
    below: [u64; CHUNKS],
    /// What a reader must get.
    wanted: [u64; CHUNKS],
    /// The object, its contents.
    stores: HashMap<(usize, u64), u64>,
    reading_here: Vec<usize>,
    /// The copy, and what it must be.
    reading_away: Vec<(Copy, u64)>,
    /// The chunk, and what will be there.
    writing: BTreeMap<usize, u64>,
    bringing: Vec<(usize, Copy)>,
    uploading: Option<(Upload, u64)>,
    releasing: Option<usize>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            table: Table::new(CHUNKS),
            rng: Rng::new(seed),
            now: 0,
            next: 1,
            below: [NOTHING; CHUNKS],
            wanted: [NOTHING; CHUNKS],
            stores: HashMap::new(),
            reading_here: Vec::new(),
            reading_away: Vec::new(),
            writing: BTreeMap::new(),
            bringing: Vec::new(),
            uploading: None,
            releasing: None,
        }
    }

    fn content(&self, copy: &Copy) -> u64 {
        match &copy.object {
            None => NOTHING,
            Some(object) => *self.stores.get(&(object.chunk, object.version)).expect("is there"),
        }
    }

    fn begin_read(&mut self) {
        let chunk = self.rng.below(CHUNKS as u64) as usize;
        match self.table.read(chunk, self.now) {
            Found::Here => {
                assert!(
                    self.writing.contains_key(&chunk) || self.below[chunk] == self.wanted[chunk]
                );
                self.reading_here.push(chunk);
            }
            Found::Away(copy) => self.reading_away.push((copy, self.wanted[chunk])),
        }
    }

    fn end_read(&mut self) {
        if let Some(chunk) = self.reading_here.pop() {
            self.table.end(chunk);
        }
        if let Some((copy, wanted)) = self.reading_away.pop() {
            assert_eq!(self.content(&copy), wanted);
        }
    }

    fn begin_change(&mut self, discards: bool) {
        let chunk = self.rng.below(CHUNKS as u64) as usize;
        if self.writing.contains_key(&chunk) {
            return;
        }
        let change = match discards {
            true => self.table.discard(chunk, 0..1, true),
            false => self.table.change(chunk, self.now),
        };
        let content = if discards { NOTHING } else { self.next };
        self.next += 1;
        match change {
            Change::Here => {
                assert_ne!(self.below[chunk], GONE);
                self.writing.insert(chunk, content);
            }
            Change::Done => self.wanted[chunk] = NOTHING,
            Change::Wait => {}
            Change::Bring(copy) => self.bringing.push((chunk, copy)),
        }
    }

    fn end_change(&mut self) {
        if let Some((chunk, content)) = self.writing.pop_first() {
            (self.below[chunk], self.wanted[chunk]) = (content, content);
            self.table.end(chunk);
        }
    }

    fn end_bring(&mut self) {
        let Some((chunk, copy)) = self.bringing.pop() else { return };
        let succeeds = !self.rng.one_in(4);
        if succeeds {
            self.below[chunk] = self.content(&copy);
        }
        drop(copy);
        self.table.brought(chunk, succeeds);
    }

    fn upload(&mut self) {
        let Some((upload, content)) = self.uploading.take() else {
            let next = self.table.next_upload(self.now.saturating_sub(3));
            self.uploading = next.map(|upload| (upload, 0)).map(|(upload, _)| {
                assert!(!self.writing.contains_key(&upload.chunk));
                let content = self.below[upload.chunk];
                (upload, content)
            });
            return;
        };
        let object = Object { chunk: upload.chunk, version: upload.version, stores: 1 };
        self.stores.insert((upload.chunk, upload.version), content);
        if self.rng.one_in(4) {
            return self.table.give_up(object);
        }
        let object = (content != NOTHING).then(|| Arc::new(object));
        let check = if content == NOTHING { Check::Zero } else { Check::Sum(content) };
        let is_new = self.table.uploaded(&upload, Copy { object, checks: [check].into() });
        let has_changed = self.below[upload.chunk] != content;
        assert!(!(is_new && has_changed), "an old copy");
    }

    fn release(&mut self) {
        if let Some(chunk) = self.releasing.take() {
            return self.table.released(chunk);
        }
        if let Some(chunk) = self.table.next_release(1) {
            assert!(!self.reading_here.contains(&chunk), "it is read");
            self.below[chunk] = GONE;
            self.releasing = Some(chunk);
        }
    }

    fn delete(&mut self) {
        if self.uploading.is_some() {
            // One thread does both.
            return;
        }
        let Some(object) = self.table.next_deletion() else { return };
        let gone = !self.rng.one_in(4);
        if gone {
            self.stores.remove(&(object.chunk, object.version));
        }
        drop(object);
        self.table.deleted(gone);
    }

    fn step(&mut self) {
        self.now += 1;
        match self.rng.below(14) {
            0..3 => self.begin_read(),
            3..5 => self.end_read(),
            5 => self.begin_change(false),
            6 => self.begin_change(self.rng.clone().one_in(2)),
            7..9 => self.end_change(),
            9 => self.end_bring(),
            10 | 11 => self.upload(),
            12 => self.release(),
            _ => self.delete(),
        }
    }

    /// Ends what is under way. Then each chunk is where the table says, and nothing else is left.
    fn finish(mut self) {
        for _ in 0..100 {
            self.end_read();
            self.end_change();
            self.end_bring();
            if self.uploading.is_some() {
                self.upload();
            }
            if self.releasing.is_some() {
                self.release();
            }
            self.delete();
        }
        for chunk in 0..CHUNKS {
            match self.table.read(chunk, self.now) {
                Found::Here => assert_eq!(self.below[chunk], self.wanted[chunk]),
                Found::Away(copy) => assert_eq!(self.content(&copy), self.wanted[chunk]),
            }
        }
        let objects = self.table.take_objects();
        for object in &objects {
            self.stores.remove(&(object.chunk, object.version));
        }
        assert!(self.stores.is_empty(), "{} objects stay", self.stores.len());
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..2000 {
        world.step();
    }
    world.finish();
}

#[test]
fn every_chunk_is_found_whatever_moves() {
    let seed = testkit::seed("every_chunk_is_found_whatever_moves");
    (0..100).for_each(|n| run(seed.wrapping_add(n)));
}

#[test]
fn the_coldest_goes_first_and_some_may_stay() {
    let mut table = Table::new(3);
    for (now, chunk) in [(10, 2), (20, 0), (30, 1)] {
        assert!(matches!(table.change(chunk, now), Change::Here));
        table.end(chunk);
    }
    assert!(table.next_upload(9).is_none(), "all were used since");
    for wanted in [2, 0, 1] {
        let upload = table.next_upload(30).unwrap();
        assert_eq!(upload.chunk, wanted);
        let object = Object { chunk: upload.chunk, version: upload.version, stores: 1 };
        let copy = Copy { object: Some(object.into()), checks: [Check::Sum(1)].into() };
        assert!(table.uploaded(&upload, copy));
    }
    assert_eq!(table.next_release(2), Some(2));
    assert_eq!(table.next_release(2), None, "two may stay");
    assert_eq!(table.amounts(), Amounts { here: 2, away: 1 });
    assert!(matches!(table.change(2, 40), Change::Wait), "it moves");
    table.released(2);
    assert!(matches!(table.change(2, 40), Change::Bring(_)));
}
