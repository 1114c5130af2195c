//! The place of a mount, and unmounting it.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use host::{Unmount, errno, mounts_at};

use crate::mounts::Abort;
use crate::{Error, User, mounts, users};

/// How long the threads of an unmounted mount may take to end. After that they are no longer waited
/// for.
pub(crate) const ENDING: Duration = Duration::from_secs(10);

/// How long a closed file may still count as open: the kernel carries out the close later.
const CLOSING: Duration = Duration::from_millis(500);

/// What the list of mounts is needed for.
pub(crate) const MOUNTS: &str = "read the list of mounts";

/// The place of a mount.
#[derive(Clone)]
pub(crate) struct Place {
    /// An absolute path without links.
    pub(crate) at: PathBuf,
    /// The number of its directory under /sys/fs/fuse/connections.
    pub(crate) connection: Option<u32>,
}

impl Place {
    /// The place of the mount that is at `at`.
    ///
    /// # Errors
    /// If the mounts are not known.
    pub(crate) fn new(at: PathBuf) -> Result<Place, Error> {
        let mounted = mounts_at(&at).map_err(Error::system(MOUNTS))?;
        let connection = mounted.last().map(|mounted| mounted.device.1);
        Ok(Place { at, connection })
    }

    /// The device number of its files, as in `st_dev`.
    pub(crate) fn device(&self) -> Option<u64> {
        self.connection.map(|minor| host::makedev(0, minor))
    }

    /// Is it still mounted, served or not? It is if that is not known.
    pub(crate) fn is_mounted(&self) -> bool {
        let is_ours = |number| {
            let mounted = mounts_at(&self.at);
            !mounted.is_ok_and(|all| all.iter().all(|it| it.device.1 != number))
        };
        self.connection.is_some_and(is_ours)
    }

    /// Unmounts it and returns how long its threads may take to end. Only an open file keeps it,
    /// unless `force` is given: `is_used` says whether there is one, if that is known. Whoever
    /// merely stands in its directory, or has a copy of the mount in another namespace, does not.
    /// What these still ask for fails after a call of `cut_off`.
    pub(crate) fn take_down(
        &self,
        force: bool,
        is_used: impl Fn() -> Option<bool>,
        cut_off: impl FnOnce(),
    ) -> Result<Duration, Error> {
        let abort = self.connection.and_then(|number| Abort::of(&self.at, number));
        let end = Instant::now() + CLOSING;
        let doing = || Error::system(format!("unmount {}", self.at.display()));
        loop {
            let used = if force { Some(false) } else { is_used() };
            let unmounted = match used {
                Some(true) => Err(io::Error::from_raw_os_error(errno::EBUSY)),
                _ => mounts::unmount_fuse(&self.at, Unmount::WhenUnused),
            };
            match unmounted {
                Ok(()) => {
                    // The threads of a mount with a copy elsewhere would go on.
                    abort.as_ref().map(Abort::now);
                    return Ok(ENDING);
                }
                // Another process unmounted it a moment ago.
                Err(error) if error.raw_os_error() == Some(errno::EINVAL) => return Ok(ENDING),
                Err(error) if !force && error.raw_os_error() != Some(errno::EBUSY) => {
                    return Err(doing()(error));
                }
                Err(_) if used == Some(false) => {
                    cut_off();
                    return self.tear_down(abort);
                }
                Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                Err(_) => return Err(self.busy()),
            }
        }
    }

    fn tear_down(&self, abort: Option<Abort>) -> Result<Duration, Error> {
        let aborted = match host::unmount(&self.at, Unmount::Abort).map_err(|it| it.raw_os_error())
        {
            // Or another process unmounted it a moment ago.
            Ok(()) | Err(Some(errno::EINVAL)) => return Ok(ENDING),
            // The usual answer: the requests have failed, and the mount is still there.
            Err(Some(errno::EBUSY)) => true,
            Err(_) => abort.is_some_and(|it| it.now()),
        };
        let doing = Error::system(format!("unmount {} by force", self.at.display()));
        mounts::unmount_fuse(&self.at, Unmount::Lazily).map_err(doing)?;
        // Without an abort the threads end at the last close of a file.
        Ok(if aborted { ENDING } else { Duration::ZERO })
    }

    fn busy(&self) -> Error {
        let mut users = users::of_mount(&self.at);
        if users.is_empty() {
            users.push(User::Unknown);
        }
        Error::Busy { what: self.at.clone(), users }
    }
}
