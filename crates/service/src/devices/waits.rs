//! Waits for who uses a device, and the end by force of devices whose I/O hangs.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::errno;
use sync::MutexGuard;

use super::Devices;
use super::attached::Attachment;
use super::change::Lifecycle;
use super::hanging::{Waits, hangs};
use super::refusal::in_use;

/// How long an end by force waits for I/O that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client of NBD that has closed its socket, or was killed, may still have its device.
const LEAVING: Duration = Duration::from_secs(1);

impl Devices {
    /// Notes that disk `id` gets what the kernel has not written yet.
    pub(crate) fn note_flushed(&self, id: u32) {
        self.waits.note_flushed(id);
    }

    /// Waits a moment for clients of device `name`, without `force`: those that have just gone
    /// have it no longer then. Nothing is locked meanwhile.
    ///
    /// # Errors
    /// As [`Devices::refuse_held`].
    pub(super) fn let_clients_go(&self, name: &str, force: bool) -> Result<(), ControlError> {
        if force {
            return Ok(());
        }
        if let Ok(disk) = self.disk(name) {
            self.settle(Some(&disk.name()));
        }
        let last = name.rsplit('/').next().unwrap_or(name);
        self.refuse_held(|id| last == format!("zram{id}"))
    }

    /// Waits a moment for the clients of all devices.
    pub(crate) fn let_all_clients_go(&self) {
        self.settle(None);
    }

    /// Checks that no process has had the file of a device open since a daemon before. This looks
    /// at all processes, so it comes before the lock that others wait for.
    ///
    /// # Errors
    /// `EBUSY` with its users.
    pub(super) fn refuse_held(&self, which: impl Fn(u32) -> bool) -> Result<(), ControlError> {
        let attached: Vec<(u32, Attachment)> = {
            let all = self.ways.lock();
            let those = all.iter().filter(|(id, _)| which(**id));
            those.filter_map(|(id, way)| Some((*id, way.clone().file()?))).collect()
        };
        let held = attached.iter().find(|(_, attached)| attached.is_held_since_before());
        held.map_or(Ok(()), |(id, it)| Err(in_use(&format!("zram{id}"), it.place(), &it.names())))
    }

    fn settle(&self, name: Option<&str>) {
        let server = self.nbd.lock().server.clone();
        if let Some(server) = server {
            server.settle(name, LEAVING);
        }
        self.vhosts.settle(name, LEAVING);
    }

    /// Lets what is done by force end although I/O of a device hangs: unless the returned value is
    /// dropped before, all requests to the files of the devices fail once nothing was written for
    /// [`PATIENCE`] to the disk that is unmounted or detached, and with them those to the block
    /// devices.
    #[must_use]
    pub fn end_waits(&self) -> EndOfWaits {
        let (done, is_done) = channel();
        let cut_off = self.cut_off.lock().clone();
        let (waits, machine) = (self.waits.clone(), Arc::downgrade(&self.machine));
        let written = move |waits: &Waits| {
            let id = waits.flushed()?;
            Some((id, machine.upgrade()?.disk(id)?.stats().num_writes))
        };
        let cut = move || {
            if hangs(&is_done, PATIENCE, || written(&waits))
                && let Some(cut_off) = cut_off
            {
                waits.note_cut();
                tracing::warn!(
                    "I/O of a device hangs: its requests fail from now on, and what was not \
                     written is lost"
                );
                cut_off.cut();
            }
        };
        // Without this thread a wait for I/O that hangs has no end, as without force.
        let _ = thread::Builder::new().name("end-of-waits".into()).spawn(cut);
        EndOfWaits(done)
    }

    /// Locks the lifecycle for an end by force: another request may hold it, in a wait for I/O that
    /// hangs.
    ///
    /// # Errors
    /// `ETIMEDOUT` when it is still held after its waits were ended.
    pub(super) fn lock_by_force(&self) -> Result<MutexGuard<'_, Lifecycle>, ControlError> {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            if let Some(lifecycle) = self.lifecycle.try_lock() {
                return Ok(lifecycle);
            }
            if Instant::now() > end {
                let message = format!(
                    "another request changes a device and does not end, because I/O hangs; nothing \
                     was taken down; kill process {} to end it",
                    std::process::id()
                );
                return Err(ControlError::new(Errno(errno::ETIMEDOUT), message));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The end of all waits, until it is dropped: see [`Devices::end_waits`].
pub struct EndOfWaits(#[expect(dead_code, reason = "its drop ends the thread")] Sender<()>);
