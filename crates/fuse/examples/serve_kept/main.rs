//! Serves a disk whose contents outlive the process, under a service manager that keeps descriptors:
//! `serve_kept PATH BYTES THREADS KIND`. The disk is the file for swap space PATH, or, for kinds
//! that begin with `mount-`, the file `disk` in the mount PATH.
//!
//! The first process makes the file. Each later one takes it over. Each adds a line with its process
//! number to PATH.lives when it serves, and ends by itself, with all it made, when PATH.stop is
//! there.
//!
//! Kinds: `kept`; `slow` (each operation takes a millisecond); `private` (a fault: the contents end
//! with the process); `half` (slow, and a fault: only the first descriptor is kept; without
//! `mount-`); `starved` (the second process has one descriptor left when it takes the file over).

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::Checked;
use fuse::{KeptFile, Mount, Options, SwapFile, SwapFileOptions};
use host::Memfds;
use kept::{Contents, Device, Region, Store, Table};
use pagealloc::MemoryProvider;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod disk;

type Failure = Box<dyn Error>;

/// The names of the descriptors.
const TABLE: &str = "table";
const DISK: &str = "disk";
/// How long a service manager that does not read is waited for.
const LONG: Duration = Duration::from_secs(30);
const CHANNEL: &str = "channel";

enum Served {
    File(SwapFile),
    Mount(Mount),
}

impl Served {
    fn new(at: &Path, disk: Disk, threads: usize, kind: &str) -> Result<Served, Failure> {
        match kind.starts_with("mount-") {
            true => {
                let mount = Mount::new(at, mount_options(threads))?;
                mount.add("disk", disk)?;
                Ok(Served::Mount(mount))
            }
            false => Ok(Served::File(SwapFile::serve(at, disk, file_options(threads))?)),
        }
    }

    fn take_over(
        at: &Path,
        mut channels: Vec<OwnedFd>,
        disk: Disk,
        threads: usize,
        number: Option<&String>,
    ) -> Result<Served, Failure> {
        match number {
            Some(number) => {
                let (name, number) = ("disk".to_owned(), number.parse()?);
                let files = vec![KeptFile { name, number, device: disk }];
                let channel = channels.pop().ok_or("the descriptor of the mount is missing")?;
                let mount = Mount::take_over(at, channel, (files, 0), mount_options(threads))?;
                Ok(Served::Mount(mount))
            }
            None => {
                let file = SwapFile::take_over(at, channels, disk, file_options(threads))?;
                Ok(Served::File(file))
            }
        }
    }

    /// The descriptors to keep; none if another process cannot take it over.
    fn channels(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Served::File(file) if file.can_be_taken_over() => file.channels().collect(),
            Served::File(_) => Vec::new(),
            Served::Mount(mount) => mount.channel().into_iter().collect(),
        }
    }

    fn unmount(&mut self) -> Result<(), fuse::Error> {
        match self {
            Served::File(file) => file.unmount(true),
            Served::Mount(mount) => mount.unmount(true),
        }
    }
}

fn file_options(threads: usize) -> SwapFileOptions {
    SwapFileOptions { threads, ..SwapFileOptions::default() }
}

fn mount_options(threads: usize) -> Options {
    Options { workers: Some(threads), clone_fd: false, ..Options::default() }
}

type Disk = Arc<Checked<disk::Disk>>;

fn main() {
    if let Err(error) = serve() {
        eprintln!("serve_kept: {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result<(), Failure> {
    let handed_over = kept::handed_over()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, threads, kind] = &arguments[..] else {
        return Err("serve_kept PATH BYTES THREADS KIND".into());
    };
    let (at, bytes, threads) = (Path::new(path), bytes.parse()?, threads.parse()?);
    if kind.starts_with("mount-") {
        host::lock_memory()?;
    }
    let store = Store::of_environment()?.ok_or("no service manager keeps descriptors")?;
    let mut served = match handed_over.is_empty() {
        true => first(at, bytes, kind, threads, &store)?,
        false => next(at, bytes, kind, threads, handed_over)?,
    };
    let log = OpenOptions::new().append(true).create(true).open(format!("{path}.lives"));
    writeln!(log?, "{}", std::process::id())?;
    store.tell("READY=1", LONG)?;
    let keeper = parent_id();
    while !Path::new(&format!("{path}.stop")).exists() {
        if parent_id() != keeper {
            return Err("the keeper is gone".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    store.tell("STOPPING=1", LONG)?;
    served.unmount()?;
    Ok(())
}

fn disk(memory: &Memfds, bytes: usize, kind: &str) -> Result<Disk, Failure> {
    let kind = kind.trim_start_matches("mount-");
    let region = match kind {
        "private" => host::Mmap.reserve(bytes)?,
        _ => memory.provider(DISK).reserve(bytes)?,
    };
    region.commit(0, region.bytes())?;
    let pause = Duration::from_millis(u64::from(matches!(kind, "slow" | "half")));
    Ok(Arc::new(Checked::new(disk::Disk { region, bytes, pause })))
}

fn first(
    at: &Path,
    bytes: usize,
    kind: &str,
    threads: usize,
    store: &Store,
) -> Result<Served, Failure> {
    let memory = Memfds::unswappable()?;
    let disk = disk(&memory, bytes, kind)?;
    let mut table = Table::create(memory.file(Table::BYTES)?, host::page_bytes() as u32)?;
    let mut contents = Contents::default();
    for region in memory.regions() {
        store.keep(&region.name, region.file.as_fd())?;
        let (name, descriptor) = (region.name.clone(), region.name);
        contents.regions.push(Region { name, descriptor, bytes: region.bytes });
    }
    let served = Served::new(at, disk, threads, kind)?;
    let mut settings = BTreeMap::from([("kind".to_owned(), kind.to_owned())]);
    if let Served::Mount(mount) = &served {
        let number = mount.numbers().first().ok_or("no file")?.1;
        settings.insert("number".into(), number.to_string());
    }
    let device = Device { name: DISK.into(), bytes: bytes as u64, generation: 1, settings };
    contents.devices.push(device);
    table.write(&contents)?;
    store.keep(TABLE, table.as_fd())?;
    let channels = served.channels();
    if channels.is_empty() {
        return Err("the kernel cannot ask again for requests".into());
    }
    let most = if kind == "half" { 1 } else { usize::MAX };
    for channel in channels.into_iter().take(most) {
        store.keep(CHANNEL, channel)?;
    }
    store.settle(Duration::from_secs(30))?;
    Ok(served)
}

fn next(
    at: &Path,
    bytes: usize,
    kind: &str,
    threads: usize,
    handed_over: Vec<(String, OwnedFd)>,
) -> Result<Served, Failure> {
    let take = |fds: &mut Vec<(String, OwnedFd)>, name: &str| -> Vec<OwnedFd> {
        fds.extract_if(.., |(other, _)| other == name).map(|(_, fd)| fd).collect()
    };
    let mut fds = handed_over;
    let table = take(&mut fds, TABLE).pop().ok_or("there is no table")?;
    let (_, contents) = Table::open(table.into(), host::page_bytes() as u32)?;
    let memory = Memfds::unswappable()?;
    for region in &contents.regions {
        let fd = take(&mut fds, &region.descriptor).pop().ok_or("a region is missing")?;
        memory.adopt(&region.name, fd, region.bytes)?;
    }
    let device = contents.devices.first().ok_or("the table names no device")?;
    if (device.bytes, device.settings.get("kind").map(String::as_str)) != (bytes as u64, Some(kind))
    {
        return Err("the table names another device".into());
    }
    let disk = disk(&memory, bytes, kind)?;
    let number = device.settings.get("number");
    if kind.ends_with("starved") {
        starve(&at.with_extension("starved"))?;
    }
    Served::take_over(at, take(&mut fds, CHANNEL), disk, threads, number)
}

/// Leaves this process one descriptor, unless the file `once` is there.
fn starve(once: &Path) -> io::Result<()> {
    if once.exists() {
        return Ok(());
    }
    fs::write(once, "")?;
    let next = File::open("/dev/null")?.as_raw_fd() as u64;
    let limit = Rlimit { current: Some(next + 1), ..getrlimit(Resource::Nofile) };
    Ok(setrlimit(Resource::Nofile, limit)?)
}
