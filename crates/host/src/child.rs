//! Runs another program to its end, for a limited time, and reads what it says.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// The most bytes that are read.
const MOST: u64 = 64 << 10;

/// Runs `command` without input, and returns how it ended and what it printed.
///
/// # Errors
/// `ETIMEDOUT` after ten seconds, when it is killed; the error of the system if it cannot be run.
pub fn ask(command: &mut Command) -> io::Result<(ExitStatus, Vec<u8>)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let said = reader(&mut child)?;
    let status = wait(&mut child)?;
    // A program that it started may have the pipe still.
    Ok((status, said.recv_timeout(PATIENCE).unwrap_or_default()))
}

/// Reads what a child says, on a thread.
fn reader(child: &mut Child) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        let read = move || {
            let mut text = Vec::new();
            let _ = stdout.take(MOST).read_to_end(&mut text);
            let _ = sender.send(text);
        };
        let started = thread::Builder::new().name("child-says".into()).spawn(read);
        started.map(drop).inspect_err(|_| end(child))?;
    }
    Ok(receiver)
}

/// Waits for the end of a child; kills it after [`PATIENCE`].
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < until => thread::sleep(PAUSE),
            Ok(None) => {
                end(child);
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
            Err(error) => return Err(error),
        }
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
