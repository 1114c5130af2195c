//! With memory provided ahead, a thread that stores and loads pages takes no page fault, because
//! all the memory it touches is present. Without it the same work must fault.
//!
//! The test is alone in its file, because other tests of the process would give back its memory.

mod common;
#[path = "common/swap.rs"]
mod swap;

use std::sync::Arc;
use std::thread;

use block::{BlockDevice, IoError, Operation};
use host::{Faults, Mmap, MmapAhead, thread_faults, thread_id};
use pagealloc::MemoryProvider;
use sim::content::Fill;
use sim::swap::{Cache, FaultyDevice};
use swap::{INDEXES, Kind};
use sync::atomic::{AtomicBool, Ordering};
use units::{Cpu, PAGE_SIZE};
use zswap::{AreaOptions, Headroom, Stats};

const P: u64 = PAGE_SIZE as u64;
/// Pages of the area.
const AREA: u64 = 600;

/// The number of frames to provide ahead.
const FRAMES: u64 = 96;

/// Pages of each kind, rendered beforehand.
fn contents() -> Vec<[u8; PAGE_SIZE]> {
    let fills = [
        Fill::Words(0x0123_4567_89ab_cdef),
        Fill::Text(1),
        Fill::Noise(3),
        Fill::Partly { noise: 4, parts: 20 },
        Fill::Partly { noise: 5, parts: 50 },
    ];
    fills
        .map(|fill| {
            let mut page = [0; PAGE_SIZE];
            fill.render(&mut page);
            page
        })
        .into()
}

fn at(page: u64) -> u64 {
    // The order is partly sequential, like the kernel's choice.
    page * 7 % AREA * P
}

/// The result of a round of stores and loads.
#[derive(Debug, Default)]
struct Round {
    faults: u64,
    refused: u64,
    wrong: u64,
}

/// Stores so many pages, loads and discards them, on a thread that touches nothing else; tells what
/// faults it took.
fn round(
    device: &dyn BlockDevice,
    contents: &[[u8; PAGE_SIZE]],
    pages: u64,
    wait: impl Fn(),
) -> Round {
    let mut into = [0u8; PAGE_SIZE];
    let mut round = Round::default();
    let mut there = [false; AREA as usize];
    let of = |page: u64| &contents[page as usize % contents.len()];
    let faults = || thread_faults(thread_id()).expect("this thread is there");
    // The heap has room for the second then.
    let _ = faults();
    let began: Faults = faults();
    for page in 0..pages {
        let write = Operation::Write { offset: at(page), from: of(page) };
        match device.submit(Cpu(0), write) {
            Ok(()) => there[page as usize] = true,
            Err(IoError::NoMemory) => round.refused += 1,
            Err(error) => panic!("{error}"),
        }
        wait();
    }
    for page in (0..pages).filter(|page| there[*page as usize]) {
        let read = Operation::Read { offset: at(page), into: &mut into };
        device.submit(Cpu(0), read).expect("it is there");
        round.wrong += u64::from(into != *of(page));
        if page % 3 != 0 {
            let discard = Operation::Discard { offset: at(page), length: P };
            device.submit(Cpu(0), discard).expect("it can");
        }
    }
    let ended = faults();
    round.faults = ended.minor + ended.major - began.minor - began.major;
    round
}

/// Rounds on an engine in `provider`, with a thread that provides memory beside.
fn rounds(index: Kind, provider: Arc<dyn MemoryProvider>, provides: bool) -> (Vec<Round>, Stats) {
    let engine = swap::Engine::in_memory(index.1, 2, provider);
    let zswap = &*engine.zswap;
    let memcg = zswap.memcg("default").expect("it is always there");
    let options = AreaOptions { device: None, memcg };
    zswap.swapon(swap::swap_type(0), AREA, options).expect("it is off");
    zswap.set_max_pool_bytes(AREA * 2 * P);
    let want = Headroom { frames: FRAMES, entries: 256, nodes: 64 };
    let device = engine.device(0);
    let contents = contents();
    let ended = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let provider = scope.spawn(|| {
            while provides && !ended.load(Ordering::Acquire) {
                let ticket = zswap.memory_event().ticket();
                if zswap.provide(Cpu(1), want) && !ended.load(Ordering::Acquire) {
                    zswap.memory_event().wait(ticket);
                }
            }
        });
        let worker = scope.spawn(|| {
            let wait = || {
                while provides && zswap.free_frames() < FRAMES / 4 {
                    thread::yield_now();
                }
            };
            wait();
            // This test ignores faults of the program's code and the stack. The first pages of a
            // round warm them up.
            host::make_resident().expect("it can be had");
            round(&device, &contents, 20, wait);
            (0..4).map(|_| round(&device, &contents, AREA, wait)).collect::<Vec<_>>()
        });
        let rounds = worker.join().expect("no panic");
        ended.store(true, Ordering::Release);
        zswap.memory_event().notify_all();
        provider.join().expect("no panic");
        rounds
    });
    zswap.invalidate_area(Cpu(0), swap::swap_type(0));
    zswap.validate();
    (rounds, zswap.stats())
}

#[test]
fn who_stores_and_loads_takes_no_page_fault() {
    for &index in crate::INDEXES {
        let (rounds, stats) = rounds(index, Arc::new(MmapAhead), true);
        for (n, round) in rounds.iter().enumerate() {
            assert_eq!((round.faults, round.wrong), (0, 0), "{}: round {n}: {rounds:?}", index.0);
        }
        let refused: u64 = rounds.iter().map(|round| round.refused).sum();
        assert!(refused < 4, "{}: {refused} of {} stores came too early", index.0, stats.stores);
    }
}

#[test]
fn without_memory_provided_ahead_faults_are_seen() {
    let (rounds, _) = rounds(INDEXES[0], Arc::new(Mmap), false);
    assert!(rounds[0].faults > 50, "{rounds:?}");
}

#[test]
fn without_a_provider_stores_are_refused_and_loads_work() {
    let (rounds, stats) = rounds(INDEXES[0], Arc::new(MmapAhead), false);
    assert!(rounds.iter().all(|round| round.refused == AREA && round.faults == 0), "{rounds:?}");
    assert_eq!(stats.reject_alloc_fail + stats.reject_entry_fail, 4 * AREA + 20);
}

#[test]
fn a_page_that_finds_no_memory_goes_to_the_device() {
    let engine = swap::Engine::in_memory(None, 2, Arc::new(MmapAhead));
    let device_below = FaultyDevice::new(sim::swap::PAGES, 0, 0);
    engine.swapon(0, device_below).expect("it is off");
    let device = engine.device(0);
    let contents = contents();
    let mut into = [0; PAGE_SIZE];
    for page in 0..16 {
        let (offset, from) = (page * P, &contents[page as usize % contents.len()]);
        device.submit(Cpu(0), Operation::Write { offset, from }).expect("the device takes it");
        device.submit(Cpu(0), Operation::Read { offset, into: &mut into }).expect("it is there");
        assert!(into == *from);
    }
    let stats = engine.zswap.stats();
    assert_eq!((stats.through, stats.written_back_pages, stats.stored_pages), (16, 0, 0));
    // With memory the next ones stay.
    assert!(engine.zswap.provide(Cpu(0), Headroom { frames: FRAMES, entries: 64, nodes: 64 }));
    for page in 0..16 {
        let (offset, from) = (page * P, &contents[page as usize % contents.len()]);
        device.submit(Cpu(0), Operation::Write { offset, from }).expect("there is memory");
        device.submit(Cpu(0), Operation::Read { offset, into: &mut into }).expect("it is there");
        assert!(into == *from);
    }
    assert_eq!(engine.zswap.stats().stored_pages, 16);
}
