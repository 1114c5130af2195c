//! Errors of opening or closing a frontend, with text for a person.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use host::errno;

use crate::User;

/// Why a mount or a loop device could not be made or removed.
#[derive(Debug)]
pub enum Error {
    /// The kernel offers no FUSE here.
    NoFuse(io::Error),
    /// The kernel offers no loop devices here.
    NoLoop(io::Error),
    /// The user has no permission.
    NoPermission {
        /// The operation that failed.
        doing: String,
        /// The permission that is needed.
        needs: &'static str,
    },
    /// The directory cannot be mounted on.
    MountPoint {
        /// The one that was given.
        path: PathBuf,
        /// The reason, and a way out.
        why: String,
    },
    /// The name of a device is taken, or cannot be a file name.
    Name {
        /// The one that was given.
        name: String,
        /// The reason, and what is allowed.
        why: &'static str,
    },
    /// It is in use; nothing has changed.
    Busy {
        /// What is in use.
        what: PathBuf,
        /// Those of its users that this process can see.
        users: Vec<User>,
    },
    /// The operating system refused something else.
    System {
        /// The operation that failed.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::System { doing, source }
    }

    /// Did the system lack something that it may have later, such as memory or a descriptor?
    #[must_use]
    pub fn is_passing(&self) -> bool {
        const LACKS: [i32; 4] = [errno::ENOMEM, errno::EAGAIN, errno::EMFILE, errno::ENFILE];
        let Error::System { source, .. } = self else { return false };
        source.raw_os_error().is_some_and(|number| LACKS.contains(&number))
    }

    pub(crate) fn mount_point(path: &Path, why: impl Into<String>) -> Error {
        Error::MountPoint { path: path.to_path_buf(), why: why.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoFuse(source) => write!(
                f,
                "no FUSE on this machine (/dev/fuse: {source}): load the module with \
                 'modprobe fuse', or install the package fuse3"
            ),
            Error::NoLoop(source) => write!(
                f,
                "no loop devices on this machine (/dev/loop-control: {source}): load the module \
                 with 'modprobe loop'"
            ),
            Error::NoPermission { doing, needs } => write!(f, "no permission to {doing}: {needs}"),
            Error::MountPoint { path, why } => {
                write!(f, "cannot mount at {}: {why}", path.display())
            }
            Error::Name { name, why } => write!(f, "the name '{name}' cannot be used: {why}"),
            Error::Busy { what, users } => {
                write!(f, "{} is in use", what.display())?;
                for (n, user) in users.iter().enumerate() {
                    write!(f, "{}{user}", if n == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            Error::System { doing, source } => write!(f, "cannot {doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::NoFuse(source) | Error::NoLoop(source) | Error::System { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}
