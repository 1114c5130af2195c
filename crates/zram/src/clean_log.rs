//! Cleaning of a log: what lives in a segment with little left is copied, and the segment is used
//! again.
//!
//! Whoever needs room cleans, on its own thread. Readers and writers of pages go on meanwhile. A
//! copy replaces its page's place in one step, if the slot still names the old one.

use segments::Place;
use units::Cpu;

use crate::engine::Engine;
use crate::log::{BackingLog, Clean};
use crate::resources::Design;
use crate::run::Run;

/// Punches and cleans until objects of so many bytes, at most a segment, have room. Returns whether
/// they have: others may take it. The calling thread may wait, and is no reader, neither of the
/// device nor of the log.
pub(crate) fn make_room<D: Design>(
    engine: &Engine<D>,
    log: &BackingLog,
    cpu: Cpu,
    (bytes, now): (u32, u32),
) -> bool {
    // Each round makes some progress, and there is a segment to be had before so many.
    let rounds = log.stats().segments * ROUNDS;
    for _ in 0..rounds {
        if log.has_room(bytes) {
            return true;
        }
        if !log.punch(cpu) && !clean(engine, log, cpu, (bytes, now)) {
            return log.has_room(bytes);
        }
    }
    false
}

/// A segment that is cleaned gains a part of this many, at least.
const ROUNDS: u64 = 32;

/// Cleans a segment, if that is needed. Returns false if none is worth it, or it could not be done.
fn clean<D: Design>(
    engine: &Engine<D>,
    log: &BackingLog,
    cpu: Cpu,
    (bytes, now): (u32, u32),
) -> bool {
    let mut cleaning = match log.clean(bytes, now) {
        Clean::This(cleaning) => cleaning,
        Clean::NotNeeded => return true,
        Clean::Nothing => return false,
    };
    let live = |index: usize, place: Place| {
        engine.backed_at(index).filter(|form| form.block == place.word())
    };
    let commit = |run: &mut Run| commit(engine, cpu, run);
    match cleaning.copy(cpu, live, commit) {
        Ok(()) => {
            // If objects are left, another segment is the next one.
            cleaning.end();
            true
        }
        Err(_) => {
            cleaning.give_up();
            false
        }
    }
}

/// Lets slots name the copies of their objects.
fn commit<D: Design>(engine: &Engine<D>, cpu: Cpu, run: &mut Run) {
    for entry in run.entries_mut() {
        let Some(new) = entry.written() else { continue };
        // Otherwise the page was replaced meanwhile.
        entry.is_named = engine.move_backed(cpu, entry.index, entry.form, new);
    }
}
