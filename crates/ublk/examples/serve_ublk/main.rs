//! Serves one RAM disk as a block device until its standard input ends:
//! `serve_ublk BYTES QUEUES WAITERS KIND [DEPTH LARGEST]`, or `serve_ublk clear` to clear what killed
//! ones left. All its memory is locked.
//!
//! Kinds of disks: `plain`; `failing` (operations beyond page 64 fail); `slow` (those in the second
//! half take half a second); `waiting` (each may have to wait, and none does); `panicking` (operations that begin in page 77 panic); `greedy` (each
//! calls the heap); `readonly`.
//!
//! Commands, one per line, each answered by one line that begins with `ok` or `error`: `threads`
//! (their numbers), `heap` (how often they called the heap since they began to serve), `faults`
//! (minor and major ones of its threads since then), `served`, `down`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use block::Checked;
use sync::atomic::{AtomicU64, Ordering};
use ublk::{Options, Ublk};

mod disk;

/// The system's allocator, which counts the calls of threads that serve.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if SERVES.try_with(Cell::get).unwrap_or(false) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(old, layout, bytes) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
        ["clear"] => clear(),
        [bytes, queues, waiters, kind] => serve(bytes, [queues, waiters], kind, Options::default()),
        [bytes, queues, waiters, kind, depth, largest] => {
            let (depth, largest) = (depth.parse()?, largest.parse()?);
            serve(bytes, [queues, waiters], kind, Options { depth, largest, ..Options::default() })
        }
        _ => Err("serve_ublk BYTES QUEUES WAITERS KIND [DEPTH LARGEST]".into()),
    }
}

fn clear() -> Result<(), Box<dyn Error>> {
    let found = ublk::leftovers()?;
    for left in &found {
        ublk::clear(left.number, left.pid)?;
    }
    println!("ok {}", found.len());
    Ok(())
}

fn serve(
    bytes: &str,
    [queues, waiters]: [&str; 2],
    kind: &str,
    options: Options,
) -> Result<(), Box<dyn Error>> {
    host::set_io_flusher(true)?;
    host::lock_memory()?;
    let disk = Arc::new(Checked::new(disk::Disk::new(bytes.parse()?, kind)?));
    let (queues, waiters) = (queues.parse()?, waiters.parse()?);
    let begin = || SERVES.set(true);
    let mut ublk = Ublk::serve(disk, Options { queues, waiters, begin, ..options })?;
    host::make_resident()?;
    // Telling that they are ready is not part of serving.
    CALLS.store(0, Ordering::Relaxed);
    let before = faults(&ublk);
    println!("ok {}", ublk.path().display());
    for line in io::stdin().lock().lines() {
        match answer(&mut ublk, &line?, before) {
            Ok(text) => println!("ok {text}"),
            Err(error) => println!("error {error}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

/// Minor and major faults of its threads.
fn faults(ublk: &Ublk) -> (u64, u64) {
    let found = ublk.threads().iter().filter_map(|thread| host::thread_faults(*thread));
    found.fold((0, 0), |(minor, major), faults| (minor + faults.minor, major + faults.major))
}

fn answer(ublk: &mut Ublk, line: &str, before: (u64, u64)) -> Result<String, Box<dyn Error>> {
    match line {
        "threads" => Ok(ublk.threads().iter().map(i32::to_string).collect::<Vec<_>>().join(" ")),
        "heap" => Ok(CALLS.load(Ordering::Relaxed).to_string()),
        "faults" => {
            let (minor, major) = faults(ublk);
            Ok(format!("{} {}", minor - before.0, major - before.1))
        }
        "served" => Ok(ublk.is_served().to_string()),
        "down" => Ok(ublk.take_down().map(|()| String::new())?),
        _ => Err(format!("unknown command {line}").into()),
    }
}
