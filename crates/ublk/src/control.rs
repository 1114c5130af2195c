//! The driver's control device: it adds, starts, stops and deletes devices.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::time::Duration;

use host::errno;

use crate::Error;
use crate::control_ring::{Argument, ControlRing};
use crate::wire::{self, Command, Info, Parameters};

const CONTROL: &str = "/dev/ublk-control";
/// A device number that is never in use.
const NOBODY: u32 = i32::MAX as u32;

/// The control device, for one thread at a time.
pub(crate) struct Control {
    ring: ControlRing,
    /// The flags of a device that the driver knows; 0 if it does not tell.
    pub(crate) features: u64,
}

/// Checks whether this process can make ublk devices. Any thread may call it.
///
/// # Errors
/// [`Error`] names the missing thing: the driver, a driver that is new enough, the permission, or
/// io_uring.
pub fn available() -> Result<(), Error> {
    Control::open().map(drop)
}

impl Control {
    /// Opens the control device and checks that the driver knows the commands.
    pub(crate) fn open() -> Result<Control, Error> {
        let file = open_file()?;
        let ring = ControlRing::new(file).map_err(|error| match error.raw_os_error() {
            // Entries of 128 bytes came with Linux 5.19, before the driver.
            Some(errno::EINVAL) => Error::TooOld,
            Some(errno::ENOSYS | errno::EPERM | errno::EACCES) => Error::NoUring(error),
            _ => Error::system("make a ring for the ublk driver")(error),
        })?;
        let mut control = Control { ring, features: 0 };
        let asked = control.info(NOBODY).map(drop).map_err(|error| error.raw_os_error());
        match asked {
            Ok(()) | Err(Some(errno::ENODEV)) => {
                control.features = control.ask().unwrap_or(0);
                Ok(control)
            }
            Err(Some(errno::EPERM | errno::EACCES)) => Err(Error::NoPermission),
            Err(_) => Err(Error::TooOld),
        }
    }

    fn run(&mut self, what: u32, device: u32, data: u64, with: Argument<'_>) -> io::Result<()> {
        self.ring.run(what, Command::new(device, data), with)
    }

    fn ask(&mut self) -> io::Result<u64> {
        let mut features = 0;
        self.run(wire::GET_FEATURES, NOBODY, 0, Argument::Features(&mut features))?;
        Ok(features)
    }

    /// Adds a device; `info` then holds its values.
    pub(crate) fn add(&mut self, info: &mut Info) -> io::Result<()> {
        self.run(wire::ADD, info.number, 0, Argument::Info(info))
    }

    /// The driver's information on device `number`.
    pub(crate) fn info(&mut self, number: u32) -> io::Result<Info> {
        let mut info = Info::default();
        self.run(wire::GET_INFO, number, 0, Argument::Info(&mut info))?;
        Ok(info)
    }

    /// Sets the parameters; called after `add` and before `start`.
    pub(crate) fn set(&mut self, number: u32, mut parameters: Parameters) -> io::Result<()> {
        self.run(wire::SET_PARAMETERS, number, 0, Argument::Parameters(&mut parameters))
    }

    /// Waits until all queues are served, and makes the block device. The kernel reads from the
    /// device meanwhile.
    pub(crate) fn start(&mut self, number: u32) -> io::Result<()> {
        self.run(wire::START, number, u64::from(std::process::id()), Argument::None)
    }

    /// Makes device `number`, whose server died, ready to be opened and served anew. EBUSY until
    /// the kernel has noticed the death and closed the files of the dead process.
    pub(crate) fn begin_recovery(&mut self, number: u32) -> io::Result<()> {
        self.run(wire::BEGIN_RECOVERY, number, 0, Argument::None)
    }

    /// Waits until all queues are served, and lets the requests go on.
    pub(crate) fn end_recovery(&mut self, number: u32) -> io::Result<()> {
        self.run(wire::END_RECOVERY, number, u64::from(std::process::id()), Argument::None)
    }

    /// Changes the size of the block device, in bytes.
    pub(crate) fn resize(&mut self, number: u32, bytes: u64) -> io::Result<()> {
        self.run(wire::UPDATE_SIZE, number, bytes >> wire::SECTOR_SHIFT, Argument::None)
    }

    /// Has the driver keep what comes from now on, and end the commands that wait. Those that are
    /// given later end with another call. EBUSY if each request of a queue is under way for `most`.
    pub(crate) fn quiesce(&mut self, number: u32, most: Duration) -> io::Result<()> {
        // 0 would be for any time.
        let most = most.as_millis().max(1) as u64;
        self.run(wire::QUIESCE, number, most, Argument::None)
    }

    /// Removes the block device and ends the commands that wait for requests.
    pub(crate) fn stop(&mut self, number: u32) -> io::Result<()> {
        self.run(wire::STOP, number, 0, Argument::None)
    }

    /// Deletes it without waiting (Linux 6.7). Its number becomes free at the last close.
    pub(crate) fn delete_later(&mut self, number: u32) -> io::Result<()> {
        gone(self.run(wire::DELETE_LATER, number, 0, Argument::None))
    }

    /// Deletes it, also with an older driver. It may wait for the last close, so this process must
    /// not have the device open.
    pub(crate) fn delete(&mut self, number: u32) -> io::Result<()> {
        let deleted = self.delete_later(number);
        deleted.or_else(|_| gone(self.run(wire::DELETE, number, 0, Argument::None)))
    }
}

/// A device that does not exist counts as deleted.
fn gone(answer: io::Result<()>) -> io::Result<()> {
    match answer {
        Err(error) if error.raw_os_error() == Some(errno::ENODEV) => Ok(()),
        answer => answer,
    }
}

fn open_file() -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Error::NoPermission,
        _ => Error::NoDriver(error),
    })
}
