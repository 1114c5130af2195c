//! The program that is to take the place of a daemon's: where it is, and whether it can.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use control::{ControlError, Errno};

use crate::failure::failed;
use crate::layouts::{Layouts, PartLayout};

/// What the kernel appends to the path of a program whose file was removed.
const DELETED: &str = " (deleted)";

/// A program that was checked.
#[derive(Debug)]
pub struct Successor {
    /// Its path.
    pub path: PathBuf,
    /// What it reads, and whether it can say in a rehearsal that it could take over.
    pub layouts: Layouts,
}

/// The program that is to take the place of this one: `asked`, or what is now at the path of this
/// one. It is checked that it reads the layouts of the devices' state, if they have one.
///
/// # Errors
/// `ENOTSUP` without a state that outlives this program, `EINVAL` for a program that does not read
/// it, the error of the system.
pub fn successor(
    asked: Option<&str>,
    state: Option<Vec<PartLayout>>,
) -> Result<Successor, ControlError> {
    let Some(state) = state else {
        let message = "the devices of this daemon are in memory that ends with its program; only \
                       the devices of a daemon under `rampack keep`, or of a service with \
                       FileDescriptorStoreMax=, can be taken over";
        return Err(ControlError::new(Errno::ENOTSUP, message));
    };
    let path = match asked {
        Some(path) => match machine::path_of(path) {
            path if path.is_absolute() => path,
            path => {
                let message = format!("the program {} has no absolute path", path.display());
                return Err(ControlError::invalid(message));
            }
        },
        None => at_own_path()?,
    };
    let layouts = Layouts::of(&path)?;
    layouts.check(&path, &state)?;
    Ok(Successor { path, layouts })
}

/// The path of this program. Its file may be another one by now.
fn at_own_path() -> Result<PathBuf, ControlError> {
    let path = env::current_exe().map_err(|error| failed("cannot find this program", &error))?;
    Ok(without_mark(path))
}

/// The path that a program had, without the mark of a removed file. A file may have that name.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED.as_bytes()) {
        Some(before) if fs::symlink_metadata(&path).is_err() => OsStr::from_bytes(before).into(),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    #[test]
    fn a_program_whose_file_was_replaced_is_found_by_its_path() {
        let dir = TempDir::new();
        let path = dir.join("rampack");
        let marked = dir.join("rampack (deleted)");
        assert_eq!(without_mark(path.clone()), path);
        assert_eq!(without_mark(marked.clone()), path);
        fs::write(&marked, "a program of this name").unwrap();
        assert_eq!(without_mark(marked.clone()), marked);
    }
}
