//! Where a daemon keeps its state, and how it makes sure that it is alone there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use control::{Errno, Fault};

use crate::failure::failed;
use crate::sys;

/// The longest path a socket can have, in bytes (`sockaddr_un`, less its final zero).
const SOCKET_PATH_MAX: usize = 107;

/// A directory that holds everything one daemon makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// The root asked for, or the default: `/run/rampack` for root, else
    /// `$XDG_RUNTIME_DIR/rampack`. Touches nothing.
    ///
    /// # Errors
    /// `EINVAL` for an empty path or when there is no default, `ENAMETOOLONG` when sockets in it
    /// could not be named.
    pub fn choose(asked: Option<&Path>) -> Result<Root, Fault> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Root::decide(asked, sys::effective_user(), runtime.as_deref())
    }

    fn decide(asked: Option<&Path>, user: u32, runtime: Option<&Path>) -> Result<Root, Fault> {
        let path = match (asked, user, runtime) {
            (Some(path), ..) => path.to_path_buf(),
            (None, 0, _) => PathBuf::from("/run/rampack"),
            (None, _, Some(runtime)) if runtime.is_absolute() => runtime.join("rampack"),
            (None, ..) => {
                return Err(Fault::invalid(
                    "no place for the daemon's state: XDG_RUNTIME_DIR is not set; name a directory \
                     with --root DIR or RAMPACK_ROOT",
                ));
            }
        };
        if path.as_os_str().is_empty() {
            return Err(Fault::invalid("the root directory is empty; write --root DIR"));
        }
        let path = std::path::absolute(&path)
            .map_err(|e| failed(format!("cannot use {} as root", path.display()), &e))?;
        let root = Root { path };
        let length = root.control_socket().as_os_str().len();
        if length > SOCKET_PATH_MAX {
            let message = format!(
                "root directory {} is too long: {} would have {length} bytes, a socket's path has \
                 at most {SOCKET_PATH_MAX}",
                root.path.display(),
                root.control_socket().display()
            );
            return Err(Fault::new(Errno(libc::ENAMETOOLONG), message));
        }
        Ok(root)
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket on which the daemon takes commands.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// The socket on which the daemon serves NBD.
    #[must_use]
    pub fn nbd_socket(&self) -> PathBuf {
        self.path.join("nbd.sock")
    }

    /// Where the FUSE files are.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Where the control tree is.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.path.join(fuse::leftovers::TREE)
    }

    /// Where the link is for those who know a file of the tree from `/proc`.
    #[must_use]
    pub fn proc(&self) -> PathBuf {
        self.path.join("proc")
    }

    /// Where the links to the devices are.
    #[must_use]
    pub fn devices(&self) -> PathBuf {
        self.path.join("dev")
    }

    /// The link to one device.
    #[must_use]
    pub fn device(&self, name: &str) -> PathBuf {
        self.devices().join(name)
    }

    fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Makes the directory if need be, and takes it for this process alone.
    ///
    /// # Errors
    /// `EBUSY` when another daemon has it (the message names its process), `EACCES` when others
    /// could change what is in it, or what the system reports.
    pub fn claim(&self) -> Result<Claim, Fault> {
        let made = self.make_directory()?;
        let path = self.lock_file();
        let what = || format!("cannot lock {}", path.display());
        let mut lock = loop {
            let mut lock = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)
                .map_err(|e| failed(what(), &e))?;
            if !sys::try_lock(&lock).map_err(|e| failed(what(), &e))? {
                return Err(self.taken(&mut lock));
            }
            // The daemon before may have removed the file between our open and our lock.
            let held = lock.metadata().map_err(|e| failed(what(), &e))?.ino();
            if fs::symlink_metadata(&path).is_ok_and(|named| named.ino() == held) {
                break lock;
            }
        };
        let before = read_pid(&mut lock);
        let note = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        note(&mut lock).map_err(|e| failed(what(), &e))?;
        Ok(Claim { root: self.clone(), made, before, _lock: lock })
    }

    /// Does a daemon have this root now?
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        // A lock that this takes is gone again with the file.
        File::open(self.lock_file()).is_ok_and(|lock| !matches!(sys::try_lock(&lock), Ok(true)))
    }

    fn make_directory(&self) -> Result<bool, Fault> {
        let what = || format!("cannot make the root directory {}", self.path.display());
        if let Some(parent) = self.path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(parent).map_err(|e| failed(what(), &e))?;
        }
        let made = match DirBuilder::new().mode(0o700).create(&self.path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(what(), &error)),
        };
        let found = fs::metadata(&self.path).map_err(|e| failed(what(), &e))?;
        if !found.is_dir() {
            let message = format!("root {} is not a directory", self.path.display());
            return Err(Fault::new(Errno(libc::ENOTDIR), message));
        }
        if found.uid() != sys::effective_user() || found.mode() & 0o022 != 0 {
            let message = format!(
                "root directory {} must belong to user {} and be writable by nobody else; it \
                 belongs to user {} and has mode {:03o}",
                self.path.display(),
                sys::effective_user(),
                found.uid(),
                found.mode() & 0o777
            );
            return Err(Fault::new(Errno::EACCES, message));
        }
        if made {
            // Others may follow the links in it; the sockets are closed to them on their own.
            let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(0o755));
        }
        Ok(made)
    }

    fn taken(&self, lock: &mut File) -> Fault {
        let who = match read_pid(lock) {
            Some(pid) => format!("pid {pid}"),
            None => "just starting".to_string(),
        };
        let message = format!(
            "a rampack daemon ({who}) already runs in {root}; give it another device with \
             `rampack --root {root} add`, or start this one elsewhere with --root DIR",
            root = self.path.display()
        );
        Fault::new(Errno::EBUSY, message)
    }
}

fn read_pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// A root that is ours until this is dropped, which removes the lock and, if we made it and
/// nothing is left in it, the directory.
#[derive(Debug)]
pub struct Claim {
    root: Root,
    made: bool,
    before: Option<u32>,
    _lock: File,
}

impl Claim {
    /// The root claimed.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The process of a daemon that had this root before and did not give it back: it was killed.
    #[must_use]
    pub fn killed_before_us(&self) -> Option<u32> {
        self.before
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Unlinked while locked: whoever has it open already finds out by its inode.
        let _ = fs::remove_file(self.root.lock_file());
        if self.made {
            let _ = fs::remove_dir(&self.root.path);
        }
    }
}

#[cfg(test)]
mod tests;
