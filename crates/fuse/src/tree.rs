//! Serves a control tree as files, in a separate FUSE mount.
//!
//! A request to the tree takes as long as its command. It may attach a loop device, whose first
//! reads go to the mount of the devices, or wait until a device is free. So a few threads without
//! privileges read the requests, and others carry them out: enough to answer other requests
//! meanwhile, and none that serves the mount of the devices.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use control::tree::Directory;
use fuser::{Config, MountOption, Session, SessionACL};
use host::Role;

use crate::mount::{channels, check_fuse, mount_options, prepare, refused};
use crate::place::{ENDING, Place};
use crate::serving::{Kind, Threads};
use crate::{Error, User, own_files, users};

mod files;
mod inodes;
mod privileged;
mod writer;

use files::{Files, Tree};
use inodes::{Handles, Inodes};
use privileged::Privileged;

/// The number of threads that read requests. They wait for nothing else.
const READERS: usize = 2;
/// How long a closed file may still count as open.
const CLOSING: Duration = Duration::from_millis(500);

/// A mounted tree. Any thread that does not serve it may call every method. Dropping it unmounts
/// it.
pub struct TreeMount {
    place: Place,
    tree: Arc<Tree>,
    serving: Option<TreeServing>,
}

/// What serves the tree.
struct TreeServing {
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
        let owner = host::owner();
        let (inodes, handles) = (Inodes::new(top), Handles::new(owner.0));
        let tree = Arc::new(Tree { inodes, handles, since: SystemTime::now(), owner });
        let doing = || Error::system("start the threads of the mount");
        let (privileged, control) = Privileged::start().map_err(doing())?;
        let files = Files { tree: tree.clone(), privileged };
        let mut config = Config::default();
        config.mount_options = mount_options();
        config.mount_options.push(MountOption::DefaultPermissions);
        if owner.0 == 0 {
            config.acl = SessionACL::All;
        }
        let session = Session::new(files.clone(), &at, &config);
        let session = session.map_err(|error| refused(&at, error))?;
        // From here on, dropping `session` unmounts.
        let place = Place::new(at)?;
        let channels = channels(&session, READERS, false).map_err(doing())?;
        let kind = Kind { name: "fuse-tree", role: Role::FuseTree, acl: config.acl };
        let readers = Threads::start(&files, channels, kind).map_err(doing())?;
        let serving = Some(TreeServing { readers, session, control });
        let mount = TreeMount { place, tree, serving };
        // A worker answers this: it shows that the workers run.
        own_files::metadata(mount.at()).map_err(Error::system("reach the new mount"))?;
        Ok(mount)
    }

    /// The directory it is mounted at, as an absolute path.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.place.at
    }

    /// Checks that no program has a private directory of it open, which only the owner can.
    /// Commands that depend on the tree have one open as long as they live. Other users cannot be
    /// told from somebody who only stands there.
    ///
    /// # Errors
    /// [`Error::Busy`] with these programs.
    pub fn check_unused(&self) -> Result<(), Error> {
        let end = Instant::now() + CLOSING;
        while self.tree.handles.has_private() {
            if Instant::now() > end {
                let is_there = |path: &Path| path.starts_with(self.at());
                let mut users = users::processes(is_there);
                if users.is_empty() {
                    users.push(User::Unknown);
                }
                return Err(Error::Busy { what: self.at().to_path_buf(), users });
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Unmounts it and waits until its threads have ended. Who has a file of it open, or a copy of
    /// the mount in another namespace, gets errors from then on. Does nothing the second time.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn unmount(&mut self) -> Result<(), Error> {
        if self.serving.is_none() {
            return Ok(());
        }
        self.place.take_down(true, || None, || {})?;
        self.join();
        Ok(())
    }

    fn join(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        if !serving.readers.join(Instant::now() + ENDING) {
            return;
        }
        // The last ways to the thread end here. It does not wait for commands under way.
        drop(serving.session);
        let _ = serving.control.join();
    }
}

impl Drop for TreeMount {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}
