//! The file or device below a swap device: the oldest pages are written back to it.

use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, ExtentKind, IoError, Operation};
use control::{ControlError, Errno};
use host::errno;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use store::{Layout, Spec};
use units::{PAGE_SIZE, human};

use super::contents::{self, Contents};
use super::{beneath, header};
use crate::failure::{failed, say};
use crate::protocol::{BackingLayout, SwapOn};
use crate::state::State;
use crate::state::backings::identity;
use crate::state::swaps::SavedBacking;

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of zeroes per write.
const FILLED_AT_ONCE: u64 = 1 << 20;
/// How often the progress of that is printed.
const TELL: Duration = Duration::from_secs(2);

/// The attribute of a file that was made for a swap device: the next device removes one that a
/// killed daemon left.
const MADE: &str = "user.rampack.made";

/// An opened file or device. A file that was made for it is removed with it.
pub struct OpenedBacking {
    path: PathBuf,
    created: Option<Created>,
    /// To open it again.
    file: File,
    device: Arc<dyn BlockDevice>,
}

/// A file that is removed with its last user, if the path still names it.
struct Created {
    path: PathBuf,
    inode: (u64, u64),
}

impl Created {
    /// What is open as `file`, if it was made for a swap device, by whatever daemon.
    fn before(path: &Path, file: &File) -> Option<Created> {
        let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
        fgetxattr(file, MADE, &mut [0_u8; 1]).ok()?;
        Some(Created { path: path.to_path_buf(), inode: (found.dev(), found.ino()) })
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        let same = |found: &fs::Metadata| (found.dev(), found.ino()) == self.inode;
        if fs::symlink_metadata(&self.path).as_ref().is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl OpenedBacking {
    /// Opens `path`, an absolute one, for pages of `size` bytes, or for as many as fit. A missing
    /// file is made. A log takes compressed pages, so it may be smaller than they are. To fill the
    /// holes of a file may take minutes; once `is_over`, it is given up.
    ///
    /// # Errors
    /// `ENODEV` when it was given up.
    /// `EINVAL` when it is smaller than `size`, or is missing and no size is given. Unless `force`
    /// is given, `EEXIST` when it holds data ([`contents`]), `EDEADLK` when it is in memory or is
    /// served by a program ([`beneath`]), `EACCES` or `EPERM` for a file that is not private. The
    /// errors of [`backing::open`].
    pub fn open(
        path: &Path,
        size: Option<u64>,
        options: &SwapOn,
        is_over: &dyn Fn() -> bool,
    ) -> Result<OpenedBacking, ControlError> {
        let SwapOn { backing_layout: layout, plain_backing, force, .. } = *options;
        if !path.is_absolute() {
            let message = format!("--backing {}: an absolute path is needed", path.display());
            return Err(ControlError::invalid(message));
        }
        let created = create(path, size)?;
        if let (false, Some(why)) = (force, beneath::why_not(path)) {
            let message = format!(
                "{} cannot be below swap space: {why}; use a block device or a file on a local \
                 disk, or take the risk with --force",
                path.display()
            );
            return Err(ControlError::new(Errno(errno::EDEADLK), message));
        }
        let options = backing::Options {
            ready: true,
            keep: true,
            private: !force,
            sealed: !plain_backing,
            ..backing::Options::default()
        };
        let opened = backing::open_kept(path, None, options);
        let (device, file) = opened.map_err(|error| {
            let is_forced_open = matches!(error.errno, Errno::EACCES | Errno::EPERM) && !force;
            match is_forced_open {
                true => ControlError::new(error.errno, error.message + ", or use --force"),
                false => error,
            }
        })?;
        if let Some(exposed) = backing::exposure(path, !plain_backing) {
            tracing::warn!("{}", exposed.message);
        }
        let bytes = device.geometry().bytes;
        if let Some(size) = size
            && layout == BackingLayout::Pages
            && bytes < size
        {
            let message = format!(
                "{} has {bytes} bytes ({}), and --size asks for {size} ({}); give a smaller size, \
                 make it larger, or use --backing-layout log",
                path.display(),
                human(bytes),
                human(size)
            );
            return Err(ControlError::invalid(message));
        }
        if created.is_none() && !force {
            check_unused(path, &*device)?;
        }
        let created = created.or_else(|| Created::before(path, &file));
        let backing = OpenedBacking { path: path.to_path_buf(), created, file, device };
        backing.fill_holes(is_over)?;
        backing.mark()?;
        Ok(backing)
    }

    /// Opens again what a daemon before had opened, with all that is in it.
    ///
    /// # Errors
    /// `ESTALE` if another file or device is at the path now, and its descriptor was not kept;
    /// `EBUSY` while the kernel still closes what that daemon had open; the errors of
    /// [`backing::open`].
    pub fn open_again(state: &State, saved: &SavedBacking) -> Result<OpenedBacking, ControlError> {
        let SavedBacking { path, inode, is_created, .. } = saved;
        let what = || format!("cannot use {}", path.display());
        let kept = state.backings().file(path)?;
        let found = kept.as_ref().map_or_else(|| fs::metadata(path), File::metadata);
        let found = found.map_err(|error| failed(what(), &error))?;
        if identity(&found) != *inode {
            let message = format!("{}: another file or device is there now", what());
            return Err(ControlError::new(Errno(errno::ESTALE), message));
        }
        let options = backing::Options { ready: true, keep: true, ..backing::Options::default() };
        let kept = kept.as_ref().map(AsFd::as_fd);
        let (device, file) = backing::open_kept(path, kept, options)?;
        let inode = (found.dev(), found.ino());
        let created = is_created.then(|| Created { path: path.clone(), inode });
        let backing = OpenedBacking { path: path.clone(), created, file, device };
        backing.hold(state)?;
        Ok(backing)
    }

    /// Has `state` hold it for the next daemon.
    fn hold(&self, state: &State) -> Result<(), ControlError> {
        let again = self.file.try_clone().map_err(|error| self.unusable(&error))?;
        state.backings().hold(&self.path, again, &self.device)
    }

    fn unusable(&self, error: &std::io::Error) -> ControlError {
        failed(format!("cannot use {}", self.path.display()), error)
    }

    /// What another process needs to open it again; `state` holds the rest.
    ///
    /// # Errors
    /// `EBUSY` if another file that had its path is in use; the error of the system.
    pub fn saved(
        &self,
        state: &State,
        is_sealed: bool,
        layout: BackingLayout,
    ) -> Result<SavedBacking, ControlError> {
        self.hold(state)?;
        let found = self.file.metadata().map_err(|error| self.unusable(&error))?;
        Ok(SavedBacking {
            path: self.path.clone(),
            inode: identity(&found),
            is_created: self.is_created(),
            is_sealed,
            log_bytes: (layout == BackingLayout::Log).then(|| self.device.geometry().bytes),
        })
    }

    /// Writes zeroes where a file has no blocks yet. To allocate blocks later, its file system
    /// would wait for memory, and the thread that frees memory for a page would wait too. On a full
    /// disk the rest stays a hole; [`missing_space`] reports that.
    fn fill_holes(&self, is_over: &dyn Fn() -> bool) -> Result<(), ControlError> {
        let mut holes = Vec::new();
        let (mut at, bytes) = (0, self.bytes());
        let seen = self.device.extents(units::Cpu(0), 0, bytes, &mut |extent| {
            if extent.kind == ExtentKind::Hole {
                holes.push(at..at + extent.length);
            }
            at += extent.length;
            ControlFlow::Continue(())
        });
        let whole: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        if seen.is_err() || whole == 0 {
            return Ok(());
        }
        let zeroes = vec![0; FILLED_AT_ONCE as usize];
        let (mut filled, mut told) = (0, Instant::now());
        for (start, end) in holes.into_iter().map(|hole| (hole.start, hole.end)) {
            let mut at = start;
            while at < end {
                if is_over() {
                    let path = self.path.display();
                    let message = format!("the daemon is stopping; {path} is not filled");
                    return Err(ControlError::new(Errno::ENODEV, message));
                }
                let length = FILLED_AT_ONCE.min(end - at);
                let write = Operation::Write { offset: at, from: &zeroes[..length as usize] };
                match self.device.submit(host::cpu(), write) {
                    Ok(()) => (at, filled) = (at + length, filled + length),
                    Err(IoError::NoSpace) => return Ok(()),
                    Err(error) => return Err(self.failed("write to", error)),
                }
                if told.elapsed() > TELL {
                    told = Instant::now();
                    let (path, filled) = (self.path.display(), human(filled));
                    say(&format!(
                        "rampack: {path}: {filled} of {} are written with zeroes, so that later \
                         writes wait for nothing\n",
                        human(whole)
                    ));
                }
            }
        }
        let flushed = self.device.submit(host::cpu(), Operation::Flush);
        flushed.map_err(|error| self.failed("flush", error))
    }

    fn failed(&self, what: &str, error: IoError) -> ControlError {
        let message = format!("cannot {what} {}: {error}", self.path.display());
        ControlError::new(Errno(error.errno()), message)
    }

    /// Writes a header to the first page, which is never swapped to. It labels the store, so that
    /// it is recognised at its next use.
    fn mark(&self) -> Result<(), ControlError> {
        let pages = (self.bytes() / PAGE).clamp(header::FEWEST_PAGES, header::MOST_PAGES);
        let page = header::header(pages, header::new_uuid(), contents::LABEL)?;
        let write = Operation::Write { offset: 0, from: &page };
        let written = self.device.submit(host::cpu(), write);
        written.map_err(|error| self.failed("write to", error))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Was the file made for this swap device, and is it removed with it?
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.created.is_some()
    }

    /// Its size in bytes, in whole pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.device.geometry().bytes;
        bytes - bytes % PAGE
    }

    /// What is to be above it for a swap device of this many pages.
    #[must_use]
    pub fn spec<'a>(&self, pages: u64, layout: BackingLayout, is_sealed: bool) -> Spec<'a> {
        let layout = match layout {
            BackingLayout::Pages => Layout::SwapSpace(pages * PAGE),
            BackingLayout::Log => Layout::Log(pages),
        };
        let path = self.path.display().to_string();
        Spec { is_sealed, ..Spec::new(self.device.clone(), path, layout) }
    }
}

fn create(path: &Path, size: Option<u64>) -> Result<Option<Created>, ControlError> {
    let what = || format!("cannot make {}", path.display());
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => {
            let message = format!(
                "{} is empty; remove it, and it will be made with --size, or make it as large as \
                 it is to be",
                path.display()
            );
            return Err(ControlError::invalid(message));
        }
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(format!("cannot use {}", path.display()), &error)),
    }
    let Some(size) = size else {
        let message = format!("{} is not there; with --size it would be made", path.display());
        return Err(ControlError::new(Errno::ENOENT, message));
    };
    // Only its owner may use the file: it will hold the memory of programs.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file: File = file.map_err(|e| failed(what(), &e))?;
    let found = file.metadata().map_err(|e| failed(what(), &e))?;
    let created = Created { path: path.to_path_buf(), inode: (found.dev(), found.ino()) };
    // Where the file system has no attributes, only this daemon removes it.
    let _ = fsetxattr(&file, MADE, b"1", XattrFlags::empty());
    file.set_len(size).map_err(|e| failed(what(), &e))?;
    Ok(Some(created))
}

/// # Errors
/// `EEXIST` when an existing store holds data that would be lost.
fn check_unused(path: &Path, device: &dyn BlockDevice) -> Result<(), ControlError> {
    let bytes = device.geometry().bytes;
    let end = bytes.min(contents::END as u64);
    let read = |offset: u64| {
        let mut data = vec![0; end as usize];
        let read = device.submit(host::cpu(), Operation::Read { offset, into: &mut data });
        let read = read.map_err(|error| {
            let message = format!("cannot read {}: {error}", path.display());
            ControlError::new(Errno(error.errno()), message)
        });
        read.map(|()| data)
    };
    let what = match contents::contents(bytes, &read(0)?, &read(bytes - end)?) {
        Contents::Nothing | Contents::Ours => return Ok(()),
        Contents::SwapSpace => "swap space that was used",
        Contents::Known(name) => name,
        Contents::Data => "data that is not swap space",
    };
    let path = path.display();
    let message = format!(
        "{path} holds {what}, and would be overwritten; `wipefs {path}` tells what it is; --force \
         uses it all the same; without it, the first and the last MiB have to be zero"
    );
    Err(ControlError::new(Errno::EEXIST, message))
}

/// The bytes that the file system of a file lacks to fill all of its holes. `None` for a device, or
/// when there is enough.
#[must_use]
pub fn missing_space(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    if found.file_type().is_block_device() {
        return None;
    }
    let holes = found.len().saturating_sub(found.blocks() * 512);
    let space = rustix::fs::statvfs(path).ok()?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    (free < holes).then(|| holes - free)
}
