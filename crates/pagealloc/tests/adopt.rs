//! A zone takes over frames that another one left in memory that outlives it.

use std::collections::BTreeSet;
use std::mem::forget;
use std::os::fd::OwnedFd;

use host::{Memfds, Mmap};
use pagealloc::{FrameSet, Frames, Zone, ZoneOptions};
use testkit::Rng;
use units::{Cpu, Frame, PAGE_SIZE};

const CPU: Cpu = Cpu(0);

/// What a process of the same machine finds after this one.
fn inherited(memfds: &Memfds) -> Memfds {
    let later = Memfds::new();
    for region in memfds.regions() {
        let file = OwnedFd::from(region.file.try_clone().unwrap());
        later.adopt(&region.name, file, region.bytes).unwrap();
    }
    later
}

fn zone(memfds: &Memfds, frames: u32) -> Zone {
    let options = ZoneOptions { keep_free_blocks: 0, ..ZoneOptions::new(2, frames) };
    Zone::over(&memfds.provider("frames"), &Mmap, options).unwrap()
}

/// A zone whose memory is provided ahead.
fn ahead(memfds: &Memfds, frames: u32) -> Zone {
    let provider = memfds.provider("frames").ahead();
    Zone::over(&provider, &Mmap, ZoneOptions::new(2, frames)).unwrap()
}

fn word(zone: &Zone, frame: Frame) -> *mut u64 {
    zone.base().as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE).cast()
}

fn write(zone: &Zone, frame: Frame) {
    // SAFETY: the callers have allocated the frame.
    unsafe { word(zone, frame).write_volatile(u64::from(frame.0) + 1) };
}

fn read(zone: &Zone, frame: Frame) -> u64 {
    // SAFETY: as above.
    unsafe { word(zone, frame).read_volatile() }
}

fn resident(memfds: &Memfds) -> u64 {
    memfds.regions().iter().map(|region| region.resident_bytes().unwrap()).sum()
}

fn alloc(zone: &Zone) -> Option<Frame> {
    zone.alloc(CPU)
}

/// Fills a zone, and lets go of it with `live` of its frames in use.
fn left_behind(frames: u32, live: impl Fn(u32) -> bool) -> (Memfds, BTreeSet<u32>) {
    let memfds = Memfds::new();
    let zone = zone(&memfds, frames);
    while let Some(frame) = alloc(&zone) {
        write(&zone, frame);
    }
    let later = inherited(&memfds);
    forget(zone);
    (later, (0..frames).filter(|frame| live(*frame)).collect())
}

fn adopt(zone: &Zone, live: &BTreeSet<u32>) {
    let set = FrameSet::new(&Mmap, zone.capacity()).unwrap();
    for frame in live {
        assert!(set.insert(Frame(*frame)));
        assert!(!set.insert(Frame(*frame)), "it is there already");
    }
    zone.adopt(&set).unwrap();
}

/// All of `frames` frames are live or can be allocated once, and live ones are as they were.
fn check(zone: &Zone, frames: u32, live: &BTreeSet<u32>) {
    zone.validate();
    assert_eq!(zone.stats().allocated, live.len() as u64);
    let mut free = BTreeSet::new();
    while let Some(frame) = alloc(zone) {
        assert!(!live.contains(&frame.0), "frame {} is in use", frame.0);
        assert!(free.insert(frame.0), "frame {} was allocated twice", frame.0);
        write(zone, frame);
    }
    assert_eq!(free.len() + live.len(), frames as usize);
    for frame in live {
        assert_eq!(read(zone, Frame(*frame)), u64::from(*frame) + 1);
    }
    for frame in free.iter().chain(live) {
        zone.free(CPU, Frame(*frame));
    }
    zone.drain();
    zone.validate();
    assert_eq!((zone.stats().allocated, zone.stats().bad_frees), (0, 0));
}

#[test]
fn frames_in_use_stay_and_all_others_are_free() {
    let mut rng = Rng::new(testkit::seed("frames_in_use_stay_and_all_others_are_free"));
    for frames in [1, 64, 512, 513, 2048, 5000] {
        let some = 1 + rng.below(20);
        let chosen: Vec<bool> = (0..frames).map(|_| rng.below(20) < some).collect();
        let end = rng.below(u64::from(frames) + 1) as u32;
        let (memfds, live) = left_behind(frames, |frame| frame < end && chosen[frame as usize]);
        let zone = zone(&memfds, frames);
        adopt(&zone, &live);
        assert_eq!(resident(&memfds), live.len() as u64 * host::page_bytes().max(4096), "{frames}");
        check(&zone, frames, &live);
        assert_eq!(resident(&memfds), 0, "all memory went back");
    }
}

#[test]
fn nothing_and_everything_can_be_live() {
    for all in [false, true] {
        let (memfds, live) = left_behind(1536, |_| all);
        let zone = zone(&memfds, 1536);
        adopt(&zone, &live);
        check(&zone, 1536, &live);
    }
}

#[test]
fn memory_ahead_stays_with_the_pageblocks_in_use() {
    let memfds = Memfds::new();
    let first = ahead(&memfds, 2048);
    first.provide(CPU, 2048);
    while let Some(frame) = alloc(&first) {
        write(&first, frame);
    }
    let later = inherited(&memfds);
    forget(first);
    let zone = ahead(&later, 2048);
    let live = BTreeSet::from([3, 700, 701]);
    adopt(&zone, &live);
    zone.validate();
    assert_eq!(zone.provided(), 1024, "two pageblocks");
    let mut free = 0;
    while let Some(frame) = alloc(&zone) {
        assert!(!live.contains(&frame.0));
        free += 1;
    }
    assert_eq!(free, 1024 - 3);
    zone.provide(CPU, 512);
    assert!(alloc(&zone).is_some());
    assert_eq!(read(&zone, Frame(701)), 702);
}

#[test]
fn memory_that_went_back_is_not_asked_for_again() {
    let memfds = Memfds::new();
    let first = ahead(&memfds, 4096);
    first.provide(CPU, 4096);
    let mut live = BTreeSet::new();
    while let Some(frame) = alloc(&first) {
        write(&first, frame);
        live.insert(frame.0);
    }
    let page = (host::page_bytes() as usize / PAGE_SIZE).max(1) as u32;
    // Each fourth page of the system is in use.
    let used = |frame: &u32| (frame / page).is_multiple_of(4);
    live.iter().filter(|frame| !used(frame)).for_each(|frame| first.free(CPU, Frame(*frame)));
    live.retain(used);
    first.drain();
    let free = first.provide(CPU, 200);
    assert!(free < 500, "{free}");
    let (later, before) = (inherited(&memfds), resident(&memfds));
    forget(first);
    let zone = ahead(&later, 4096);
    adopt(&zone, &live);
    zone.validate();
    assert!(resident(&later) <= before, "{before} bytes before");
    let there = zone.provided() - live.len() as u64;
    assert!((100..500).contains(&there), "{there} of {free} free frames");
    for frame in &live {
        assert_eq!(read(&zone, Frame(*frame)), u64::from(*frame) + 1);
    }
    assert_eq!(zone.provide(CPU, 4096), 4096 - live.len() as u64);
    zone.validate();
}

#[test]
fn a_zone_in_use_adopts_nothing() {
    let zone = zone(&Memfds::new(), 512);
    alloc(&zone).unwrap();
    let set = FrameSet::new(&Mmap, 512).unwrap();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| zone.adopt(&set)));
    let text = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("a zone that is in use cannot adopt frames"), "{text}");
}
