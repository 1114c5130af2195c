//! Keeps locked memory in place: `vm.compact_unevictable_allowed` is 0 as long as any daemon of the
//! machine has a swap device.
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

const SETTING: &str = "/proc/sys/vm/compact_unevictable_allowed";
const BEFORE: &str = "/run/rampack-compact-unevictable-allowed";

/// The kernel does not move locked memory as long as one of these lives, in any process.
pub struct InPlace {
    setting: PathBuf,
    before: PathBuf,
    lock: File,
}

impl InPlace {
    /// Has the kernel move no locked memory. `None` where the kernel never moves it.
    ///
    /// # Errors
    /// The error of the system call; the setting is unchanged then.
    pub fn keep() -> Result<Option<InPlace>, ControlError> {
        let (setting, before) = (Path::new(SETTING), Path::new(BEFORE));
        if !setting.exists() {
            return Ok(None);
        }
        let what = "vm.compact_unevictable_allowed cannot be set to 0";
        InPlace::begin(setting, before).map(Some).map_err(|error| failed(what, &error))
    }

    fn begin(setting: &Path, before: &Path) -> io::Result<InPlace> {
        loop {
            let mut lock = open(before)?;
            let is_alone = try_lock(&lock)?;
            if is_alone && value(&mut lock)?.is_none() {
                lock.set_len(0)?;
                lock.rewind()?;
                lock.write_all(fs::read_to_string(setting)?.as_bytes())?;
            }
            lock.lock_shared()?;
            // The last daemon may have removed the file meanwhile, or the first may not have
            // written it yet.
            if is_at(&lock, before) && value(&mut lock)?.is_some() {
                let (setting, before) = (setting.to_path_buf(), before.to_path_buf());
                let kept = InPlace { setting, before, lock };
                fs::write(&kept.setting, "0")?;
                return Ok(kept);
            }
        }
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        if !matches!(try_lock(&self.lock), Ok(true)) {
            return;
        }
        if let Ok(Some(value)) = value(&mut self.lock) {
            let _ = fs::write(&self.setting, value);
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
    Ok(["0", "1"].into_iter().find(|value| *value == text.trim()))
}

#[cfg(test)]
mod tests;
