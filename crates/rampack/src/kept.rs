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

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
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

/// The directories that this process has locked, with what their users have.
static HERE: LazyLock<Mutex<Vec<Locked>>> = LazyLock::new(|| Mutex::new(Vec::new()));

/// The device and the number of a directory.
type Place = (u64, u64);
type Locked = (Place, Weak<()>);

/// What a store has of its directory. It lives as long as the store.
pub(crate) struct Kept {
    path: PathBuf,
    zone: Arc<Zone>,
    _directory: Directory,
    /// Goes after the lock.
    _here: Here,
}

/// A directory that is open, and locked by this process.
struct Directory(File);

impl Drop for Directory {
    fn drop(&mut self) {
        // A child that is just being started has it open a moment longer, and the lock with it.
        let _ = self.0.unlock();
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
    /// Bytes of frames that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.zone.stats().allocated * PAGE_SIZE as u64
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The store has ended: what is written to the disk now is all of it. If that fails, a later
        // boot of the system refuses what it finds.
        let sync = |name| File::open(self.path.join(name))?.sync_all();
        if REGIONS.into_iter().try_for_each(sync).is_ok() {
            let _ = fs::remove_file(self.path.join(OPEN)).and_then(|()| sync_names(&self.path));
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
    let failed = |error: io::Error| said(path, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let (directory, place) = lock(path)?;
    let left = match fs::read(path.join(RECORD)) {
        Ok(bytes) => Some(Record::from_bytes(&bytes).map_err(|error| refused(path, error))?),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    match &left {
        Some(record) => {
            record.judge(unit, codec).map_err(|error| refused(path, error))?;
            judge_boot(path)?;
        }
        None => only_ours(path)?,
    }
    let limit = limit_within(path, &directory.0, memory, limit)?;
    // A mark that outlives a refusal would spoil the store with the end of the system.
    values::judge_limit(limit).map_err(|error| refused(path, error))?;
    let makes = left.is_none();
    let record = left.unwrap_or_else(|| {
        let frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
        Record { unit, seed, frames, codec: codec.to_owned() }
    });
    write(path, OPEN, boot()?.as_bytes()).map_err(failed)?;
    let files = Files {
        path,
        memory: Memfds::new(),
        makes,
        next: AtomicUsize::new(0),
        why: Mutex::new(None),
    };
    let made = make(&files, &record, |zone| parts(zone, record.seed, Some(limit)));
    let (values, zone) = made.map_err(|error| match files.why.lock().take() {
        Some(why) => failed(why),
        None => refused(path, error),
    })?;
    if makes {
        write(path, RECORD, &record.to_bytes()).map_err(failed)?;
    }
    let users = Arc::new(());
    let here = Arc::downgrade(&users);
    HERE.lock().push((place, here.clone()));
    let kept = Kept { path: path.to_owned(), zone, _directory: directory, _here: Here(here) };
    Ok((values, kept, users))
}

/// Makes a store in the files, or of what they have.
fn make(
    files: &Files<'_>,
    record: &Record,
    parts: impl FnOnce(Arc<dyn Frames>) -> Parts,
) -> Result<(Values, Arc<Zone>), NoStore> {
    let options =
        ZoneOptions { init_on_free: true, ..ZoneOptions::new(host::cpus(), record.frames) };
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
    let directory = File::open(path).map_err(failed)?;
    let about = directory.metadata().map_err(failed)?;
    let place = (about.dev(), about.ino());
    let directory = Directory(directory);
    let is_locked = || host::try_lock(&directory.0).map_err(failed);
    let until = Instant::now() + PATIENCE;
    while !is_locked()? {
        let here = HERE.lock().iter().find(|it| it.0 == place).map(|it| it.1.strong_count());
        let (who, lets_go) = match (here, host::locker(&directory.0)) {
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
fn only_ours(path: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(path).map_err(|error| said(path, &error))? {
        let name = entry.map_err(|error| said(path, &error))?.file_name();
        let known = REGIONS.into_iter().chain([OPEN, "record.new", "open.new"]);
        if known.into_iter().all(|known| name != *known) {
            let (path, name) = (path.display(), name.display());
            let text = format!("{path}: it has a file {name} and no store: it must be empty");
            return Err(Error::Invalid(text.into()));
        }
    }
    Ok(())
}

/// Where a process died and then the system, nobody can say what the disk has.
fn judge_boot(path: &Path) -> Result<(), Error> {
    match fs::read(path.join(OPEN)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(said(path, &error)),
        Ok(then) if then == boot()?.as_bytes() => Ok(()),
        Ok(_) => {
            let path = path.display();
            let text = format!("{path}: the system ended while a process had the store there");
            Err(Error::Invalid(text.into()))
        }
    }
}

/// The present boot of the system.
fn boot() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    fs::read_to_string(path).map_err(|error| said(path, &error))
}

/// The limit, for which the file system has room: a process that writes to a mapping of a full one
/// is ended.
fn limit_within(
    path: &Path,
    directory: &File,
    memory: u64,
    limit: Option<u64>,
) -> Result<u64, Error> {
    let length = |name: &str| fs::metadata(path.join(name)).map_or(0, |it| it.blocks() * 512);
    let free = host::free_bytes_of(directory).map_err(|error| said(path, &error))?;
    let room = free.saturating_add(REGIONS.into_iter().map(length).sum());
    match limit {
        Some(limit) if limit > room => {
            let path = path.display();
            let text = format!("{path}: {room} bytes are free there, and the limit is {limit}");
            Err(Error::Invalid(text.into()))
        }
        Some(limit) => Ok(limit),
        None => Ok(memory.min(room)),
    }
}

/// Writes a small file whole, or not at all. The disk has it then.
fn write(path: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = path.join(format!("{name}.new"));
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, path.join(name))?;
    sync_names(path)
}

/// Waits until the disk has the names of the files, too.
fn sync_names(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Provides the regions, one after the other.
struct Files<'a> {
    path: &'a Path,
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
        let file = options.create(self.makes).truncate(self.makes).open(self.path.join(name));
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

fn refused(path: &Path, error: NoStore) -> Error {
    match error {
        NoStore::Left(text) => Error::Invalid(format!("{}: {text}", path.display()).into()),
        other => other.into(),
    }
}
