//! Loop devices: block devices on files of the mount.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::loops::{attribute, backing_of, node};
use crate::sys::{self, LoopConfig, Unmount};
use crate::{Error, User, loops, mounts, own_files, users};

/// How often another program may take a free device before us.
const RACES: u32 = 64;
/// How long a device may take to go after its last user: programs that probe new devices open them
/// for a moment.
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
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            block_size: 4096,
            direct_io: true,
            read_only: false,
            flush: true,
            largest_kib: None,
        }
    }
}

/// A loop device on a file. Dropping it detaches it unless it is in use. It holds no file open, so
/// a killed process leaves nothing that waits for itself.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    path: PathBuf,
    backing: PathBuf,
    /// The kernel's name of the file, which identifies the device later. Its file system may be
    /// dead then, so it is not asked.
    known_as: Option<PathBuf>,
    attached: bool,
    /// This process made its node in /dev.
    made_node: bool,
}

/// What another process needs to know of a loop device to change it: see
/// [`LoopDevice::into_known`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownLoop {
    /// The N of `/dev/loopN`.
    pub number: u32,
    /// The file that it was attached to.
    pub backing: PathBuf,
    /// The kernel's name of the file.
    pub known_as: Option<PathBuf>,
    /// The process that attached it made its node in /dev.
    pub made_node: bool,
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
        let KnownLoop { number, backing, known_as, made_node } = known;
        LoopDevice { number, path: node(number), backing, known_as, attached: true, made_node }
    }

    /// Lets go of it: it stays attached, and another process can change it.
    #[must_use]
    pub fn into_known(mut self) -> KnownLoop {
        self.attached = false;
        KnownLoop {
            number: self.number,
            backing: self.backing.clone(),
            known_as: self.known_as.clone(),
            made_node: self.made_node,
        }
    }

    /// Attaches the next free loop device to `file`, in one step (`LOOP_CONFIGURE`, Linux 5.8).
    /// Makes its node in /dev if udev does not.
    ///
    /// # Errors
    /// [`Error::NoLoop`] without the driver, [`Error::NoPermission`] for a user other than root.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<LoopDevice, Error> {
        let control = open_control()?;
        let doing = |what: &str| format!("set up a loop device on {}: {what}", file.display());
        let backing = OpenOptions::new().read(true).write(!options.read_only).open(file);
        let backing = backing.map_err(Error::system(doing("open the file")))?;
        let mut config = LoopConfig::new(&backing);
        config.block_size = options.block_size;
        if options.direct_io {
            config.info.flags |= sys::LOOP_FLAG_DIRECT_IO;
        }
        if options.read_only {
            config.info.flags |= sys::LOOP_FLAG_READ_ONLY;
        }
        let name = file.as_os_str().as_bytes();
        let kept = name.len().min(sys::LOOP_NAME - 1);
        config.info.file_name[..kept].copy_from_slice(&name[..kept]);
        for _ in 0..RACES {
            let number = sys::loop_get_free(&control);
            let number = number.map_err(Error::system(doing("find a free one")))?;
            let opened = open_node(number).map_err(Error::system(doing("open its node")))?;
            let (device, made_node) = opened;
            match sys::loop_configure(&device, &config) {
                Ok(()) => {
                    drop(device);
                    let device = LoopDevice {
                        number,
                        path: node(number),
                        backing: file.to_path_buf(),
                        known_as: backing_of(number),
                        attached: true,
                        made_node,
                    };
                    device.tune(options);
                    return Ok(device);
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(Error::system(doing("configure it"))(error)),
            }
        }
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        Err(Error::system(doing("others took each free one first"))(busy))
    }

    /// The loop device that a process that died attached to `file`, an absolute path without links.
    /// It is attached as before; dropping it detaches it as if this process had attached it. The
    /// file must be served again, because its file system is asked. The file is a mount, or lies in
    /// one. None if there is none.
    #[must_use]
    pub fn adopt(file: &Path) -> Option<LoopDevice> {
        let mut mounts = mounts::at(file);
        mounts.extend(file.parent().map(mounts::at).into_iter().flatten());
        let ours = |number: &u32| loops::stranger(*number, &mounts).is_none();
        let number = loops::find_by_backing(file).into_iter().find(ours)?;
        Some(LoopDevice {
            number,
            path: node(number),
            backing: file.to_path_buf(),
            known_as: backing_of(number),
            attached: true,
            made_node: false,
        })
    }

    /// Settings that measured better. If sysfs is read-only, the device works without them.
    fn tune(&self, options: LoopOptions) {
        if !options.flush {
            let _ = fs::write(attribute(self.number, "queue/write_cache"), "write through");
        }
        if let Some(kib) = options.largest_kib {
            let _ = fs::write(attribute(self.number, "queue/max_sectors_kb"), kib.to_string());
        }
    }

    /// Its node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The N of `/dev/loopN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The file that it was attached to.
    #[must_use]
    pub fn backing(&self) -> &Path {
        &self.backing
    }

    /// Does it bypass the page cache of its file? The kernel may refuse this without an error.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        fs::read_to_string(attribute(self.number, "loop/dio")).is_ok_and(|text| text.trim() == "1")
    }

    /// The users that keep it from being detached. A program that only reads or writes it is not
    /// one.
    #[must_use]
    pub fn in_use(&self) -> Vec<User> {
        match claim(self.number) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => who(self.number),
            _ => Vec::new(),
        }
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
        own_files::metadata(&self.backing).map_err(doing())?;
        let (device, _) = open_node(self.number).map_err(doing())?;
        sys::loop_set_capacity(&device).map_err(doing())
    }

    /// Detaches it from its file and waits until it is gone. Does nothing the second time, or if
    /// another process detached it.
    ///
    /// # Errors
    /// [`Error::Busy`], which names the users, if it is mounted, swapped to, or held by another
    /// device; nothing has changed then. The same error if a program keeps it open for some
    /// seconds; the device then goes when that program closes it.
    pub fn detach(&mut self) -> Result<(), Error> {
        if self.attached {
            if self.is_ours() {
                clear(self.number)?;
                self.remove_node();
            }
            self.attached = false;
        }
        Ok(())
    }

    /// As [`LoopDevice::detach`], but it unmounts file systems first, also those in use: the device
    /// then goes when their last user closes its files. Returns the mount points that it unmounted.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is swapped to or held by another device: their data would be lost.
    pub fn force_detach(&mut self) -> Result<Vec<PathBuf>, Error> {
        let mut unmounted = Vec::new();
        if self.attached && self.is_ours() {
            unmounted = unmount_all(self.number)?;
            match clear(self.number) {
                Err(Error::Busy { .. }) => clear_later(self.number)?,
                cleared => cleared?,
            }
            self.remove_node();
        }
        self.attached = false;
        Ok(unmounted)
    }

    /// Removes the node that this process made, unless another file has the device by now.
    fn remove_node(&self) {
        if self.made_node && backing_of(self.number).is_none() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Another file may have this number by now.
    fn is_ours(&self) -> bool {
        self.known_as.is_some() && backing_of(self.number) == self.known_as
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

fn open_control() -> Result<File, Error> {
    match OpenOptions::new().read(true).write(true).open("/dev/loop-control") {
        Ok(control) => Ok(control),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::NoPermission {
            doing: "set up a loop device".into(),
            needs: "run as root, or use the file itself",
        }),
        Err(error) => Err(Error::NoLoop(error)),
    }
}

/// Opens the node of loop device `number`. Returns also whether this process made the node.
fn open_node(number: u32) -> io::Result<(File, bool)> {
    let path = node(number);
    let open = || OpenOptions::new().read(true).write(true).open(&path);
    match open() {
        // Without udev, this process makes the node of a new device. With udev, the node may come
        // at any moment.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => {
            match sys::make_loop_node(&path, number) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                made => open().map(|device| (device, made.is_ok())),
            }
        }
        opened => opened.map(|device| (device, false)),
    }
}

/// Opens it exclusively; EBUSY if it is mounted, swapped to or held.
fn claim(number: u32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(node(number))
}

fn who(number: u32) -> Vec<User> {
    let mut users = users::of_loop(number);
    if users.is_empty() {
        users.push(users::mounted_elsewhere(number).unwrap_or(User::Unknown));
    }
    users
}

/// Detaches loop device `number` unless it is in use, and waits until it is gone. The exclusive
/// open is kept meanwhile, so that no other user can begin.
pub(crate) fn clear(number: u32) -> Result<(), Error> {
    let busy = || Error::Busy { what: node(number), users: who(number) };
    let doing = || Error::system(format!("detach {}", node(number).display()));
    let file = backing_of(number);
    let device = match claim(number) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(busy()),
        claimed => claimed.map_err(doing())?,
    };
    match sys::loop_clear(&device) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
        cleared => cleared.map_err(doing())?,
    }
    // The kernel detaches it at the last close.
    drop(device);
    let end = Instant::now() + GOING;
    while file.is_some() && backing_of(number) == file {
        if Instant::now() > end {
            return Err(busy());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes the kernel detach loop device `number` when its last user closes it: `LOOP_CLR_FD` does so
/// for a device that others have open.
pub(crate) fn clear_later(number: u32) -> Result<(), Error> {
    let done = File::open(node(number)).and_then(|device| match sys::loop_clear(&device) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        cleared => cleared,
    });
    done.map_err(Error::system(format!("detach {}", node(number).display())))
}

/// Unmounts every file system on loop device `number`, the last mounted first.
pub(crate) fn unmount_all(number: u32) -> Result<Vec<PathBuf>, Error> {
    let users = users::of_loop(number);
    if users.iter().any(|user| matches!(user, User::Swap | User::Holder(_))) {
        return Err(Error::Busy { what: node(number), users });
    }
    let mut unmounted = Vec::new();
    for user in users.into_iter().rev() {
        let User::MountedAt(path) = user else { continue };
        let plain = sys::unmount(&path, Unmount::Plain);
        let done = plain.or_else(|_| sys::unmount(&path, Unmount::Detach));
        done.map_err(Error::system(format!("unmount {}", path.display())))?;
        unmounted.push(path);
    }
    Ok(unmounted)
}
