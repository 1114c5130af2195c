//! Stores that outlive their process: all that they have is in files of a directory, which are
//! mapped shared.
//!
//! | file | what |
//! |---|---|
//! | `record` | what a later process compares before it touches anything; written last |
//! | `open` | while a process has the store, or when one died: the boot of the system |
//! | `frames` | the frames of all objects |
//! | `index`, `chains`, `groups`, `zspages` | the tables of the crate `values` |
//!
//! The directory is locked while a process has the store.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use host::{Memfds, Mmap};
use pagealloc::{Frames, MemoryProvider, NoMemory, Region, Zone, ZoneOptions};
use sync::Mutex;
use sync::atomic::{AtomicUsize, Ordering};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE, pages_for};
use values::{NoStore, Parts, Record, Values};

use crate::Error;

const RECORD: &str = "record";
const OPEN: &str = "open";
/// The regions, in the order in which they are asked for.
const REGIONS: [&str; 5] = ["frames", "index", "chains", "groups", "zspages"];
/// How long a process that is ending may take to let go of a directory.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of free frames that a CPU keeps: a pcp list and the pageblock that it has reserved.
const CPU_BYTES: u64 = PAGEBLOCK_SIZE as u64 + 64 * PAGE_SIZE as u64;
/// Bytes of a free pageblock that keeps its memory, of one that is about to be given back, of
/// small files, and of the last pages of tables.
const BESIDE: u64 = 2 * PAGEBLOCK_SIZE as u64 + (1 << 20);

/// The directories that this process has locked, with what their users have.
static HERE: LazyLock<Mutex<Vec<Locked>>> = LazyLock::new(|| Mutex::new(Vec::new()));

/// The device and the number of a directory.
type Place = (u64, u64);
type Locked = (Place, Weak<()>);

/// What a store has of its directory. It lives as long as the store.
pub(crate) struct Kept {
    zone: Arc<Zone>,
    /// Bytes that the file system must have beside a limit.
    beside: u64,
    directory: Directory,
    /// Goes after the lock.
    _here: Here,
}

/// A directory that is open, and locked by this process.
struct Directory {
    file: File,
    /// As the caller named it.
    path: PathBuf,
}

impl Directory {
    /// A file of this directory, whatever has its path by now.
    fn at(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.file.as_raw_fd()).into()
    }

    fn said(&self, error: &io::Error) -> Error {
        said(&self.path, error)
    }

    fn refused(&self, error: NoStore) -> Error {
        match error {
            NoStore::Left(text) => self.invalid(text),
            other => other.into(),
        }
    }

    fn invalid(&self, text: impl Display) -> Error {
        Error::Invalid(format!("{}: {text}", self.path.display()).into())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A child that is just being started has it open a moment longer, and the lock with it.
        let _ = self.file.unlock();
    }
}

/// A directory among those of this process.
struct Here(Weak<()>);

impl Drop for Here {
    fn drop(&mut self) {
        HERE.lock().retain(|(_, users)| !Weak::ptr_eq(users, &self.0));
    }
}

impl Kept {
    /// Whether the file system has room for a limit, with what the store has by now.
    ///
    /// # Errors
    /// [`Error::Invalid`], and the error of fstatvfs(3).
    pub fn judge_limit(&self, limit: u64) -> Result<(), Error> {
        judge_room(&self.directory, room(&self.directory)?, limit, self.beside)
    }

    /// Bytes of frames that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.zone.stats().allocated * PAGE_SIZE as u64
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The store has ended: what is written to the disk now is all of it. If that fails, a later
        // boot of the system refuses what it finds.
        let directory = &self.directory;
        if sync_regions(directory).is_ok() {
            let removed = fs::remove_file(directory.at(OPEN));
            let _ = removed.and_then(|()| directory.file.sync_all());
        }
    }
}

/// Opens the store in a directory, or makes one. `parts` are those of a new one; it takes at most
/// `memory` bytes. Each user of the store has a share of what is returned last: without one, only
/// upkeep that is under way has the store.
pub(crate) fn open(
    path: &Path,
    memory: u64,
    parts: impl FnOnce(Arc<dyn Frames>, u64, Option<u64>) -> Parts,
    (unit, codec, seed): (usize, &str, u64),
    limit: Option<u64>,
) -> Result<(Values, Kept, Arc<()>), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| said(path, &error))?;
    let (directory, place) = lock(path)?;
    let failed = |error: io::Error| directory.said(&error);
    let left = match fs::read(directory.at(RECORD)) {
        Ok(bytes) => Some(Record::from_bytes(&bytes).map_err(|error| directory.refused(error))?),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let is_marked = match &left {
        Some(record) => {
            record.judge(unit, codec).map_err(|error| directory.refused(error))?;
            judge_boot(&directory)?
        }
        None => only_ours(&directory).map(|()| false)?,
    };
    let room = room(&directory)?;
    // Free frames of each CPU take at most an eighth of a small file system.
    let cpus = host::cpus().min((room / 8 / CPU_BYTES).max(1) as usize);
    let beside = BESIDE + cpus as u64 * CPU_BYTES;
    let limit = limit.unwrap_or_else(|| {
        memory.min(room.saturating_sub(beside) / 33 * 32).max(values::LEAST_LIMIT)
    });
    // A mark that outlives a refusal would spoil the store with the end of the system.
    values::judge_limit(limit).map_err(|error| directory.refused(error))?;
    judge_room(&directory, room, limit, beside)?;
    let makes = left.is_none();
    let record = left.unwrap_or_else(|| {
        let frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
        Record { unit, seed, frames, codec: codec.to_owned() }
    });
    if !is_marked {
        write(&directory, OPEN, boot()?.as_bytes()).map_err(failed)?;
    }
    let files = Files {
        directory: &directory,
        memory: Memfds::new(),
        makes,
        next: AtomicUsize::new(0),
        why: Mutex::new(None),
    };
    let made = make(&files, &record, cpus, |zone| parts(zone, record.seed, Some(limit)));
    let (values, zone) = made.map_err(|error| match files.why.lock().take() {
        Some(why) => failed(why),
        None => directory.refused(error),
    })?;
    if makes {
        write(&directory, RECORD, &record.to_bytes()).map_err(failed)?;
    }
    let users = Arc::new(());
    let here = Arc::downgrade(&users);
    HERE.lock().push((place, here.clone()));
    Ok((values, Kept { zone, beside, directory, _here: Here(here) }, users))
}

/// Makes a store in the files, or of what they have.
fn make(
    files: &Files<'_>,
    record: &Record,
    cpus: usize,
    parts: impl FnOnce(Arc<dyn Frames>) -> Parts,
) -> Result<(Values, Arc<Zone>), NoStore> {
    let options = ZoneOptions { init_on_free: true, ..ZoneOptions::new(cpus, record.frames) };
    let zone = Zone::over(files, &Mmap, options);
    let zone = Arc::new(zone.map_err(|error| NoStore::NoMemory(error.to_string()))?);
    let parts = parts(zone.clone());
    let values = match files.makes {
        true => Values::kept(files, parts)?,
        false => Values::recover((files, &Mmap), parts, |live| zone.adopt(live))?,
    };
    Ok((values, zone))
}

/// Locks a directory. It waits for who is about to let go of it: a process that is ending, or
/// upkeep of a store in this process that has no user any more.
fn lock(path: &Path) -> Result<(Directory, Place), Error> {
    let failed = |error: io::Error| said(path, &error);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let place = (about.dev(), about.ino());
    let directory = Directory { file, path: path.to_owned() };
    let is_locked = || host::try_lock(&directory.file).map_err(failed);
    let until = Instant::now() + PATIENCE;
    while !is_locked()? {
        let here = HERE.lock().iter().find(|it| it.0 == place).map(|it| it.1.strong_count());
        let (who, lets_go) = match (here, host::locker(&directory.file)) {
            (Some(users), _) => ("this process".to_owned(), users == 0),
            (None, Some(process)) => (format!("process {process}"), host::is_ending(process)),
            (None, None) => ("another process".to_owned(), false),
        };
        if lets_go && Instant::now() < until {
            thread::sleep(PAUSE);
        } else if is_locked()? {
            // It has let go since.
            break;
        } else {
            let text = format!("{}: {who} has the store there", path.display());
            return Err(Error::Busy(text.into()));
        }
    }
    Ok((directory, place))
}

/// A directory without a record is empty, or a process died before it had made a store.
fn only_ours(directory: &Directory) -> Result<(), Error> {
    let failed = |error: io::Error| directory.said(&error);
    for entry in fs::read_dir(directory.at("")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let known = REGIONS.into_iter().chain([OPEN, "record.new", "open.new"]);
        if known.into_iter().all(|known| name != *known) {
            let text = format!("it has a file {} and no store: it must be empty", name.display());
            return Err(directory.invalid(text));
        }
    }
    Ok(())
}

/// Whether a process died in this boot of the system. Where the system ended after it, nobody can
/// say what the disk has; nor where a disk failed.
fn judge_boot(directory: &Directory) -> Result<bool, Error> {
    match fs::read(directory.at(OPEN)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(directory.said(&error)),
        Ok(then) if then == boot()?.as_bytes() => {
            sync_regions(directory).map_err(|error| directory.said(&error))?;
            Ok(true)
        }
        Ok(_) => {
            let text = "the system ended, or the disk failed, while a process had the store there";
            Err(directory.invalid(text))
        }
    }
}

/// Waits until the disk has all that the regions have. If it failed, who syncs next is not told:
/// the mark is emptied then, so that nobody opens the store.
fn sync_regions(directory: &Directory) -> io::Result<()> {
    REGIONS.into_iter().try_for_each(|name| {
        let file = File::open(directory.at(name));
        let synced = file.and_then(|file| {
            file.sync_all().inspect_err(|_| drop(File::create(directory.at(OPEN))))
        });
        synced.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    })
}

/// The present boot of the system.
fn boot() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    fs::read_to_string(path).map_err(|error| said(path, &error))
}

/// Bytes that the file system has for the store: those that are free, and those of its files.
fn room(directory: &Directory) -> Result<u64, Error> {
    let length = |name| fs::metadata(directory.at(name)).map_or(0, |it| it.blocks() * 512);
    let free = host::free_bytes_of(&directory.file).map_err(|error| directory.said(&error))?;
    Ok(free.saturating_add(REGIONS.into_iter().map(length).sum()))
}

/// Judges whether there is room for all that a store with this limit takes: a process that writes
/// to a mapping of a full file system is ended. An entry of `zspages` is 1/32 of a frame.
fn judge_room(directory: &Directory, room: u64, limit: u64, beside: u64) -> Result<(), Error> {
    let needed = limit.saturating_add(limit / 32).saturating_add(beside);
    if needed > room {
        return Err(directory.invalid(format!(
            "{room} bytes are free there, and a limit of {limit} needs {needed}"
        )));
    }
    Ok(())
}

/// Writes a small file whole, or not at all. The disk has it then.
fn write(directory: &Directory, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = directory.at(&format!("{name}.new"));
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, directory.at(name))?;
    directory.file.sync_all()
}

/// Provides the regions, one after the other.
struct Files<'a> {
    directory: &'a Directory,
    memory: Memfds,
    /// The files are new.
    makes: bool,
    next: AtomicUsize,
    /// Why there was no region.
    why: Mutex<Option<io::Error>>,
}

impl Files<'_> {
    fn region(&self, name: &str, bytes: usize) -> io::Result<Region> {
        let bytes = bytes.max(1).next_multiple_of(PAGEBLOCK_SIZE);
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        let file = options.create(self.makes).truncate(self.makes).open(self.directory.at(name));
        let file =
            file.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        if self.makes {
            file.set_len(bytes as u64)?;
        }
        self.memory.adopt(name, file.into(), bytes as u64)?;
        let region = self.memory.region(name, bytes)?;
        // Recovery reads objects before the zone has them.
        region.commit(0, bytes).map_err(|_| ErrorKind::OutOfMemory)?;
        Ok(region)
    }
}

impl MemoryProvider for Files<'_> {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let name = REGIONS.get(next).ok_or(NoMemory { bytes })?;
        self.region(name, bytes).map_err(|error| {
            *self.why.lock() = Some(error);
            NoMemory { bytes }
        })
    }
}

fn said(path: &Path, error: &io::Error) -> Error {
    let message = format!("{}: {error}", path.display()).into();
    match error.raw_os_error() {
        Some(errno) => Error::System { errno, message },
        None => Error::Invalid(message),
    }
}
