//! Memory that outlives the process: each region is a file without a name that lies in memory.
//!
//! Who has a descriptor of the file can map the same contents again. So a region has a name, and a
//! later process of the same program asks for it by that name. A region that a process drops is
//! given up; the memory goes when the last descriptor is closed.
//!
//! There are two kinds of files. [`Memfds::new`] makes memfds (memfd_create(2)). Nobody can change
//! their size (`F_SEAL_SHRINK`, `F_SEAL_GROW`, fcntl(2)): a page beyond the end of a file that
//! shrank would be a SIGBUS. [`Memfds::unswappable`] makes files of a tmpfs of its own, which is
//! mounted nowhere and has the option `noswap` (Linux 6.4, tmpfs(5)). Their pages stay in memory
//! while no process has them mapped. The lock of a process (mlock(2)) cannot do that: it ends with
//! the process, and a dead server of swap space cannot read its own pages back.
//!
//! The file of a region has its name, which the system shows in `/proc/PID/fd`. With a descriptor
//! that can only read, another process looks at what is there ([`Memfds::copies`]).
//!
//! Against [`Mmap`](crate::Mmap):
//! * A read of a page that was never written gives the page memory. Anonymous memory shows a common
//!   page of zeroes there.
//! * Memory is released by a hole in the file (fallocate(2)), which also concerns other mappings.
//! * A huge page comes by a collapse (`MADV_COLLAPSE`), whatever
//!   `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says (kernel document
//!   `admin-guide/mm/transhuge.rst`).
//! * A hole in a huge page takes all of it out of the page table. A touch of the rest is a page
//!   fault, which needs memory for a page table, and none for the page.
//! * A page fault that finds no memory within the limit of overcommit is a SIGBUS; `populate`
//!   returns an error instead.
//!
//! # Why unsafe
//! System calls that make files, and a region of memory that they back.

mod secret;

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper};
use sync::atomic::{AtomicU32, Ordering};
use units::PAGEBLOCK_SIZE;

use crate::memory::page_bytes;
use crate::mmap::{Mapping, whole_pages};

pub use secret::{KEY_BYTES, KeptSecret};

/// Commands of fsconfig(2), and flags of fsopen(2), fsmount(2).
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
/// No set-user-id programs, no device files, no programs (mount_setattr(2)).
const MOUNT_ATTRIBUTES: u32 = 2 | 4 | 8;

/// A region as a later process needs it.
#[derive(Clone, Debug)]
pub struct KeptRegion {
    /// Its name.
    pub name: String,
    /// The file of its contents.
    pub file: Arc<File>,
    /// Its length.
    pub bytes: u64,
}

/// Regions of memory by name. Clones are the same set. Any thread may call every method.
#[derive(Clone)]
pub struct Memfds {
    set: Arc<Set>,
}

struct Set {
    /// The root of the file system of the files; None for memfds.
    tmpfs: Option<OwnedFd>,
    /// What is written to a region stays in this process.
    copies: bool,
    regions: Mutex<Vec<Entry>>,
}

struct Entry {
    region: KeptRegion,
    /// A [`Region`] of this process has it.
    in_use: bool,
}

impl Set {
    fn regions(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Memfds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.regions()).finish()
    }
}

impl Default for Memfds {
    fn default() -> Memfds {
        Memfds::new()
    }
}

impl Memfds {
    /// An empty set, for memory that may be swapped out.
    #[must_use]
    pub fn new() -> Memfds {
        Memfds::on(None, false)
    }

    /// An empty set whose regions are copies of what is adopted: what is written to them, and what
    /// is given up of them, changes nothing for others. A file that can only be read will do. While
    /// another process writes to a file, so does a copy, except where it was written to itself.
    #[must_use]
    pub fn copies() -> Memfds {
        Memfds::on(None, true)
    }

    /// An empty set, for memory that is never swapped out.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `EINVAL` before Linux 6.4.
    pub fn unswappable() -> io::Result<Memfds> {
        Ok(Memfds::on(Some(tmpfs()?), false))
    }

    fn on(tmpfs: Option<OwnedFd>, copies: bool) -> Memfds {
        Memfds { set: Arc::new(Set { tmpfs, copies, regions: Mutex::default() }) }
    }

    /// Adds the region `name` of another process, which had `bytes` bytes in `file`. The first
    /// region that is asked for by this name has its contents.
    ///
    /// # Errors
    /// `AlreadyExists` for a name that is there; `InvalidData` for a file of another length, or one
    /// that is no file. The text says which.
    pub fn adopt(&self, name: &str, file: OwnedFd, bytes: u64) -> io::Result<()> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        let wrong = |text| Err(io::Error::new(ErrorKind::InvalidData, text));
        if !metadata.is_file() {
            return wrong(format!("the descriptor of region {name:?} is no file in memory"));
        }
        if metadata.len() != bytes || !bytes.is_multiple_of(PAGEBLOCK_SIZE as u64) {
            let length = metadata.len();
            let text = format!("region {name:?} has {length} bytes, and {bytes} are expected");
            return wrong(text);
        }
        let mut regions = self.set.regions();
        if regions.iter().any(|entry| entry.region.name == name) {
            let text = format!("there is a region {name:?} already");
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        let region = KeptRegion { name: name.to_owned(), file: Arc::new(file), bytes };
        regions.push(Entry { region, in_use: false });
        Ok(())
    }

    /// Provides the region `name`, and `name.1`, `name.2` … for what else is asked of it.
    #[must_use]
    pub fn provider(&self, name: &str) -> NamedMemory {
        let (set, name) = (self.clone(), name.to_owned());
        NamedMemory { set, name, next: AtomicU32::new(0), ahead: false }
    }

    /// The regions there are, those that nobody asked for yet included.
    #[must_use]
    pub fn regions(&self) -> Vec<KeptRegion> {
        self.set.regions().iter().map(|entry| entry.region.clone()).collect()
    }

    /// Whether new regions stay in memory while no process has them mapped
    /// ([`Memfds::unswappable`]).
    #[must_use]
    pub fn stay_in_memory(&self) -> bool {
        self.set.tmpfs.is_some()
    }

    /// Whether the regions are copies.
    #[must_use]
    pub fn are_copies(&self) -> bool {
        self.set.copies
    }

    /// The names of the regions that were adopted and that nobody asked for yet.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let regions = self.set.regions();
        regions.iter().filter(|it| !it.in_use).map(|it| it.region.name.clone()).collect()
    }

    /// Gives up a region that was adopted and that nobody asked for. Returns whether it was there.
    pub fn forget(&self, name: &str) -> bool {
        let mut regions = self.set.regions();
        let before = regions.len();
        regions.retain(|entry| entry.in_use || entry.region.name != name);
        regions.len() < before
    }

    /// The region `name` of `bytes` bytes, rounded up to 2 MiB: the one that was adopted, or a new
    /// one.
    ///
    /// # Errors
    /// `AlreadyExists` if it is in use; `InvalidData` if what was adopted has another length. The
    /// errors of the system for a new one.
    pub fn region(&self, name: &str, bytes: usize) -> io::Result<Region> {
        let too_much = || io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or_else(too_much)?;
        let mut regions = self.set.regions();
        let found = regions.iter().position(|entry| entry.region.name == name);
        let (file, at) = match found {
            Some(at) => {
                let entry = &regions[at];
                if entry.in_use {
                    let text = format!("region {name:?} is in use");
                    return Err(io::Error::new(ErrorKind::AlreadyExists, text));
                }
                if entry.region.bytes != bytes as u64 {
                    let length = entry.region.bytes;
                    let text = format!("region {name:?} has {length} bytes, not {bytes}");
                    return Err(io::Error::new(ErrorKind::InvalidData, text));
                }
                (entry.region.file.clone(), at)
            }
            None => (Arc::new(self.named_file(name, bytes as u64)?), regions.len()),
        };
        let page = page_bytes() as usize;
        let mapping = match self.set.copies {
            true => Mapping::copy_of_file(&file, bytes, page),
            false => Mapping::of_file(&file, bytes, page),
        };
        let mapping = mapping.ok_or_else(too_much)?;
        if found.is_none() {
            let region = KeptRegion { name: name.into(), file: file.clone(), bytes: bytes as u64 };
            regions.push(Entry { region, in_use: true });
        }
        regions[at].in_use = true;
        let base = mapping.base();
        let keeper = Shared { mapping, file, name: name.to_owned(), set: self.clone() };
        // SAFETY: the keeper has the mapping, which owns its range, and the range is aligned.
        Ok(unsafe { Region::new(base, bytes, Box::new(keeper)) })
    }

    /// A new file of `bytes` zeroes in this kind of memory, which is no region.
    ///
    /// # Errors
    /// The errors of the system; `EFBIG` if no file is that long.
    pub fn file(&self, bytes: u64) -> io::Result<File> {
        self.named_file("", bytes)
    }

    /// A new file of `bytes` zeroes, which the system shows as `rampack.NAME`.
    fn named_file(&self, name: &str, bytes: u64) -> io::Result<File> {
        let name = CString::new(format!("rampack.{}", name.replace('/', ".")))?;
        let Some(tmpfs) = &self.set.tmpfs else {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: a C string, and a number.
            let made = unsafe { libc::memfd_create(name.as_ptr(), flags) };
            let file = File::from(adopt(made.into())?);
            file.set_len(bytes)?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            // SAFETY: the call takes numbers only.
            checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into())?;
            return Ok(file);
        };
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: a C string and numbers; the descriptor lives as long as the set.
        let made = unsafe { libc::openat(tmpfs.as_raw_fd(), name.as_ptr(), flags, 0o600) };
        let file = File::from(adopt(made.into())?);
        // SAFETY: as above. The system shows the name still.
        checked(unsafe { libc::unlinkat(tmpfs.as_raw_fd(), name.as_ptr(), 0) }.into())?;
        file.set_len(bytes)?;
        Ok(file)
    }
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Owns the descriptor that a system call returned.
fn adopt(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = checked(result)? as RawFd;
    // SAFETY: the system made the descriptor for this call, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A tmpfs of any size, without swap, that is mounted nowhere. It lives as long as a file of it.
fn tmpfs() -> io::Result<OwnedFd> {
    // SAFETY: the calls of this function take C strings, null where the system takes it, numbers,
    // and descriptors that live through the call.
    let context =
        adopt(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let set = |command: u32, key: Option<&CStr>, value: Option<&CStr>| {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        let (key, value, fd) = (pointer(key), pointer(value), context.as_raw_fd());
        // SAFETY: as above.
        checked(unsafe { libc::syscall(libc::SYS_fsconfig, fd, command, key, value, 0) }).map(drop)
    };
    for (key, value) in [(c"size", c"0"), (c"nr_inodes", c"0"), (c"mode", c"0700")] {
        set(FSCONFIG_SET_STRING, Some(key), Some(value))?;
    }
    set(FSCONFIG_SET_FLAG, Some(c"noswap"), None)?;
    set(FSCONFIG_CMD_CREATE, None, None)?;
    let fd = context.as_raw_fd();
    // SAFETY: as above.
    adopt(unsafe { libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, MOUNT_ATTRIBUTES) })
}

/// Provides memory under one name: see [`Memfds::provider`].
pub struct NamedMemory {
    set: Memfds,
    name: String,
    next: AtomicU32,
    ahead: bool,
}

impl NamedMemory {
    /// Provides memory ahead of its use, as [`MmapAhead`](crate::MmapAhead) does.
    #[must_use]
    pub fn ahead(self) -> NamedMemory {
        NamedMemory { ahead: true, ..self }
    }
}

impl MemoryProvider for NamedMemory {
    /// The regions are numbered in the order of the calls. [`Memfds::region`] tells why there is
    /// none.
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let region = match self.next.fetch_add(1, Ordering::Relaxed) {
            0 => self.set.region(&self.name, bytes),
            number => self.set.region(&format!("{}.{number}", self.name), bytes),
        };
        region.map_err(|_| NoMemory { bytes })
    }

    fn is_ahead(&self) -> bool {
        self.ahead
    }
}

/// Keeps a region, and its file in the set.
struct Shared {
    mapping: Mapping,
    file: Arc<File>,
    name: String,
    set: Memfds,
}

// SAFETY: as for the mapping, which it passes all calls to. A hole in the file is a release of the
// same part.
unsafe impl RegionKeeper for Shared {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        self.mapping.commit(offset, bytes)
    }

    fn release(&self, offset: usize, bytes: usize) {
        let whole = whole_pages(offset, bytes, page_bytes() as usize);
        // A copy keeps its contents, which is allowed: the file is not its own.
        if whole.is_empty() || self.set.set.copies {
            return;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, length) = (whole.start as libc::off_t, whole.len() as libc::off_t);
        // SAFETY: the call takes numbers. The region is the only user of the file in this process,
        // and the caller gives up the contents of the part.
        while unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at, length) } != 0 {
            if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                return;
            }
        }
    }

    fn collapse(&self, offset: usize) {
        self.mapping.collapse(offset);
    }

    fn populate(&self, offset: usize, bytes: usize) -> bool {
        self.mapping.populate(offset, bytes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.set.set.regions().retain(|entry| entry.region.name != self.name);
    }
}

impl KeptRegion {
    /// The first part of the file from `from` on that has memory; `None` if there is none. What is
    /// between such parts reads as zeroes.
    ///
    /// # Errors
    /// The error of lseek(2).
    pub fn data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let seek = |from: u64, whence: libc::c_int| {
            // SAFETY: the call takes numbers; the descriptor is borrowed. Nobody uses its offset.
            let at = unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, whence) };
            if at < 0 { Err(io::Error::last_os_error()) } else { Ok(at as u64) }
        };
        match seek(from, libc::SEEK_DATA) {
            Ok(start) => Ok(Some(start..seek(start, libc::SEEK_HOLE)?)),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Bytes of memory that the file has now.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn resident_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }
}
