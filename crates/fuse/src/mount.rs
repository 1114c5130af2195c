//! A mounted directory: each file is a device.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use block::BlockDevice;
use fuser::{Config, MountOption, Session, SessionACL};
use host::{Role, Unmount, errno, mounts_at, printable};
use sync::atomic::{AtomicBool, Ordering};
use units::Cpu;

use crate::frontend::{Frontend, by_ring};
use crate::later::Later;
use crate::loopdev::LoopOptions;
use crate::mounts::Abort;
use crate::place::{ENDING, MOUNTS, Place};
use crate::ring::serving::Rings;
use crate::serving::{Kind, Threads};
use crate::table::{NEXT, Served, Table};
use crate::worker::Buffers;
use crate::{Error, handover, own_files};

/// The requests that a loop device may have under way: it sends all from one CPU, whose queue has
/// [`OF_MOUNT`](crate::ring::plan::OF_MOUNT) entries for all files, and each takes memory while its
/// thread has requests.
const LOOP_DEPTH: u32 = 16;

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of worker threads; `None` for one per CPU that this process may use.
    pub workers: Option<usize>,
    /// Gives each worker its own queue of requests under way (`FUSE_DEV_IOC_CLONE`). Without it
    /// another process can take the mount over ([`Mount::take_over`]).
    pub clone_fd: bool,
    /// The most threads for requests that would wait, so that they block no worker. A file has at
    /// most half of those that other files leave. With 0 the workers wait.
    pub waiters: usize,
    /// Have the kernel hand requests over by io_uring if it can (Linux 6.14): a thread for each
    /// CPU serves then instead of the workers. Requests under way fail when this process dies. A
    /// disk that waits holds up others where programs wait for it in more calls of one CPU than its
    /// queue has entries: 64, or 32 from 16 CPUs on; a loop device has fewer
    /// ([`Mount::loop_options`]).
    pub ring: bool,
    /// Tells the CPU of the calling thread.
    pub cpu: fn() -> Cpu,
}

impl Default for Options {
    fn default() -> Options {
        let cpu = host::cpu;
        Options { workers: None, clone_fd: true, waiters: 24, ring: false, cpu }
    }
}

/// A mounted directory that holds one file per device. Any thread except its workers may call every
/// method. Dropping it unmounts it, by force if needed.
pub struct Mount {
    place: Place,
    table: Arc<Table>,
    serving: Option<Serving>,
    later: Arc<Later>,
    channel: Option<OwnedFd>,
    /// Why it is served without io_uring although that was wanted.
    lack: Option<String>,
}

/// A file of a mount that is taken over: see [`Mount::numbers`].
pub struct KeptFile {
    /// Its name.
    pub name: String,
    /// Its number, which the kernel knows it by.
    pub number: u64,
    /// The device that has its contents.
    pub device: Arc<dyn BlockDevice>,
}

/// What serves a mount.
struct Serving {
    threads: Threads,
    /// With them, a worker has what the kernel sends in the other way.
    rings: Option<Rings>,
    /// The session that mounted; none for a mount that was taken over. Its drop unmounts, unless
    /// that has happened.
    session: Option<Session<Frontend>>,
}

/// The number of threads that read requests.
fn workers(options: Options) -> usize {
    options.workers.unwrap_or_else(host::online_cpus).max(1)
}

/// The frontend of a mount without files.
fn frontend(options: Options) -> Frontend {
    Frontend {
        table: Arc::new(Table::new(host::cpus())),
        later: Arc::new(Later::new(options.waiters)),
        buffers: Arc::new(Buffers::new(workers(options))),
        cpu: options.cpu,
        since: SystemTime::now(),
        owner: host::owner(),
        ring: None,
    }
}

/// A copy of the descriptor of a session without clones.
fn channel(session: &Session<Frontend>, options: Options) -> Result<Option<OwnedFd>, Error> {
    if options.clone_fd {
        return Ok(None);
    }
    let copy = session.as_fd().try_clone_to_owned();
    copy.map(Some).map_err(Error::system("copy a descriptor"))
}

/// Starts the threads of the mount of which `source` is a descriptor.
fn start(frontend: &Frontend, source: &impl AsFd, options: Options) -> Result<Threads, Error> {
    let doing = || Error::system("start the threads of the mount");
    let channels = channels(source, workers(options), options.clone_fd).map_err(doing())?;
    let kind = Kind { name: "fuse-disk", role: Role::FuseDisk, acl: SessionACL::Owner };
    Threads::start(frontend, channels, kind).map_err(doing())
}

/// A descriptor of the mount for each of `count` threads; with `clone`, each with its own queue of
/// requests under way.
pub(crate) fn channels(source: &impl AsFd, count: usize, clone: bool) -> io::Result<Vec<File>> {
    let of_mount = File::from(source.as_fd().try_clone_to_owned()?);
    let another = || {
        if clone {
            let fresh = OpenOptions::new().read(true).write(true).open(DEVICE)?;
            host::fuse_clone(&fresh, &of_mount)?;
            return Ok(fresh);
        }
        of_mount.try_clone()
    };
    let mut channels = (1..count).map(|_| another()).collect::<io::Result<Vec<_>>>()?;
    channels.push(of_mount);
    Ok(channels)
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
        let mut lack = None;
        if options.ring {
            match Mount::by_ring(&at, options)? {
                Ok(mount) => return Ok(mount),
                Err(error) => lack = Some(error.to_string()),
            }
        }
        let frontend = frontend(options);
        let mut config = Config::default();
        let (table, later) = (frontend.table.clone(), frontend.later.clone());
        config.mount_options = mount_options();
        let session = Session::new(frontend.clone(), &at, &config);
        let session = session.map_err(|error| refused(&at, error))?;
        // From here on, dropping `session` unmounts.
        let channel = channel(&session, options)?;
        let place = Place::new(at)?;
        let threads = start(&frontend, &session, options)?;
        let serving = Some(Serving { threads, rings: None, session: Some(session) });
        Mount { place, table, serving, later, channel, lack }.reach()
    }

    /// Mounts at `at` and serves it by io_uring. Where that cannot be, nothing is left, and the
    /// second error says why.
    fn by_ring(at: &Path, options: Options) -> Result<io::Result<Mount>, Error> {
        let options = Options { workers: Some(1), ..options };
        let mut frontend = frontend(options);
        let (table, later) = (frontend.table.clone(), frontend.later.clone());
        let (rings, start, enabled) = match by_ring::rings(&frontend, options.waiters) {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        let has_ring = Arc::new(AtomicBool::new(false));
        frontend.ring = Some(has_ring.clone());
        let mut config = Config::default();
        config.mount_options = mount_options();
        // An entry has no room for more, and who reads in the kernel may want it.
        let longest = MountOption::CUSTOM(format!("max_read={}", by_ring::largest()));
        config.mount_options.push(longest);
        let session = Session::new(frontend.clone(), at, &config);
        let session = session.map_err(|error| refused(at, error))?;
        drop(enabled);
        // From here on, dropping `session` unmounts.
        if !has_ring.load(Ordering::Relaxed) {
            return Ok(Err(io::Error::other("the kernel does not offer it")));
        }
        let doing = || Error::system("copy a descriptor");
        let source = File::from(session.as_fd().try_clone_to_owned().map_err(doing())?);
        if let Err(error) = start.begin(&Arc::new(source)) {
            return Ok(Err(error));
        }
        frontend.ring = None;
        let place = Place::new(at.to_path_buf())?;
        let threads = self::start(&frontend, &session, options)?;
        let serving = Some(Serving { threads, rings: Some(rings), session: Some(session) });
        Mount { place, table, serving, later, channel: None, lack: None }.reach().map(Ok)
    }

    /// A worker answers this: it shows that the workers run.
    fn reach(self) -> Result<Mount, Error> {
        own_files::metadata(self.at()).map_err(Error::system("reach the new mount"))?;
        Ok(self)
    }

    /// Serves on what a process that died had mounted at `at`. `channel` is its
    /// [`Mount::channel`], and `files` are the files that it had, with the contents they had. New
    /// files get numbers from `next` on, which is [`NEXT`] of its [`Mount::numbers`]: a program may
    /// still have a file open that is gone, and must not find another one. The kernel asks again
    /// for every request that the process had not answered, also for one that it had carried out.
    /// For users of the files the dead process was slow, no more. The process must have ended with
    /// all its threads, and `options.clone_fd` must have been false.
    ///
    /// A process that is killed while it reads its first requests may fail one of them, unless its
    /// memory was locked when the mount was made.
    ///
    /// # Errors
    /// [`Error::System`] if it is not mounted any more. If the kernel cannot ask again, which
    /// [`Mount::channel`] tells before, all requests fail and it is unmounted. It stays where the
    /// error [is passing](Error::is_passing): its users wait for the next process, but for what
    /// threads that could be started answer until this one ends.
    pub fn take_over(
        at: &Path,
        channel: OwnedFd,
        (files, next): (Vec<KeptFile>, u64),
        options: Options,
    ) -> Result<Mount, Error> {
        let options = Options { clone_fd: false, ..options };
        let frontend = frontend(options);
        let (table, later) = (frontend.table.clone(), frontend.later.clone());
        for KeptFile { name, number, device } in files {
            table.add_numbered(&name, Some(number), device)?;
        }
        table.begin_at(next);
        let channel = File::from(channel);
        let place = handover::take_over(at, Some(&channel))?;
        // From here on, dropping the mount undoes everything.
        let (serving, lack) = (None, None);
        let mut mount = Mount { place, table, serving, later, channel: None, lack };
        match start(&frontend, &channel, options) {
            Ok(threads) => {
                mount.serving = Some(Serving { threads, rings: None, session: None });
            }
            Err(error) if error.is_passing() => return Err(error),
            Err(error) => {
                let _ = mount.place.take_down(true, || None, || {});
                return Err(error);
            }
        }
        mount.channel = Some(channel.into());
        Ok(mount)
    }

    /// The descriptor that it is served by, if another process can take it over. A process that has
    /// a copy keeps the mount and the requests of its users from ending with this process. None
    /// with [`Options::clone_fd`], and if the kernel cannot ask again for requests (Linux 6.9).
    #[must_use]
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd).filter(|_| handover::has_resend())
    }

    /// The files and the numbers that the kernel knows them by, and as [`NEXT`] the number of the
    /// next file. A process that takes the mount over needs them.
    #[must_use]
    pub fn numbers(&self) -> Vec<(String, u64)> {
        let (next, files) = self.table.numbers();
        let numbers = files.iter().map(|file| (file.name.clone(), file.number));
        numbers.chain([(NEXT.to_owned(), next)]).collect()
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
        let (table, place) = (self.table.clone(), self.place.clone());
        let abort = place.connection.and_then(|number| Abort::of(&place.at, number)).map(Arc::new);
        CutOff { table, place, abort }
    }

    /// The names of the files, in the order they were added.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.table.all().iter().map(|file| file.name.clone()).collect()
    }

    /// The opens of the file `name`.
    #[must_use]
    pub fn opens(&self, name: &str) -> Opens {
        let file = self.table.named(Path::new(name));
        let file = file.map(|file| Arc::downgrade(&file)).unwrap_or_default();
        Opens { file, device: self.place.device() }
    }

    /// Is it still served? False after another process unmounted or aborted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| !serving.threads.are_over())
    }

    /// Does the kernel hand its requests over by io_uring?
    #[must_use]
    pub fn is_by_ring(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.rings.is_some())
    }

    /// What a loop device on one of the files has, so that its requests leave room for those of
    /// others.
    #[must_use]
    pub fn loop_options(&self) -> LoopOptions {
        // One request of the device is one of FUSE then.
        let largest_kib = self.is_by_ring().then_some(by_ring::largest() as u32 >> 10);
        LoopOptions { largest_kib, depth: Some(LOOP_DEPTH), ..LoopOptions::default() }
    }

    /// Why its requests do not come by io_uring, if [`Options::ring`] wanted it.
    #[must_use]
    pub fn lacks_ring(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Unmounts it and waits until its threads have ended. With `force` it unmounts even if files
    /// are open: requests under way and later ones fail. Does nothing the second time.
    ///
    /// # Errors
    /// [`Error::Busy`] if files are open and `force` is not given; nothing has changed then.
    pub fn unmount(&mut self, force: bool) -> Result<(), Error> {
        if self.serving.is_none() {
            return Ok(());
        }
        // A mount that another process aborted is not served any more, but still mounted.
        let backoff = if self.is_served() || self.place.is_mounted() {
            // After a forced unmount every request fails, even if the kernel cannot be told to fail
            // it.
            self.place.take_down(force, || self.is_used(), || self.table.close())?
        } else {
            ENDING
        };
        self.table.close();
        self.join(backoff);
        Ok(())
    }

    /// Is a file open? Not known of a mount that was taken over, because the process that died had
    /// the opens, and of one that is not served any more.
    fn is_used(&self) -> Option<bool> {
        let is_ours = self.serving.as_ref().is_some_and(|it| it.session.is_some());
        let is_open = || self.table.all().iter().any(|file| file.open_count() > 0);
        (is_ours && self.is_served()).then(is_open)
    }

    fn join(&mut self, backoff: Duration) {
        let Some(serving) = self.serving.take() else { return };
        let end = Instant::now() + backoff;
        // The mount takes no more answers, but the device is still in use.
        self.later.close(backoff);
        let Serving { threads, rings, session: _session } = serving;
        let are_over = rings.is_none_or(|rings| rings.join(end));
        if threads.join(end) && are_over {
            self.table.clear();
        }
    }
}

/// The opens of a file: see [`Mount::opens`].
#[derive(Clone, Default)]
pub struct Opens {
    file: Weak<Served>,
    /// The device number of the mount.
    device: Option<u64>,
}

impl Opens {
    /// How many there are now; a loop device on the file counts as one. Opens from before a
    /// [`Mount::take_over`] do not count. It waits for nothing.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.file.upgrade().map_or(0, |file| file.open_count())
    }

    /// Was the file taken over, and does a process have it open, perhaps since before? A loop
    /// device is none. Looks at all processes that this one may look at.
    #[must_use]
    pub fn are_from_before(&self) -> bool {
        let file = self.file.upgrade().filter(|file| file.is_taken_over);
        file.zip(self.device).is_some_and(|(file, device)| host::is_open(device, file.number))
    }
}

/// Ends all waits for a mount: see [`Mount::cut_off`].
#[derive(Clone)]
pub struct CutOff {
    table: Arc<Table>,
    place: Place,
    abort: Option<Arc<Abort>>,
}

impl CutOff {
    /// Fails all requests to the mount, now and later, and waits for none. So whatever waits in the
    /// kernel for a file of the mount or a loop device on it gets an error: what it has not
    /// written is lost. Any thread may call it.
    pub fn cut(&self) {
        self.table.close();
        if !self.abort.as_ref().is_some_and(|it| it.now()) {
            // EBUSY is the usual answer, after the abort.
            let _ = host::unmount(&self.place.at, Unmount::Abort);
        }
    }

    /// The device number of the files, as in `st_dev`.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        self.place.device()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.unmount(true);
    }
}

/// The options of every mount.
pub(crate) fn mount_options() -> Vec<MountOption> {
    // fuser passes the subtype only to the helper; the kernel takes it as an option.
    let subtype = match host::effective_user() {
        0 => MountOption::CUSTOM("subtype=rampack".into()),
        _ => MountOption::Subtype("rampack".into()),
    };
    let name = MountOption::FSName("rampack".into());
    vec![name, subtype, MountOption::NoExec, MountOption::NoAtime]
}

const DEVICE: &str = "/dev/fuse";

pub(crate) fn check_fuse() -> Result<(), Error> {
    open_fuse().map(drop)
}

/// Opens /dev/fuse.
pub(crate) fn open_fuse() -> Result<File, Error> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(channel) => Ok(channel),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::NoPermission {
            doing: "open /dev/fuse".into(),
            needs: "run as root, or let this user read and write it",
        }),
        Err(error) => Err(Error::NoFuse(error)),
    }
}

/// Checks that `at` is a directory without a mount on it, and that a mount there could be
/// unmounted; creates it if it is missing.
pub(crate) fn prepare(at: &Path) -> Result<PathBuf, Error> {
    check_unmount(at)?;
    match fs::metadata(at) {
        Ok(data) if !data.is_dir() => return Err(Error::mount_point(at, "it is not a directory")),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => create(at)?,
        // The second: the rings of that process are about to end.
        Err(error) if matches!(error.raw_os_error(), Some(errno::ENOTCONN | errno::ECANCELED)) => {
            let why = "the mount of a process that was killed is still there; it has to be cleared";
            return Err(Error::mount_point(at, why));
        }
        Err(error) => return Err(Error::mount_point(at, error.to_string())),
    }
    let at = at.canonicalize().map_err(|error| Error::mount_point(at, error.to_string()))?;
    let mounted = mounts_at(&at).map_err(Error::system(MOUNTS))?;
    if let Some(mounted) = mounted.last() {
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

/// fusermount3 mounts without /etc/mtab, but does not unmount.
fn check_unmount(at: &Path) -> Result<(), Error> {
    if host::effective_user() == 0 || Path::new("/etc/mtab").exists() {
        return Ok(());
    }
    Err(Error::NoPermission {
        doing: format!("unmount what would be mounted at {}", at.display()),
        needs: "fusermount3 unmounts for a user only if /etc/mtab is there, and root makes it with \
                'ln -s ../proc/self/mounts /etc/mtab'",
    })
}

/// Is the program there that mounts for users other than root?
fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/bin", "/sbin", "/usr/bin"].map(PathBuf::from);
    let mut directories = std::env::split_paths(&path).chain(usual);
    directories.any(|it| it.join("fusermount3").is_file() || it.join("fusermount").is_file())
}

pub(crate) fn refused(at: &Path, error: io::Error) -> Error {
    let doing = format!("mount at {}", at.display());
    match error.kind() {
        // The system call was refused, and there is no helper program. The library looks for it in
        // directories that it may not enter, too.
        ErrorKind::NotFound | ErrorKind::PermissionDenied if !has_helper() => Error::NoPermission {
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
