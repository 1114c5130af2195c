//! The record of what a daemon has made in its root, so that nothing else is ever removed there.
//!
//! The record is the lock file of the root. Its first line marks the directory as rampack's. Then
//! follow a line for each thing before it is made, and a line for each thing that is gone. A killed
//! daemon leaves the record. The next daemon clears what it lists: a link that still has the
//! recorded target, an empty directory, a socket without a listener.
//!
//! The record also has a random number, the maker, that marks devices outside the root: daemons of
//! this root have it one after the other, and no other daemon of the machine has it. Two containers
//! may have the same path, the same process numbers, and even copies of one record, from the image
//! that both were made of. So the number counts only in the file that it was written to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use control::{ControlError, Errno};
use host::is_at;
use sync::Mutex;

use crate::failure::failed;

/// The first line of a record.
pub(super) const MARK: &str = "rampack root 1\n";
/// The name of the root itself in the record, if rampack made it.
const ROOT: &str = ".";
/// The longest record in bytes. A record is written anew long before.
const LONGEST: u64 = 4 << 20;
/// A record longer than this, plus [`THING`] for each thing in it, is written anew.
const SHORTENED_AT: u64 = 64 << 10;
/// The most bytes that one thing needs.
const THING: u64 = 512;

/// The kind of a thing that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ThingKind {
    Directory,
    Socket,
    /// The target of the link, as [`escaped`] text.
    Link(String),
}

/// The contents of a record.
#[derive(Default, PartialEq, Eq, Debug)]
struct Said {
    /// The process of the daemon that has the root, or was killed in it.
    pid: Option<u32>,
    maker: Option<Maker>,
    things: BTreeMap<String, ThingKind>,
}

/// The number that marks devices, and the file that it was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Maker {
    number: u32,
    /// `st_dev` and `st_ino`.
    file: (u64, u64),
}

impl Maker {
    /// A new one for `file`. Its number is none of a process: an earlier version marked devices
    /// with those.
    fn new(file: (u64, u64)) -> Maker {
        let random = RandomState::new().build_hasher().finish() as u32;
        Maker { number: random | 1 << 31, file }
    }

    fn line(self) -> String {
        let Maker { number, file: (device, inode) } = self;
        format!("maker {number} {device} {inode}\n")
    }

    /// The maker by the words after `maker`.
    fn parse(words: &str) -> Option<Maker> {
        let mut words = words.split(' ');
        let number = words.next()?.parse().ok()?;
        let file = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Maker { number, file })
    }
}

/// The record of everything that was made in a root. Any number of threads may call every method.
pub struct Made {
    root: PathBuf,
    maker: Maker,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    maker: Maker,
    length: u64,
    things: BTreeMap<String, ThingKind>,
}

/// Does `file` begin as a record does? Moves the position of the file.
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

/// Parses a record. Unknown lines are skipped, and so is a half-written line.
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
            "maker" => {
                said.maker = Maker::parse(rest);
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
            "dir" => ThingKind::Directory,
            "socket" => ThingKind::Socket,
            "link" => ThingKind::Link(target.into()),
            _ => continue,
        };
        let inside = Path::new(name).components().all(|it| matches!(it, Component::Normal(_)));
        if name == ROOT || (inside && !name.is_empty()) {
            said.things.insert(name.into(), kind);
        }
    }
    said
}

fn line(name: &str, kind: &ThingKind) -> String {
    match kind {
        ThingKind::Directory => format!("dir {name}\n"),
        ThingKind::Socket => format!("socket {name}\n"),
        ThingKind::Link(target) => format!("link {name} {target}\n"),
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
    /// Opens the record in `file`, which begins as one. Also returns the process of the earlier
    /// daemon, if it did not end properly.
    pub(super) fn new(root: &Path, mut file: File) -> io::Result<(Made, Option<u32>)> {
        let said = read(&mut file)?;
        let length = file.seek(SeekFrom::End(0))?;
        let found = file.metadata()?;
        let it = (found.dev(), found.ino());
        let maker = said.maker.filter(|maker| maker.file == it).unwrap_or_else(|| Maker::new(it));
        let mut inner = Inner { file, maker, length, things: said.things };
        // The newline ends a half-written line.
        inner.write(&format!("\npid {}\n{}", std::process::id(), maker.line()))?;
        let made = Made { root: root.to_path_buf(), maker, inner: Mutex::new(inner) };
        Ok((made, said.pid))
    }

    /// The number that marks devices outside the root as made here.
    #[must_use]
    pub fn maker(&self) -> u32 {
        self.maker.number
    }

    /// Records that rampack made the root itself.
    pub(super) fn root_was_made(&self) -> io::Result<()> {
        self.inner.lock().insert(ROOT, ThingKind::Directory)
    }

    /// Makes a directory that other users may look into, unless it was made before.
    ///
    /// # Errors
    /// `EEXIST` when another program's file is there, or the error of the system call.
    pub fn directory(&self, path: &Path) -> Result<(), ControlError> {
        let name = self.name(path)?;
        let what = || format!("cannot make the directory {}", path.display());
        let mut inner = self.inner.lock();
        if inner.things.get(&name) != Some(&ThingKind::Directory) || !is_directory(path) {
            free(path)?;
            inner.insert(&name, ThingKind::Directory).map_err(|e| failed(what(), &e))?;
            DirBuilder::new().mode(0o700).create(path).map_err(|e| failed(what(), &e))?;
        }
        fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(|e| failed(what(), &e))
    }

    /// Makes a link. It replaces a link that was made before, unless that has the same target.
    ///
    /// # Errors
    /// `EEXIST` when another program's file is there, or the error of the system call.
    pub fn link(&self, path: &Path, target: &Path) -> Result<(), ControlError> {
        if self.is_link(path, target) {
            return Ok(());
        }
        self.remove(path);
        let name = self.name(path)?;
        let what = || format!("cannot make the link {}", path.display());
        free(path)?;
        let mut inner = self.inner.lock();
        inner.insert(&name, ThingKind::Link(escaped(target))).map_err(|e| failed(what(), &e))?;
        symlink(target, path).map_err(|e| failed(what(), &e))
    }

    /// Makes the link to a block device. One that is not new has users, who do not need the link:
    /// without it they are served as well.
    ///
    /// # Errors
    /// As [`Made::link`], for a new one.
    pub fn link_for(&self, path: &Path, device: &Path, is_new: bool) -> Result<(), ControlError> {
        self.link(path, device).or_else(|error| match is_new {
            true => Err(error),
            false => {
                tracing::warn!("{}", error.message);
                Ok(())
            }
        })
    }

    /// Was the link at `path` made, and does it still lead to `target`?
    fn is_link(&self, path: &Path, target: &Path) -> bool {
        let Ok(name) = self.name(path) else { return false };
        let made = self.inner.lock().things.get(&name) == Some(&ThingKind::Link(escaped(target)));
        made && fs::read_link(path).is_ok_and(|found| found == target)
    }

    /// Removes links in `directory` that an earlier daemon left, except those to `kept`.
    pub fn keep_links(&self, directory: &Path, kept: &[PathBuf]) {
        for (name, kind) in self.things() {
            let path = self.root.join(&name);
            if matches!(kind, ThingKind::Link(_))
                && path.parent() == Some(directory)
                && !kept.contains(&path)
            {
                self.remove(&path);
            }
        }
    }

    /// Records that a socket is about to be made.
    ///
    /// # Errors
    /// `EEXIST` when another program's file is there, or the error of the system call.
    pub fn socket(&self, path: &Path) -> Result<(), ControlError> {
        self.remove(path);
        let name = self.name(path)?;
        free(path)?;
        let what = || format!("cannot make the socket {}", path.display());
        self.inner.lock().insert(&name, ThingKind::Socket).map_err(|e| failed(what(), &e))
    }

    /// Removes the thing at `path`, if it is still what the record says. Was it removed?
    pub fn remove(&self, path: &Path) -> bool {
        let Ok(name) = self.name(path) else { return false };
        let mut inner = self.inner.lock();
        let Some(kind) = inner.things.get(&name) else { return false };
        let removed = match kind {
            ThingKind::Directory => fs::remove_dir(path).is_ok(),
            ThingKind::Link(target) => {
                let is_it = fs::read_link(path).is_ok_and(|found| escaped(&found) == *target);
                is_it && fs::remove_file(path).is_ok()
            }
            ThingKind::Socket => {
                is_socket(path) && !host::keeps_listening(path) && fs::remove_file(path).is_ok()
            }
        };
        // A directory stays in the record while it cannot be removed: something may be mounted
        // there.
        if removed || *kind != ThingKind::Directory || is_other_than_directory(path) {
            inner.forget(&name);
        }
        removed
    }

    /// Removes links and sockets that an earlier daemon left, except those at `held`, and returns
    /// their names. Directories stay: the new daemon needs them.
    pub(crate) fn clear(&self, held: &[PathBuf]) -> Vec<String> {
        let mut cleared = Vec::new();
        for (name, kind) in self.things() {
            let path = self.root.join(&name);
            if held.contains(&path) {
                continue;
            }
            let what = match kind {
                ThingKind::Directory => continue,
                ThingKind::Link(_) => "link",
                ThingKind::Socket => "socket",
            };
            if self.remove(&path) {
                cleared.push(format!("removed the {what} {}", path.display()));
            }
        }
        cleared
    }

    /// Removes everything, the record last. The record stays if anything is left, such as another
    /// program's file.
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
        // The file is unlinked while it is locked. A daemon that has it open already checks its
        // inode.
        if is_at(&self.inner.lock().file, lock) {
            let _ = fs::remove_file(lock);
        }
        if root_is_ours {
            let _ = fs::remove_dir(&self.root);
        }
    }

    fn things(&self) -> BTreeMap<String, ThingKind> {
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
    fn insert(&mut self, name: &str, kind: ThingKind) -> io::Result<()> {
        self.write(&line(name, &kind))?;
        self.things.insert(name.into(), kind);
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        // If this write fails, the next daemon finds nothing there to remove.
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

    /// Writes the current things over the beginning of the record and newlines over the rest, then
    /// cuts that off. Old lines that survive a kill would only repeat what became of things, so a
    /// kill at any time loses nothing.
    fn shorten(&mut self) -> io::Result<()> {
        let mut text = format!("{MARK}pid {}\n{}", std::process::id(), self.maker.line());
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

/// Is there certainly no directory at `path`? A dead mount gives no answer, so the result is false.
fn is_other_than_directory(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

pub(super) fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
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
