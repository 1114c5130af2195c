use alloc::vec;
use alloc::vec::Vec;

use crate::choice::{best, worth};
use crate::segment::{Segment, State};
use crate::*;

const MIB: u32 = 1 << 20;

fn layout(segments: u64) -> Layout {
    Layout { bytes: segments * u64::from(MIB), segment_bytes: MIB }
}

fn header(key: Key, length: u16) -> Header {
    let generation = Generation::FIRST;
    Header { key, length, codec: 3, generation, tag: [7; TAG_BYTES] }
}

#[test]
fn a_header_comes_back() {
    for length in [1, 2, 4095, 4096] {
        let mut header = header(0x1234_5678, length);
        for codec in [0, 31] {
            for generation in [1, 2, 4095] {
                header.codec = codec;
                header.generation = Generation::new(generation).expect("a generation");
                let bytes = header.encode().expect("in range");
                assert_eq!(Header::decode(&bytes), Some(header));
            }
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    assert_eq!(header(1, 0).encode(), None);
    assert_eq!(header(1, 4097).encode(), None);
    assert_eq!(Header { codec: 32, ..header(1, 1) }.encode(), None);
    assert_eq!(Header::decode(&[0; HEADER_BYTES]), None, "zeroes are no header");
    // A longer length, and the bit that is zero.
    let bytes = header(1, 4096).encode().expect("in range");
    for (byte, bit) in [(5, 4), (6, 3)] {
        let mut bytes = bytes;
        bytes[byte] |= 1 << bit;
        assert_eq!(Header::decode(&bytes), None);
    }
    assert_eq!((Generation::new(0), Generation::new(4096)), (None, None));
    assert_eq!(Generation::new(4095).map(Generation::next), Some(Generation::FIRST));
}

#[test]
fn a_place_is_a_word_and_a_read_is_whole_blocks() {
    let last = Place::from_word(u32::MAX);
    assert_eq!(last.byte(), MOST_DEVICE_BYTES - u64::from(UNIT_BYTES));
    assert_eq!(Place::at(last.byte()), Some(last));
    assert_eq!((Place::at(MOST_DEVICE_BYTES), Place::at(65)), (None, None));
    let place = Place::at(512 - 64).expect("a unit");
    assert_eq!(place.span(40, 512), Span { start: 0, bytes: 512, skip: 448 });
    assert_eq!(place.span(41, 512), Span { start: 0, bytes: 1024, skip: 448 });
    assert_eq!(place.span(4096, 4096), Span { start: 0, bytes: 8192, skip: 448 });
    assert_eq!((stored(1), stored(40), stored(41), stored(4096)), (64, 64, 128, 4160));
}

#[test]
fn devices_that_cannot_be_divided_are_refused() {
    assert_eq!(layout(3).segments(), Ok(3));
    assert_eq!(Layout { bytes: 4 * u64::from(MIB) - 1, ..layout(0) }.segments(), Ok(3));
    let refused = layout(2).segments().expect_err("too small");
    assert_eq!(refused, LayoutError::TooSmall { bytes: 2 << 20, least: 3 << 20 });
    assert!(alloc::format!("{refused}").contains("3145728"), "{refused}");
    assert_eq!(Layout { bytes: MOST_DEVICE_BYTES, ..layout(0) }.segments(), Ok(1 << 18));
    let bytes = MOST_DEVICE_BYTES + 1;
    assert_eq!(Layout { bytes, ..layout(0) }.segments(), Err(LayoutError::TooLarge { bytes }));
    for segment_bytes in [0, MIB / 2, MIB + 1, 3 * MIB, 8 * MIB] {
        let refused = Layout { segment_bytes, ..layout(64) }.segments();
        assert_eq!(refused, Err(LayoutError::SegmentBytes(segment_bytes)));
    }
}

#[test]
fn objects_of_any_length_have_a_place() {
    let mut log = Segments::new(layout(64)).expect("a log");
    let mut places = Vec::new();
    for length in 1..=4096 {
        let pending = log.append(length, 0).expect("room");
        assert_eq!(usize::from(pending.length()), length);
        places.push((log.written(pending), length as u16));
    }
    let bytes: u64 = places.iter().map(|(_, length)| u64::from(stored(*length))).sum();
    assert_eq!(log.live_bytes(), bytes);
    for (place, length) in places {
        log.free(place, length).expect("it is there");
    }
    assert_eq!(log.live_bytes(), 0);
    for length in [0, MOST_BYTES + 1, usize::MAX] {
        assert_eq!(log.append(length, 0).expect_err("no object"), Refused::Length(length));
    }
}

#[test]
fn what_cannot_be_there_is_not_freed() {
    let mut log = Segments::new(layout(3)).expect("a log");
    let pending = log.append(100, 0).expect("room");
    let place = log.written(pending);
    let after = Place::from_word(place.word() + 2);
    let outside = Place::from_word(u32::MAX);
    for (place, length) in [(after, 100), (outside, 100), (place, 200)] {
        assert_eq!(log.free(place, length), Err(NotLive { place, length }));
    }
    assert_eq!(log.free(place, 100), Ok(()));
    assert_eq!(log.free(place, 100), Err(NotLive { place, length: 100 }));
    assert_eq!(log.live_bytes(), 0);
}

#[test]
fn a_segment_that_is_being_written_is_no_victim() {
    let mut log = Segments::new(layout(8)).expect("a log");
    let first = log.append(4096, 0).expect("room");
    let mut second = Vec::new();
    while log.all()[0].state == State::Open {
        let pending = log.append(4096, 0).expect("room");
        second.push(log.written(pending));
    }
    for place in second.iter().take(100) {
        log.free(*place, 4096).expect("it is there");
    }
    assert_eq!(log.victim(1).expect_err("its first object is being written"), NoVictim::Nothing);
    let first = log.written(first);
    let victim = log.victim(1).expect("now it is a victim");
    assert_eq!(victim.place(0), Some(first));
    assert_eq!((victim.place(1), victim.place(MIB)), (None, None));
    assert_eq!(log.victim(1).expect_err("one at a time"), NoVictim::Busy);
    log.put_back(victim);
    let victim = log.victim(1).expect("it was put back");
    // A walk that finds nothing: the segment is not chosen again.
    log.cleaned(victim);
    assert_eq!(log.victim(1).expect_err("it is kept"), NoVictim::Nothing);
    for place in second.iter().skip(100).chain([&first]).filter(|place| place.byte() < MIB.into()) {
        log.free(*place, 4096).expect("it is there");
    }
    assert_eq!(log.victim(1).expect_err("it is empty"), NoVictim::PunchFirst);
    assert_eq!(log.punch().map(|punch| punch.bytes()), Some(0..u64::from(MIB)));
}

#[test]
fn a_segment_with_a_write_that_failed_takes_no_more_objects() {
    let mut log = Segments::new(layout(3)).expect("a log");
    let kept = log.append(10, 0).expect("room");
    let failed = log.append(10, 0).expect("room");
    log.abandon(failed);
    assert_eq!(log.live_bytes(), 64);
    assert_eq!(log.all()[0].state, State::Closed);
    let next = log.append(10, 0).expect("another segment");
    assert_eq!(next.place().byte(), u64::from(MIB));
    let (kept, _next) = (log.written(kept), log.written(next));
    assert_eq!(log.punch().map(|punch| punch.bytes()), None);
    log.free(kept, 10).expect("it is there");
    assert_eq!(log.punch().map(|punch| punch.bytes()), Some(0..u64::from(MIB)));
}

#[test]
fn a_write_of_survivors_that_failed_leaves_their_segment_open() {
    let mut log = Segments::new(layout(4)).expect("a log");
    let object = |log: &mut Segments| {
        let pending = log.append(4096, 0).expect("room");
        log.written(pending)
    };
    let places: Vec<Place> = (0..260).map(|_| object(&mut log)).collect();
    for place in &places[..200] {
        log.free(*place, 4096).expect("it is there");
    }
    let victim = log.victim(1).expect("the first is full");
    let first = log.append_survivor(&victim, 4096).expect("room");
    let failed = log.append_survivor(&victim, 4096).expect("room");
    let at = first.place().byte() / u64::from(MIB);
    let first = log.written(first);
    log.abandon(failed);
    let next = log.append_survivor(&victim, 4096).expect("room");
    assert_eq!(next.place().byte() / u64::from(MIB), at, "it is still open");
    assert_eq!(first.byte() / u64::from(MIB), at);
    log.abandon(next);
    log.put_back(victim);
}

#[test]
fn writes_of_survivors_that_failed_take_no_room() {
    let mut log = Segments::new(layout(4)).expect("a log");
    // Two segments are full, and three quarters of each live. One is open, one is the reserve.
    let each = MIB / stored(4096);
    for number in 0..2 * each + 1 {
        let pending = log.append(4096, 0).expect("room");
        let place = log.written(pending);
        if number % 4 == 0 {
            log.free(place, 4096).expect("it is there");
        }
    }
    let mut live = Vec::new();
    for round in 0..50 {
        let victim = log.victim(round).expect("one is worth it");
        let first = log.append_survivor(&victim, 4096).expect("room");
        log.pad(Some(&victim));
        // One batch is written, and then the device fails.
        if round == 9 {
            live.push(log.written(first));
        } else {
            log.abandon(first);
        }
        let failed: Vec<_> = (0..each / 2)
            .map(|_| log.append_survivor(&victim, 4096).expect("room"))
            .inspect(|pending| assert!(live.iter().all(|place| *place < pending.place())))
            .collect();
        log.pad(Some(&victim));
        failed.into_iter().for_each(|pending| log.abandon(pending));
        log.put_back(victim);
    }
    // What lives there was not written over.
    assert_eq!(log.all()[3].live, stored(4096));
    assert_eq!(live[0].byte() / u64::from(MIB), 3);
}

#[test]
fn a_segment_that_could_not_be_cleaned_is_tried_again() {
    let mut log = Segments::new(layout(4)).expect("a log");
    for _ in 0..260 {
        let pending = log.append(4096, 0).expect("room");
        let place = log.written(pending);
        if place.byte() > u64::from(MIB / 2) && place.byte() < u64::from(MIB) {
            log.free(place, 4096).expect("it is there");
        }
    }
    let victim = log.victim(100).expect("the first is half empty");
    // Nothing of it could be read.
    log.cleaned(victim);
    assert_eq!(log.victim(160).expect_err("a moment ago"), NoVictim::Nothing);
    let victim = log.victim(161).expect("now it is tried again");
    log.put_back(victim);
}

#[test]
fn the_old_and_the_empty_are_cleaned_first() {
    let segment =
        |live, youngest| Segment { live, youngest, state: State::Closed, ..Segment::UNUSED };
    // As much free space: the older one. As old: the emptier one.
    assert!(worth(&segment(MIB / 2, 10), MIB, 100) > worth(&segment(MIB / 2, 90), MIB, 100));
    assert!(worth(&segment(MIB / 4, 50), MIB, 100) > worth(&segment(MIB / 2, 50), MIB, 100));
    // An old segment is worth it although it is fuller.
    assert!(worth(&segment(MIB * 3 / 4, 0), MIB, 1000) > worth(&segment(MIB / 4, 990), MIB, 1000));
    // (1 - 1/2) * √9 / (1 + 1/2) = 1
    assert_eq!(worth(&segment(MIB / 2, 91), MIB, 99), 1 << 8);
    // Nothing overflows, and time that goes back is no age.
    assert!(worth(&segment(0, 0), 4 * MIB, u32::MAX) > worth(&segment(0, 9), 4 * MIB, 5));
    // However old it is, a segment goes only if it gains as much as the average.
    let almost_full = segment(MIB * 15 / 16, 0);
    let full_and_empty = [almost_full, almost_full, segment(MIB / 8, 99_999)];
    assert!(worth(&almost_full, MIB, 100_000) > worth(&full_and_empty[2], MIB, 100_000));
    assert_eq!(best(&full_and_empty, MIB, (MIB / 32, MIB), 100_000), Some(2));
    let mut all = vec![segment(MIB / 2, 0), segment(MIB - 64, 0), segment(MIB / 8, 0)];
    assert_eq!(best(&all, MIB, (MIB / 32, MIB), 9), Some(2));
    for state in [State::Open, State::Kept, State::Victim, State::Free, State::Punching] {
        all[2].state = state;
        assert_eq!(best(&all, MIB, (MIB / 32, MIB), 9), Some(0), "{state:?}");
    }
    assert_eq!(best(&all, MIB, (MIB / 32, MIB / 4), 9), None);
}

fn image(headers: &[Header]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for header in headers {
        bytes.extend(header.encode().expect("in range"));
        bytes.extend(vec![0xa5; header.length.into()]);
        bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES as usize), 0);
    }
    bytes
}

/// A walk through objects that are as they were appended.
fn walk_whole(bytes: &[u8]) -> impl Iterator<Item = Result<Found<'_>, u32>> {
    walk(bytes, Generation::FIRST, |_| true)
}

#[test]
fn a_walk_finds_what_was_appended() {
    let headers = [header(1, 1), header(2, 40), header(3, 4096)];
    let bytes = image(&headers);
    let found: Vec<_> = walk_whole(&bytes).collect();
    let offsets = [0, 64, 128];
    for ((found, header), offset) in found.iter().zip(headers).zip(offsets) {
        let found = found.expect("an object");
        assert_eq!((found.header, found.offset), (header, offset));
        assert_eq!(found.object, vec![0xa5; header.length.into()]);
    }
    assert_eq!(found.len(), 3);
    assert_eq!(walk_whole(&[]).count(), 0);
}

#[test]
fn damage_hides_the_rest_of_a_block() {
    let whole = image(&[header(1, 50), header(2, 50)]);
    let last = |bytes: &[u8]| {
        let all: Vec<_> = walk_whole(bytes).collect();
        (all.len(), all.last().copied().and_then(Result::err))
    };
    assert_eq!(last(&whole), (2, None));
    for length in 129..256 {
        assert_eq!(last(&whole[..length]), (2, Some(128)));
    }
    let mut zeroed = whole.clone();
    zeroed[128..].fill(0);
    assert_eq!(last(&zeroed), (1, None), "padding");
    zeroed[200] = 1;
    assert_eq!(last(&zeroed), (2, Some(128)));
    let mut padded = whole.clone();
    padded[127] = 1;
    assert_eq!(last(&padded), (1, Some(0)));
    let second = Generation::FIRST.next();
    let stale = walk(&whole, second, |_| true).next();
    assert_eq!(stale, Some(Err(0)), "another life");
}

#[test]
fn a_walk_goes_on_at_the_next_block() {
    let block = BLOCK_BYTES as usize;
    let (first, second) = (image(&[header(1, 50)]), image(&[header(2, 50)]));
    let mut bytes = first.clone();
    bytes.resize(block, 0);
    bytes.extend(&second);
    let keys = |bytes: &[u8]| -> Vec<_> {
        let all = walk_whole(bytes);
        all.map(|found| found.map(|found| (found.header.key, found.offset))).collect()
    };
    assert_eq!(keys(&bytes), [Ok((1, 0)), Ok((2, BLOCK_BYTES))]);
    // A block that cannot be read is zeroes; one that was not written is anything.
    let mut gone = bytes.clone();
    gone[..block].fill(0);
    assert_eq!(keys(&gone), [Err(0), Ok((2, BLOCK_BYTES))]);
    bytes[128] = 1;
    assert_eq!(keys(&bytes), [Ok((1, 0)), Err(128), Ok((2, BLOCK_BYTES))]);
}

#[test]
fn an_object_that_was_written_over_hides_nothing() {
    let block = BLOCK_BYTES as usize;
    let (first, begun) = (header(1, 64 * 60 - 24), header(2, 64 * 5 - 24));
    // A process dies that has appended two objects. The second one, which fills its units, ends in
    // the next block. No slot names it, so the next process writes that block anew.
    let mut bytes = image(&[first, begun]);
    bytes.truncate(block);
    bytes.extend(&image(&[header(3, 50), header(4, 100)]));
    let found = |intact: bool| -> Vec<_> {
        let all = walk(&bytes, Generation::FIRST, |found| found.header != begun || intact);
        all.map(|found| found.map(|found| found.header.key)).collect()
    };
    assert_eq!(found(false), [Ok(1), Err(64 * 60), Ok(3), Ok(4)]);
    // An object may well have in it what looks like a header.
    assert_eq!(found(true)[..2], [Ok(1), Ok(2)]);
}

#[test]
fn what_is_written_together_ends_with_a_block() {
    let mut log = Segments::new(layout(4)).expect("a log");
    assert_eq!(log.pad(None), None, "nothing is open");
    let first = log.append(100, 0).expect("room");
    assert_eq!(log.pad(None), Some(128..4096));
    assert_eq!(log.pad(None), None, "it ends with a block already");
    assert_eq!(log.live_bytes(), 128);
    let second = log.append(100, 0).expect("room");
    assert_eq!(second.place().byte(), 4096);
    assert_eq!(log.generation(second.place()), Some(second.generation()));
    assert_eq!(log.generation(Place::from_word(u32::MAX)), None);
    let (first, second) = (log.written(first), log.written(second));
    assert!(log.has_room(MIB));
    // Fill the segment, so that it may be cleaned: the padding comes free.
    while log.all()[0].state == State::Open {
        let pending = log.append(4096, 0).expect("room");
        let _ = log.written(pending);
    }
    log.free(first, 100).expect("it is there");
    let segment = log.all()[0];
    assert!(segment.used - segment.live >= 4096, "{segment:?}");
    log.free(second, 100).expect("it is there");
}
