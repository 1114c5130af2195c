//! Serves one RAM disk as a file for swap space until its standard input ends:
//! `serve_swap PATH BYTES THREADS KIND [ring]`.
//!
//! Kinds of disks: `plain`; `failing` (every operation fails); `slow` (each takes half a second);
//! `panicking` (operations that begin in page 7 panic); `fresh` (each touches memory that was never
//! touched before); `greedy` (each calls the heap).
//!
//! Commands, one per line, each answered by one line that begins with `ok` or `error`: `threads`
//! (their numbers), `heap` (how often they called the heap since they began to serve), `opens`,
//! `served`, `ring` (is it served by io_uring?), `unmount`, `force`.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use block::Checked;
use fuse::{SwapFile, SwapFileOptions};
use testkit::CountingHeap;

mod disk;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn main() {
    if let Err(error) = serve() {
        println!("error {error}");
        std::process::exit(1);
    }
}

/// A call that the role of a serving thread lacks ends this process.
fn sandbox() -> Result<(), Box<dyn Error>> {
    host::sandbox::choose(host::Sandbox::Strict)?;
    Ok(())
}

fn serve() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, threads, kind, ring @ ..] = &arguments[..] else {
        return Err("serve_swap PATH BYTES THREADS KIND [ring]".into());
    };
    sandbox()?;
    let disk = Arc::new(Checked::new(disk::Disk::new(bytes.parse()?, kind)?));
    let options = SwapFileOptions {
        threads: threads.parse()?,
        ring: !ring.is_empty(),
        begin: || CountingHeap::count_this_thread(true),
        ..SwapFileOptions::default()
    };
    let mut swap = SwapFile::serve(Path::new(path), disk, options)?;
    // The threads' report that they are ready is not counted as serving.
    let before = CountingHeap::calls();
    println!("ok {}", swap.path().display());
    for line in io::stdin().lock().lines() {
        match answer(&mut swap, &line?, before) {
            Ok(text) => println!("ok {text}"),
            Err(error) => println!("error {error}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn answer(swap: &mut SwapFile, line: &str, before: u64) -> Result<String, Box<dyn Error>> {
    match line {
        "threads" => Ok(swap.threads().iter().map(i32::to_string).collect::<Vec<_>>().join(" ")),
        "heap" => Ok((CountingHeap::calls() - before).to_string()),
        "opens" => Ok(swap.open_count().to_string()),
        "ring" => Ok(swap.is_by_ring().to_string()),
        "served" => Ok(swap.is_served().to_string()),
        "unmount" => Ok(swap.unmount(false).map(|()| String::new())?),
        "force" => Ok(swap.unmount(true).map(|()| String::new())?),
        _ => Err(format!("unknown command {line}").into()),
    }
}
