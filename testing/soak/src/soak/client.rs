//! A client of a soak, in a process of its own, which may be killed at any moment.

use std::io::{Read, Write, stdin, stdout};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use sync::atomic::{AtomicBool, Ordering};

use super::layout::{ClientPart, Way};
use super::nbd_client::NbdClient;
use super::target::{OpenFile, Target};
use super::worker::Worker;
use crate::interrupt;

/// How often the client says its counts.
const SAY: Duration = Duration::from_millis(200);

/// Works until standard input ends, then reads all pages.
///
/// # Errors
/// A page is wrong or lost, or the server is gone.
pub fn run(part: &ClientPart) -> Result<()> {
    let target: Box<dyn Target> = match &part.way {
        Way::Nbd { socket, export } => Box::new(NbdClient::new(socket, export)?),
        Way::File(path) => Box::new(OpenFile::new(path, false)?),
        Way::Block(path) => Box::new(OpenFile::new(path, true)?),
    };
    let mut worker = Worker::new(part.share, target, Some(&part.log))?;
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    thread::spawn(move || {
        let _ = stdin().lock().read(&mut [0]);
        // Relaxed: the flag is alone and publishes nothing.
        end.store(true, Ordering::Relaxed);
    });
    let mut said = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        worker.step()?;
        if said.elapsed() > SAY {
            interrupt::check()?;
            say(&worker)?;
            said = Instant::now();
        }
    }
    worker.read_all()?;
    say(&worker)
}

fn say(worker: &Worker) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&worker.tally.counts())?)?;
    Ok(out.flush()?)
}
