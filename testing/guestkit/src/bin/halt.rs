//! `halt`: waits until PAGES pages were swapped out, stops a process, and continues it after
//! SECONDS seconds. It allocates no memory meanwhile, because the process may be the swap device's
//! daemon.
//!
//! ```text
//! halt PID SECONDS PAGES
//! ```

use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use guestkit::proc::{Text, value};
use guestkit::process::{halt, protect};

/// The time between two reads of the count.
const LOOK: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let words: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [pid, seconds, pages] = words[..] else {
        eprintln!("usage: halt PID SECONDS PAGES");
        return ExitCode::from(2);
    };
    match run(pid, Duration::from_secs(seconds.into()), pages.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halt: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(pid: u32, time: Duration, pages: u64) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut events = File::open("/proc/vmstat")?;
    let mut text = Text::new();
    if !protect() {
        eprintln!("halt: not allowed all of its protections");
    }
    let first = value(text.read(&mut events), "pswpout");
    while value(text.read(&mut events), "pswpout") < first + pages {
        thread::sleep(LOOK);
    }
    halt(pid, true)?;
    thread::sleep(time);
    halt(pid, false)
}
