use std::vec::Vec;

use units::Frame;

use super::super::ZoneOptions;
use super::*;
use crate::Frames;
use crate::pretended::{HeapProvider, Log};

const PIECE: u64 = WORD_FRAMES as u64;

/// A zone of `frames` frames where there are going to be `pages` pages for it.
fn zone(frames: u32, pages: usize) -> (Zone, HeapProvider) {
    let provider = HeapProvider::ahead(usize::MAX);
    let zone = Zone::new(&provider, ZoneOptions::new(2, frames)).unwrap();
    provider.set_pages(pages);
    (zone, provider)
}

fn log(zone: &Zone, provider: &HeapProvider) -> Log {
    provider.record_of(zone.base()).log()
}

fn take_all(zone: &Zone, cpu: Cpu) -> Vec<Frame> {
    std::iter::from_fn(|| zone.alloc(cpu)).collect()
}

#[test]
fn only_what_was_provided_is_allocated() {
    let (zone, provider) = zone(2048, usize::MAX);
    assert_eq!(zone.alloc(Cpu(0)), None);
    assert_eq!(zone.provided(), 0);
    let free = zone.provide(Cpu(0), 100);
    assert_eq!((free, zone.provided()), (2 * PIECE, 2 * PIECE));
    let frames = take_all(&zone, Cpu(1));
    assert_eq!(frames.len() as u64, free);
    let populated = log(&zone, &provider).populated;
    for Frame(frame) in &frames {
        let has_memory =
            |part: &(usize, usize)| (part.0..part.0 + part.1).contains(&(*frame as usize));
        assert!(populated.iter().any(has_memory), "frame {frame} has no memory");
    }
    zone.validate();
    // What comes back is allocated again without anything being asked of the system.
    for frame in frames {
        zone.free(Cpu(0), frame);
    }
    assert_eq!(take_all(&zone, Cpu(0)).len() as u64, free);
    assert_eq!(log(&zone, &provider).populated, populated);
    zone.validate();
}

#[test]
fn all_of_a_zone_can_be_provided_and_lent() {
    let (zone, _) = zone(1024, usize::MAX);
    assert_eq!(zone.provide(Cpu(0), 5000), 1024);
    assert_eq!(zone.provide(Cpu(0), 5000), 1024, "there is no more");
    assert_eq!(take_all(&zone, Cpu(0)).len(), 1024);
    zone.validate();
}

#[test]
fn a_refusal_ends_the_call_and_the_next_one_goes_on() {
    let (zone, provider) = zone(2048, 100);
    assert_eq!(zone.provide(Cpu(0), 512), PIECE);
    zone.validate();
    let early = take_all(&zone, Cpu(0));
    assert_eq!(early.len() as u64, PIECE);
    zone.validate();
    assert_eq!(zone.provide(Cpu(0), 512), 0, "there is still no memory");
    provider.set_pages(10_000);
    assert_eq!(zone.provide(Cpu(0), 448), 448);
    zone.validate();
    let all = early.len() + take_all(&zone, Cpu(1)).len();
    assert_eq!(all, 512, "the same pageblock was filled to its end");
    assert_eq!(log(&zone, &provider).committed.iter().filter(|it| **it).count(), 1);
    zone.validate();
}

#[test]
fn what_is_free_beyond_is_given_back_but_for_a_few_blocks() {
    let (zone, provider) = zone(20 * 512, usize::MAX);
    zone.provide(Cpu(0), 20 * 512);
    let frames = take_all(&zone, Cpu(0));
    for frame in frames {
        zone.free(Cpu(0), frame);
    }
    assert!(log(&zone, &provider).released.is_empty(), "who frees asks nothing of the system");
    zone.drain();
    let free = zone.provide(Cpu(0), 512);
    let kept = (1 + SPARE) * u64::from(FRAMES_PER_PAGEBLOCK);
    assert_eq!((free, zone.provided()), (kept, kept));
    assert_eq!(log(&zone, &provider).released.len() as u64, 19 - SPARE);
    zone.validate();
    assert_eq!(take_all(&zone, Cpu(1)).len() as u64, kept, "what went back is not allocated");
    // It is provided again when it is wanted again.
    assert_eq!(zone.provide(Cpu(0), 1024), 1024);
    zone.validate();
}

#[test]
fn threads_take_and_free_while_memory_is_provided_and_given_back() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
    let (zone, provider) = zone(16 * 512, usize::MAX);
    zone.provide(Cpu(0), 512);
    let asked = || {
        let log = log(&zone, &provider);
        (log.populated.len(), log.released.len())
    };
    std::thread::scope(|scope| {
        for cpu in [Cpu(0), Cpu(1)] {
            let zone = &zone;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    for _ in 0..(round * 7 + u64::from(cpu.0) * 13) % 300 {
                        held.extend(zone.alloc(cpu));
                    }
                    while held.len() as u64 > (round * 11) % 1500 {
                        zone.free(cpu, held.swap_remove(held.len() / 2));
                    }
                }
                held.into_iter().for_each(|frame| zone.free(cpu, frame));
            });
        }
        for round in 0..ROUNDS {
            zone.provide(Cpu(0), round * 37 % 6000);
        }
    });
    zone.validate();
    zone.drain();
    let before = asked();
    let free = take_all(&zone, Cpu(0)).len() as u64;
    assert_eq!(free, zone.provided());
    assert_eq!(asked(), before);
}
