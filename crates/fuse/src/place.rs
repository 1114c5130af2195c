//! The place of a mount, and unmounting it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::sys::{self, Unmount};
use crate::{Error, User, mounts, users};

/// How long the threads of an unmounted mount may take to end. After that they are no longer waited
/// for.
pub(crate) const ENDING: Duration = Duration::from_secs(10);

/// How long a closed file may still count as open: the kernel carries out the close later.
const CLOSING: Duration = Duration::from_millis(500);

/// The place of a mount.
pub(crate) struct Place {
    /// An absolute path without links.
    pub(crate) at: PathBuf,
    /// The number of its directory under /sys/fs/fuse/connections.
    pub(crate) connection: Option<u32>,
}

impl Place {
    /// The place of the mount that was just made at `at`.
    pub(crate) fn new(at: PathBuf) -> Place {
        let connection = mounts::at(&at).last().map(|mounted| mounted.device.1);
        Place { at, connection }
    }

    /// Is it still mounted, served or not?
    pub(crate) fn is_mounted(&self) -> bool {
        let ours = |number| mounts::at(&self.at).iter().any(|mounted| mounted.device.1 == number);
        self.connection.is_some_and(ours)
    }

    /// Unmounts it and returns how long its threads may take to end. With `force` it unmounts even
    /// if files are open; then it calls `cut_off` before it fails the requests under way.
    pub(crate) fn take_down(&self, force: bool, cut_off: impl FnOnce()) -> Result<Duration, Error> {
        let end = Instant::now() + CLOSING;
        loop {
            let error = match mounts::unmount_fuse(&self.at, Unmount::Plain) {
                Ok(()) => return Ok(ENDING),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // Another process unmounted it a moment ago.
                Some(libc::EINVAL) => return Ok(ENDING),
                _ if force => {
                    cut_off();
                    return self.tear_down();
                }
                Some(libc::EBUSY) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(5));
                }
                Some(libc::EBUSY) => return Err(self.busy()),
                _ => {
                    let doing = format!("unmount {}", self.at.display());
                    return Err(Error::System { doing, source: error });
                }
            }
        }
    }

    fn tear_down(&self) -> Result<Duration, Error> {
        // EBUSY is the usual answer: the requests have failed, and the mount is still there.
        let aborted = match sys::unmount(&self.at, Unmount::Abort) {
            Ok(()) => return Ok(ENDING),
            Err(error) => error.raw_os_error() == Some(libc::EBUSY),
        };
        let aborted = aborted || self.connection.is_some_and(mounts::abort_fuse);
        let doing = Error::system(format!("unmount {} by force", self.at.display()));
        mounts::unmount_fuse(&self.at, Unmount::Detach).map_err(doing)?;
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
