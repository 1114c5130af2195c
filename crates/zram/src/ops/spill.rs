//! A page for which there is no room goes to the backing device at once: see
//! [`WhenFull::Spill`](crate::WhenFull::Spill).

use block::IoError;
use pagelog::{Coded, Run};
use units::{Cpu, Page};

use crate::counts::Count;
use crate::disk::Disk;
use crate::path::Stopped;

impl Disk {
    /// Writes a page for which there is no room to the backing device, at once. The calling thread
    /// may wait and is no reader.
    ///
    /// # Errors
    /// `NoSpace` without a backing device, if it is full or its limit is used up; the device's own
    /// error if it fails; `OutOfRange` and `NotReady` if the device was changed meanwhile. The page
    /// has its old contents then.
    #[cold]
    pub(crate) fn spill(&self, stopped: &Stopped, cpu: Cpu, page: &Page) -> Result<(), IoError> {
        if stopped.engine.backing().is_none() {
            return Err(IoError::NoSpace);
        }
        let (granted, charged) = self.spend(1);
        if granted == 0 {
            return Err(IoError::NoSpace);
        }
        let refund = || {
            if charged {
                self.refund(1)
            }
        };
        let written = self.write_alone(stopped, cpu, page);
        written.inspect_err(|_| refund())?;
        self.counts.add(cpu, Count::WritebackWrites, 1);
        Ok(())
    }

    /// Writes a page as it is, and lets its slot name the place. If it were compressed, its codec
    /// would have to stay until then.
    fn write_alone(&self, stopped: &Stopped, cpu: Cpu, page: &Page) -> Result<(), IoError> {
        let Stopped { engine, base, page: index, .. } = stopped;
        let backing = engine.backing().ok_or(IoError::NoSpace)?;
        let mut run = backing.run(1, None).map_err(|_| IoError::NoMemory)?;
        *run.page() = *page;
        run.add(base + *index as usize, Coded::NOT);
        let mut stored = Err(IoError::Failed);
        let mut commit = |run: &mut Run| {
            for entry in run.entries_mut() {
                let Some(place) = entry.written() else { continue };
                stored = self.begin_with(engine, cpu, *index, |request| {
                    request.engine.store_backed(request.by(), request.slot(*index), place);
                    Ok(())
                });
                entry.is_named = stored.is_ok();
            }
        };
        backing.write(&**engine, cpu, &mut run, self.now(), &mut commit)?;
        stored
    }
}
