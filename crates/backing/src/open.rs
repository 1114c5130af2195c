//! Opens a file or block device exclusively.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, Checked};
use control::{ControlError, Errno};
use sync::atomic::AtomicBool;
use units::PAGE_SIZE;

use crate::device::BackingFile;
use crate::pool::Pool;
use crate::sys;

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
    /// to the user of this process. Otherwise such a file is a warning in the log.
    pub private: bool,
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

fn refusal(path: &Path, errno: Errno, why: &str) -> ControlError {
    ControlError::new(errno, format!("{} cannot be written back to: {why}", path.display()))
}

fn failed(path: &Path, error: &io::Error) -> ControlError {
    let errno = Errno(error.raw_os_error().unwrap_or(libc::EIO));
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
fn open_file(path: &Path, device: bool, direct: bool) -> io::Result<File> {
    // O_EXCL works for block devices only (open(2)): the device cannot be mounted meanwhile.
    let exclusive = if device { libc::O_EXCL } else { 0 };
    let open = |more| {
        let flags = libc::O_CLOEXEC | exclusive | more;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
    };
    let through_the_cache = || open(libc::O_DSYNC);
    if !direct {
        return through_the_cache();
    }
    match open(libc::O_DIRECT) {
        Ok(file) if takes_pages(&file) => Ok(file),
        Ok(file) => {
            // The claim on a device ends here; the next open takes it again.
            drop(file);
            buffered(path, "it wants blocks larger than a page for direct I/O");
            through_the_cache()
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
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

/// Why `found`, a regular file, is not private to root or `user`; `None` if it is.
fn exposure(found: &Metadata, user: u32) -> Option<(Errno, String)> {
    let mode = found.mode() & 0o7777;
    if mode & OTHERS != 0 {
        let why = format!("other users may open it (mode {mode:04o}) and see every page in it");
        return Some((Errno::EACCES, why));
    }
    if found.uid() != 0 && found.uid() != user {
        let why = format!("user {} owns it and sees every page in it", found.uid());
        return Some((Errno::EPERM, why));
    }
    None
}

/// # Errors
/// `EACCES` or `EPERM` if `found` is exposed and must be private.
fn check_exposure(path: &Path, found: &Metadata, private: bool) -> Result<(), ControlError> {
    let Some((errno, why)) = exposure(found, sys::user()) else { return Ok(()) };
    let path_shown = path.display();
    let repair = match errno {
        Errno::EPERM => format!("`chown {} {path_shown}` makes it yours", sys::user()),
        _ => format!("`chmod 600 {path_shown}` makes it private"),
    };
    if private {
        return Err(refusal(path, errno, &format!("{why}; {repair}")));
    }
    tracing::warn!("{path_shown}: {why}; {repair}");
    Ok(())
}

/// Does direct I/O take a single page? Only a read can tell for every file system.
fn takes_pages(file: &File) -> bool {
    let mut memory = vec![0u8; 2 * PAGE_SIZE];
    let skip = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
    let read = file.read_at(&mut memory[skip..skip + PAGE_SIZE], 0);
    !read.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

impl BackingFile {
    pub(crate) fn open(path: &Path, options: Options) -> Result<BackingFile, ControlError> {
        let failed = |error: io::Error| failed(path, &error);
        // The type is checked before the open: to open a tape or a pipe may have effects.
        let device = is_device(path, fs::metadata(path).map_err(failed)?.file_type())?;
        let file = match open_file(path, device, options.direct) {
            Err(error) if device && error.kind() == ErrorKind::PermissionDenied => {
                // Some drivers answer this for a read-only device.
                let read_only = File::open(path).is_ok_and(|file| is_read_only(&file));
                let error = if read_only { libc::EROFS } else { libc::EACCES };
                return Err(failed(io::Error::from_raw_os_error(error)));
            }
            opened => opened.map_err(failed)?,
        };
        // The path may have been replaced after the check.
        let found = file.metadata().map_err(failed)?;
        if is_device(path, found.file_type())? != device {
            return Err(refusal(path, Errno::EBUSY, "it was replaced while it was opened"));
        }
        let bytes = if device {
            if is_read_only(&file) {
                return Err(failed(io::Error::from_raw_os_error(libc::EROFS)));
            }
            sys::device_bytes(&file).map_err(failed)?
        } else {
            check_exposure(path, &found, options.private)?;
            sys::lock(&file).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => failed(io::Error::from_raw_os_error(libc::EBUSY)),
                _ => failed(error),
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
        Ok(BackingFile { file, bytes, device, pool, punches })
    }
}

fn is_read_only(device: &File) -> bool {
    sys::device_is_read_only(device).unwrap_or(false)
}
