//! Caches of swap areas against the model: random events, a device that fails,
//! failing allocations, limits, memcgs and settings that change.

#[path = "common/swap.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Engine, INDEXES, Kind};
use sim::swap::{Cache, Crowd, Drive, FaultMode, FaultyDevice, Mix, Outcome, Policy, crowd};
use testkit::{Rng, asked, seed};
use units::{Cpu, PAGE_SIZE};

/// A run with each index, one after the other.
fn runs(test: &str, mix: Mix, cpus: u32, events: usize) -> Vec<Outcome> {
    let mut rng = Rng::new(seed(test));
    let run = |index: &Kind| {
        let drive = Drive { seed: rng.next_u64(), events, mix, cpus };
        let make = || -> Box<dyn Cache> { Box::new(Engine::new(*index, cpus as usize)) };
        let outcome = drive.run(&make);
        println!("{test}, {}: {outcome:?}", index.0);
        outcome
    };
    crate::INDEXES.iter().map(run).collect()
}

/// Writeback follows exactly the order of first in, first out with second chances, whatever the
/// device does.
#[test]
fn the_oldest_leave_first() {
    for outcome in runs("the_oldest_leave_first", Mix::ORDER, 1, 6000) {
        assert!(outcome.written_back > 100 && outcome.failed_writes > 10, "{outcome:?}");
    }
}

#[test]
fn limits_are_kept() {
    for outcome in runs("limits_are_kept", Mix::LIMITS, 3, 6000) {
        assert!(outcome.written_back > 100 && outcome.refused > 10, "{outcome:?}");
    }
}

/// `RAMPACK_EVENTS` makes the test longer.
#[test]
fn everything_at_once() {
    for outcome in runs("everything_at_once", Mix::ALL, 3, asked("RAMPACK_EVENTS", 8000) / 4) {
        assert!(outcome.written_back > 0 && outcome.failed_writes > 0, "{outcome:?}");
        assert!(outcome.refused > 0 && outcome.duplicates > 0, "{outcome:?}");
    }
}

/// Threads use their own and shared pages. Another thread writes back, sets limits, refuses pages,
/// changes codecs and takes memory away, and devices fail.
#[test]
fn crowds_find_what_they_stored() {
    let mut rng = Rng::new(seed("crowds_find_what_they_stored"));
    for (index, exclusive) in crate::INDEXES.iter().cycle().zip([false, true, false, true]) {
        let engine = Engine::new(*index, 2);
        let round = AtomicU64::new(0);
        let beside = |devices_below: &[Arc<FaultyDevice>; 2]| {
            let round = round.fetch_add(1, Ordering::Relaxed);
            let (cpu, n) = (Cpu(round as u32), round / 13);
            match round % 13 {
                0 | 4 | 8 => drop(engine.reclaim(cpu, 1 + n % 30)),
                1 | 5 => drop(engine.work()),
                2 => engine.set(Policy::Compressor(n as usize)),
                3 => {
                    let pages = [0, 6, 30, 0][n as usize % 4];
                    engine.set(Policy::MaxPool(pages * PAGE_SIZE as u64));
                }
                6 => engine.set(Policy::Enabled(!n.is_multiple_of(4))),
                7 => engine.leave_frames([u32::MAX, 3, u32::MAX, 0][n as usize % 4]),
                9 => engine.set(Policy::MemcgWriteback(n as usize % 3, !n.is_multiple_of(5))),
                10 => engine.set(Policy::InFlight(1 + n as u32 % 70)),
                11 => engine.recompress(cpu),
                _ => {
                    let moods = [
                        FaultMode::Well,
                        FaultMode::FailsWrites(300_000),
                        FaultMode::Well,
                        FaultMode::Full,
                    ];
                    devices_below
                        .iter()
                        .for_each(|device_below| device_below.set_mood(moods[n as usize % 4]));
                }
            }
        };
        crowd(&engine, Crowd { seed: rng.next_u64(), steps: 3000, exclusive, beside: &beside });
        engine.leave_frames(u32::MAX);
        let stats = engine.zswap.stats();
        println!("{}: {stats:?}", index.0);
        assert!(stats.written_back_pages > 0 && stats.loads > 0, "{stats:?}");
        assert!(stats.recompressed > 0, "{stats:?}");
    }
}
