//! The processes that have files open, of those that this process may see.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use crate::printable::printable;

/// A process that uses a mount or a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command's name.
    pub command: String,
    /// The path it has open there.
    pub what: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, what) = (printable(&self.command), printable(&self.what));
        write!(f, "{command} (pid {}: {what})", self.pid)
    }
}

/// The processes with an open file, a program, a working directory or a root whose path `matches`,
/// in the order of their numbers. Only names are compared. No file is touched: an access may hang.
/// Processes of other users and other mount namespaces may be missing.
#[must_use]
pub fn holders(matches: impl Fn(&Path) -> bool) -> Vec<Holder> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let home = process.path();
        let fixed = ["cwd", "root", "exe"].map(|name| home.join(name));
        let open = fs::read_dir(home.join("fd")).into_iter().flatten().flatten();
        let links = fixed.into_iter().chain(open.map(|entry| entry.path()));
        let what = links.filter_map(|link| fs::read_link(link).ok()).find(|it| matches(it));
        if let Some(what) = what {
            found.push(Holder { pid, command: command_of(&home), what });
        }
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// Does a process have the file open whose file system has the number `device`, and which has the
/// number `inode` there? Those that this process may not look at do not count. No file system is
/// asked, because its server may not answer: a link of /proc leads to the open file itself, and
/// what the kernel knows of that is enough.
#[must_use]
pub fn is_open(device: u64, inode: u64) -> bool {
    let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE);
    let is_it = |link: PathBuf| {
        statx(CWD, &link, flags, mask).is_ok_and(|found| {
            (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino) == (device, inode)
        })
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let mut homes = processes.filter(|it| is_one(&it.file_name())).map(|it| it.path());
    homes.any(|home| {
        let mut open = fs::read_dir(home.join("fd")).into_iter().flatten().flatten();
        open.any(|entry| is_it(entry.path()))
    })
}

/// The name of the process whose directory in /proc is `home`.
#[must_use]
pub fn command_of(home: &Path) -> String {
    let name = fs::read(home.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn who_has_a_file_open_is_found_by_its_number() {
        let dir = testkit::TempDir::new();
        let (path, other) = (dir.join("file"), dir.join("other"));
        fs::write(&other, "").unwrap();
        let open = fs::File::create(&path).unwrap();
        let [(device, inode), (_, unopened)] = [&path, &other].map(|path| {
            let found = fs::metadata(path).unwrap();
            (found.dev(), found.ino())
        });
        // Its name says nothing.
        fs::rename(&path, dir.join("elsewhere")).unwrap();
        assert!(is_open(device, inode));
        assert!(!is_open(device, unopened) && !is_open(device + 1, inode));
        drop(open);
    }

    #[test]
    fn the_name_of_a_holder_does_not_reach_the_terminal_as_it_is() {
        let what = PathBuf::from("/mnt/\x1b[2J");
        let holder = Holder { pid: 7, command: "\x1b]0;x\x07".into(), what };
        assert_eq!(holder.to_string(), "\\u{1b}]0;x\\u{7} (pid 7: /mnt/\\u{1b}[2J)");
    }
}
