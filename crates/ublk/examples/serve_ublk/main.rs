//! Serves one RAM disk as a block device until its standard input ends:
//! `serve_ublk BYTES QUEUES WAITERS KIND [DEPTH LARGEST]`, or `serve_ublk clear` to clear the
//! devices that killed servers left. The environment variable `MAKER` is the number of the maker, 1
//! without it; with `RECOVERABLE` the device is recoverable. All its memory is locked.
//!
//! `serve_ublk kept FILE BYTES WAITERS` serves a recoverable device whose contents are in a file;
//! the answer names its number and maker as well. After the server was killed,
//! `serve_ublk recover FILE BYTES WAITERS NUMBER MAKER` serves on.
//!
//! `serve_ublk road` has devices of this program pass the suite of roads (`sim::roads`).
//!
//! Kinds of disks: those of `sim::roads`, as `Plain`; `plain`; `failing` (operations beyond page 64 fail); `slow` (those in the second
//! half take half a second); `held` (those in the second half wait until they are released);
//! `waiting` (each answers that it would have to wait, and none waits); `panicking` (operations
//! that begin in page 77 panic); `greedy` (each calls the heap); `readonly`.
//!
//! Commands, one per line, each answered by one line that begins with `ok` or `error`: `threads`
//! (their numbers), `heap` (how often they called the heap since they began to serve), `faults`
//! (minor and major faults of its threads since then), `held` (how many operations wait to be
//! released), `release`, `split` (into two partitions), `parts` (their nodes), `served`, `down`; for
//! a device on a file also `done` (requests that were carried out), `quiesce`, and `on` (to serve on
//! after that).

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, Checked};
use sim::roads::Kind;
use sync::atomic::{AtomicU64, Ordering};
use testkit::CountingHeap;
use ublk::{Fate, Id, Options, Ublk};

mod disk;
mod kept;
mod road;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn main() {
    if let Err(error) = run() {
        println!("error {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["available"] => Ok(ublk::available().map(|()| println!("ok"))?),
        ["clear"] => {
            println!("ok {}", clear()?);
            Ok(())
        }
        ["road"] => road::pass(),
        ["kept", file, bytes, waiters] => keep(file, bytes, waiters, None),
        ["recover", file, bytes, waiters, number, maker] => {
            let id = Id { number: number.parse()?, maker: maker.parse()? };
            keep(file, bytes, waiters, Some(id))
        }
        [bytes, queues, waiters, kind] => serve(bytes, [queues, waiters], kind, Options::default()),
        [bytes, queues, waiters, kind, depth, largest] => {
            let (depth, largest) = (depth.parse()?, largest.parse()?);
            serve(bytes, [queues, waiters], kind, Options { depth, largest, ..Options::default() })
        }
        _ => Err("serve_ublk [kept | recover] BYTES QUEUES WAITERS KIND [DEPTH LARGEST]".into()),
    }
}

/// Clears the devices that killed servers of this maker left. Returns how many.
fn clear() -> Result<u32, Box<dyn Error>> {
    let maker = maker()?;
    let mut cleared = 0;
    for left in ublk::leftovers(maker)? {
        // A device of another maker stays, which the caller looks for.
        ublk::clear(left.number, maker)?;
        cleared += u32::from(left.fate == Fate::Clear);
    }
    Ok(cleared)
}

/// [`Options::maker`].
fn maker() -> Result<u32, Box<dyn Error>> {
    Ok(std::env::var("MAKER").map_or(Ok(1), |maker| maker.parse())?)
}

/// Serves a device on the file, anew or after a server that was killed.
fn keep(file: &str, bytes: &str, waiters: &str, id: Option<Id>) -> Result<(), Box<dyn Error>> {
    prepare()?;
    let disk = kept::KeptDisk::open(file, bytes.parse()?)?;
    let done = disk.done();
    let disk = Arc::new(Checked::new(disk));
    // Few requests at once: a kill finds the server with all of them.
    let (waiters, depth) = (waiters.parse()?, 8);
    let maker = maker()?;
    let options = Options { waiters, depth, recoverable: true, maker, ..Options::default() };
    let mut ublk = match id {
        None => Ublk::serve(disk, options)?,
        Some(id) => Ublk::recover(id, disk, options)?,
    };
    let Id { number, maker } = ublk.id();
    println!("ok {} {number} {maker}", ublk.path().display());
    converse(&mut ublk, &disk::Gate::default(), &done)
}

/// A call that the role of a serving thread lacks ends this process.
fn prepare() -> Result<(), Box<dyn Error>> {
    host::sandbox::choose(host::Sandbox::Strict)?;
    host::set_io_flusher(true)?;
    host::lock_memory()?;
    Ok(())
}

fn serve(
    bytes: &str,
    [queues, waiters]: [&str; 2],
    kind: &str,
    options: Options,
) -> Result<(), Box<dyn Error>> {
    prepare()?;
    let gate = Arc::new(disk::Gate::default());
    let disk: Arc<dyn BlockDevice> = match Kind::named(kind) {
        Some(kind) => kind.of(bytes.parse()?).device(),
        None => Arc::new(Checked::new(disk::Disk::new(bytes.parse()?, kind, gate.clone())?)),
    };
    let (queues, waiters) = (queues.parse()?, waiters.parse()?);
    let begin = || CountingHeap::count_this_thread(true);
    let maker = maker()?;
    let recoverable = std::env::var_os("RECOVERABLE").is_some();
    let options = Options { queues, waiters, begin, maker, recoverable, ..options };
    let mut ublk = Ublk::serve(disk, options)?;
    host::make_resident()?;
    println!("ok {}", ublk.path().display());
    converse(&mut ublk, &gate, &AtomicU64::new(0))
}

/// Answers commands until standard input ends.
fn converse(
    ublk: &mut Ublk,
    gate: &disk::Gate,
    carried_out: &AtomicU64,
) -> Result<(), Box<dyn Error>> {
    // The threads' report that they are ready is not counted as serving.
    let before = done(ublk);
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match &*line {
            "done" => Ok(carried_out.load(Ordering::Relaxed).to_string()),
            line => answer(ublk, gate, line, &before),
        };
        match answer {
            Ok(text) => println!("ok {text}"),
            Err(error) => println!("error {error}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

/// The counts of its threads, before they served or up to now.
struct Done {
    heap_calls: u64,
    minor_faults: u64,
    major_faults: u64,
}

fn done(ublk: &Ublk) -> Done {
    let mut done = Done { heap_calls: CountingHeap::calls(), minor_faults: 0, major_faults: 0 };
    for faults in ublk.threads().iter().filter_map(|thread| host::thread_faults(*thread)) {
        done.minor_faults += faults.minor;
        done.major_faults += faults.major;
    }
    done
}

const PAGE: u64 = units::PAGE_SIZE as u64;
/// For requests under way.
const PATIENCE: Duration = Duration::from_secs(5);

fn disk_bytes(ublk: &Ublk) -> io::Result<u64> {
    io::Seek::seek(&mut std::fs::File::open(ublk.path())?, io::SeekFrom::End(0))
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn answer(
    ublk: &mut Ublk,
    gate: &disk::Gate,
    line: &str,
    before: &Done,
) -> Result<String, Box<dyn Error>> {
    match line {
        "threads" => Ok(ublk.threads().iter().map(i32::to_string).collect::<Vec<_>>().join(" ")),
        "heap" => Ok((CountingHeap::calls() - before.heap_calls).to_string()),
        "faults" => {
            let now = done(ublk);
            let minor = now.minor_faults - before.minor_faults;
            Ok(format!("{minor} {}", now.major_faults - before.major_faults))
        }
        "held" => Ok(gate.waiting().to_string()),
        "release" => {
            gate.release();
            Ok(String::new())
        }
        "split" => {
            let half = disk_bytes(ublk)? / 2 / PAGE * PAGE;
            Ok(joined(&ublk.split(&[0..half, half..2 * half])?))
        }
        "parts" => Ok(joined(&ublk.parts()?)),
        "quiesce" => Ok(ublk.quiesce(Instant::now() + PATIENCE)?.to_string()),
        "on" => Ok(ublk.serve_on(PATIENCE).map(|()| String::new())?),
        "served" => Ok(ublk.is_served().to_string()),
        "down" => Ok(ublk.take_down(false).map(|()| String::new())?),
        _ => Err(format!("unknown command {line}").into()),
    }
}
