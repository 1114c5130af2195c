use std::string::String;
use std::vec::Vec;

use super::pageblock::{FreeList, State};
use super::unwanted::REST;
use super::*;
use crate::LockClass;
use crate::pretended::HeapProvider;

/// Counts how often the zone's lock was taken, and the frames that went through it.
#[derive(Default)]
struct Count {
    took: AtomicU64,
    left: AtomicU64,
    pages: AtomicU64,
}

impl LockTrace for Count {
    const WATCHES: bool = true;

    fn now(&self) -> u64 {
        0
    }

    fn took(&self, _: Cpu, class: LockClass, _: u64) {
        assert_eq!(class, LockClass::Write);
        self.took.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, _: Cpu, class: LockClass, _: u64, pages: u64) {
        assert_eq!(class, LockClass::Write);
        self.left.fetch_add(1, Ordering::Relaxed);
        self.pages.fetch_add(pages, Ordering::Relaxed);
    }
}

fn zone() -> Zone {
    Zone::new(&HeapProvider::default(), ZoneOptions::new(2, 2048)).unwrap()
}

fn watched(cpus: usize, frames: u32) -> Zone<Count> {
    let options = ZoneOptions::new(cpus, frames);
    Zone::with_probe(&HeapProvider::default(), options, Count::default()).unwrap()
}

fn panic_of(work: impl FnOnce()) -> Option<String> {
    let panic = std::panic::catch_unwind(core::panic::AssertUnwindSafe(work)).err()?;
    Some(panic.downcast_ref::<String>().unwrap().clone())
}

/// What cannot be freed: a frame that was given back, one never allocated, one beyond the zone.
fn bad_frees() -> [fn(&Zone); 4] {
    [
        |zone| {
            let frame = zone.alloc(Cpu(0)).unwrap();
            zone.free(Cpu(0), frame);
            zone.free(Cpu(1), frame);
        },
        |zone| zone.free(Cpu(0), Frame(100)),
        |zone| zone.free(Cpu(0), Frame(2048)),
        |zone| zone.free(Cpu(0), Frame(u32::MAX)),
    ]
}

#[test]
fn freeing_what_is_not_allocated_is_found_and_has_no_effect() {
    for (n, free) in bad_frees().into_iter().enumerate() {
        let zone = zone();
        let text = panic_of(|| free(&zone));
        assert_eq!(text.is_some(), cfg!(debug_assertions), "case {n}");
        assert!(text.is_none_or(|text| text.contains("was freed")), "case {n}");
        assert_eq!(zone.stats().bad_frees, 1, "case {n}");
        zone.validate();
    }
}

#[test]
fn what_two_threads_free_at_one_instant_is_found_when_its_bit_is_set() {
    for (n, frames) in [4, 400].into_iter().enumerate() {
        let zone = zone();
        let frame = zone.alloc(Cpu(0)).unwrap();
        let others: Vec<Frame> = (0..frames).filter_map(|_| zone.alloc(Cpu(0))).collect();
        for cpu in [Cpu(0), Cpu(1)] {
            // As if both had looked before either wrote.
            zone.allocated.get(frame.0 as usize).store(1, Ordering::Relaxed);
            zone.free(cpu, frame);
        }
        let text = panic_of(|| zone.drain());
        assert_eq!(text.is_some(), cfg!(debug_assertions), "case {n}");
        assert!(text.is_none_or(|text| text.contains("was freed")), "case {n}");
        assert_eq!(zone.stats().bad_frees, 1, "case {n}");
        let taken = zone.block(0).state().count();
        assert!(taken <= FRAMES_PER_PAGEBLOCK, "it was counted once: {taken}");
        drop(others);
    }
}

#[test]
fn pcp_lists_give_the_last_frame_first_and_stay_small() {
    let zone = zone();
    let mut frames = [Frame(0); 200];
    for (n, frame) in frames.iter_mut().enumerate() {
        *frame = zone.alloc(Cpu(0)).unwrap();
        assert_eq!(frame.0, n as u32, "the lowest frame comes first");
    }
    for frame in frames {
        zone.free(Cpu(1), frame);
        assert!(zone.cpus.get(Cpu(1)).lock().pcp.len() <= zone.options.cache_high);
    }
    assert_eq!(zone.alloc(Cpu(1)), Some(frames[199]));
    assert_eq!(zone.alloc(Cpu(1)), Some(frames[198]));
    zone.validate();
}

#[test]
fn odd_options_are_moved_to_the_nearest_limit() {
    for (batch, cache_high, expected) in [(0, 0, (1, 1)), (9, 4, (4, 4)), (99, 99, (64, 64))] {
        let options = ZoneOptions { batch, cache_high, ..ZoneOptions::new(0, 1000) };
        let zone = Zone::new(&HeapProvider::default(), options).unwrap();
        assert_eq!((zone.options.batch, zone.options.cache_high), expected);
        let frame = zone.alloc(Cpu(7)).unwrap();
        zone.free(Cpu(8), frame);
        zone.validate();
    }
}

#[test]
fn cpus_keep_to_blocks_of_their_own() {
    let zone = zone();
    for _ in 0..300 {
        let cpus = [0, 1].map(|n| zone.alloc(Cpu(n)).unwrap().0);
        assert_eq!(cpus.map(|frame| frame / FRAMES_PER_PAGEBLOCK), [0, 1]);
    }
    zone.validate();
}

#[test]
fn a_cpu_without_a_block_takes_from_that_of_another() {
    let zone = Zone::new(&HeapProvider::default(), ZoneOptions::new(2, 512)).unwrap();
    zone.alloc(Cpu(0)).unwrap();
    let pcp = zone.cpus.get(Cpu(0)).lock().pcp.len();
    assert_eq!(zone.alloc(Cpu(1)), Some(Frame(32)));
    assert_eq!(zone.cpus.get(Cpu(0)).lock().pcp.len(), pcp, "its pcp list is left alone");
    let allocated = 2 + (0..).map_while(|_| zone.alloc(Cpu(1))).count();
    assert_eq!(allocated, 512);
    zone.validate();
}

#[test]
fn the_lock_is_taken_a_few_times_for_each_block() {
    const FRAMES: u64 = 8 * 1024;
    let zone = watched(1, FRAMES as u32);
    let mut frames: Vec<Frame> = Vec::new();
    for round in 1..4 {
        frames.extend((0..FRAMES).filter_map(|_| zone.alloc(Cpu(0))));
        assert_eq!(frames.len() as u64, FRAMES);
        frames.drain(..).for_each(|frame| zone.free(Cpu(0), frame));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let blocks = round * FRAMES / u64::from(FRAMES_PER_PAGEBLOCK);
        // Reserve, first frame free, last one free, and two for giving it back to the system.
        assert!(count(&zone.trace().took) <= 6 * blocks, "{} takes", count(&zone.trace().took));
        assert_eq!(count(&zone.trace().took), count(&zone.trace().left));
        assert!(count(&zone.trace().pages) >= round * FRAMES);
    }
    zone.validate();
}

#[test]
fn blocks_with_next_to_nothing_free_are_emptied_together() {
    let zone = watched(1, 32 * FRAMES_PER_PAGEBLOCK);
    let frames: Vec<Frame> = core::iter::from_fn(|| zone.alloc(Cpu(0))).collect();
    for frame in frames.iter().filter(|frame| frame.0 % FRAMES_PER_PAGEBLOCK == 77) {
        zone.free(Cpu(0), *frame);
    }
    zone.drain();
    let before = zone.trace().took.load(Ordering::Relaxed);
    for n in 0..32 {
        let frame = zone.alloc(Cpu(0));
        assert_eq!(frame, Some(Frame(n * FRAMES_PER_PAGEBLOCK + 77)), "the lowest first");
    }
    let took = zone.trace().took.load(Ordering::Relaxed) - before;
    assert!(took <= 32 / 8, "{took} times for 32 frames");
    assert_eq!(zone.alloc(Cpu(0)), None);
    zone.validate();
}

/// Order-0 blocks among the free frames, in thousandths.
fn order_0_share(zone: &dyn Frames) -> u64 {
    let stats = zone.stats();
    let free: u64 = (0..).zip(stats.free_blocks).map(|(order, blocks)| blocks << order).sum();
    stats.free_blocks[0] * 1000 / free
}

#[test]
fn runs_of_single_frames_leave_no_single_frames() {
    const EACH: usize = 4 * 1024;
    let zone = watched(2, 4 * EACH as u32);
    let mut held: [Vec<Frame>; 2] = Default::default();
    // Both CPUs allocate and free in the order of allocation, at different phases.
    for step in 0..6 * EACH {
        for (n, held) in held.iter_mut().enumerate() {
            let at = (step + n * EACH / 3) % (2 * EACH);
            let cpu = Cpu(n as u32);
            if at < EACH {
                held.push(zone.alloc(cpu).unwrap());
            } else if !held.is_empty() {
                zone.free(cpu, held.remove(0));
            }
        }
        if step % 5000 == 0 {
            assert!(order_0_share(&zone) <= 5, "step {step}: {:?}", zone.stats());
        }
    }
    zone.validate();
    zone.drain();
    assert!(order_0_share(&zone) <= 5);
    held.into_iter().flatten().for_each(|frame| zone.free(Cpu(0), frame));
    zone.drain();
    assert_eq!(zone.stats().free_blocks[..10], [0; 10], "0 unmerged at rest");
}

#[test]
fn memory_is_fetched_once_and_in_pieces() {
    let provider = HeapProvider::default();
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(1, 8 * FRAMES_PER_PAGEBLOCK) };
    let zone = Zone::new(&provider, options).unwrap();
    let record = provider.record_of(zone.base());
    let mut frames: Vec<Frame> = Vec::new();
    let mut take = |n: u32| {
        frames.extend((0..n).filter_map(|_| zone.alloc(Cpu(0))));
        record.log().populated
    };
    assert_eq!(take(1), [(0, 32)]);
    assert_eq!(take(32), [(0, 32), (32, 32)]);
    let first = take(FRAMES_PER_PAGEBLOCK - 33);
    assert_eq!((first.len(), first.last()), (16, Some(&(480, 32))));
    assert_eq!(take(FRAMES_PER_PAGEBLOCK).len(), 32, "the next block likewise");
    for frame in frames.drain(..) {
        zone.free(Cpu(0), frame);
    }
    let again = zone.alloc(Cpu(0)).unwrap();
    zone.free(Cpu(0), again);
    assert_eq!(record.log().populated.len(), 32, "what was in use has its memory");
    zone.drain();
    zone.alloc(Cpu(0)).unwrap();
    assert_eq!(record.log().populated[32..], [(0, 32)], "what was given back has none");
}

#[test]
fn memory_that_stays_free_is_given_back() {
    let provider = HeapProvider::default();
    let zone = Zone::new(&provider, ZoneOptions::new(1, 8 * FRAMES_PER_PAGEBLOCK)).unwrap();
    let record = provider.record_of(zone.base());
    let released = || record.log().pieces_released;
    let frames: Vec<Frame> = core::iter::from_fn(|| zone.alloc(Cpu(0))).collect();
    let rounds = |most: u32| (0..most).for_each(|_| _ = zone.maintain(0));
    // Each second frame is free now and then, and in use in between.
    for _ in 0..3 {
        frames.iter().step_by(2).for_each(|frame| zone.free(Cpu(0), *frame));
        rounds(REST - 1);
        frames.iter().step_by(2).for_each(|_| _ = zone.alloc(Cpu(0)).unwrap());
        rounds(1);
    }
    assert_eq!(released(), 0);
    frames.iter().step_by(2).for_each(|frame| zone.free(Cpu(0), *frame));
    rounds(2 * REST);
    let free = 4 * FRAMES_PER_PAGEBLOCK as usize;
    // The pageblock that the CPU has reserved stays as it is.
    assert!((free - 256..=free).contains(&released()), "{} of {free}", released());
    let before = released();
    // A little more is not worth it.
    frames.iter().skip(1).step_by(64).for_each(|frame| zone.free(Cpu(0), *frame));
    rounds(2 * REST);
    assert_eq!(released(), before);
    zone.validate();
}

fn finds(expected: &str, corrupt: impl FnOnce(&Zone)) {
    let text = panic_of(|| {
        let zone = zone();
        let frame = zone.alloc(Cpu(0)).unwrap();
        assert_eq!(frame, Frame(0));
        corrupt(&zone);
        zone.validate();
    });
    let text = text.expect(expected);
    assert!(text.contains(expected), "{expected}: {text}");
}

#[test]
fn validation_finds_contradictions() {
    let allocate = |zone: &Zone, frame: usize| {
        zone.allocated.get(frame).store(1, Ordering::Relaxed);
    };
    let own = |zone: &Zone, cpu: u32, change: fn(&mut CpuState)| {
        change(&mut zone.cpus.get(Cpu(cpu)).lock());
    };
    finds("frame 31 is lost", |zone| own(zone, 0, |own| own.pcp.forget_oldest(1)));
    finds("frame 2 is PcpList(1) as well", |zone| own(zone, 1, |own| own.pcp.push(2)));
    finds("frame 40 is Free as well", |zone| own(zone, 1, |own| own.pcp.push(40)));
    finds("frame 0 is lost", |zone| zone.allocated.get(0).store(0, Ordering::Relaxed));
    finds("frame 40 is Free as well", |zone| allocate(zone, 40));
    finds("frame 2 is Allocated as well", |zone| allocate(zone, 2));
    finds("only 2048 are managed", |zone| own(zone, 1, |own| own.pcp.push(5000)));
    finds("block 0: count, bits", |zone| _ = zone.block(0).add(1));
    finds("block 3 (State(511)): its free list", |zone| _ = zone.block(3).pick(0, &mut [0]));
    finds("and its cpu", |zone| own(zone, 0, |own| own.reserved = None));
    finds("has reserved 2 MiB pageblock 0 as well", |zone| {
        let reserved = zone.cpus.get(Cpu(0)).lock().reserved;
        zone.cpus.get(Cpu(1)).lock().reserved = reserved;
    });
    finds("its free list, its word", |zone| zone.index.lock().put(1, FreeList::Off));
    finds("2 MiB pageblock 0 has no memory", |zone| {
        own(zone, 0, |own| own.reserved = None);
        zone.block(0).change(State::released);
        zone.index.lock().put(0, FreeList::Partial);
    });
    finds("collapsed, without memory", |zone| _ = zone.block(1).change(State::collapsed));
    finds("idle blocks: count", |zone| zone.index.lock().idle = 1);
}
