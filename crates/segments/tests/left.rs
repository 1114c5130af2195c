//! A log whose process died: what the next one makes of the words and of what slots name.

use std::sync::{Arc, Mutex};

use segments::{Keep, Layout, Left, Misplaced, Place, Refused, Segments, stored};

const MIB: u32 = 1 << 20;
const LENGTH: u16 = 100;
/// Objects of this length in a segment.
const FULL: usize = (MIB / stored(LENGTH)) as usize;

type Words = Arc<Mutex<Vec<u64>>>;

struct Keeper(Words);

impl Keep for Keeper {
    fn keep(&self, segment: u32, word: u64) {
        self.0.lock().unwrap()[segment as usize] = word;
    }
}

fn layout(segments: u64) -> Layout {
    let bytes = segments * u64::from(MIB);
    Layout { bytes, segment_bytes: MIB }
}

fn kept(segments: u64) -> (Segments, Words) {
    let mut log = Segments::new(layout(segments)).expect("a log");
    let words = Words::new(Mutex::new(vec![0; segments as usize]));
    log.keep(Some(Box::new(Keeper(words.clone()))));
    (log, words)
}

fn left(words: &Words) -> (Left, Vec<u32>) {
    let (words, mut bad) = (words.lock().unwrap(), Vec::new());
    let word = |segment: u32| words[segment as usize];
    let left = Left::new(layout(words.len() as u64), word, |segment| bad.push(segment));
    (left.expect("a log"), bad)
}

/// The process dies. The next one has the objects at these places.
fn dies(words: &Words, places: &[Place]) -> Segments {
    let (mut left, bad) = left(words);
    assert_eq!(bad, []);
    for place in places {
        left.claim(*place, LENGTH).expect("it is there");
    }
    left.finish(Some(Box::new(Keeper(words.clone()))))
}

fn append(log: &mut Segments) -> Place {
    let pending = log.append(LENGTH.into(), 7).expect("room");
    log.written(pending)
}

#[test]
fn a_log_goes_on_where_another_process_was() {
    let (mut log, words) = kept(8);
    let mut places: Vec<Place> = (0..FULL + 10).map(|_| append(&mut log)).collect();
    let (first, open) = (log.generation(places[0]), log.generation(places[FULL]));
    // The last ones were being written.
    let _lost: Vec<Place> = (0..50).map(|_| append(&mut log)).collect();
    places.retain(|place| place.word() % 3 > 0);
    let mut log = dies(&words, &places);
    assert_eq!(log.live_bytes(), places.len() as u64 * u64::from(stored(LENGTH)));
    assert_eq!((log.generation(places[0]), log.free_segments()), (first, 6));
    // The open segment goes on in the next block, behind what could have been written.
    let next = append(&mut log);
    assert_eq!((next.byte(), log.generation(next)), (u64::from(MIB) + 8192, open));
    // The full one is cleaned like any other.
    let victim = log.victim(9).expect("the first segment");
    assert_eq!((victim.bytes().start, victim.generation()), (0, first.expect("a life")));
    log.put_back(victim);
    // A segment without objects is to be punched; then it has another life.
    let mut log = dies(&words, &[next]);
    let punch = log.punch().expect("nothing is left of the first");
    assert_eq!(punch.bytes(), 0..u64::from(MIB));
    assert!(log.punch().is_none());
    log.punched(punch);
    let mut log = dies(&words, &[next]);
    assert_eq!(log.free_segments(), 7);
    assert!(log.punch().is_none(), "that it was punched is kept");
    while append(&mut log).byte() >= u64::from(MIB) {}
    assert_ne!(log.generation(places[0]), first);
}

#[test]
fn a_process_that_dies_before_all_was_kept_has_lost_what_it_did_not_write() {
    let (mut log, words) = kept(3);
    let none = words.lock().unwrap().clone();
    let place = append(&mut log);
    let log = dies(&words, &[]);
    assert_eq!((log.live_bytes(), log.free_segments()), (0, 2));
    // The life of the segment was not kept: nothing was written in it.
    words.lock().unwrap().clone_from(&none);
    let mut log = dies(&words, &[]);
    assert_eq!(log.free_segments(), 3);
    assert_eq!(append(&mut log), place);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let (mut log, words) = kept(4);
    let places: Vec<Place> = (0..10).map(|_| append(&mut log)).collect();
    let (mut left, _) = left(&words);
    let last = places[9];
    for (place, length, why) in [
        (Place::from_word(u32::MAX), 1, Misplaced::Outside),
        (Place::at(3 * u64::from(MIB)).unwrap(), 1, Misplaced::Free),
        (Place::at(last.byte() + 128).unwrap(), 1, Misplaced::Behind),
        (last, 200, Misplaced::Behind),
    ] {
        assert_eq!(left.claim(place, length), Err(why));
    }
    for place in &places {
        left.claim(*place, LENGTH).unwrap();
    }
    // Twice the same, or one within another.
    assert_eq!(left.claim(places[3], 1), Err(Misplaced::Crowded));
    let log = left.finish(None);
    assert_eq!(log.live_bytes(), 10 * u64::from(stored(LENGTH)));
}

#[test]
fn words_that_cannot_be_are_told_and_cost_their_segment_only() {
    let (mut log, words) = kept(4);
    let places: Vec<Place> = (0..FULL + 10).map(|_| append(&mut log)).collect();
    let right = words.lock().unwrap().clone();
    // A use that is none, more than a segment, no life.
    for damage in [1 << 51, 0x1_ffff << 32, 0xfff << 52] {
        let word = if damage == 0xfff << 52 { right[0] & !damage } else { right[0] | damage };
        words.lock().unwrap()[0] = word;
        let (mut left, bad) = left(&words);
        assert_eq!(bad, [0], "{word:#x}");
        assert_eq!(left.claim(places[0], LENGTH), Err(Misplaced::Behind));
        left.claim(places[FULL], LENGTH).unwrap();
        let mut log = left.finish(None);
        assert_eq!(log.punch().map(|punch| punch.bytes().start), Some(0));
    }
    // Two that are open for the same: one of them is not.
    words.lock().unwrap().clone_from(&right);
    words.lock().unwrap()[0] = right[1];
    let mut log = dies(&words, &[places[0], places[FULL]]);
    append(&mut log);
    let victim = log.victim(9).expect("the other");
    log.put_back(victim);
}

/// The least room that there can be: one segment is to be cleaned and has as much as it may, one is
/// open for new objects, and one is in reserve.
#[test]
fn cleaning_finishes_however_far_it_was_at_each_of_four_deaths() {
    // Objects that are written together, and how many of them slots name at a death.
    const RUN: usize = 252;
    for named in [0, 1, 2, 31, 32, 33, 100, RUN] {
        let (mut log, words) = kept(3);
        let mut places: Vec<Place> = (0..FULL).map(|_| append(&mut log)).collect();
        let freed = (MIB / 32 / stored(LENGTH)) as usize;
        for place in places.drain(..freed) {
            log.free(place, LENGTH).unwrap();
        }
        // The second one is open, and has nothing that lives.
        let other = append(&mut log);
        places.push(other);
        let live = |log: &Segments, places: &[Place]| {
            assert_eq!(log.live_bytes(), places.len() as u64 * u64::from(stored(LENGTH)));
        };
        for death in 0..=4 {
            while let Some(punch) = log.punch() {
                log.punched(punch);
            }
            let victim = log.victim(7).expect("the first segment");
            assert_eq!(victim.bytes().start, 0, "{named} named, death {death}");
            let inside = |place: &Place| victim.bytes().contains(&place.byte());
            let all: Vec<Place> = places.iter().copied().filter(inside).collect();
            for run in all.chunks(RUN) {
                let copies: Vec<_> = run
                    .iter()
                    .map(|_| log.append_survivor(&victim, LENGTH.into()).expect("room"))
                    .collect();
                log.pad(Some(&victim));
                let many = if death < 4 { named } else { RUN };
                for (old, copy) in run.iter().zip(copies).take(many) {
                    let new = log.written(copy);
                    let slot = places.iter_mut().find(|place| *place == old).unwrap();
                    *slot = new;
                    log.free(*old, LENGTH).unwrap();
                }
                if death < 4 {
                    break;
                }
            }
            if death < 4 {
                log = dies(&words, &places);
                live(&log, &places);
                continue;
            }
            log.cleaned(victim);
        }
        live(&log, &places);
        let punch = log.punch().expect("the first segment");
        log.punched(punch);
        assert_eq!(log.free_segments(), 1);
        while log.append(LENGTH.into(), 8).map(|pending| log.written(pending)).is_ok() {}
        let refused = log.append(LENGTH.into(), 8).err();
        assert_eq!(refused, Some(Refused::Full), "the reserve is there again");
    }
}
