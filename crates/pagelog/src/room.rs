//! Room in a log: what lives in a segment with little left is copied, and the segment is used
//! again.
//!
//! Whoever needs room cleans, on its own thread. Readers and writers of pages go on meanwhile. A
//! copy replaces its page's place in one step, if the page is still at the old one.

use block::IoError;
use segments::Place;
use units::Cpu;

use crate::backed::{Backed, StoredAt};
use crate::clean::Clean;
use crate::log::PageLog;
use crate::run::Run;

/// Whoever knows where pages are. Any number of threads may call every method at once.
pub trait Places {
    /// The place and form of page `index` if it is in the log. `index` may be any number.
    fn backed_at(&self, index: usize) -> Option<Backed>;

    /// Lets a page that is at `old` be at `new`, where it was copied, and frees `old` in the log.
    /// Returns false if it is not at `old` any more; nothing has changed then.
    fn move_backed(&self, cpu: Cpu, index: usize, old: Backed, new: Backed) -> bool;
}

/// A log, and whoever knows where its pages are.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) log: &'a PageLog,
    pub(crate) places: &'a dyn Places,
}

impl Named<'_> {
    /// [`Backing::write`](crate::Backing::write) of a log.
    pub(crate) fn write(
        self,
        cpu: Cpu,
        run: &mut Run,
        now: u32,
        commit: &mut dyn FnMut(&mut Run),
    ) -> Result<(), IoError> {
        // The first failure closes a segment, which can be cleaned then.
        let mut seen = None;
        loop {
            self.make_room(cpu, run.stored_bytes(), now);
            let outcome = self.log.append(cpu, run, now);
            commit(run);
            self.log.committed(run);
            run.keep_unwritten();
            let progress = self.log.progress();
            if outcome != Err(IoError::NoSpace) || seen == Some(progress) {
                return outcome;
            }
            seen = Some(progress);
        }
    }

    /// Punches and cleans until objects of `bytes`, at most a segment, have room, or nothing is
    /// left to gain: a segment that is cleaned gains a part of it. Others may take the room first.
    fn make_room(self, cpu: Cpu, bytes: u32, now: u32) {
        while !self.log.has_room_for(bytes) {
            if !self.log.punch(cpu) && !self.clean(cpu, bytes, now) {
                return;
            }
        }
    }

    /// Cleans a segment, if that is needed. Returns false if none is worth it, or it could not be
    /// done.
    fn clean(self, cpu: Cpu, bytes: u32, now: u32) -> bool {
        let Named { log, places } = self;
        let mut cleaning = match log.clean(bytes, now) {
            Clean::This(cleaning) => cleaning,
            Clean::NotNeeded => return true,
            Clean::Nothing => return false,
        };
        let live = |index: usize, place: Place| {
            places.backed_at(index).filter(|now| now.at == StoredAt::in_log(place))
        };
        let commit = |run: &mut Run| {
            for entry in run.entries_mut() {
                let (Some(at), Some(new)) = (entry.old, entry.written()) else { continue };
                let old = Backed { at, form: entry.form };
                // Otherwise the page was replaced meanwhile.
                entry.is_named = places.move_backed(cpu, entry.index, old, new);
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
}
