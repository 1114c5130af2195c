//! A mapped device, suspended and resumed without the help of another program: a program that is
//! started may have to wait for memory.
//!
//! # Why unsafe
//! ioctl(2) with a structure of linux/dm-ioctl.h; the standard library has no such call.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// `struct dm_ioctl`.
#[repr(C)]
struct Call {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event: u32,
    padding: u32,
    device: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

const _: () = assert!(size_of::<Call>() == 312);

/// `DM_DEV_SUSPEND`, `_IOWR(0xfd, 6, struct dm_ioctl)`.
const SUSPEND: libc::c_ulong = 3 << 30 | (size_of::<Call>() as libc::c_ulong) << 16 | 0xfd << 8 | 6;
/// `DM_SUSPEND_FLAG`; without it the call resumes.
const SUSPENDS: u32 = 1 << 1;
/// `DM_SKIP_LOCKFS_FLAG` and `DM_NOFLUSH_FLAG`: neither waits for requests under way.
const AT_ONCE: u32 = 1 << 10 | 1 << 11;

/// A mapped device.
pub struct Mapped {
    control: File,
    name: [u8; 128],
}

impl Mapped {
    /// The device `name`. The later calls open nothing.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for a name that is too long.
    pub fn open(name: &str) -> io::Result<Mapped> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/mapper/control")?;
        let mut bytes = [0; 128];
        let place = bytes[..127].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
        place.copy_from_slice(name.as_bytes());
        Ok(Mapped { control, name: bytes })
    }

    /// Suspends it: requests to it wait. Or resumes it.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn suspend(&self, suspended: bool) -> io::Result<()> {
        let size = size_of::<Call>() as u32;
        let flags = if suspended { SUSPENDS | AT_ONCE } else { AT_ONCE };
        let mut call = Call {
            version: [4, 0, 0],
            data_size: size,
            data_start: size,
            target_count: 0,
            open_count: 0,
            flags,
            event: 0,
            padding: 0,
            device: 0,
            name: self.name,
            uuid: [0; 129],
            data: [0; 7],
        };
        // SAFETY: the structure is as the kernel declares it and lives through the call, which
        // writes within `data_size` bytes of it.
        let done = unsafe { libc::ioctl(self.control.as_raw_fd(), SUSPEND, &raw mut call) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
