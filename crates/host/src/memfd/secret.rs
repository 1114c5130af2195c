//! A key that outlives the process, in memory that only those see who have its descriptor mapped.
//!
//! memfd_secret(2) (Linux 5.14) makes a file whose pages are locked, in no core dump, and out of
//! the kernel's own map of memory. read(2) does not work on it, nor does looking into a process
//! that maps it. The system does not hibernate while there is such a file.
//!
//! # Why unsafe
//! The mapping of the file, and a system call.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use units::PAGEBLOCK_SIZE;

use super::{Entry, KeptRegion, Memfds};
use crate::memory::page_bytes;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Stands before a key that is complete: `rampack1`.
const COMPLETE: u64 = u64::from_le_bytes(*b"rampack1");

#[repr(C)]
struct Contents {
    complete: u64,
    key: [u8; KEY_BYTES],
}

/// A key that another process can have after this one. If it is dropped, the key is given up, as
/// any region. Any number of threads may read it.
pub struct KeptSecret {
    contents: NonNull<Contents>,
    name: String,
    set: Memfds,
}

// SAFETY: the mapping belongs to the process, and this is its only owner.
unsafe impl Send for KeptSecret {}
// SAFETY: the contents are only read while they are shared.
unsafe impl Sync for KeptSecret {}

impl Memfds {
    /// The key of the region `name`: the one that was adopted, or one that `make` fills in.
    ///
    /// # Errors
    /// `ENOSYS` where the system has no such memory (before Linux 5.14, or with
    /// `secretmem.enable=0`); `EAGAIN` or `ENOMEM` at the limit of locked memory (`ulimit -l`);
    /// `AlreadyExists` if the region is in use; the error of `make`.
    pub fn secret(
        &self,
        name: &str,
        make: impl FnOnce(&mut [u8; KEY_BYTES]) -> io::Result<()>,
    ) -> io::Result<KeptSecret> {
        let mut regions = self.set.regions();
        let found = regions.iter().position(|entry| entry.region.name == name);
        if found.is_some_and(|at| regions[at].in_use) {
            let text = format!("region {name:?} is in use");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let file = match found {
            Some(at) => regions[at].region.file.clone(),
            None => Arc::new(file()?),
        };
        let contents = map(&file)?;
        let secret = KeptSecret { contents, name: name.to_owned(), set: self.clone() };
        match found {
            Some(at) => regions[at].in_use = true,
            None => {
                let bytes = PAGEBLOCK_SIZE as u64;
                let region = KeptRegion { name: name.to_owned(), file, bytes };
                regions.push(Entry { region, in_use: true, is_left: false });
            }
        }
        // An error of `make` drops the secret, which takes the lock.
        drop(regions);
        secret.complete(make)?;
        Ok(secret)
    }
}

impl KeptSecret {
    /// Fills in the key, if nobody did before. A death on the way leaves it incomplete.
    fn complete(
        &self,
        make: impl FnOnce(&mut [u8; KEY_BYTES]) -> io::Result<()>,
    ) -> io::Result<()> {
        let contents = self.contents.as_ptr();
        // SAFETY: the mapping is large enough and aligned, and no reference to its contents exists
        // before this returns. Volatile keeps the order: the key comes before the mark.
        unsafe {
            if (&raw const (*contents).complete).read_volatile() == COMPLETE {
                return Ok(());
            }
            make(&mut (*contents).key)?;
            (&raw mut (*contents).complete).write_volatile(COMPLETE);
        }
        Ok(())
    }
}

/// A file of secret memory. It has the length of every region; only its first page is ever used.
fn file() -> io::Result<File> {
    // The kernel takes O_CLOEXEC, whatever memfd_secret(2) calls it.
    let flags = libc::O_CLOEXEC;
    // SAFETY: the call takes a number.
    let number = unsafe { libc::syscall(libc::SYS_memfd_secret, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system made the descriptor for this call, and nobody else knows it.
    let file = unsafe { File::from_raw_fd(number as RawFd) };
    file.set_len(PAGEBLOCK_SIZE as u64)?;
    Ok(file)
}

fn map(file: &File) -> io::Result<NonNull<Contents>> {
    let (access, bytes) = (libc::PROT_READ | libc::PROT_WRITE, page_bytes() as usize);
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping at an address that the system chooses overlaps no other.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
    match NonNull::new(address.cast()) {
        Some(contents) if address != libc::MAP_FAILED => Ok(contents),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Deref for KeptSecret {
    type Target = [u8; KEY_BYTES];
    fn deref(&self) -> &[u8; KEY_BYTES] {
        // SAFETY: the mapping lives as long as this, and nobody writes to it any more.
        unsafe { &(*self.contents.as_ptr()).key }
    }
}

impl Drop for KeptSecret {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it is left.
        unsafe { libc::munmap(self.contents.as_ptr().cast(), page_bytes() as usize) };
        self.set.set.let_go(&self.name);
    }
}

impl std::fmt::Debug for KeptSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptSecret")
    }
}
