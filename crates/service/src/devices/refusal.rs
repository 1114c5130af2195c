//! Why a device is not taken away.

use std::path::Path;
use std::sync::Arc;

use control::{ControlError, Errno};
use fuse::Hold;
use machine::RefusedDisk;
use zram::Disk;

use super::way::Way;

/// Why a device is not taken away.
pub(super) enum Refusal {
    /// Others have it: its name, the way to it, and how they have it.
    InUse(String, Box<Way>, Hold),
    /// It is being written back or the like, which may take long.
    Processed(Arc<Disk>),
    /// Another reason.
    Other(ControlError),
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Refusal {
        Refusal::Other(error)
    }
}

impl From<Refusal> for ControlError {
    /// Looks at all processes for the names of users, so it is done without a lock.
    fn from(refusal: Refusal) -> ControlError {
        match refusal {
            Refusal::InUse(name, way, _) => in_use(&name, way.place(), &way.names()),
            Refusal::Processed(disk) => {
                let name = disk.name();
                let message = format!("{name} is being written back, compressed again or cloned");
                ControlError::new(Errno::EBUSY, message)
            }
            Refusal::Other(error) => error,
        }
    }
}

/// `EBUSY` for the device `name` at `place` with its `users`.
pub(super) fn in_use(name: &str, place: &Path, users: &[String]) -> ControlError {
    let (place, users) = (place.display(), users.join(", "));
    ControlError::new(Errno::EBUSY, format!("{name} ({place}) is in use: {users}"))
}

/// The error for who wants something of a disk that could not be taken over.
pub(super) fn no_disk(refused: &RefusedDisk) -> ControlError {
    let RefusedDisk { saved, why } = refused;
    let message = format!(
        "zram{0} could not be taken over: {1}; `rampack remove zram{0}` gives up what there is of \
         it",
        saved.id, why.message
    );
    ControlError::new(why.errno, message)
}
