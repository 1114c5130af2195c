//! The devices at the end of a road. Another process can make them as well, by their names.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use block::layer::{Fault, FaultPlan};
use block::{Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Plain, Visit};
use units::{Cpu, PAGE_SIZE};

use crate::controls::{Budget, WhenFull};

const P: u64 = PAGE_SIZE as u64;
/// A read that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pages where reads wait, where a write lets them go, and where reads panic.
pub(super) const WAITING: u64 = 9;
pub(super) const LETS_GO: u64 = 10;
pub(super) const PANICS: u64 = 11;

/// What a device is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It does all as it should.
    Plain,
    /// Whatever begins in every other page would have to wait.
    Hesitant,
    /// It can hold a quarter of its bytes.
    Full,
    /// It shows what was flushed.
    Deferring,
    /// A fifth of its reads and changes fails.
    Faulty,
    /// A read of page 11 panics.
    Panicking,
    /// A read of page 9 waits until page 10 was written.
    Waiting,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Plain,
        Kind::Hesitant,
        Kind::Full,
        Kind::Deferring,
        Kind::Faulty,
        Kind::Panicking,
        Kind::Waiting,
    ];

    /// Such a device of so many bytes.
    #[must_use]
    pub fn of(self, bytes: u64) -> Subject {
        Subject { kind: self, bytes }
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name)
    }
}

/// A device that a road leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject {
    /// What it is for.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
}

impl Subject {
    /// Makes the device.
    #[must_use]
    pub fn device(self) -> Arc<dyn BlockDevice> {
        let plain = || Plain::new(self.bytes as usize);
        match self.kind {
            Kind::Plain => Arc::new(Checked::new(plain())),
            Kind::Full => Arc::new(Checked::new(Budget::new(self.bytes, WhenFull::KeepsOld))),
            Kind::Faulty => {
                let plan = FaultPlan {
                    seed: 7,
                    reads_per_million: 200_000,
                    changes_per_million: 200_000,
                    flushes_per_million: 0,
                };
                Arc::new(Checked::new(Fault::new(plain(), plan)))
            }
            kind => {
                let (may_go, changed) = (Mutex::new(false), Condvar::new());
                let odd = Odd { kind, shown: plain(), written: plain(), may_go, changed };
                Arc::new(Checked::new(odd))
            }
        }
    }
}

/// A device that defers, hesitates, panics or waits.
struct Odd {
    kind: Kind,
    shown: Plain,
    /// What a device that defers was asked to write.
    written: Plain,
    may_go: Mutex<bool>,
    changed: Condvar,
}

impl Odd {
    fn flush(&self, cpu: Cpu) -> Result<(), IoError> {
        let mut all = vec![0; self.written.geometry().bytes as usize];
        self.written.submit(cpu, Operation::Read { offset: 0, into: &mut all })?;
        self.shown.submit(cpu, Operation::Write { offset: 0, from: &all })
    }

    fn wait(&self, context: Context) -> Result<(), IoError> {
        let may_go = self.may_go.lock().unwrap_or_else(PoisonError::into_inner);
        if !*may_go {
            context.may_wait()?;
        }
        let waited = self.changed.wait_timeout_while(may_go, PATIENCE, |may_go| !*may_go);
        let has_waited_long = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        if has_waited_long { Err(IoError::Failed) } else { Ok(()) }
    }
}

impl BlockDevice for Odd {
    fn geometry(&self) -> Geometry {
        self.shown.geometry()
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: self.kind == Kind::Deferring, ..self.shown.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let at = |page| operation.range().0 / P == page;
        match self.kind {
            Kind::Deferring if operation.changes() => self.written.perform(context, operation),
            Kind::Deferring if matches!(operation, Operation::Flush) => self.flush(context.cpu),
            Kind::Waiting if at(WAITING) && !operation.changes() => {
                self.wait(context)?;
                self.shown.perform(context, operation)
            }
            Kind::Waiting if at(LETS_GO) && operation.changes() => {
                *self.may_go.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.changed.notify_all();
                self.shown.perform(context, operation)
            }
            Kind::Hesitant if !(operation.range().0 / P).is_multiple_of(2) => {
                context.may_wait()?;
                self.shown.perform(context, operation)
            }
            kind => {
                let panics = kind == Kind::Panicking && at(PANICS) && !operation.changes();
                assert!(!panics, "this is part of the test");
                self.shown.perform(context, operation)
            }
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.shown.extents(cpu, offset, length, visit)
    }
}
