//! What recovery needs of the engine: slots that are judged one by one, and codecs that come back
//! under their numbers.

use alloc::{format, string::String};

use control::{ControlError, Errno};
use sync::Reader;
use units::Cpu;
use zcomp::{CODECS, Chosen, PRIORITIES};

use super::Engine;
use crate::record::Record;
use crate::resources::{Design, Resources};
use crate::slot::Slot;
use crate::slots::SlotTable;

/// The codecs of a device that came back.
pub(crate) struct Restored {
    /// A bit for each number that is a codec's.
    pub(crate) numbers: u32,
    /// The codec of each priority.
    pub(crate) current: [Option<Chosen>; PRIORITIES],
}

impl<D: Design> Engine<D> {
    /// Puts the codecs of a record back under their numbers. Passes what is damaged to `finding`.
    ///
    /// # Errors
    /// `ENOTSUP` for a codec that this program does not have, `EINVAL` if what was kept of a codec
    /// in use is damaged, `ENOMEM` without memory for streams.
    pub(crate) fn restore_codecs(
        &self,
        resources: &Resources,
        record: &Record,
        mut finding: impl FnMut(String),
    ) -> Result<Restored, ControlError> {
        let mut restored = Restored { numbers: 0, current: [const { None }; PRIORITIES] };
        for number in 0..CODECS as u8 {
            let priority = (0..PRIORITIES).find(|at| record.current(*at) == Some(number));
            let kept = match record.codec(number) {
                Ok(Some(kept)) => kept,
                Ok(None) => continue,
                Err(why) if priority.is_some() => return Err(ControlError::invalid(why)),
                Err(why) => {
                    finding(why);
                    continue;
                }
            };
            let compressor = resources.codec(&kept.name, &kept.params).map_err(|error| {
                let message = format!("pages are compressed by codec {number}: {}", error.message);
                ControlError::new(Errno::ENOTSUP, message)
            })?;
            let chosen = Chosen { compressor, params: kept.params };
            let current = priority == Some(usize::from(kept.priority));
            let codecs = self.objects.codecs();
            codecs
                .restore(number, kept.priority, chosen.clone(), current)
                .map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
            restored.numbers |= 1 << number;
            if let Some(place) = priority.filter(|_| current) {
                restored.current[place] = Some(chosen);
            }
        }
        match &restored.current[0] {
            Some(_) => Ok(restored),
            None => Err(ControlError::invalid("nothing was kept of its primary codec (K7)")),
        }
    }

    /// The numbers of the codecs that are there, one bit for each.
    pub(crate) fn codecs_there(&self, reader: &Reader<'_>) -> u32 {
        let there = (0..CODECS as u8).filter(|n| self.objects.codecs().get(reader, *n).is_some());
        there.fold(0, |all, number| all | 1 << number)
    }

    /// Replaces the slot that a dead process left by what `judge` makes of it, and counts the page.
    /// Nobody else uses the page.
    pub(crate) fn recover_page(&self, cpu: Cpu, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        let mut right = Slot::EMPTY;
        self.slots.repair(index, |slot| {
            right = judge(slot);
            right
        });
        self.account(cpu, Slot::EMPTY, right);
    }

    /// Gives up what a slot names: recovery found out too late that it cannot be right.
    pub(crate) fn lose_page(&self, cpu: Cpu, index: usize) {
        if let Ok(was) = self.slots.update(index, |_| Some(Slot::LOST)) {
            self.account(cpu, was, Slot::LOST);
        }
    }
}
