//! Settings of the kernel that have another value as long as any daemon of the machine wants it.
//!
//! A file in /run holds the earlier value. Each such daemon has a shared lock on it. The daemon
//! that can lock it exclusively is the last one, and restores the value. The lock of a killed
//! daemon is gone with it. So the next daemon finds the file, and the value to restore at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use control::ControlError;
use host::{flags, is_at, try_lock};

use crate::failure::failed;

/// Files of earlier values begin with this.
const BEFORE: &str = "/run/rampack";

/// What a switch of the kernel may be, in /proc/sys and in /sys/module.
const VALUES: [&str; 4] = ["0", "1", "N", "Y"];

/// A setting has the value that it was given as long as one of these lives, in any process.
pub struct Setting {
    path: PathBuf,
    before: PathBuf,
    lock: File,
}

impl Setting {
    /// Gives the switch at `path` a value; `name` is its own in /run. `None` where the kernel has
    /// no such switch.
    ///
    /// # Errors
    /// The error of the system call; the setting is unchanged then.
    pub fn keep(path: &str, name: &str, wanted: &str) -> Result<Option<Setting>, ControlError> {
        let (setting, before) = (Path::new(path), PathBuf::from(format!("{BEFORE}-{name}")));
        if !setting.exists() {
            return Ok(None);
        }
        let what = || format!("{path} cannot be set to {wanted}");
        Setting::begin(setting, &before, wanted).map(Some).map_err(|error| failed(what(), &error))
    }

    /// Gives the switch the value back that a killed process left of it, unless another one still
    /// wants it.
    pub fn restore(path: &str, name: &str) {
        Setting::end_left(Path::new(path), Path::new(&format!("{BEFORE}-{name}")));
    }

    fn end_left(path: &Path, before: &Path) {
        if before.exists()
            && let Ok(lock) = open(before)
        {
            drop(Setting { path: path.to_path_buf(), before: before.to_path_buf(), lock });
        }
    }

    fn begin(path: &Path, before: &Path, wanted: &str) -> io::Result<Setting> {
        loop {
            let mut lock = open(before)?;
            let is_alone = try_lock(&lock)?;
            if is_alone && value(&mut lock)?.is_none() {
                lock.set_len(0)?;
                lock.rewind()?;
                lock.write_all(fs::read_to_string(path)?.as_bytes())?;
            }
            lock.lock_shared()?;
            // The last daemon may have removed the file meanwhile, or the first may not have
            // written it yet.
            if is_at(&lock, before) && value(&mut lock)?.is_some() {
                let (path, before) = (path.to_path_buf(), before.to_path_buf());
                let kept = Setting { path, before, lock };
                fs::write(&kept.path, wanted)?;
                return Ok(kept);
            }
        }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if !matches!(try_lock(&self.lock), Ok(true)) {
            return;
        }
        if let Ok(Some(value)) = value(&mut self.lock) {
            let _ = fs::write(&self.path, value);
        }
        let _ = fs::remove_file(&self.before);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(flags::O_NOFOLLOW).open(path)
}

/// The earlier value of the setting; `None` if no daemon has written it.
fn value(file: &mut File) -> io::Result<Option<&'static str>> {
    let mut text = String::new();
    file.rewind()?;
    file.take(16).read_to_string(&mut text)?;
    Ok(VALUES.into_iter().find(|value| *value == text.trim()))
}

#[cfg(test)]
mod tests;
