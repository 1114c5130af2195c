//! The root directory of a daemon: its paths, and the lock that keeps other daemons out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{
    SOCKET_PATH_MAX, effective_group, effective_user, errno, flags, is_at, printable, try_lock,
};
use rustix::fs::{AtFlags, CWD, linkat};

use crate::failure::{failed, quoted};

mod record;
mod way;

pub use record::Made;
use way::{trusted_users, way_to};

/// How often a claim is tried while other daemons claim and leave the root.
const TRIES: u32 = 100;
/// Who only looks whether a daemon has the root has the lock for moments, not for so long.
const LOOK: Duration = Duration::from_secs(1);

/// Where the kernel has the files of a process.
const OWN_FILES: &str = "/proc/self/fd";

/// What may be in a root that is new: `/run/rampack` is also a place of the configuration.
const CONFIGURATION: [&str; 2] = ["rampack.toml", "rampack.toml.d"];

/// A directory that holds everything one daemon makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// The root `asked` for, or the default: `/run/rampack` for root, else
    /// `$XDG_RUNTIME_DIR/rampack`. Does not touch the file system.
    ///
    /// # Errors
    /// `EINVAL` for an empty path or when there is no default, `ENAMETOOLONG` when the path of a
    /// socket in it would be too long.
    pub fn choose(asked: Option<&Path>) -> Result<Root, ControlError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Root::decide(asked, effective_user(), runtime.as_deref())
    }

    fn decide(
        asked: Option<&Path>,
        user: u32,
        runtime: Option<&Path>,
    ) -> Result<Root, ControlError> {
        let path = match (asked, user, runtime) {
            (Some(path), ..) => path.to_path_buf(),
            (None, 0, _) => PathBuf::from("/run/rampack"),
            (None, _, Some(runtime)) if runtime.is_absolute() => runtime.join("rampack"),
            (None, ..) => {
                let why = match runtime {
                    Some(runtime) => format!("({}) is not absolute", printable(runtime)),
                    None => "is not set".into(),
                };
                return Err(ControlError::invalid(format!(
                    "no place for the daemon's state: XDG_RUNTIME_DIR {why}; name a directory with \
                     --root DIR or RAMPACK_ROOT"
                )));
            }
        };
        if path.as_os_str().is_empty() {
            return Err(ControlError::invalid("the root directory is empty; write --root DIR"));
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
            return Err(ControlError::new(Errno(errno::ENAMETOOLONG), message));
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

    /// The socket at which a virtual machine finds the device `name`.
    #[must_use]
    pub fn vhost_socket(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.vhost"))
    }

    /// The directory of the FUSE files.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// The directory of the files that the kernel swaps to.
    #[must_use]
    pub fn swap(&self) -> PathBuf {
        self.path.join(fuse::leftovers::SWAP)
    }

    /// `path`, as the kernel has it: without links in the way to the root. Below that are the
    /// mounts, which are not looked into.
    #[must_use]
    pub fn real(&self, path: PathBuf) -> PathBuf {
        let at = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.strip_prefix(&self.path).map(|rest| at.join(rest)).unwrap_or(path)
    }

    /// The mount point of the control tree.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.path.join(fuse::leftovers::TREE)
    }

    /// The directory with links to files of the tree that Linux has in `/proc`.
    #[must_use]
    pub fn proc(&self) -> PathBuf {
        self.path.join("proc")
    }

    /// The directory of the links to the devices.
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

    /// Makes the directory if it is missing, and locks it for this process alone. An existing
    /// directory must be empty, or hold the record of an earlier daemon.
    ///
    /// # Errors
    /// `EBUSY` when another daemon has it (the message names its process), `EADDRINUSE` when a
    /// program listens in it, `ENOTEMPTY` when it holds a file that is not of rampack, `EACCES`
    /// when other users could change its contents or put another directory in its place, `ELOOP`
    /// for a symbolic link, or the error of the system call. The contents stay untouched then.
    pub fn claim(&self) -> Result<RootLock, ControlError> {
        self.claim_with(&[])
    }

    /// As [`Root::claim`], by a process that has the listening sockets at the paths `held` from the
    /// daemon before.
    ///
    /// # Errors
    /// As there.
    pub fn claim_with(&self, held: &[PathBuf]) -> Result<RootLock, ControlError> {
        if !Path::new(OWN_FILES).is_dir() {
            let message = "no /proc is mounted here, which has the list of mounts and more that \
                           rampack needs; mount it with: mount -t proc proc /proc";
            return Err(ControlError::new(Errno::ENOENT, message));
        }
        for _ in 0..TRIES {
            let root_was_made = self.make_directory()?;
            let claimed = self.try_claim(held, root_was_made);
            if root_was_made && !matches!(claimed, Ok(Some(_))) {
                // Only what is still empty goes.
                let _ = fs::remove_dir(&self.path);
            }
            // Another daemon may have come or gone at the same time.
            if let Some(claim) = claimed? {
                return Ok(claim);
            }
        }
        let message = format!("{} comes and goes; try again", self.lock_file().display());
        Err(ControlError::new(Errno::EAGAIN, message))
    }

    /// `None` if another daemon came or went.
    fn try_claim(
        &self,
        held: &[PathBuf],
        root_was_made: bool,
    ) -> Result<Option<RootLock>, ControlError> {
        let what = || format!("cannot lock {}", self.lock_file().display());
        let found = self.open_lock()?;
        let has_leftovers = found.is_some();
        let lock = match found {
            Some(lock) => self.take_lock(lock, held, host::keeps_listening)?,
            None => self.make_lock(held)?,
        };
        let Some(lock) = lock else { return Ok(None) };
        let (made, before) = Made::new(&self.path, lock).map_err(|e| failed(what(), &e))?;
        let claim = RootLock { root: self.clone(), made: Arc::new(made), has_leftovers, before };
        if root_was_made {
            claim.made.root_was_made().map_err(|e| failed(what(), &e))?;
        }
        Ok(Some(claim))
    }

    /// Locks the lock file of an earlier daemon; `None` when the file has just gone.
    fn take_lock(
        &self,
        mut lock: File,
        held: &[PathBuf],
        keeps_listening: impl Fn(&Path) -> bool,
    ) -> Result<Option<File>, ControlError> {
        let path = self.lock_file();
        let locked = lock_soon(&mut lock);
        if !locked.map_err(|e| failed(format!("cannot lock {}", path.display()), &e))? {
            return Err(self.taken(&mut lock));
        }
        // The earlier daemon may have removed the file between our open and our lock.
        if !is_at(&lock, &path) {
            return Ok(None);
        }
        if self.check_sockets(held, host::is_listening).is_ok() {
            return Ok(Some(lock));
        }
        // Whoever may have the root is not refused meanwhile.
        drop(lock);
        self.check_sockets(held, keeps_listening)?;
        Ok(None)
    }

    /// Makes the lock file in an empty directory; `None` when another daemon has just made one.
    fn make_lock(&self, held: &[PathBuf]) -> Result<Option<File>, ControlError> {
        self.check_sockets(held, host::keeps_listening)?;
        if !self.check_empty()? {
            return Ok(None);
        }
        match self.new_lock() {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if is_race(&error) => Ok(None),
            Err(error) => {
                Err(failed(format!("cannot lock {}", self.lock_file().display()), &error))
            }
        }
    }

    /// The process of the daemon that has or had this root.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        record::pid_of(&mut self.open_lock().ok()??)
    }

    /// Does a daemon have this root now?
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        // If this shares the lock with others who look, it releases it again with the file.
        let lock = self.open_lock().ok().flatten();
        lock.is_some_and(|lock| lock.try_lock_shared().is_err())
    }

    /// Does a daemon have this root, or will the next one, for which its keeper listens?
    #[must_use]
    pub fn has_daemon(&self) -> bool {
        self.is_claimed() || (self.pid().is_some() && host::keeps_listening(&self.control_socket()))
    }

    /// Opens the lock file of a daemon that has or had this root; `None` when there is no such
    /// file.
    fn open_lock(&self) -> Result<Option<File>, ControlError> {
        let path = self.lock_file();
        let what = || format!("cannot lock {}", path.display());
        // Only a regular file is opened: to open anything else can have an effect.
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Err(self.foreign()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(what(), &error)),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags::O_NOFOLLOW | flags::O_NONBLOCK);
        let mut lock = match options.open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(what(), &error)),
        };
        match record::is_record(&mut lock) {
            true => Ok(Some(lock)),
            false => Err(self.foreign()),
        }
    }

    /// Makes the lock file. It is locked and has its first line before it gets its name: a file
    /// without that line, left by a killed daemon, would look like a file of another program.
    fn new_lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let unnamed = options.clone().custom_flags(flags::O_TMPFILE).open(&self.path);
        let (mut lock, is_named) = match unnamed {
            Ok(lock) => (lock, false),
            // Some file systems have no files without a name.
            Err(_) => (options.create_new(true).open(self.lock_file())?, true),
        };
        if !try_lock(&lock)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        lock.write_all(record::MARK.as_bytes())?;
        if !is_named {
            let itself = format!("/proc/self/fd/{}", lock.as_raw_fd());
            linkat(CWD, itself, CWD, self.lock_file(), AtFlags::SYMLINK_FOLLOW)?;
        }
        Ok(lock)
    }

    /// # Errors
    /// `EADDRINUSE` when a program listens here: a daemon may run without its lock file.
    fn check_sockets(
        &self,
        held: &[PathBuf],
        is_listening: impl Fn(&Path) -> bool,
    ) -> Result<(), ControlError> {
        let sockets = [self.control_socket(), self.nbd_socket()];
        let of_other =
            |path: &&PathBuf| !held.contains(path) && record::is_socket(path) && is_listening(path);
        let Some(path) = sockets.iter().find(of_other) else {
            return Ok(());
        };
        let message = format!(
            "{} is in use: another program listens there, perhaps a daemon whose lock was removed; \
             stop it, or use another --root",
            path.display()
        );
        Err(ControlError::new(Errno(errno::EADDRINUSE), message))
    }

    /// Is the directory empty? `Ok(false)` when another daemon has just come.
    ///
    /// # Errors
    /// `ENOTEMPTY`, or the error of the system call.
    fn check_empty(&self) -> Result<bool, ControlError> {
        let what = |e: io::Error| failed(format!("cannot look into {}", self.path.display()), &e);
        let is_configuration = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| CONFIGURATION.iter().any(|name| entry.file_name() == *name))
        };
        if fs::read_dir(&self.path).map_err(what)?.all(is_configuration) {
            return Ok(true);
        }
        match self.open_lock()? {
            Some(_) => Ok(false),
            None => Err(self.foreign()),
        }
    }

    fn foreign(&self) -> ControlError {
        const SHOWN: usize = 5;
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| printable(entry.file_name())).collect();
        names.sort();
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(SHOWN);
        let message = format!(
            "root directory {} is not empty, and no rampack daemon made what is in it: {}{more}; \
             nothing was touched; name with --root a directory that is not there, is empty, or is \
             that of a daemon before (its file `lock` begins with `{}`)",
            self.path.display(),
            names.join(", "),
            record::MARK.trim_end()
        );
        ControlError::new(Errno(errno::ENOTEMPTY), message)
    }

    fn make_directory(&self) -> Result<bool, ControlError> {
        let what = || format!("cannot make the root directory {}", self.path.display());
        self.check_ancestors()?;
        if let Some(parent) = self.path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(parent).map_err(|e| failed(what(), &e))?;
        }
        let made = match DirBuilder::new().mode(0o700).create(&self.path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(what(), &error)),
        };
        self.check_directory(&[effective_user()])?;
        if made {
            // Other users may follow the links in it. The modes of the sockets keep them out there.
            let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(0o755));
        }
        Ok(made)
    }

    /// Checks that nobody but root and this user can put other files in the place of what the
    /// daemon made here.
    ///
    /// # Errors
    /// As [`Root::claim`].
    pub fn check_safe(&self) -> Result<(), ControlError> {
        self.check_ancestors()?;
        self.check_directory(&trusted_users())
    }

    /// Checks that the daemon in this root, a process of `user`, may be asked and believed.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check_server(&self, user: u32) -> Result<(), ControlError> {
        if trusted_users().contains(&user) {
            return Ok(());
        }
        let message = format!(
            "the daemon in {} belongs to user {user}, who is neither root nor you, so it was asked \
             nothing; ask it as that user (`sudo -u '#{user}' rampack …`)",
            self.path.display()
        );
        Err(ControlError::new(Errno::EACCES, message))
    }

    /// Checks that the root is a directory of one of `users`, who alone may write to it.
    fn check_directory(&self, users: &[u32]) -> Result<(), ControlError> {
        // Not what a symbolic link leads to: its owner could change it at any moment.
        let found = fs::symlink_metadata(&self.path)
            .map_err(|e| failed(format!("cannot use the root {}", self.path.display()), &e))?;
        if found.is_symlink() {
            let target = fs::read_link(&self.path).unwrap_or_default();
            let message = format!(
                "root {} is a symbolic link to {}; name with --root the directory itself",
                self.path.display(),
                printable(target)
            );
            return Err(ControlError::new(Errno(errno::ELOOP), message));
        }
        if !found.is_dir() {
            let message = format!("root {} is not a directory", self.path.display());
            return Err(ControlError::new(Errno(errno::ENOTDIR), message));
        }
        if !users.contains(&found.uid()) || found.mode() & 0o022 != 0 {
            let message = format!(
                "root directory {} must belong to user {} and be writable by nobody else; it \
                 belongs to user {} and has mode {:03o}",
                self.path.display(),
                effective_user(),
                found.uid(),
                found.mode() & 0o777
            );
            return Err(ControlError::new(Errno::EACCES, message));
        }
        Ok(())
    }

    /// Refuses a root where another user may rename what the way to it passes, and so put another
    /// directory in the place of the root: that of another user, or one where others may write. The
    /// sticky bit forbids the latter, as in `/tmp`.
    ///
    /// # Errors
    /// `EACCES`; the message names the directory.
    fn check_ancestors(&self) -> Result<(), ControlError> {
        let Some(parent) = self.path.parent() else { return Ok(()) };
        let passed = way_to(parent).map_err(|e| {
            failed(format!("cannot make the root directory {}", self.path.display()), &e)
        })?;
        let (users, groups) = (trusted_users(), [0, effective_group()]);
        let may_write = |found: &fs::Metadata| match found.mode() {
            mode if mode & 0o002 != 0 => Some("every user".to_string()),
            mode if mode & 0o020 != 0 && !groups.contains(&found.gid()) => {
                Some(format!("group {}", found.gid()))
            }
            _ => None,
        };
        for (path, found) in passed {
            let (path, mode) = (path.display(), found.mode() & 0o7777);
            let why = if !users.contains(&found.uid()) {
                format!("user {} owns {path} and may put another in its place", found.uid())
            } else if let (true, Some(who)) =
                (found.is_dir() && mode & 0o1000 == 0, may_write(&found))
            {
                format!(
                    "{who} may rename what is in {path} (mode {mode:03o}, without the sticky bit); \
                     `chmod go-w` forbids it"
                )
            } else {
                continue;
            };
            let message = format!(
                "root directory {} is not safe: {why}; choose another place with --root",
                self.path.display()
            );
            return Err(ControlError::new(Errno::EACCES, message));
        }
        Ok(())
    }

    fn taken(&self, lock: &mut File) -> ControlError {
        let who = match record::pid_of(lock) {
            Some(pid) => format!("pid {pid}"),
            None => "just starting".to_string(),
        };
        let message = format!(
            "a rampack daemon ({who}) already runs in {root}; give it another device with \
             `rampack --root {} add`, or start this one elsewhere with --root DIR",
            quoted(&self.path),
            root = self.path.display()
        );
        ControlError::new(Errno::EBUSY, message)
    }
}

/// Locks a lock file; false if a daemon has it. Waits for one who only looks, and for a daemon that
/// has not written its number yet.
fn lock_soon(lock: &mut File) -> io::Result<bool> {
    let end = Instant::now() + LOOK;
    while !try_lock(lock)? {
        // The daemon before an upgrade was this process.
        let is_other = |pid: &u32| *pid != std::process::id();
        let is_there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        let other = record::pid_of(lock).filter(is_other);
        if other.is_some_and(is_there) || Instant::now() > end {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

fn is_race(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound)
}

/// A claimed root. A drop removes everything made in it, and the directory itself if rampack made
/// it and it is empty.
pub struct RootLock {
    root: Root,
    made: Arc<Made>,
    has_leftovers: bool,
    before: Option<u32>,
}

impl RootLock {
    /// The claimed root.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The record of what is made in the root. Everything made there goes through it.
    #[must_use]
    pub fn made(&self) -> &Arc<Made> {
        &self.made
    }

    /// Did an earlier daemon leave something in this root?
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.has_leftovers
    }

    /// The process of an earlier daemon that was killed: it did not give this root back.
    #[must_use]
    pub fn killed_before_us(&self) -> Option<u32> {
        self.before
    }
}

impl Drop for RootLock {
    fn drop(&mut self) {
        self.made.end(&self.root.lock_file());
    }
}

#[cfg(test)]
mod tests;
