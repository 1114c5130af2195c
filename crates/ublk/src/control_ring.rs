//! The ring of the control device.
//!
//! # Why unsafe
//! A command of the control device names memory that the kernel reads and writes. This memory
//! belongs to the ring, on the heap, and is freed only after the end of the command is seen.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

use host::errno;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::wire::{Command, Info, Parameters};

/// The pause after the kernel had no memory.
const PAUSE: Duration = Duration::from_millis(1);

/// The data that a command of the control device reads or writes.
pub(crate) enum Argument<'a> {
    None,
    Info(&'a mut Info),
    Parameters(&'a mut Parameters),
    /// The driver wants the length of just this.
    Features(&'a mut u64),
}

/// A copy of an [`Argument`] at a fixed address.
#[repr(C)]
union Place {
    info: Info,
    parameters: Parameters,
    features: u64,
}

/// A ring for commands of the control device, one at a time.
pub(crate) struct ControlRing {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    /// The number of commands so far; each command is identified by its number.
    commands: u64,
}

impl ControlRing {
    /// A ring for the control device, which is open as `file`.
    pub(crate) fn new(file: File) -> io::Result<ControlRing> {
        let uring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().dontfork().build(2)?;
        Ok(ControlRing { uring, file, commands: 0 })
    }

    /// Runs the command `what` in the driver and waits for its end, for any time.
    pub(crate) fn run(
        &mut self,
        what: u32,
        mut command: Command,
        with: Argument<'_>,
    ) -> io::Result<()> {
        let place = match &with {
            Argument::None => None,
            Argument::Info(info) => Some(Place { info: **info }),
            Argument::Parameters(parameters) => Some(Place { parameters: **parameters }),
            Argument::Features(features) => Some(Place { features: **features }),
        };
        // From here to the end of the command, the kernel may use the memory.
        let place = place.map(|place| Box::into_raw(Box::new(place)));
        if let Some(place) = place {
            command.address = place as u64;
            command.length = match &with {
                Argument::Features(features) => size_of_val(*features),
                _ => size_of::<Place>(),
            } as u16;
        }
        let control = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(control, what).cmd(command.bytes()).build();
        self.commands += 1;
        let entry = entry.user_data(self.commands);
        // SAFETY: the memory that the entry names lives until the command has ended: it was leaked
        // above. The file is open as long as the ring.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        // No other command is under way.
        pushed.map_err(io::Error::other)?;
        let result = self.ended()?;
        if let Some(place) = place {
            // SAFETY: it was made above from a box, and the command that names it has ended.
            let place = unsafe { Box::from_raw(place) };
            match with {
                Argument::None => {}
                // SAFETY: this field was initialised above. The kernel writes integers, and every
                // value of them is valid.
                Argument::Info(info) => *info = unsafe { place.info },
                // SAFETY: as above.
                Argument::Parameters(parameters) => *parameters = unsafe { place.parameters },
                // SAFETY: as above.
                Argument::Features(features) => *features = unsafe { place.features },
            }
        }
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// Waits for the end of the command under way.
    fn ended(&mut self) -> io::Result<i32> {
        loop {
            let waited = self.uring.submit_and_wait(1);
            // A command that was abandoned may end later.
            let commands = self.commands;
            if let Some(entry) = self.uring.completion().find(|entry| entry.user_data() == commands)
            {
                return Ok(entry.result());
            }
            if let Err(error) = waited {
                match error.raw_os_error() {
                    Some(errno::EINTR) => {}
                    Some(errno::EAGAIN | errno::EBUSY | errno::ENOMEM) => sleep(PAUSE),
                    _ => return Err(error),
                }
            }
        }
    }
}
