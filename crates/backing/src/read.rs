//! Reads small files, such as dictionaries.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use control::{ControlError, Errno};
use host::errno;
use units::human;

/// Reads the whole file `path`, at most `most` bytes. Any thread may call it.
///
/// # Errors
/// The error of the system (`ENOENT`, `EACCES`), `EISDIR` for a directory, `EINVAL` if it is not an
/// ordinary file, `E2BIG` if it is longer. The message names `path`.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, ControlError> {
    let refuse = |errno: Errno, why: &str| {
        ControlError::new(errno, format!("{} cannot be read: {why}", path.display()))
    };
    let failed = |error: io::Error| {
        refuse(Errno(error.raw_os_error().unwrap_or(errno::EIO)), &error.to_string())
    };
    // The type is checked before the open: an open of a pipe waits for a writer.
    let found = path.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(refuse(Errno::EISDIR, "it is a directory"));
    }
    if !found.is_file() {
        return Err(refuse(Errno::EINVAL, "it is not an ordinary file"));
    }
    let mut contents = Vec::new();
    // One byte more detects a longer file, also if the system does not know its size.
    let file = File::open(path).map_err(failed)?;
    file.take(most.saturating_add(1)).read_to_end(&mut contents).map_err(failed)?;
    if contents.len() as u64 > most {
        let why = format!("it is longer than the {} that are allowed", human(most));
        return Err(refuse(Errno::E2BIG, &why));
    }
    Ok(contents)
}
