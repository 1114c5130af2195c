//! Where something of ours is mounted, and how it is taken down there.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::sys::{self, Unmount};
use crate::{Error, User, mounts, users};

/// How long a mount that was taken down may take to end before its threads are left to themselves.
pub(crate) const ENDING: Duration = Duration::from_secs(10);

/// How long a file that was just closed may still count as open: closing is carried out later.
const CLOSING: Duration = Duration::from_millis(500);

/// The place of a mount.
pub(crate) struct Place {
    /// An absolute path without links.
    pub(crate) at: PathBuf,
    /// The number of its directory under /sys/fs/fuse/connections.
    connection: Option<u32>,
}

impl Place {
    /// That of the mount that was just made at `at`.
    pub(crate) fn new(at: PathBuf) -> Place {
        let connection = mounts::at(&at).last().map(|mounted| mounted.device.1);
        Place { at, connection }
    }

    /// Is it still there, served or not?
    pub(crate) fn is_mounted(&self) -> bool {
        let ours = |number| mounts::at(&self.at).iter().any(|mounted| mounted.device.1 == number);
        self.connection.is_some_and(ours)
    }

    /// Takes it down, and tells how long its threads may take to end. With `force` it goes even if
    /// files are open; `cut_off` is called before the requests under way are failed.
    pub(crate) fn take_down(&self, force: bool, cut_off: impl FnOnce()) -> Result<Duration, Error> {
        let end = Instant::now() + CLOSING;
        loop {
            let error = match mounts::unmount_fuse(&self.at, Unmount::Plain) {
                Ok(()) => return Ok(ENDING),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // Somebody else unmounted it a moment ago.
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
        // EBUSY is the usual answer: the requests are failed, and the mount is still there.
        let aborted = match sys::unmount(&self.at, Unmount::Abort) {
            Ok(()) => return Ok(ENDING),
            Err(error) => error.raw_os_error() == Some(libc::EBUSY),
        };
        let aborted = aborted || self.connection.is_some_and(mounts::abort_fuse);
        let doing = Error::system(format!("unmount {} by force", self.at.display()));
        mounts::unmount_fuse(&self.at, Unmount::Detach).map_err(doing)?;
        // Without an abort the threads end when the last file is closed.
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
