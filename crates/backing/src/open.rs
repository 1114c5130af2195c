//! Opens a file or block device exclusively.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, Checked};
use control::{ControlError, Errno};
use host::{errno, flags};
use sync::atomic::AtomicBool;
use units::PAGE_SIZE;

use crate::device::BackingFile;
use crate::pool::Pool;

/// The major number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// The permissions of others on a file: swapon(8) wants none of them either.
const OTHERS: u32 = 0o077;

/// The options of a backing store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The most rings, and so the most calls at once; a further call waits. Each ring has 256 KiB
    /// of memory and is made when it is first needed.
    pub rings: usize,
    /// Use io_uring if the system has it.
    pub io_uring: bool,
    /// Bypass the page cache where the file system allows. Elsewhere, and without this, each write
    /// goes through the page cache and waits until the storage has it (`O_DSYNC`, open(2)).
    pub direct: bool,
    /// Make all rings at the open, so that no call waits for memory.
    pub ready: bool,
    /// Keep the blocks of a file: a discard does nothing. So a later write finds its blocks
    /// allocated and does not wait for the file system.
    pub keep: bool,
    /// Refuse a file that users other than its owner may open, or that belongs neither to root nor
    /// to the user of this process: see [`exposure`].
    pub private: bool,
    /// What is written is encrypted. The refusal says so.
    pub sealed: bool,
}

impl Default for Options {
    /// 16 rings, io_uring, direct I/O.
    fn default() -> Options {
        Options {
            rings: 16,
            io_uring: true,
            direct: true,
            ready: false,
            keep: false,
            private: false,
            sealed: false,
        }
    }
}

/// Opens the block device or ordinary file `path` exclusively. Its size is that of its whole pages
/// at the open, and never changes. Ranges are multiples of a page. Any thread may call it.
///
/// If a page is read during a write, or two threads write it at once, its data may be mixed. The
/// caller must not let operations on one page overlap.
///
/// A write that succeeded is out of this system's memory: it went past the page cache, or through
/// it to the storage. So an error of the storage is the error of that write, and the caller may
/// free its copy of the page after it. What the storage itself has in a volatile cache is lost
/// without power, and so is the caller; a flush writes it out.
///
/// A discard is a hint. Its range reads as zeroes if [`block::Abilities::discard`] is true, and is
/// undefined otherwise. The value of that ability is certain only after the first discard.
///
/// # Errors
/// `ENOENT`, `EACCES` and other errors of the system; `EISDIR` for a directory; `ENOTBLK` for
/// anything else that is no file and no block device; `EBUSY` when it is mounted or another process
/// has it; `EROFS` when it takes no writes; `EINVAL` when it is shorter than a page; with
/// [`Options::private`], `EACCES` for a file whose mode is not private, and `EPERM` for a file of
/// another user. The message names `path`.
pub fn open(path: &Path, options: Options) -> Result<Arc<dyn BlockDevice>, ControlError> {
    let backing = BackingFile::open(path, options)?;
    Ok(Arc::new(Checked::new(backing)))
}

/// As [`open`], and also returns a file by which another process opens the same file or device with
/// this function, whatever is at `path` by then: `kept`, if that process has it. It is only to be
/// read, and what is claimed here does not depend on it.
///
/// # Errors
/// As [`open`].
pub fn open_kept(
    path: &Path,
    kept: Option<BorrowedFd<'_>>,
    options: Options,
) -> Result<(Arc<dyn BlockDevice>, File), ControlError> {
    let at = kept.map_or_else(|| path.to_path_buf(), |fd| of_descriptor(&fd));
    let backing = BackingFile::open_at(path, &at, options)?;
    let again = File::open(of_descriptor(&*backing.file)).map_err(|error| failed(path, &error))?;
    Ok((Arc::new(Checked::new(backing)), again))
}

/// A path of this process to what it has open.
fn of_descriptor(fd: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

fn refusal(path: &Path, errno: Errno, why: &str) -> ControlError {
    ControlError::new(errno, format!("{} cannot be written back to: {why}", path.display()))
}

fn failed(path: &Path, error: &io::Error) -> ControlError {
    let errno = Errno(error.raw_os_error().unwrap_or(errno::EIO));
    let why = match errno {
        Errno::EBUSY => "it is mounted, or another program or device uses it".to_string(),
        Errno::EROFS => "it is read-only".to_string(),
        _ => error.to_string(),
    };
    refusal(path, errno, &why)
}

/// Is it a block device? An error if it is no ordinary file either.
fn is_device(path: &Path, kind: FileType) -> Result<bool, ControlError> {
    if kind.is_block_device() || kind.is_file() {
        return Ok(kind.is_block_device());
    }
    if kind.is_dir() {
        let why = "it is a directory; name a block device or an ordinary file";
        return Err(refusal(path, Errno::EISDIR, why));
    }
    let what = match kind {
        kind if kind.is_char_device() => "character device",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        _ => "special file",
    };
    let why = format!("it is a {what}; only a block device or an ordinary file will do");
    Err(refusal(path, Errno::ENOTBLK, &why))
}

/// Opens it, past the page cache if possible. The page cache keeps what it took even if the storage
/// refuses it later (a full thin pool, a lost connection), and only a sync would tell. So where
/// there is no way past it, each write is synchronous.
fn open_file(path: &Path, at: &Path, device: bool, direct: bool) -> io::Result<File> {
    // O_EXCL works for block devices only (open(2)): the device cannot be mounted meanwhile.
    let exclusive = if device { flags::O_EXCL } else { 0 };
    let open = |more| {
        let flags = flags::O_CLOEXEC | exclusive | more;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(at)
    };
    let through_the_cache = || open(flags::O_DSYNC);
    if !direct {
        return through_the_cache();
    }
    match open(flags::O_DIRECT) {
        Ok(file) if takes_pages(&file) => Ok(file),
        Ok(file) => {
            // The claim on a device ends here; the next open takes it again.
            drop(file);
            buffered(path, "it wants blocks larger than a page for direct I/O");
            through_the_cache()
        }
        Err(error) if error.raw_os_error() == Some(errno::EINVAL) => {
            buffered(path, "its file system has no direct I/O");
            through_the_cache()
        }
        Err(error) => Err(error),
    }
}

fn buffered(path: &Path, why: &str) {
    tracing::info!(
        "{}: {why}; each write goes through the page cache and waits for the storage",
        path.display()
    );
}

/// Why the regular file `found` is not private to root or `user`; `None` if it is.
fn exposed(
    path: &Path,
    found: &Metadata,
    user: u32,
    sealed: bool,
) -> Option<(Errno, String, String)> {
    let (mode, path) = (found.mode() & 0o7777, path.display());
    if mode & OTHERS != 0 {
        let sees = match (sealed, mode & 0o022 != 0) {
            (false, _) => "see every page in it",
            (true, false) => "see which pages are written, and not what is in them",
            (true, true) => "spoil pages in it, which cannot be read then",
        };
        let why = format!("other users may open it (mode {mode:04o}) and {sees}");
        return Some((Errno::EACCES, why, format!("`chmod 600 {path}` makes it private")));
    }
    if found.uid() != 0 && found.uid() != user {
        let sees = match sealed {
            false => "sees every page in it",
            true => "may spoil pages in it, which cannot be read then",
        };
        let why = format!("user {} owns it and {sees}", found.uid());
        return Some((Errno::EPERM, why, format!("`chown {user} {path}` makes it yours")));
    }
    None
}

/// The refusal of `path`, if it is a regular file that users other than its owner may open, or that
/// belongs neither to root nor to the user of this process. `sealed`: what is written to it is
/// encrypted.
#[must_use]
pub fn exposure(path: &Path, sealed: bool) -> Option<ControlError> {
    let found = fs::metadata(path).ok().filter(Metadata::is_file)?;
    let (errno, why, repair) = exposed(path, &found, host::effective_user(), sealed)?;
    Some(refusal(path, errno, &format!("{why}; {repair}")))
}

/// Locks the file below a loop device: either of them is in use at a time. `None` for another
/// device, and for a file that is not to be found here: one that was removed, or is in another
/// mount namespace.
///
/// # Errors
/// `EBUSY` if the file is in use.
fn lock_below(path: &Path, device: &File) -> Result<Option<File>, ControlError> {
    let failed = |error: io::Error| failed(path, &error);
    let number = device.metadata().map_err(failed)?.rdev();
    if host::major(number) != LOOP_MAJOR {
        return Ok(None);
    }
    let name = format!("/sys/dev/block/{LOOP_MAJOR}:{}/loop/backing_file", host::minor(number));
    let (Ok(below), Ok(name)) = (host::loop_file(device), fs::read(name)) else { return Ok(None) };
    let name = OsStr::from_bytes(name.strip_suffix(b"\n").unwrap_or(&name));
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags::O_CLOEXEC | flags::O_NONBLOCK);
    let Ok(file) = options.open(name) else { return Ok(None) };
    // The name is a hint. The numbers are the kernel's.
    match file.metadata() {
        Ok(found) if found.is_file() && (found.dev(), found.ino()) == below => {}
        Ok(found) if found.file_type().is_block_device() => return lock_below(path, &file),
        _ => return Ok(None),
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let why = format!("its file {} is in use", Path::new(name).display());
            Err(refusal(path, Errno::EBUSY, &why))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Does direct I/O take a single page? Only a read can tell for every file system.
fn takes_pages(file: &File) -> bool {
    let mut memory = vec![0u8; 2 * PAGE_SIZE];
    let skip = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
    let read = file.read_at(&mut memory[skip..skip + PAGE_SIZE], 0);
    !read.is_err_and(|error| error.raw_os_error() == Some(errno::EINVAL))
}

impl BackingFile {
    pub(crate) fn open(path: &Path, options: Options) -> Result<BackingFile, ControlError> {
        BackingFile::open_at(path, path, options)
    }

    /// Opens what is at the path `at`, which the user knows as `path`.
    fn open_at(path: &Path, at: &Path, options: Options) -> Result<BackingFile, ControlError> {
        let failed = |error: io::Error| failed(path, &error);
        // The type is checked before the open: to open a tape or a pipe may have effects.
        let device = is_device(path, fs::metadata(at).map_err(failed)?.file_type())?;
        let file = match open_file(path, at, device, options.direct) {
            Err(error) if device && error.kind() == ErrorKind::PermissionDenied => {
                // Some drivers answer this for a read-only device.
                let read_only = File::open(at).is_ok_and(|file| is_read_only(&file));
                let error = if read_only { errno::EROFS } else { errno::EACCES };
                return Err(failed(io::Error::from_raw_os_error(error)));
            }
            opened => opened.map_err(failed)?,
        };
        // The path may have been replaced after the check.
        let found = file.metadata().map_err(failed)?;
        if is_device(path, found.file_type())? != device {
            return Err(refusal(path, Errno::EBUSY, "it was replaced while it was opened"));
        }
        let below = if device { lock_below(path, &file)? } else { None };
        let bytes = if device {
            if is_read_only(&file) {
                return Err(failed(io::Error::from_raw_os_error(errno::EROFS)));
            }
            host::device_bytes(&file).map_err(failed)?
        } else {
            if let (true, Some((errno, why, repair))) =
                (options.private, exposed(path, &found, host::effective_user(), options.sealed))
            {
                return Err(refusal(path, errno, &format!("{why}; {repair}")));
            }
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => failed(io::Error::from_raw_os_error(errno::EBUSY)),
                TryLockError::Error(error) => failed(error),
            })?;
            found.len()
        };
        if bytes < PAGE_SIZE as u64 {
            let why = format!("it has {bytes} bytes, and at least {PAGE_SIZE} are needed");
            return Err(refusal(path, Errno::EINVAL, &why));
        }
        let file = Arc::new(file);
        let pool = Pool::new(file.clone(), options.rings, options.io_uring);
        if options.ready {
            pool.make_all();
        }
        let bytes = bytes - bytes % PAGE_SIZE as u64;
        let punches = AtomicBool::new(device || !options.keep);
        Ok(BackingFile { file, bytes, device, below, pool, punches })
    }
}

fn is_read_only(device: &File) -> bool {
    host::device_is_read_only(device).unwrap_or(false)
}
