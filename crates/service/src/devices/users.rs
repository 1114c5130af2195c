//! Who uses a device. What the kernel says decides: who has the block device claimed or open, and
//! what FUSE counts for the file. The names of users are for messages alone. They come from lists
//! of processes and mounts, which take long to read and hold what other users put there.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use control::{ControlError, Errno};
use fuse::Hold;
use host::swaps;
use zram::Disk;

use super::Devices;
use super::change::Change;
use super::refusal::{Refusal, in_use};
use super::saved::refuse_snapshot;
use super::swapped::is_swap;
use super::way::Way;
use crate::loops::{LOOKING, PAUSE};
use crate::mounts::stands_on;

impl Devices {
    /// Calls `attempt`, and again for a while as long as a program has the device open: one such as
    /// udev, which looks at a change; and again once it is written back, for as long as that takes.
    /// Between the tries others have their turn.
    pub(super) fn when_closed(
        &self,
        attempt: impl Fn(&Change<'_>) -> Result<(), Refusal>,
    ) -> Result<(), ControlError> {
        let (mut end, mut pause) = (Instant::now() + LOOKING, PAUSE);
        loop {
            let done = {
                let lifecycle = self.change();
                lifecycle.check()?;
                attempt(&lifecycle)
            };
            match done {
                Err(Refusal::Processed(disk)) => {
                    disk.wait_until_processed();
                    (end, pause) = (Instant::now() + LOOKING, PAUSE);
                }
                Err(Refusal::InUse(.., Hold::Open)) if Instant::now() < end => {
                    thread::sleep(pause);
                    pause *= 2;
                }
                done => return done.map_err(ControlError::from),
            }
        }
    }

    /// The clients of a device now, by NBD and vhost-user. No other frontend counts as its user.
    pub(super) fn clients(&self, disk: &Disk) -> u64 {
        u64::from(disk.openers())
    }

    /// `EBUSY` while clients are connected. With `force` they are disconnected first.
    pub(super) fn refuse_clients(&self, disk: &Disk, force: bool) -> Result<(), ControlError> {
        let server = self.nbd.lock().server.clone();
        if let (true, Some(server)) = (force && self.clients(disk) > 0, server) {
            server.disconnect(&disk.name());
        }
        if force {
            self.vhosts.disconnect(disk.id());
        }
        match self.clients(disk) {
            0 if force => Ok(()),
            0 => refuse_snapshot(disk),
            clients => {
                let message = format!(
                    "{} is in use: {clients} NBD client(s) or virtual machines are connected to \
                     it; let them disconnect first, or use --force",
                    disk.name()
                );
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }

    /// Refuses a device whose reset, or other size, would wait. Who has it is told at once, unless
    /// `force` is given.
    pub(super) fn refuse_processed(&self, disk: &Arc<Disk>, force: bool) -> Result<(), Refusal> {
        if !disk.is_processed()? {
            return Ok(());
        }
        let way = self.way(disk.id());
        Err(match way.filter(|it| !force && (it.is_open() || stands_on(it.place()))) {
            Some(it) => Refusal::InUse(disk.name(), Box::new(it), Hold::Claimed),
            None => Refusal::Processed(disk.clone()),
        })
    }

    /// # Errors
    /// `ENODEV` if no device may come any more.
    pub(crate) fn check_going(&self) -> Result<(), ControlError> {
        self.lifecycle.lock().check()
    }

    /// Is there no device, and none on its way? No device may come any more then.
    pub(crate) fn end_if_empty(&self) -> bool {
        let Some(mut lifecycle) = self.lifecycle.try_lock() else { return false };
        lifecycle.stopping |= self.numbers().is_empty();
        lifecycle.stopping
    }

    /// Allows new devices again, when what [`Devices::end_if_empty`] began has failed.
    pub(crate) fn start_again(&self) {
        // Whoever has the lock was let in, or is just being refused: then this is tried again.
        if let Some(mut lifecycle) = self.lifecycle.try_lock() {
            lifecycle.stopping = false;
        }
    }

    /// Checks that no device is in use, by what can be told without taking it away: a
    /// program that only reads or writes a block device is not told.
    ///
    /// # Errors
    /// `EBUSY`; the message names every user.
    pub fn check_unused(&self) -> Result<(), ControlError> {
        let user =
            |disk: &Arc<Disk>| self.refuse_clients(disk, false).err().or(self.busy(disk.id()));
        let disks = self.machine.disks();
        let refused = self.machine.refused();
        let of_refused = refused.iter().filter_map(|it| self.busy(it.saved.id));
        refuse(disks.iter().filter_map(user).chain(of_refused).collect())
    }

    /// As [`Devices::check_unused`], for one device.
    ///
    /// # Errors
    /// `EBUSY`; `ENODEV` if there is none.
    pub fn check_one_unused(&self, name: &str) -> Result<(), ControlError> {
        self.let_clients_go(name, false)?;
        let disk = self.disk(name)?;
        self.refuse_clients(&disk, false)?;
        self.busy(disk.id()).map_or(Ok(()), Err)
    }

    /// Has a program the file of device `name` open?
    pub(crate) fn is_file_open(&self, name: &str) -> bool {
        let Ok(disk) = self.disk(name) else { return false };
        self.way(disk.id()).and_then(Way::file).is_some_and(|it| it.has_users())
    }

    /// Checks that no program uses a file or a loop device of a device. Clients of NBD connect
    /// again, and block devices by ublk outlive the program.
    ///
    /// # Errors
    /// `EBUSY`; the message names every user.
    pub fn check_handed_over(&self) -> Result<(), ControlError> {
        self.lifecycle.lock().check()?;
        let disks = self.machine.disks();
        disks.iter().try_for_each(|disk| refuse_snapshot(disk))?;
        // Also one that could not be taken over: its users wait for the next program.
        let is_by_driver =
            |disk: &&Arc<Disk>| self.ublk(disk.id()).is_some() || self.left(disk.id()).is_some();
        let others = disks.iter().filter(|disk| !is_by_driver(disk));
        refuse(others.filter_map(|disk| self.busy(disk.id())).collect()).map_err(|error| {
            let message =
                format!("{}; block devices and files end with the program", error.message);
            ControlError::new(error.errno, message)
        })
    }

    /// The error that names the users of device `id` besides NBD clients; `None` without users.
    fn busy(&self, id: u32) -> Option<ControlError> {
        if let Some(busy) = self.left_busy(id) {
            return Some(busy);
        }
        let way = self.way(id)?;
        match way.users() {
            Ok(users) if users.is_empty() => None,
            Ok(users) => Some(in_use(&format!("zram{id}"), way.place(), &users)),
            Err(error) => Some(error),
        }
    }

    /// How many devices are in use, by the lists of the system: mounted, swapped to,
    /// below another device, open as a file, or with a client. Anybody may ask: it waits for
    /// nothing and takes nothing. A program that has a block device open is not told there.
    #[must_use]
    pub fn count_used(&self) -> usize {
        let swaps = swaps::all();
        let is_used = |disk: &&Arc<Disk>| {
            let is_used = |way: Way| {
                let place = way.place();
                way.is_open() || stands_on(place) || is_swap(&swaps, &disk.name(), place)
            };
            self.clients(disk) > 0 || self.way(disk.id()).is_some_and(is_used)
        };
        self.machine.disks().iter().filter(is_used).count()
    }
}

/// # Errors
/// `EBUSY` if there are `faults`.
fn refuse(faults: Vec<ControlError>) -> Result<(), ControlError> {
    let faults: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ControlError::new(Errno::EBUSY, faults.join("; "))),
    }
}
