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
fn what_is_free_beyond_is_given_back_but_for_some() {
    let (zone, provider) = zone(20 * 512, usize::MAX);
    zone.provide(Cpu(0), 20 * 512);
    let frames = take_all(&zone, Cpu(0));
    for frame in frames {
        zone.free(Cpu(0), frame);
    }
    assert!(log(&zone, &provider).released.is_empty(), "who frees asks nothing of the system");
    zone.drain();
    let free = zone.provide(Cpu(0), 512);
    let kept = 512 + 512 / 2;
    assert_eq!((free, zone.provided()), (kept, kept));
    let log = log(&zone, &provider);
    assert_eq!((log.released.len(), log.pieces_released), (18, 256));
    zone.validate();
    assert_eq!(take_all(&zone, Cpu(1)).len() as u64, kept, "what went back is not allocated");
    // It is provided again when it is wanted again.
    assert_eq!(zone.provide(Cpu(0), 1024), 1024);
    zone.validate();
    let (zone, _) = self::zone(20 * 512, usize::MAX);
    assert_eq!(zone.provide(Cpu(0), 20 * 512), 20 * 512);
    assert_eq!(zone.provide(Cpu(0), 14 * 512), 18 * 512, "of more, no more than four blocks stay");
}

/// A zone of `blocks` pageblocks where every `nth` frame is in use, and those frames.
fn sparse(blocks: u32, nth: u32) -> (Zone, HeapProvider, Vec<Frame>) {
    let (zone, provider) = zone(blocks * 512, usize::MAX);
    zone.provide(Cpu(0), u64::from(blocks) * 512);
    let (used, unused): (Vec<Frame>, Vec<Frame>) =
        take_all(&zone, Cpu(0)).into_iter().partition(|frame| frame.0 % nth == 0);
    unused.into_iter().for_each(|frame| zone.free(Cpu(0), frame));
    zone.drain();
    (zone, provider, used)
}

#[test]
fn the_memory_between_frames_in_use_goes_back() {
    let (zone, provider, used) = sparse(16, 8);
    let in_use = used.len() as u64;
    let free = zone.provide(Cpu(0), 100);
    assert!((150..150 + PIECE).contains(&free), "{free}");
    assert_eq!(zone.provided(), free + in_use);
    assert_eq!(zone.stats().allocated, in_use);
    let gone = log(&zone, &provider).pieces_released as u64;
    assert_eq!(gone + free + in_use, 16 * 512);
    zone.validate();
    let mut others = take_all(&zone, Cpu(1));
    assert_eq!(others.len() as u64, free);
    zone.validate();
    // It comes back where it is missing, the lowest first.
    assert!(zone.provide(Cpu(0), 1000) >= 1000);
    zone.validate();
    let early = take_all(&zone, Cpu(0));
    assert!(early.iter().all(|frame| frame.0 < 4 * 512), "{early:?}");
    others.extend(early);
    assert_eq!(zone.provide(Cpu(0), 16 * 512), 16 * 512 - in_use - others.len() as u64);
    zone.validate();
    others.extend(take_all(&zone, Cpu(0)));
    assert_eq!(others.len() as u64 + in_use, 16 * 512);
}

#[test]
fn a_pageblock_whose_last_frame_is_freed_goes_back_as_a_whole() {
    let (zone, _, used) = sparse(8, 256);
    zone.provide(Cpu(0), 0);
    assert!(zone.provided() < used.len() as u64 + PIECE, "{}", zone.provided());
    used.into_iter().for_each(|frame| zone.free(Cpu(0), frame));
    zone.drain();
    zone.provide(Cpu(0), 0);
    zone.validate();
    assert!(zone.provided() < PIECE, "{}", zone.provided());
    assert_eq!(zone.provide(Cpu(0), 8 * 512), 8 * 512, "all of it can be had again");
    assert_eq!(take_all(&zone, Cpu(0)).len(), 8 * 512);
    zone.validate();
}

#[test]
fn what_was_withheld_stays_so_when_there_is_no_memory() {
    let (zone, provider, used) = sparse(4, 2);
    zone.provide(Cpu(0), 64);
    let there = zone.provided();
    provider.set_pages(0);
    zone.provide(Cpu(0), 1000);
    assert_eq!(zone.provided(), there);
    zone.validate();
    provider.set_pages(usize::MAX);
    let free = zone.provide(Cpu(0), 1000);
    assert!((1000..1000 + PIECE).contains(&free), "{free} beside {}", used.len());
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
