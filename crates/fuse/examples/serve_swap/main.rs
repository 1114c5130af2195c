//! Serves one RAM disk as a file for swap space until its standard input ends:
//! `serve_swap PATH BYTES THREADS KIND`.
//!
//! Kinds of disks: `plain`; `failing` (every operation fails); `slow` (each takes half a second);
//! `panicking` (operations that begin in page 7 panic); `fresh` (each touches memory that was never
//! touched before); `greedy` (each calls the heap).
//!
//! Commands, one per line, each answered by one line that begins with `ok` or `error`: `threads`
//! (their numbers), `heap` (how often they called the heap since they began to serve), `opens`,
//! `served`, `unmount`, `force`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use block::Checked;
use fuse::{SwapFile, SwapFileOptions};
use sync::atomic::{AtomicU64, Ordering};

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
    if let Err(error) = serve() {
        println!("error {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, threads, kind] = &arguments[..] else {
        return Err("serve_swap PATH BYTES THREADS KIND".into());
    };
    let disk = Arc::new(Checked::new(disk::Disk::new(bytes.parse()?, kind)?));
    let options = SwapFileOptions {
        threads: threads.parse()?,
        begin: || SERVES.set(true),
        ..SwapFileOptions::default()
    };
    let mut swap = SwapFile::serve(Path::new(path), disk, options)?;
    // Telling that they are ready is not part of serving.
    CALLS.store(0, Ordering::Relaxed);
    println!("ok {}", swap.path().display());
    for line in io::stdin().lock().lines() {
        match answer(&mut swap, &line?) {
            Ok(text) => println!("ok {text}"),
            Err(error) => println!("error {error}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn answer(swap: &mut SwapFile, line: &str) -> Result<String, Box<dyn Error>> {
    match line {
        "threads" => Ok(swap.threads().iter().map(i32::to_string).collect::<Vec<_>>().join(" ")),
        "heap" => Ok(CALLS.load(Ordering::Relaxed).to_string()),
        "opens" => Ok(swap.open_count().to_string()),
        "served" => Ok(swap.is_served().to_string()),
        "unmount" => Ok(swap.unmount(false).map(|()| String::new())?),
        "force" => Ok(swap.unmount(true).map(|()| String::new())?),
        _ => Err(format!("unknown command {line}").into()),
    }
}
