//! Loop devices: block devices on files of the mount.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use host::{LoopSetup, Unmount, errno, flags};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::loops::{attribute, backing_of, node};
use crate::place::MOUNTS;
use crate::{Error, User, loops, own_files, users};

/// How often another program may take a free device before us.
const RACES: u32 = 64;
/// How long a program such as udev, which looks at a change, may have a device open.
const LOOKING: Duration = Duration::from_secs(1);
/// How long the kernel may take to detach a device that nobody has open.
const GOING: Duration = Duration::from_secs(5);

/// How a loop device is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopOptions {
    /// Its logical block size in bytes. With less than a page, small writes become
    /// read-modify-write cycles.
    pub block_size: u32,
    /// Bypass the page cache of the file.
    pub direct_io: bool,
    /// Take no writes.
    pub read_only: bool,
    /// Pass flushes on to the file. Without it the device reports no write cache, which saves a
    /// request per flush where there is no cache.
    pub flush: bool,
    /// The largest request in KiB; `None` for the driver's own limit. A larger request needs more
    /// kernel memory.
    pub largest_kib: Option<u32>,
    /// The most requests under way; `None` for the driver's own limit.
    pub depth: Option<u32>,
    /// The number that it has if that is free; another one otherwise.
    pub number: Option<u32>,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            block_size: 4096,
            direct_io: true,
            read_only: false,
            flush: true,
            largest_kib: None,
            depth: None,
            number: None,
        }
    }
}

/// A loop device on a file. Dropping it detaches it unless it is in use. It holds no file open, so
/// a killed process leaves nothing that waits for itself.
#[derive(Debug)]
pub struct LoopDevice {
    known: KnownLoop,
    path: PathBuf,
    attached: bool,
}

/// What of a loop device was not there before it was attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Made {
    /// The device itself: the kernel added it.
    pub device: bool,
    /// Its node in /dev: no udev made it.
    pub node: bool,
}

/// What keeps a loop device from being detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// A file system, swap space or another device stands on it.
    Claimed,
    /// A program has it open, perhaps for a moment.
    Open,
}

/// What another process needs to know of a loop device to change it: see
/// [`LoopDevice::into_known`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownLoop {
    /// The N of `/dev/loopN`.
    pub number: u32,
    /// The file that it was attached to.
    pub backing: PathBuf,
    /// The kernel's name of the file, which identifies the device later. Its file system may be
    /// dead then, so it is not asked.
    pub known_as: Option<PathBuf>,
    /// What was made for it.
    pub made: Made,
}

impl KnownLoop {
    /// Its node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        node(self.number)
    }
}

impl LoopDevice {
    /// The loop device that another process knows. It waits for nothing.
    #[must_use]
    pub fn of_known(known: KnownLoop) -> LoopDevice {
        LoopDevice { path: known.path(), known, attached: true }
    }

    /// Loop device `number`, which is attached to `file`.
    fn attached(number: u32, file: &Path, made: Made) -> LoopDevice {
        let (backing, known_as) = (file.to_path_buf(), backing_of(number));
        LoopDevice::of_known(KnownLoop { number, backing, known_as, made })
    }

    /// Lets go of it: it stays attached, and another process can change it.
    #[must_use]
    pub fn into_known(mut self) -> KnownLoop {
        self.attached = false;
        self.known.clone()
    }

    /// Attaches a free loop device to `file`, in one step (`LOOP_CONFIGURE`, Linux 5.8). Makes its
    /// node in /dev if udev does not.
    ///
    /// # Errors
    /// [`Error::NoLoop`] without the driver, [`Error::NoPermission`] for a user other than root.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<LoopDevice, Error> {
        let control = open_control()?;
        let doing = |what: &str| format!("set up a loop device on {}: {what}", file.display());
        let backing = OpenOptions::new().read(true).write(!options.read_only).open(file);
        let backing = backing.map_err(Error::system(doing("open the file")))?;
        let LoopOptions { block_size, direct_io, read_only, .. } = options;
        let (name, how) =
            (file.as_os_str().as_bytes(), LoopSetup { block_size, direct_io, read_only });
        let (mut wanted, mut missing) = (options.number, None);
        for _ in 0..RACES {
            let (number, is_new) = match wanted.take() {
                Some(number) => (number, host::loop_add(&control, number).is_ok()),
                None => {
                    let before = loops::all().unwrap_or_default();
                    let number = host::loop_get_free(&control);
                    let number = number.map_err(Error::system(doing("find a free one")))?;
                    (number, !before.contains(&number))
                }
            };
            let (device, node) = match open_node(number) {
                Ok(opened) => opened,
                // Who added it takes it away at this moment.
                Err(error)
                    if matches!(error.raw_os_error(), Some(errno::ENXIO | errno::ENOENT)) =>
                {
                    missing = Some(error);
                    continue;
                }
                Err(error) => return Err(Error::system(doing("open its node"))(error)),
            };
            let made = Made { device: is_new, node };
            match host::loop_configure(&device, &backing, name, how) {
                Ok(()) => {
                    drop(device);
                    let device = LoopDevice::attached(number, file, made);
                    tune(device.known.number, options);
                    return Ok(device);
                }
                Err(error) if error.raw_os_error() == Some(errno::EBUSY) => {}
                Err(error) => {
                    drop(device);
                    unmake(number, made);
                    return Err(Error::system(doing("configure it"))(error));
                }
            }
        }
        if let Some(error) = missing {
            return Err(Error::system(doing("open its node"))(error));
        }
        let busy = io::Error::from_raw_os_error(errno::EBUSY);
        Err(Error::system(doing("others took each free one first"))(busy))
    }

    /// The loop device that a process that died attached to `file`, an absolute path without links.
    /// It is attached as before; dropping it detaches it as if this process had attached it. The
    /// file must be served again, because its file system is asked. The file is a mount, or lies in
    /// one. None if there is none.
    ///
    /// # Errors
    /// If it is not known whether there is one: a device that may be it cannot be looked at, or its
    /// file system does not answer in time. It stays as it is, and may be in use.
    pub fn adopt(file: &Path) -> Result<Option<LoopDevice>, Error> {
        let doing = || Error::system(format!("find the loop device on {}", file.display()));
        let mut mounts = host::mounts().map_err(doing())?;
        mounts.retain(|it| it.at == file || Some(&*it.at) == file.parent());
        let mut found = loops::try_backed_under(file).map_err(doing())?;
        found.retain(|(_, backing)| backing == file);
        let mut result = Ok(None);
        for (number, _) in found {
            match loops::is_on(number, &mounts) {
                Ok(true) => return Ok(Some(LoopDevice::attached(number, file, Made::default()))),
                Ok(false) => {}
                Err(error) => result = Err(doing()(error)),
            }
        }
        result
    }

    /// Its node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The N of `/dev/loopN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.known.number
    }

    /// The file that it was attached to.
    #[must_use]
    pub fn backing(&self) -> &Path {
        &self.known.backing
    }

    /// Does it bypass the page cache of its file? The kernel may refuse this without an error.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        fs::read_to_string(attribute(self.known.number, "loop/dio"))
            .is_ok_and(|text| text.trim() == "1")
    }

    /// The users that stand on it: a file system, swap space, another device. A program that only
    /// reads or writes it is not one.
    #[must_use]
    pub fn in_use(&self) -> Vec<User> {
        match claim(self.known.number) {
            Err(error) if self.is_ours() && error.raw_os_error() == Some(errno::EBUSY) => {
                self.users()
            }
            _ => Vec::new(),
        }
    }

    /// The users that can be seen, for a message. It looks at all processes.
    #[must_use]
    pub fn users(&self) -> Vec<User> {
        users::of_loop(self.known.number)
    }

    /// Sets its size to the size of its file. A thread that serves the file must not call it: the
    /// call asks the file for its size.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn refresh_size(&self) -> Result<(), Error> {
        let doing = || Error::system(format!("resize {}", self.path.display()));
        // The driver may take the size that the file system has cached; for FUSE that is the size
        // of the last request for it.
        own_files::metadata(&self.known.backing).map_err(doing())?;
        let (device, _) = open_node(self.known.number).map_err(doing())?;
        host::loop_set_capacity(&device).map_err(doing())
    }

    /// Detaches it from its file, unless the kernel says that others have it: nothing has changed
    /// then, and what they have is returned. Does nothing the second time, or if another process
    /// detached it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn try_detach(&mut self) -> Result<Option<Hold>, Error> {
        if self.attached && self.is_ours() {
            if let Some(hold) = release(self.known.number)? {
                return Ok(Some(hold));
            }
            unmake(self.known.number, self.known.made);
        }
        self.attached = false;
        Ok(None)
    }

    /// As [`LoopDevice::try_detach`]. A program may have it open for a moment.
    ///
    /// # Errors
    /// [`Error::Busy`], which names the users; nothing has changed then.
    pub fn detach(&mut self) -> Result<(), Error> {
        match when_closed(|| self.try_detach())? {
            None => Ok(()),
            Some(_) => Err(busy(self.known.number)),
        }
    }

    /// As [`LoopDevice::detach`], but it unmounts file systems first, also those in use: the device
    /// then goes when their last user closes its files. Returns the mount points that it unmounted.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is swapped to or held by another device: their data would be lost.
    pub fn force_detach(&mut self) -> Result<Vec<PathBuf>, Error> {
        let mut unmounted = Vec::new();
        if self.attached && self.is_ours() {
            unmounted = unmount_all(self.known.number)?;
            match when_closed(|| release(self.known.number))? {
                Some(_) => clear_later(self.known.number)?,
                None => unmake(self.known.number, self.known.made),
            }
        }
        self.attached = false;
        Ok(unmounted)
    }

    /// Another file may have this number by now.
    fn is_ours(&self) -> bool {
        self.known.known_as.is_some() && backing_of(self.known.number) == self.known.known_as
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

/// Opens the driver of loop devices.
pub(crate) fn open_control() -> Result<File, Error> {
    match OpenOptions::new().read(true).write(true).open("/dev/loop-control") {
        Ok(control) => Ok(control),
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound)
                || matches!(error.raw_os_error(), Some(errno::ENODEV | errno::ENXIO)) =>
        {
            Err(Error::NoLoop(error))
        }
        Err(error) if matches!(error.raw_os_error(), Some(errno::EACCES | errno::EPERM)) => {
            Err(Error::NoPermission {
                doing: format!("open /dev/loop-control ({error})"),
                needs: "run as root where loop devices are allowed, or use the file itself",
            })
        }
        Err(error) => Err(Error::system("open /dev/loop-control")(error)),
    }
}

/// Can this process make loop devices?
///
/// # Errors
/// [`Error::NoLoop`] without the driver; [`Error::NoPermission`].
pub fn check_loops() -> Result<(), Error> {
    open_control().map(drop)
}

/// Opens the node of loop device `number`. Returns also whether this process made the node.
fn open_node(number: u32) -> io::Result<(File, bool)> {
    let path = node(number);
    let open = || OpenOptions::new().read(true).write(true).open(&path);
    match open() {
        // Without udev, this process makes the node of a new device. With udev, the node may come
        // at any moment.
        Err(error) if matches!(error.raw_os_error(), Some(errno::ENOENT | errno::ENXIO)) => {
            let numbers = host::device_numbers(&format!("loop{number}"));
            let missing = || io::Error::from_raw_os_error(errno::ENXIO);
            let (major, minor) = *numbers.first().ok_or_else(missing)?;
            let device = host::makedev(major, minor);
            let mode = Mode::RUSR | Mode::WUSR;
            let made = mknodat(CWD, &path, FileType::BlockDevice, mode, device);
            match made.map_err(io::Error::from) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                made => open().map(|device| (device, made.is_ok())),
            }
        }
        opened => opened.map(|device| (device, false)),
    }
}

/// Opens it exclusively; EBUSY if it is mounted, swapped to or held.
fn claim(number: u32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags::O_EXCL).open(node(number))
}

fn busy(number: u32) -> Error {
    Error::Busy { what: node(number), users: users::of_loop(number) }
}

/// Tries to detach a device until nobody has it open, for a while.
fn when_closed(
    mut attempt: impl FnMut() -> Result<Option<Hold>, Error>,
) -> Result<Option<Hold>, Error> {
    let end = Instant::now() + LOOKING;
    loop {
        match attempt()? {
            Some(Hold::Open) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            done => return Ok(done),
        }
    }
}

/// Detaches loop device `number` unless it is in use, and waits until it is gone.
pub(crate) fn clear(number: u32) -> Result<(), Error> {
    match when_closed(|| release(number))? {
        None => Ok(()),
        Some(_) => Err(busy(number)),
    }
}

/// Detaches loop device `number` if nobody else has it; what they have otherwise. The exclusive
/// open is kept meanwhile, so that no other user can begin.
fn release(number: u32) -> Result<Option<Hold>, Error> {
    let doing = || Error::system(format!("detach {}", node(number).display()));
    let file = backing_of(number);
    let device = match claim(number) {
        Err(error) if error.raw_os_error() == Some(errno::EBUSY) => return Ok(Some(Hold::Claimed)),
        claimed => claimed.map_err(doing())?,
    };
    match host::loop_clear(&device) {
        Err(error) if error.raw_os_error() == Some(errno::ENXIO) => return Ok(None),
        cleared => cleared.map_err(doing())?,
    }
    // Only the kernel knows whether others have it open: then it would wait for their last close.
    let name = file.as_ref().map(|file| file.as_os_str().as_bytes()).unwrap_or_default();
    if host::loop_keep(&device, name).map_err(doing())? {
        return Ok(Some(Hold::Open));
    }
    // It goes with the last close, which is ours. Nobody else has it before that.
    tune(number, LoopOptions::default());
    drop(device);
    let end = Instant::now() + GOING;
    while file.is_some() && backing_of(number) == file && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

/// Sets what sysfs has of loop device `number`. It works without that, where sysfs is read-only.
/// Newer kernels (seen on 6.18) remember the settings longer than the file: who has the device next
/// would lose flushes, and have small requests.
fn tune(number: u32, options: LoopOptions) {
    let cache = if options.flush { "write back" } else { "write through" };
    let _ = fs::write(attribute(number, "queue/write_cache"), cache);
    // 0 is the driver's own limit.
    let kib = options.largest_kib.unwrap_or(0);
    let _ = fs::write(attribute(number, "queue/max_sectors_kb"), kib.to_string());
    let own = || fs::read_to_string("/sys/module/loop/parameters/hw_queue_depth");
    if let Some(depth) = options.depth.map(|it| it.to_string()).or_else(|| own().ok()) {
        let _ = fs::write(attribute(number, "queue/nr_requests"), depth);
    }
}

/// Removes what was made for loop device `number`, unless another file has it by now.
fn unmake(number: u32, made: Made) {
    if backing_of(number).is_some() {
        return;
    }
    if made.device
        && let Ok(control) = open_control()
    {
        // Whoever has it open or takes it at this moment keeps it.
        let _ = host::loop_remove(&control, number);
    }
    if made.node {
        let _ = fs::remove_file(node(number));
    }
}

/// Makes the kernel detach loop device `number` when its last user closes it: `LOOP_CLR_FD` does so
/// for a device that others have open.
pub(crate) fn clear_later(number: u32) -> Result<(), Error> {
    tune(number, LoopOptions::default());
    let done = File::open(node(number)).and_then(|device| match host::loop_clear(&device) {
        Err(error) if error.raw_os_error() == Some(errno::ENXIO) => Ok(()),
        cleared => cleared,
    });
    done.map_err(Error::system(format!("detach {}", node(number).display())))
}

/// Unmounts every file system on loop device `number`, the last mounted first. One that is covered
/// stays: its path leads to what covers it.
pub(crate) fn unmount_all(number: u32) -> Result<Vec<PathBuf>, Error> {
    let users = users::on_loop(number).map_err(Error::system(MOUNTS))?;
    if users.iter().any(|user| matches!(user, User::Swap | User::Holder(_))) {
        return Err(Error::Busy { what: node(number), users });
    }
    let numbers = host::device_numbers(&format!("loop{number}"));
    let mut unmounted = Vec::new();
    for user in users.into_iter().rev() {
        let User::MountedAt(path) = user else { continue };
        let all = host::mounts().map_err(Error::system(MOUNTS))?;
        let is_it = |it: &host::Mounted| it.at == path && numbers.contains(&it.device);
        if all.iter().rposition(is_it).is_some_and(|own| host::covering(&all, own).is_some()) {
            continue;
        }
        let plain = host::unmount(&path, Unmount::WhenUnused);
        let done = plain.or_else(|_| host::unmount(&path, Unmount::Lazily));
        done.map_err(Error::system(format!("unmount {}", path.display())))?;
        unmounted.push(path);
    }
    Ok(unmounted)
}
