//! Room in a log: what lives in a segment with little left is copied, and the segment is used
//! again.
//!
//! Whoever needs room cleans, on its own thread. Readers and writers of pages go on meanwhile. A
//! copy replaces its page's place in one step, if the page is still at the old one.

use block::IoError;
use segments::Place;
use units::Cpu;

use crate::backed::Backed;
use crate::log::{Clean, PageLog};
use crate::run::Run;

/// How often what has no place is tried again. The first time closes a segment, which can be
/// cleaned then.
const TRIES: u32 = 3;

/// A segment that is cleaned gains a part of this many, at least.
const ROUNDS: u64 = 32;

/// Whoever knows where pages are. Any number of threads may call every method at once.
pub trait Places {
    /// The place and form of page `index` if it is in the log. `index` may be any number.
    fn backed_at(&self, index: usize) -> Option<Backed>;

    /// Lets a page that is at `old` be at `new`, where it was copied, and frees `old` in the log.
    /// Returns false if it is not at `old` any more; nothing has changed then.
    fn move_backed(&self, cpu: Cpu, index: usize, old: Backed, new: Backed) -> bool;
}

/// Writes the objects of a run, dated `now`, and cleans for them if need be. `commit` gets the run
/// each time some of it was written: it lets slots name the places ([`Entry::written`]), and notes
/// which it did ([`Entry::is_named`]). Objects that are left in the run afterwards were not
/// written. The calling thread may wait, and is no reader, neither of the log nor of whoever has
/// the slots.
///
/// # Errors
/// `NoSpace` if the log is full, or the first error of the device.
///
/// [`Entry::written`]: crate::Entry::written
/// [`Entry::is_named`]: crate::Entry::is_named
pub fn write(
    (log, places): (&PageLog, &impl Places),
    cpu: Cpu,
    run: &mut Run,
    now: u32,
    mut commit: impl FnMut(&mut Run),
) -> Result<(), IoError> {
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        make_room((log, places), cpu, (run.stored_bytes(), now));
        outcome = log.write(cpu, run, now);
        commit(run);
        log.committed(run);
        run.keep_unwritten();
        if outcome != Err(IoError::NoSpace) {
            break;
        }
    }
    outcome
}

/// Punches and cleans until objects of so many bytes, at most a segment, have room. Others may take
/// it first.
fn make_room((log, places): (&PageLog, &impl Places), cpu: Cpu, (bytes, now): (u32, u32)) {
    // Each round makes some progress, and there is a segment to be had before so many.
    let rounds = log.stats().segments * ROUNDS;
    for _ in 0..rounds {
        if log.has_room(bytes) || !log.punch(cpu) && !clean((log, places), cpu, (bytes, now)) {
            return;
        }
    }
}

/// Cleans a segment, if that is needed. Returns false if none is worth it, or it could not be done.
fn clean((log, places): (&PageLog, &impl Places), cpu: Cpu, (bytes, now): (u32, u32)) -> bool {
    let mut cleaning = match log.clean(bytes, now) {
        Clean::This(cleaning) => cleaning,
        Clean::NotNeeded => return true,
        Clean::Nothing => return false,
    };
    let live = |index: usize, place: Place| {
        places.backed_at(index).filter(|form| form.block == place.word())
    };
    let commit = |run: &mut Run| {
        for entry in run.entries_mut() {
            let Some(new) = entry.written() else { continue };
            // Otherwise the page was replaced meanwhile.
            entry.is_named = places.move_backed(cpu, entry.index, entry.form, new);
        }
    };
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
