//! Small files, such as dictionaries.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use control::{ControlError, Errno};
use units::human;

/// The whole contents of the file `path`, which may be up to `most` bytes long.
///
/// # Errors
/// What the system says (`ENOENT`, `EACCES`), `EISDIR` for a directory, `EINVAL` for what is not
/// an ordinary file, `E2BIG` for one that is longer. The sentence names `path`.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, ControlError> {
    let refuse = |errno: Errno, why: &str| {
        ControlError::new(errno, format!("{} cannot be read: {why}", path.display()))
    };
    let failed = |error: io::Error| {
        refuse(Errno(error.raw_os_error().unwrap_or(libc::EIO)), &error.to_string())
    };
    // Looked at before it is opened: opening a pipe waits for somebody to write to it.
    let found = path.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(refuse(Errno::EISDIR, "it is a directory"));
    }
    if !found.is_file() {
        return Err(refuse(Errno::EINVAL, "it is not an ordinary file"));
    }
    let mut contents = Vec::new();
    // One byte more tells a longer file, also one whose size the system does not know.
    let file = File::open(path).map_err(failed)?;
    file.take(most.saturating_add(1)).read_to_end(&mut contents).map_err(failed)?;
    if contents.len() as u64 > most {
        let why = format!("it is longer than the {} that are allowed", human(most));
        return Err(refuse(Errno::E2BIG, &why));
    }
    Ok(contents)
}
