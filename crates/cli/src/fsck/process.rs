//! What other processes have open and mapped (proc(5)).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use control::ControlError;
use host::makedev;

use service::client::is_stopped;
use service::failure::failed;

/// Begins the name of each file in memory that rampack makes.
const PREFIX: &str = "rampack.";

/// A file in memory that a process has open.
pub(super) struct Held {
    /// Its name, without [`PREFIX`].
    name: String,
    path: PathBuf,
    /// The file system and the number of the file.
    id: (u64, u64),
    pub(super) bytes: u64,
}

impl Held {
    /// Whether it is the file of the region `name`.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.name == name
    }

    /// Opens it, only to read.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

/// Is there such a process?
pub(super) fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// The files in memory of rampack that a process has open, each once.
///
/// # Errors
/// `ENOENT` for no process, `EACCES` for one that this user may not look into.
pub(super) fn held(process: u32) -> Result<Vec<Held>, ControlError> {
    let directory = format!("/proc/{process}/fd");
    let what = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => failed(format!("there is no process {process}"), &error),
        io::ErrorKind::PermissionDenied => {
            let text = format!("only root may look into process {process}, which keeps devices");
            failed(text, &error)
        }
        _ => failed(format!("cannot look into process {process}"), &error),
    };
    let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(&directory).map_err(what)? {
        let path = entry.map_err(what)?.path();
        // A descriptor may be closed meanwhile.
        let Ok(link) = fs::read_link(&path) else { continue };
        let Some(name) = name_of(&link) else { continue };
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let id = (metadata.dev(), metadata.ino());
        if metadata.is_file() && seen.insert(id) {
            files.push(Held { name, path, id, bytes: metadata.len() });
        }
    }
    Ok(files)
}

/// The name in what the system shows of a file, such as `/memfd:rampack.NAME (deleted)`.
fn name_of(link: &Path) -> Option<String> {
    let text = link.to_str()?;
    let last = text.strip_suffix(" (deleted)")?.rsplit('/').next()?;
    let name = last.strip_prefix("memfd:").unwrap_or(last);
    Some(name.strip_prefix(PREFIX)?.to_owned())
}

/// A process that runs and has one of `files` mapped so that it can change it.
pub(super) fn serving<'a>(files: impl Iterator<Item = &'a Held>) -> Option<u32> {
    let ids: BTreeSet<(u64, u64)> = files.map(|file| file.id).collect();
    let processes = fs::read_dir("/proc").ok()?;
    let processes =
        processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others = processes.filter(|process: &u32| *process != std::process::id());
    others.find(|process| {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        maps.lines().filter_map(shared).any(|id| ids.contains(&id)) && !is_stopped(*process)
    })
}

/// The file of a line of `/proc/PID/maps` whose mapping is shared with others.
fn shared(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (access, _offset, device, number) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let (major, minor) = device.split_once(':')?;
    let major = u32::from_str_radix(major, 16).ok()?;
    let minor = u32::from_str_radix(minor, 16).ok()?;
    let device = makedev(major, minor);
    access.ends_with('s').then_some((device, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_of_rampack() {
        let name = |link: &str| name_of(Path::new(link));
        assert_eq!(name("/memfd:rampack.zram.frames (deleted)").as_deref(), Some("zram.frames"));
        assert_eq!(name("/rampack.swap.index (deleted)").as_deref(), Some("swap.index"));
        assert_eq!(name("/memfd:rampack. (deleted)").as_deref(), Some(""));
        assert_eq!(name("/memfd:other (deleted)"), None);
        assert_eq!(name("/srv/rampack.zram.frames"), None);
        assert_eq!(name("socket:[123]"), None);
    }

    #[test]
    fn a_line_of_maps_names_a_file_if_others_see_it() {
        let line = |access: &str| {
            format!("7f00-7f10 {access} 00000000 00:01 1042   /memfd:rampack.zram.frames (deleted)")
        };
        assert_eq!(shared(&line("rw-s")), Some((1, 1042)));
        assert_eq!(shared(&line("rw-p")), None);
        assert_eq!(shared("7f00-7f10 rw-p 00000000 00:00 0"), None);
        assert_eq!(shared(""), None);
    }
}
