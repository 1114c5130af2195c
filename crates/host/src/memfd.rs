//! Memory that outlives the process: each region is a file without a name that lies in memory.
//!
//! Who has a descriptor of the file can map the same contents again. So a region has a name, and a
//! later process of the same program asks for it by that name. A region that a process drops is
//! given up; the memory goes when the last descriptor is closed. What an earlier process left stays
//! until [`Memfds::settle`], however often it is asked for and dropped: a recovery may fail.
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
//! A region of memory that a file backs.

mod secret;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper};
use rustix::fs::{
    AtFlags, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fallocate,
    fcntl_add_seals, memfd_create, openat, seek, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use sync::atomic::{AtomicU32, Ordering};
use units::PAGEBLOCK_SIZE;

use crate::memory::page_bytes;
use crate::mmap::{Mapping, whole_pages};

pub use secret::{KEY_BYTES, KeptSecret};

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
    /// Another process left it, and it is not settled that this one goes on with it.
    is_left: bool,
}

impl Set {
    fn regions(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user of a region drops it.
    fn let_go(&self, name: &str) {
        self.regions().retain_mut(|entry| {
            let is_it = entry.region.name == name;
            entry.in_use &= !is_it;
            !is_it || entry.is_left
        });
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

    /// Adds the region `name` of another process, which had `bytes` bytes in `file`. The region
    /// that is asked for by this name has its contents. Until [`Memfds::settle`] a drop of it
    /// leaves it for the next who asks.
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
        regions.push(Entry { region, in_use: false, is_left: true });
        Ok(())
    }

    /// This process goes on with all regions that are in use: it gives up those that it drops from
    /// now on.
    pub fn settle(&self) {
        self.set.regions().iter_mut().for_each(|entry| entry.is_left &= !entry.in_use);
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
            regions.push(Entry { region, in_use: true, is_left: false });
        }
        regions[at].in_use = true;
        let base = mapping.base();
        let keeper = SharedRegion { mapping, file, name: name.to_owned(), set: self.clone() };
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
        let name = format!("rampack.{}", name.replace('/', "."));
        let Some(tmpfs) = &self.set.tmpfs else {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(memfd_create(name, flags)?);
            file.set_len(bytes)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            return Ok(file);
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(tmpfs, &name, flags, Mode::RUSR | Mode::WUSR)?);
        // The system shows the name still.
        unlinkat(tmpfs, &name, AtFlags::empty())?;
        file.set_len(bytes)?;
        Ok(file)
    }
}

/// A tmpfs of any size, without swap, that is mounted nowhere. It lives as long as a file of it.
fn tmpfs() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", "0"), ("nr_inodes", "0"), ("mode", "0700")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_set_flag(&context, "noswap")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
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
struct SharedRegion {
    mapping: Mapping,
    file: Arc<File>,
    name: String,
    set: Memfds,
}

// SAFETY: as for the mapping, which it passes all calls to. A hole in the file is a release of the
// same part.
unsafe impl RegionKeeper for SharedRegion {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        self.mapping.commit(offset, bytes)
    }

    fn release(&self, offset: usize, bytes: usize) {
        let whole = whole_pages(offset, bytes, page_bytes() as usize);
        // A copy keeps its contents, which is allowed: the file is not its own.
        if whole.is_empty() || self.set.set.copies {
            return;
        }
        // The region is the only user of the file in this process, and the caller gives up the
        // contents of the part.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, length) = (whole.start as u64, whole.len() as u64);
        let _ = retry_on_intr(|| fallocate(&*self.file, mode, at, length));
    }

    fn collapse(&self, offset: usize) {
        self.mapping.collapse(offset);
    }

    fn populate(&self, offset: usize, bytes: usize) -> bool {
        self.mapping.populate(offset, bytes)
    }

    fn has_memory(&self, offset: usize, bytes: usize) -> bool {
        // Nobody uses the offset of the file. Past the last page with memory there is no data.
        let (start, end) = (offset as u64, (offset + bytes) as u64);
        seek(&*self.file, SeekFrom::Data(start)) == Ok(start)
            && seek(&*self.file, SeekFrom::Hole(start)).is_ok_and(|hole| hole >= end)
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        self.set.set.let_go(&self.name);
    }
}

impl KeptRegion {
    /// The first part of the file from `from` on that has memory; `None` if there is none. What is
    /// between such parts reads as zeroes.
    ///
    /// # Errors
    /// The error of lseek(2).
    pub fn data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        // Nobody uses the offset of the file.
        match seek(&*self.file, SeekFrom::Data(from)) {
            Ok(start) => Ok(Some(start..seek(&*self.file, SeekFrom::Hole(start))?)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
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
