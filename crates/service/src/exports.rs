//! Devices as NBD exports.

use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use nbd::{ExportInfo, Exports, OpenError};
use sync::Mutex;
use units::{Cpu, human};
use zram::{Disk, Opener};

use crate::engine::Machine;
use crate::latency::Timed;
use crate::state::State;

/// Whether new clients get devices. While devices are taken away they do not: who looked for
/// clients has seen all of them.
pub struct Admission {
    /// What is taken away: a device, by its number, or all of them. It may be there several times.
    closed: Mutex<Vec<Option<u32>>>,
}

/// No client gets a device, or that one device, until this is dropped.
pub struct Closed<'a>(&'a Admission, Option<u32>);

impl Admission {
    /// Clients get devices.
    #[must_use]
    pub fn open() -> Admission {
        Admission { closed: Mutex::new(Vec::new()) }
    }

    /// Refuses new clients. Those that have a device keep it, and can be seen.
    pub fn close(&self) -> Closed<'_> {
        self.close_to(None)
    }

    /// As [`Admission::close`], for the device of this number alone.
    pub fn close_one(&self, disk: u32) -> Closed<'_> {
        self.close_to(Some(disk))
    }

    fn close_to(&self, what: Option<u32>) -> Closed<'_> {
        self.closed.lock().push(what);
        Closed(self, what)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut closed = self.0.closed.lock();
        let at = closed.iter().position(|it| *it == self.1);
        at.map(|at| closed.swap_remove(at));
    }
}

/// Every device of a machine, by its name. A connected client is a user of its device: the device
/// cannot be reset or removed meanwhile.
pub struct DiskExports {
    machine: Arc<Machine>,
    read_only: bool,
    /// Where the devices outlive the daemon.
    state: Option<Arc<State>>,
    admission: Arc<Admission>,
}

impl DiskExports {
    /// The devices of `machine`, as they come and go; with `read_only` clients cannot change them.
    /// If the devices outlive the daemon, in `state`, clients have to wait for a device until what
    /// they write will outlive it, too.
    #[must_use]
    pub fn new(machine: Arc<Machine>, read_only: bool, state: Option<Arc<State>>) -> DiskExports {
        DiskExports { machine, read_only, state, admission: Arc::new(Admission::open()) }
    }

    /// The same, for clients that get in by `admission`.
    #[must_use]
    pub fn by(self, admission: Arc<Admission>) -> DiskExports {
        DiskExports { admission, ..self }
    }

    /// Makes a client a user of `disk`.
    fn admit(&self, disk: &Arc<Disk>) -> Result<Opener, OpenError> {
        let closed = self.admission.closed.lock();
        if closed.iter().any(|it| it.is_none_or(|id| id == disk.id())) {
            let message = format!("{} is just being taken away", disk.name());
            return Err(OpenError::Refused(message));
        }
        Ok(disk.open())
    }
}

/// A layer that refuses changes; others that have the device may change it.
struct ReadOnly<D>(D);

impl<D: BlockDevice> BlockDevice for ReadOnly<D> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: true, ..self.0.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { .. } | Operation::Flush => self.0.perform(context, operation),
            _ => Err(IoError::ReadOnly),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}

impl Exports for DiskExports {
    fn list(&self) -> Vec<ExportInfo> {
        let info = |disk: &Arc<Disk>| {
            let description = match disk.bytes() {
                0 => "compressed RAM disk without a size".to_string(),
                bytes => format!("compressed RAM disk of {}", human(bytes)),
            };
            ExportInfo { name: disk.name(), description }
        };
        self.machine.disks().iter().map(info).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let disks = self.machine.disks();
        let disk = disks.iter().find(|disk| disk.name() == name).ok_or(OpenError::Unknown)?;
        let user = self.admit(disk)?;
        // Checked after the open: a device with a user cannot lose its size.
        if user.bytes() == 0 {
            let message = format!("{name} has no size yet: rampack set {name} disksize=SIZE");
            return Err(OpenError::Refused(message));
        }
        if self.state.as_ref().is_some_and(|state| !state.has(disk)) {
            return Err(OpenError::Refused(format!("{name} is just getting its size; try again")));
        }
        let user = Timed::new(name, user);
        if self.read_only { Ok(Arc::new(ReadOnly(user))) } else { Ok(Arc::new(user)) }
    }
}
