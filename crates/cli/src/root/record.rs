//! What a daemon has made in its root, written down so that nothing else is ever removed there.
//!
//! The record is the lock file of the root. Its first line says whose the directory is. After it
//! comes a line for each thing that is about to be made, and one for each that is gone. A daemon
//! that is killed leaves it behind, and the next one clears what it lists: a link that still leads
//! where the record says, a directory that is empty, a socket on which nobody listens.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use rampack::control::{ControlError, Errno};
use rampack::sync::Mutex;

use crate::failure::failed;

/// The first line of a record.
pub(super) const MARK: &str = "rampack root 1\n";
/// The name of the root itself, where it was made too.
const ROOT: &str = ".";
/// No record is longer; it is written anew long before.
const LONGEST: u64 = 4 << 20;
/// A record that is longer than this, and than its things need, is written anew.
const SHORTENED_AT: u64 = 64 << 10;
/// What a thing needs at most, in bytes.
const THING: u64 = 512;

/// What was made.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Directory,
    Socket,
    /// Leads there, as [`escaped`] text.
    Link(String),
}

/// What a record says.
#[derive(Default, PartialEq, Eq, Debug)]
struct Said {
    /// The daemon that has the root, or was killed in it.
    pid: Option<u32>,
    things: BTreeMap<String, Kind>,
}

/// Everything that was made in a root. Every method may be called by any number of threads.
pub struct Made {
    root: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    length: u64,
    things: BTreeMap<String, Kind>,
}

/// Does `file` begin as a record does? Its position is anywhere afterwards.
pub(super) fn is_record(file: &mut File) -> bool {
    let mut first = String::new();
    let read = file.rewind().and_then(|()| file.take(MARK.len() as u64).read_to_string(&mut first));
    read.is_ok() && first == MARK
}

/// The process that a record names.
pub(super) fn pid_of(file: &mut File) -> Option<u32> {
    read(file).ok()?.pid
}

fn read(file: &mut File) -> io::Result<Said> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Lines that are not understood are passed over: one that was half written is among them.
fn parse(text: &str) -> Said {
    let mut said = Said::default();
    let lines = text.strip_prefix(MARK).unwrap_or_default().lines();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, target) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = match word {
            "pid" => {
                said.pid = name.parse().ok();
                continue;
            }
            "ended" => {
                said.pid = None;
                continue;
            }
            "gone" => {
                said.things.remove(name);
                continue;
            }
            "dir" => Kind::Directory,
            "socket" => Kind::Socket,
            "link" => Kind::Link(target.into()),
            _ => continue,
        };
        let inside = Path::new(name).components().all(|it| matches!(it, Component::Normal(_)));
        if name == ROOT || (inside && !name.is_empty()) {
            said.things.insert(name.into(), kind);
        }
    }
    said
}

fn line(name: &str, kind: &Kind) -> String {
    match kind {
        Kind::Directory => format!("dir {name}\n"),
        Kind::Socket => format!("socket {name}\n"),
        Kind::Link(target) => format!("link {name} {target}\n"),
    }
}

/// A path as text without spaces and line ends, different for each path.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\\' | ..=b' ' | 0x7f.. => {
                let _ = write!(text, "\\x{byte:02x}");
            }
            byte => text.push(char::from(*byte)),
        }
    }
    text
}

impl Made {
    /// The record in `file`, which begins as one, and the process of the daemon that had it before
    /// and did not end.
    pub(super) fn new(root: &Path, mut file: File) -> io::Result<(Made, Option<u32>)> {
        let said = read(&mut file)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut inner = Inner { file, length, things: said.things };
        // What was half written ends here.
        inner.write(&format!("\npid {}\n", std::process::id()))?;
        let made = Made { root: root.to_path_buf(), inner: Mutex::new(inner) };
        Ok((made, said.pid))
    }

    /// Writes down that the root itself was made.
    pub(super) fn root_was_made(&self) -> io::Result<()> {
        self.inner.lock().insert(ROOT, Kind::Directory)
    }

    /// Makes a directory that others may look into, unless it was made before.
    ///
    /// # Errors
    /// `EEXIST` when something is there that is not ours, or what the system reports.
    pub fn directory(&self, path: &Path) -> Result<(), ControlError> {
        let name = self.name(path)?;
        let what = || format!("cannot make the directory {}", path.display());
        let mut inner = self.inner.lock();
        if inner.things.get(&name) != Some(&Kind::Directory) || !is_directory(path) {
            free(path)?;
            inner.insert(&name, Kind::Directory).map_err(|e| failed(what(), &e))?;
            DirBuilder::new().mode(0o700).create(path).map_err(|e| failed(what(), &e))?;
        }
        fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(|e| failed(what(), &e))
    }

    /// Makes a link, in the place of one that was made before.
    ///
    /// # Errors
    /// `EEXIST` when something is there that is not ours, or what the system reports.
    pub fn link(&self, path: &Path, target: &Path) -> Result<(), ControlError> {
        self.remove(path);
        let name = self.name(path)?;
        let what = || format!("cannot make the link {}", path.display());
        free(path)?;
        let mut inner = self.inner.lock();
        inner.insert(&name, Kind::Link(escaped(target))).map_err(|e| failed(what(), &e))?;
        symlink(target, path).map_err(|e| failed(what(), &e))
    }

    /// Writes down that a socket is about to be made.
    ///
    /// # Errors
    /// `EEXIST` when something is there that is not ours, or what the system reports.
    pub fn socket(&self, path: &Path) -> Result<(), ControlError> {
        self.remove(path);
        let name = self.name(path)?;
        free(path)?;
        let what = || format!("cannot make the socket {}", path.display());
        self.inner.lock().insert(&name, Kind::Socket).map_err(|e| failed(what(), &e))
    }

    /// Removes what was made, if it is still that. Did this remove something?
    pub fn remove(&self, path: &Path) -> bool {
        let Ok(name) = self.name(path) else { return false };
        let mut inner = self.inner.lock();
        let Some(kind) = inner.things.get(&name) else { return false };
        let removed = match kind {
            Kind::Directory => fs::remove_dir(path).is_ok(),
            Kind::Link(target) => {
                let is_it = fs::read_link(path).is_ok_and(|found| escaped(&found) == *target);
                is_it && fs::remove_file(path).is_ok()
            }
            Kind::Socket => !is_listening(path) && is_socket(path) && fs::remove_file(path).is_ok(),
        };
        // A directory stays ours while it cannot be removed: something may be mounted there.
        if removed || *kind != Kind::Directory || is_other_than_directory(path) {
            inner.forget(&name);
        }
        removed
    }

    /// Removes links and sockets that are left of a daemon before, and says which. Directories
    /// stay: they are made again.
    pub(crate) fn clear(&self) -> Vec<String> {
        let mut cleared = Vec::new();
        for (name, kind) in self.things() {
            let path = self.root.join(&name);
            let what = match kind {
                Kind::Directory => continue,
                Kind::Link(_) => "link",
                Kind::Socket => "socket",
            };
            if self.remove(&path) {
                cleared.push(format!("removed the {what} {}", path.display()));
            }
        }
        cleared
    }

    /// Removes everything, the record last. What cannot be removed, or somebody else put there,
    /// stays, and the record with it.
    pub(super) fn end(&self, lock: &Path) {
        let mut things = self.things();
        let root_is_ours = things.remove(ROOT).is_some();
        for name in things.keys().rev() {
            self.remove(&self.root.join(name));
        }
        let is_lock = |entry: &fs::DirEntry| entry.path() == lock;
        let mut left = fs::read_dir(&self.root).into_iter().flatten().flatten();
        if !left.all(|entry| is_lock(&entry)) {
            let _ = self.inner.lock().write("ended\n");
            return;
        }
        // Unlinked while locked: whoever has it open already finds out by its inode.
        if self.is_at(lock) {
            let _ = fs::remove_file(lock);
        }
        if root_is_ours {
            let _ = fs::remove_dir(&self.root);
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let inner = self.inner.lock();
        let (Ok(ours), Ok(there)) = (inner.file.metadata(), fs::symlink_metadata(path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    fn things(&self) -> BTreeMap<String, Kind> {
        self.inner.lock().things.clone()
    }

    fn name(&self, path: &Path) -> Result<String, ControlError> {
        let inside = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        inside.map(String::from).ok_or_else(|| {
            let message = format!("{} is not in the root directory", path.display());
            ControlError::invalid(message)
        })
    }
}

impl Inner {
    fn insert(&mut self, name: &str, kind: Kind) -> io::Result<()> {
        self.write(&line(name, &kind))?;
        self.things.insert(name.into(), kind);
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        // If this is not written, the next daemon finds nothing there to remove.
        let _ = self.write(&format!("gone {name}\n"));
        self.things.remove(name);
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.length > SHORTENED_AT + THING * self.things.len() as u64 {
            self.shorten()?;
        }
        self.file.write_all(text.as_bytes())?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Writes only what there is now over the beginning. The rest, which is blank before it is cut
    /// off, would only say again what became of things, so a kill at any time loses nothing.
    fn shorten(&mut self) -> io::Result<()> {
        let mut text = format!("{MARK}pid {}\n", std::process::id());
        text.extend(self.things.iter().map(|(name, kind)| line(name, kind)));
        let length = text.len();
        text.extend(std::iter::repeat_n('\n', (self.length as usize).saturating_sub(length)));
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(length as u64)?;
        self.length = self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Is there certainly no directory at `path`? A dead mount does not answer.
fn is_other_than_directory(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Does a program listen at `path`? Also one that takes nobody for the moment.
pub(super) fn is_listening(path: &Path) -> bool {
    let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    is_socket(path) && !UnixStream::connect(path).is_err_and(|error| gone.contains(&error.kind()))
}

/// # Errors
/// `EEXIST` when there is something at `path`.
fn free(path: &Path) -> Result<(), ControlError> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let message = format!(
        "{} is in the way: rampack did not make it; remove it, or use another --root",
        path.display()
    );
    Err(ControlError::new(Errno::EEXIST, message))
}

#[cfg(test)]
mod tests;
