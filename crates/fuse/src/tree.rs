//! Serves a control tree as files, in a separate FUSE mount.
//!
//! A request to the tree takes as long as its command. It may attach a loop device, whose first
//! reads go to the mount of the devices, or wait until a device is free. So a few threads without
//! privileges read the requests, and others carry them out: enough to answer other requests
//! meanwhile, and none that serves the mount of the devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use control::tree::Directory;
use fuser::{Config, MountOption, Session, SessionACL};
use host::Role;

use crate::mount::{channels, check_fuse, prepare, refused};
use crate::serving::{Kind, Threads};
use crate::sys::{self, Unmount};
use crate::{Error, User, mounts, own_files, users};

mod files;
mod inodes;
mod privileged;

use files::{Files, Tree};
use inodes::{Handles, Inodes};
use privileged::Privileged;

/// The number of threads that read requests. They wait for nothing else.
const READERS: usize = 2;
/// How long the threads may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// How long a closed file may still count as open.
const CLOSING: Duration = Duration::from_millis(500);

/// A mounted tree. Any thread that does not serve it may call every method. Dropping it unmounts
/// it, by force if needed.
pub struct TreeMount {
    at: PathBuf,
    /// The minor of its device number.
    minor: Option<u32>,
    serving: Option<Serving>,
}

/// What serves the tree.
struct Serving {
    readers: Threads,
    /// The session that mounted. Its drop unmounts, unless that has happened.
    session: Session<Files>,
    /// The thread that has requests carried out. It ends with the sessions.
    control: JoinHandle<()>,
}

impl TreeMount {
    /// Mounts the contents of `top` at the directory `at`, which is created if it is missing. If
    /// root mounts it, other users have access by the modes of the files.
    ///
    /// # Errors
    /// [`Error`] names the missing thing: FUSE, the permission, or a directory to mount on.
    pub fn new(at: &Path, top: Arc<dyn Directory>) -> Result<TreeMount, Error> {
        check_fuse()?;
        let at = prepare(at)?;
        let owner = sys::owner();
        let (inodes, handles) = (Inodes::new(top), Handles::new(owner.0));
        let tree = Arc::new(Tree { inodes, handles, since: SystemTime::now(), owner });
        let doing = || Error::system("start the threads of the mount");
        let (privileged, control) = Privileged::start().map_err(doing())?;
        let files = Files { tree, privileged };
        let mut config = Config::default();
        let subtype = match owner.0 {
            0 => MountOption::CUSTOM("subtype=rampack".into()),
            _ => MountOption::Subtype("rampack".into()),
        };
        config.mount_options = vec![
            MountOption::FSName("rampack".into()),
            subtype,
            MountOption::NoExec,
            MountOption::NoAtime,
            MountOption::DefaultPermissions,
        ];
        if owner.0 == 0 {
            config.acl = SessionACL::All;
        }
        let session = Session::new(files.clone(), &at, &config);
        let session = session.map_err(|error| refused(&at, error))?;
        // From here on, dropping `session` unmounts.
        let channels = channels(&session, READERS, false).map_err(doing())?;
        let kind = Kind { name: "fuse-tree", role: Role::FuseTree, acl: config.acl };
        let readers = Threads::start(&files, channels, kind).map_err(doing())?;
        let minor = mounts::at(&at).last().map(|mounted| mounted.device.1);
        let serving = Some(Serving { readers, session, control });
        let mount = TreeMount { at, minor, serving };
        // A worker answers this: it shows that the workers run.
        own_files::metadata(&mount.at).map_err(Error::system("reach the new mount"))?;
        Ok(mount)
    }

    /// The directory it is mounted at, as an absolute path.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Unmounts it and waits until its threads have ended. With `force` it unmounts even if files
    /// are open. Does nothing the second time.
    ///
    /// # Errors
    /// [`Error::Busy`] if files are open, or programs have it in another mount namespace, and
    /// `force` is not given; nothing has changed then.
    pub fn unmount(&mut self, force: bool) -> Result<(), Error> {
        if self.serving.is_none() {
            return Ok(());
        }
        let elsewhere = self.minor.map(users::elsewhere).unwrap_or_default();
        if !elsewhere.is_empty() && !force {
            return Err(Error::Busy { what: self.at.clone(), users: elsewhere });
        }
        if !elsewhere.is_empty() {
            // The mount would remain in the namespaces of those programs: it is aborted.
            self.tear_down()?;
        }
        let end = Instant::now() + CLOSING;
        while let Err(error) = mounts::unmount_fuse(&self.at, Unmount::Plain) {
            match error.raw_os_error() {
                // Another process unmounted it.
                Some(libc::EINVAL) => break,
                _ if force => {
                    self.tear_down()?;
                    break;
                }
                Some(libc::EBUSY) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(5));
                }
                Some(libc::EBUSY) => {
                    let mut users = users::of_mount(&self.at);
                    if users.is_empty() {
                        users.push(User::Unknown);
                    }
                    return Err(Error::Busy { what: self.at.clone(), users });
                }
                _ => {
                    let doing = format!("unmount {}", self.at.display());
                    return Err(Error::System { doing, source: error });
                }
            }
        }
        self.join();
        Ok(())
    }

    fn tear_down(&self) -> Result<(), Error> {
        // EBUSY is the usual answer: the requests have failed, and the mount is still there.
        let _ = sys::unmount(&self.at, Unmount::Abort);
        let _ = self.minor.is_some_and(mounts::abort_fuse);
        match mounts::unmount_fuse(&self.at, Unmount::Detach) {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
                let doing = format!("unmount {} by force", self.at.display());
                Err(Error::System { doing, source: error })
            }
            _ => Ok(()),
        }
    }

    fn join(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        let end = Instant::now() + ENDING;
        while !serving.readers.are_over() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        if !serving.readers.are_over() {
            return;
        }
        serving.readers.join();
        // The last ways to the thread end here. It does not wait for commands under way.
        drop(serving.session);
        let _ = serving.control.join();
    }
}

impl Drop for TreeMount {
    fn drop(&mut self) {
        let _ = self.unmount(true);
    }
}
