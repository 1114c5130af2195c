//! A mounted directory: each file is a device.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use block::BlockDevice;
use fuser::{BackgroundSession, Config, Filesystem, MountOption, Session};
use units::Cpu;

use crate::frontend::Frontend;
use crate::patient::Patient;
use crate::place::{ENDING, Place};
use crate::printable::printable;
use crate::sys::{self, Unmount};
use crate::table::Table;
use crate::worker::Workers;
use crate::{Error, mounts};

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of worker threads; `None` for one per CPU that this process may use.
    pub workers: Option<usize>,
    /// Binds each worker to one CPU. With clients on every CPU of an idle machine this measured up
    /// to a third faster. On a busy machine it loses more than that: the kernel wakes the worker
    /// that waited longest, and a bound worker cannot move to a free CPU.
    pub pin: bool,
    /// Gives each worker its own queue of requests under way (`FUSE_DEV_IOC_CLONE`).
    pub clone_fd: bool,
    /// The most threads for requests that would wait, so that they block no worker. With 0 the
    /// workers wait.
    pub waiters: usize,
    /// Tells the CPU of the calling thread.
    pub cpu: fn() -> Cpu,
}

impl Default for Options {
    fn default() -> Options {
        let cpu = sys::current_cpu;
        Options { workers: None, pin: false, clone_fd: true, waiters: 16, cpu }
    }
}

/// A mounted directory that holds one file per device. Any thread except its workers may call every
/// method. Dropping it unmounts it, by force if needed.
pub struct Mount {
    place: Place,
    table: Arc<Table>,
    session: Option<BackgroundSession>,
    patient: Arc<Patient>,
}

/// Starts the threads of a session from a thread that has given up its privileges, so that they
/// have none. The daemon tells if that is refused.
fn spawn_without_privileges<F>(session: Session<F>) -> io::Result<BackgroundSession>
where
    F: Filesystem + Send + Sync + 'static,
{
    let start = move || {
        let _ = host::drop_privileges();
        session.spawn()
    };
    let started = thread::Builder::new().name("fuse-start".into()).spawn(start)?.join();
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts them panicked")))
}

impl Mount {
    /// Mounts at the directory `at`. A missing directory is created, for its owner only. Root needs
    /// no helper program; other users need fusermount3.
    ///
    /// # Errors
    /// [`Error`] names the missing thing: FUSE, the permission, or a directory to mount on.
    pub fn new(at: &Path, options: Options) -> Result<Mount, Error> {
        check_fuse()?;
        let at = prepare(at)?;
        let cpus = sys::allowed_cpus();
        let workers = options.workers.unwrap_or(cpus.len()).max(1);
        let table = Arc::new(Table::new(host::cpus()));
        let owner = sys::owner();
        let patient = Arc::new(Patient::new(options.waiters));
        let frontend = Frontend {
            table: table.clone(),
            patient: patient.clone(),
            workers: Workers::new(if options.pin { cpus } else { Vec::new() }),
            cpu: options.cpu,
            since: SystemTime::now(),
            owner,
        };
        let mut config = Config::default();
        // fuser passes the subtype only to the helper; the kernel takes it as an option.
        let subtype = match owner.0 {
            0 => MountOption::CUSTOM("subtype=rampack".into()),
            _ => MountOption::Subtype("rampack".into()),
        };
        let name = MountOption::FSName("rampack".into());
        config.mount_options = vec![name, subtype, MountOption::NoExec, MountOption::NoAtime];
        config.n_threads = Some(workers);
        config.clone_fd = options.clone_fd;
        let session = Session::new(frontend, &at, &config).map_err(|error| refused(&at, error))?;
        let session = spawn_without_privileges(session)
            .map_err(Error::system("start the threads of the mount"))?;
        let mount = Mount { place: Place::new(at), table, session: Some(session), patient };
        // A worker answers this: it shows that the workers run.
        fs::metadata(mount.at()).map_err(Error::system("reach the new mount"))?;
        Ok(mount)
    }

    /// The directory it is mounted at, as an absolute path.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.place.at
    }

    /// The path that the file `name` has or would have.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.at.join(name)
    }

    /// Serves `device`, the outermost device of its chain, as the file `name`. The size of the file
    /// is the size of the device, also after a resize.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is taken or is not a valid file name.
    pub fn add(&self, name: &str, device: Arc<dyn BlockDevice>) -> Result<PathBuf, Error> {
        self.table.add(name, device)?;
        Ok(self.path(name))
    }

    /// Removes the file `name` and returns its device when no request uses it, or after ten seconds
    /// or [`CutOff::cut`] although one does: its I/O hangs. A process that has the file open gets
    /// ESTALE from then on. None for an unknown name.
    pub fn remove(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        self.table.remove(name)
    }

    /// A way to end all waits for this mount from another thread.
    #[must_use]
    pub fn cut_off(&self) -> CutOff {
        let (table, at) = (self.table.clone(), self.place.at.clone());
        CutOff { table, at, connection: self.place.connection }
    }

    /// The names of the files, in the order they were added.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.table.all().iter().map(|file| file.name.clone()).collect()
    }

    /// How many opens the file `name` has now; a loop device on it counts as one.
    #[must_use]
    pub fn open_count(&self, name: &str) -> u64 {
        self.table.named(Path::new(name)).map_or(0, |file| file.open_count())
    }

    /// Is it still served? False after another process unmounted or aborted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts it and waits until its threads have ended. With `force` it unmounts even if files
    /// are open: requests under way and later ones fail. Does nothing the second time.
    ///
    /// # Errors
    /// [`Error::Busy`] if files are open and `force` is not given; nothing has changed then.
    pub fn unmount(&mut self, force: bool) -> Result<(), Error> {
        if self.session.is_none() {
            return Ok(());
        }
        // A mount that another process aborted is not served any more, but still mounted.
        let backoff = if self.is_served() || self.place.is_mounted() {
            // After a forced unmount every request fails, even if the kernel cannot be told to fail
            // it.
            self.place.take_down(force, || self.table.close())?
        } else {
            ENDING
        };
        self.table.close();
        self.join(backoff);
        Ok(())
    }

    fn join(&mut self, backoff: Duration) {
        let Some(session) = self.session.take() else { return };
        let end = Instant::now() + backoff;
        // The mount takes no more answers, but the device is still in use.
        self.patient.close(backoff);
        while !session.guard.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        if session.guard.is_finished() {
            // The result of the threads is not needed: the mount is gone.
            let _ = session.join();
            self.table.clear();
        }
    }
}

/// Ends all waits for a mount: see [`Mount::cut_off`].
#[derive(Clone)]
pub struct CutOff {
    table: Arc<Table>,
    at: PathBuf,
    connection: Option<u32>,
}

impl CutOff {
    /// Fails all requests to the mount, now and later, and waits for none. So whatever waits in the
    /// kernel for a file of the mount or a loop device on it goes on with an error: what it has not
    /// written is lost. Any thread may call it.
    pub fn cut(&self) {
        self.table.close();
        if !self.connection.is_some_and(mounts::abort_fuse) {
            // EBUSY is the usual answer, after the abort.
            let _ = sys::unmount(&self.at, Unmount::Abort);
        }
    }

    /// Has the mount been cut off, or unmounted?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.table.is_closed()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.unmount(true);
    }
}

pub(crate) fn check_fuse() -> Result<(), Error> {
    open_fuse().map(drop)
}

/// Opens /dev/fuse.
pub(crate) fn open_fuse() -> Result<File, Error> {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(channel) => Ok(channel),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::NoPermission {
            doing: "open /dev/fuse".into(),
            needs: "run as root, or let this user read and write it",
        }),
        Err(error) => Err(Error::NoFuse(error)),
    }
}

/// Checks that `at` is a directory without a mount on it; creates it if it is missing.
pub(crate) fn prepare(at: &Path) -> Result<PathBuf, Error> {
    match fs::metadata(at) {
        Ok(data) if !data.is_dir() => return Err(Error::mount_point(at, "it is not a directory")),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => create(at)?,
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let why = "the mount of a process that was killed is still there; it has to be cleared";
            return Err(Error::mount_point(at, why));
        }
        Err(error) => return Err(Error::mount_point(at, error.to_string())),
    }
    let at = at.canonicalize().map_err(|error| Error::mount_point(at, error.to_string()))?;
    if let Some(mounted) = mounts::at(&at).last() {
        let source = printable(&mounted.source);
        let why = format!("something is mounted there already ({source}, {})", mounted.kind);
        return Err(Error::mount_point(&at, why));
    }
    Ok(at)
}

fn create(at: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(at);
    made.map_err(|error| Error::mount_point(at, format!("it cannot be created: {error}")))
}

pub(crate) fn refused(at: &Path, error: io::Error) -> Error {
    let doing = format!("mount at {}", at.display());
    match error.kind() {
        // The system call was refused, and there is no helper program.
        ErrorKind::NotFound => Error::NoPermission {
            doing,
            needs: "run as root with CAP_SYS_ADMIN, or install fuse3 for its fusermount3",
        },
        ErrorKind::PermissionDenied => Error::NoPermission {
            doing,
            needs: "run as root, or choose a directory that belongs to this user",
        },
        _ => Error::System { doing, source: error },
    }
}
