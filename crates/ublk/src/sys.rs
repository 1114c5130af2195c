//! The system calls that the standard library does not offer, and the ring of the control device.
//!
//! # Why unsafe
//! mknod(2), eventfd(2) and ioctl(2) are calls of the C library. A command of the control device
//! names memory that the kernel reads and writes. This memory belongs to the ring, on the heap, and
//! is freed only after the end of the command is seen.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::wire::{Command, Info, Parameters};

/// The pause after the kernel had no memory.
const PAUSE: Duration = Duration::from_millis(1);

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Makes the node of a device, with access for its owner only.
pub(crate) fn make_node(path: &Path, block: bool, (major, minor): (u32, u32)) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let kind = if block { libc::S_IFBLK } else { libc::S_IFCHR };
    let device = libc::makedev(major, minor);
    // SAFETY: the path is a C string that lives through the call.
    checked(unsafe { libc::mknod(path.as_ptr(), kind | 0o600, device) }).map(drop)
}

/// `BLKPG` of linux/blkpg.h, `_IO(0x12, 105)`, and its operation `BLKPG_ADD_PARTITION`.
const BLKPG: libc::c_ulong = 0x1269;
const ADD_PARTITION: libc::c_int = 1;

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct PartitionCall {
    operation: libc::c_int,
    flags: libc::c_int,
    length: libc::c_int,
    data: *mut Partition,
}

/// `struct blkpg_partition`; the kernel ignores the names.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: libc::c_int,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// Makes the range `bytes` of a block device its partition `number`, counted from 1. It writes
/// nothing to the device.
pub(crate) fn add_partition(device: &File, number: u32, bytes: Range<u64>) -> io::Result<()> {
    let number = libc::c_int::try_from(number).map_err(io::Error::other)?;
    let start = i64::try_from(bytes.start).map_err(io::Error::other)?;
    let length = i64::try_from(bytes.end - bytes.start).map_err(io::Error::other)?;
    let (device_name, volume_name) = ([0; 64], [0; 64]);
    let mut partition = Partition { start, length, number, device_name, volume_name };
    let length = size_of::<Partition>() as libc::c_int;
    let call =
        PartitionCall { operation: ADD_PARTITION, flags: 0, length, data: &raw mut partition };
    // SAFETY: both structures are as the kernel declares them and live through the call.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKPG, &raw const call) }).map(drop)
}

/// Makes a wake-up for a thread: an eventfd, readable after a write to it. A read does not wait.
pub(crate) fn wake() -> io::Result<File> {
    // SAFETY: no pointers.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: it was just opened, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The data that a command of the control device reads or writes.
pub(crate) enum Argument<'a> {
    None,
    Info(&'a mut Info),
    Parameters(&'a mut Parameters),
}

/// A copy of an [`Argument`] at a fixed address.
#[repr(C)]
union Place {
    info: Info,
    parameters: Parameters,
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
        };
        // From here to the end of the command, the kernel may use the memory.
        let place = place.map(|place| Box::into_raw(Box::new(place)));
        if let Some(place) = place {
            command.address = place as u64;
            command.length = size_of::<Place>() as u16;
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
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => sleep(PAUSE),
                    _ => return Err(error),
                }
            }
        }
    }
}
