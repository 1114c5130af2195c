//! Cleaning of a segment: what lives in it is written again elsewhere.

use block::{Context, IoError, Operation};
use segments::{BLOCK_BYTES, Found, NoVictim, Place, Victim};
use sync::MutexGuard;
use sync::atomic::Ordering;
use units::Cpu;

use crate::backed::{Backed, StoredAt};
use crate::log::{BLOCK, CleanMemory, PageLog, header_of, tag};
use crate::run::Run;

impl PageLog {
    /// Begins to clean the segment that is worth it most at the time `now`, to have room for
    /// `bytes`. If another thread cleans, waits for it.
    pub(crate) fn clean(&self, bytes: u32, now: u32) -> Clean<'_> {
        let memory = self.cleaning.lock();
        let mut account = self.account.lock();
        if account.has_room(bytes) {
            return Clean::NotNeeded;
        }
        match account.victim(now) {
            Ok(victim) => Clean::This(Cleaning { log: self, memory, victim }),
            Err(NoVictim::PunchFirst) => Clean::NotNeeded,
            Err(NoVictim::Busy | NoVictim::Nothing) => Clean::Nothing,
        }
    }
}

/// What there is to clean.
pub(crate) enum Clean<'a> {
    /// This segment.
    This(Cleaning<'a>),
    /// Others have made room, or it comes by punching.
    NotNeeded,
    /// No segment would gain enough.
    Nothing,
}

/// A segment that is being cleaned. It must go to [`Cleaning::end`] or [`Cleaning::give_up`].
pub(crate) struct Cleaning<'a> {
    log: &'a PageLog,
    memory: MutexGuard<'a, CleanMemory>,
    victim: Victim,
}

impl Cleaning<'_> {
    /// Reads the segment and writes what lives to another one. `live` tells whether a page is at a
    /// place, and the form that its slot has. `commit` gets objects that were copied: the place of
    /// each in its form is the old one.
    ///
    /// # Errors
    /// Some objects could not be written, and stay where they are.
    pub(crate) fn copy(
        &mut self,
        cpu: Cpu,
        live: impl Fn(usize, Place) -> Option<Backed>,
        commit: impl Fn(&mut Run),
    ) -> Result<(), IoError> {
        let Cleaning { log, memory, victim } = self;
        let CleanMemory { segment, survivors } = &mut **memory;
        survivors.clear();
        let bytes = victim.bytes();
        let blocks = ((bytes.end - bytes.start) as usize).next_multiple_of(BLOCK);
        let segment = &mut segment[..blocks];
        log.read_segment(cpu, bytes.start, segment);
        let used = &segment[..(bytes.end - bytes.start) as usize];
        let is_whole = |found: &Found<'_>| {
            let place = victim.place(found.offset);
            place.is_some_and(|it| found.header.tag == tag(StoredAt::in_log(it), found.object))
        };
        for found in segments::walk(used, victim.generation(), is_whole).flatten() {
            let Found { header, object, offset } = found;
            let Some(place) = victim.place(offset) else { continue };
            let index = header.key as usize;
            let Some(now) = live(index, place) else { continue };
            // What rotted stays where it is: its readers get the error.
            if header != header_of(index, now, header.generation, object) {
                continue;
            }
            if !survivors.has_room() {
                let written = log.write_survivors(cpu, survivors, victim);
                commit(survivors);
                log.committed(survivors);
                survivors.clear();
                written?;
            }
            survivors.page()[..object.len()].copy_from_slice(object);
            survivors.add_copy(index, now.form, Some(now.at));
        }
        let written = log.write_survivors(cpu, survivors, victim);
        commit(survivors);
        log.committed(survivors);
        written
    }

    /// All that was found is copied. What was not found stays until it is freed.
    pub(crate) fn end(self) {
        self.log.counts.cleaned.fetch_add(1, Ordering::Relaxed);
        self.log.account.lock().cleaned(self.victim);
    }

    /// The segment stays as it is.
    pub(crate) fn give_up(self) {
        self.log.account.lock().put_back(self.victim);
    }
}

impl PageLog {
    /// Reads blocks of a segment. Those that cannot be read are zeroes.
    fn read_segment(&self, cpu: Cpu, offset: u64, segment: &mut [u8]) {
        let context = Context::waiting(cpu);
        let read = Operation::Read { offset, into: &mut *segment };
        if self.device.perform(context, read).is_ok() {
            return;
        }
        for (n, block) in segment.chunks_mut(BLOCK).enumerate() {
            let offset = offset + n as u64 * u64::from(BLOCK_BYTES);
            let read = Operation::Read { offset, into: &mut *block };
            if self.device.perform(context, read).is_err() {
                block.fill(0);
            }
        }
    }

    fn write_survivors(&self, cpu: Cpu, run: &mut Run, of: &Victim) -> Result<(), IoError> {
        if run.entries().is_empty() {
            return Ok(());
        }
        let reserved = self.reserve(run, Some(of), 0);
        let bytes = u64::from(run.stored_bytes());
        self.write_reserved(cpu, run).and(reserved)?;
        self.counts.copied.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}
