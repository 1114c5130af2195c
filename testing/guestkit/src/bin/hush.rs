//! `hush`: suspends a mapped device that is below a swap device, asks the daemon until it says that
//! its backing device does not answer, and resumes the device. It has its memory, its files and its
//! connection before that: a program that is started meanwhile may wait for memory that only a
//! write to the device would free.
//!
//! ```text
//! hush DEVICE SOCKET SECONDS
//! ```
//!
//! The last line has the seconds of silence and the pages that waited. The exit status is 0 if the
//! daemon told of the silence within the time.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use guestkit::mapped::Mapped;
use guestkit::process::protect;

/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest answer.
const LONGEST: usize = 1 << 20;
const QUESTION: &[u8] = b"{\"version\":1,\"command\":\"status\"}\n";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let [device, socket, seconds] = &words[..] else {
        eprintln!("usage: hush DEVICE SOCKET SECONDS");
        return ExitCode::from(2);
    };
    match run(device, socket, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hush: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(device: &str, socket: &str, seconds: &str) -> io::Result<()> {
    let limit = Duration::from_secs(seconds.parse().map_err(io::Error::other)?);
    let device = Mapped::open(device)?;
    let mut daemon = UnixStream::connect(socket)?;
    daemon.set_read_timeout(Some(limit))?;
    let mut answer = vec![0; LONGEST];
    if !protect() {
        eprintln!("hush: not allowed all of its protections");
    }
    // The daemon has a thread for this client from now on.
    ask(&mut daemon, &mut answer)?;
    device.suspend(true)?;
    let told = wait(&mut daemon, &mut answer, limit);
    device.suspend(false)?;
    let (silent, waiting) = told?;
    println!("hush: silent={silent} waiting={waiting}");
    Ok(())
}

/// Asks until the daemon tells of the silence. Returns the seconds and the pages that wait.
fn wait(daemon: &mut UnixStream, answer: &mut [u8], limit: Duration) -> io::Result<(u64, u64)> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        let text = ask(daemon, answer)?;
        let number = |name| number(text, name).ok_or(io::ErrorKind::InvalidData);
        let silent = number(b"\"silent_seconds\":")?;
        if silent > 0 {
            return Ok((silent, number(b"\"waiting_pages\":")?));
        }
        thread::sleep(PAUSE);
    }
    Err(io::Error::other("the daemon does not tell of the silence"))
}

/// The daemon's answer, one line.
fn ask<'a>(daemon: &mut UnixStream, answer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    daemon.write_all(QUESTION)?;
    let mut length = 0;
    loop {
        let read = daemon.read(&mut answer[length..])?;
        length += read;
        match answer[..length].last() {
            Some(b'\n') => return Ok(&answer[..length]),
            _ if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}

/// The whole number after `name`.
fn number(text: &[u8], name: &[u8]) -> Option<u64> {
    let start = text.windows(name.len()).position(|part| part == name)? + name.len();
    let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.map(|digit| u64::from(digit - b'0')).reduce(|number, digit| number * 10 + digit)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_found_by_their_names() {
        let text = b"{\"a\":{\"waiting_pages\":65,\"silent_seconds\":0}}";
        assert_eq!(number(text, b"\"waiting_pages\":"), Some(65));
        assert_eq!(number(text, b"\"silent_seconds\":"), Some(0));
        assert_eq!(number(text, b"\"other\":"), None);
        assert_eq!(number(b"\"a\":null", b"\"a\":"), None);
    }
}
