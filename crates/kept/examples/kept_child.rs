//! A daemon for tests of the keeper: `kept_child LOG SCRIPT`, and its keeper: `kept_child keep LOG
//! SCRIPT`.
//!
//! Each life appends a line to LOG: what it was handed over, as `NAME=CONTENTS`. Then it does what
//! the word of SCRIPT says whose number is the number of lives so far; the words are joined by
//! commas.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::time::Duration;

use host::{For, Signals, signal};
use kept::{Backoff, Ended, Keeper, Store};
use rustix::process::{Signal, getppid, kill_process};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["keep", log, script] => keep(log, script),
        ["stranger", directory] => send(Path::new(directory), "stranger"),
        [log, script] => live(Path::new(log), script),
        _ => Err("kept_child [keep] LOG SCRIPT".into()),
    };
    if let Err(error) = done {
        eprintln!("kept_child: {error}");
        exit(99);
    }
}

fn keep(log: &str, script: &str) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let arguments = ["kept_child", log, script].map(OsString::from).to_vec();
    let mut backoff = Backoff::default();
    if let Ok(seconds) = std::env::var("KEPT_PAUSE") {
        backoff.first = Duration::from_secs(seconds.parse()?);
        backoff.longest = backoff.first;
    }
    match Keeper::new(&program, arguments, backoff, None)?.run()? {
        Ended::Exited(status) => exit(status),
        Ended::Killed(signal) => exit(128 + signal),
    }
}

/// Keeps a new file under `name`, with its name in it.
fn send(directory: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    send_to(&store()?, directory, name)
}

/// Has another process keep a file; false if it cannot.
fn send_as_stranger(directory: &Path) -> Result<bool, Box<dyn Error>> {
    let mut stranger = Command::new(std::env::current_exe()?);
    Ok(stranger.arg("stranger").arg(directory).stderr(Stdio::null()).status()?.success())
}

fn send_to(store: &Store, directory: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    let path = directory.join(format!("file-{name}"));
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let mut file = options?;
    fs::remove_file(path)?;
    file.write_all(name.as_bytes())?;
    Ok(store.keep(name, file.as_fd())?)
}

fn store() -> Result<Store, Box<dyn Error>> {
    Ok(Store::of_environment()?.ok_or("nobody keeps descriptors")?)
}

fn tell(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(store()?.tell(text, Duration::from_secs(30))?)
}

fn contents(fd: OwnedFd) -> String {
    let mut bytes = [0; 64];
    let length = File::from(fd).read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Sends SIGTERM to the keeper.
fn terminate_keeper() -> Result<(), Box<dyn Error>> {
    Ok(kill_process(getppid().ok_or("a keeper")?, Signal::TERM)?)
}

/// The next of `signals`; None if the keeper ends first.
fn next(signals: &Signals) -> Result<Option<i32>, Box<dyn Error>> {
    let keeper = getppid();
    while getppid() == keeper {
        let time = Some(Duration::from_millis(50));
        if host::wait([signals.as_fd()], For::Reading, time)? == [true]
            && let Some((signal, _)) = signals.next()
        {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

/// Replaces this program by itself, with a file that nobody else keeps.
fn replace(directory: &Path, store: &Store) -> Result<(), Box<dyn Error>> {
    let path = directory.join("replaced");
    fs::write(&path, std::process::id().to_string())?;
    // Many descriptors of its own are where those of the new program go.
    let own: Vec<File> = (0..20).map(|_| File::open(&path)).collect::<Result<_, _>>()?;
    let number = |n: usize| fs::read_link(format!("/proc/self/fd/{}", own[n].as_raw_fd()));
    let before: Vec<_> = (0..20).map(number).collect::<Result<_, _>>()?;
    let mut fds = store.kept()?;
    fds.push(("replaced".to_owned(), File::open(&path)?.into()));
    let words: Vec<OsString> = std::env::args_os().collect();
    let error = kept::replace(&directory.join("none"), words.clone(), &[], &fds);
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    let error = kept::replace(&path, words.clone(), &[], &fds);
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    let after: Vec<_> = (0..20).map(number).collect::<Result<_, _>>()?;
    assert_eq!(before, after, "a failure changes no descriptor");
    let variables = [("KEPT_CHILD", OsString::from("replaced"))];
    Err(kept::replace(&std::env::current_exe()?, words, &variables, &fds).into())
}

fn live(log: &Path, script: &str) -> Result<(), Box<dyn Error>> {
    let directory = log.parent().ok_or("a directory")?;
    let life = fs::read_to_string(log).unwrap_or_default().lines().count();
    let word = script.split(',').nth(life).ok_or("no word for this life")?;
    // Until then programs get all descriptors of this one.
    let is_sent = word == "stranger" && send_as_stranger(directory)?;
    let handed_over = kept::handed_over()?;
    let mut seen: Vec<String> =
        handed_over.into_iter().map(|(name, fd)| format!("{name}={}", contents(fd))).collect();
    seen.extend(std::env::var("KEPT_CHILD"));
    let mut file = OpenOptions::new().append(true).create(true).open(log)?;
    writeln!(file, "{}", seen.join(" "))?;
    let settle = || store()?.settle(Duration::from_secs(30)).map_err(Box::<dyn Error>::from);
    match word {
        // Keeps a file, is ready, and is killed at once.
        "die" => {
            send(directory, &format!("life-{life}"))?;
            tell("READY=1\nSTATUS=up")?;
            std::process::abort()
        }
        "twice" => {
            send(directory, "same")?;
            send(directory, "same")?;
            tell("READY=1")?;
            exit(3)
        }
        "forget" => {
            store()?.forget("same")?;
            settle()?;
            exit(3)
        }
        "many" => {
            for n in 0..300 {
                send(directory, &format!("n{n}"))?;
            }
            settle()?;
            exit(3)
        }
        // As many as there are to be.
        "fill" => {
            for n in 1..std::env::var("FDSTORE")?.parse()? {
                send(directory, &format!("n{n}"))?;
            }
            send(directory, "last")?;
            settle()?;
            exit(3)
        }
        "stranger" => {
            assert!(is_sent, "the socket was there");
            assert!(!send_as_stranger(directory)?, "the socket stays with the daemon");
            settle()?;
            send(directory, "own")?;
            exit(3)
        }
        // Another life in the same process, after programs that cannot be executed.
        "replace" => {
            let store = store()?;
            send_to(&store, directory, &format!("life-{life}"))?;
            store.settle(Duration::from_secs(30))?;
            replace(directory, &store)
        }
        "refuse" => exit(2),
        "stop" => {
            tell("READY=1")?;
            tell("STOPPING=1")?;
            exit(4)
        }
        "end" => Ok(()),
        // Dies of a signal before it listens.
        "deaf" => {
            terminate_keeper()?;
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        // Ends at a signal, or is another program by then.
        "wait" | "busy" => {
            let signals = Signals::listen(&[signal::SIGTERM, signal::SIGINT])?;
            send(directory, "kept")?;
            tell("READY=1")?;
            settle()?;
            if word == "busy" {
                terminate_keeper()?;
                next(&signals)?;
                drop(signals);
                return replace(directory, &store()?);
            }
            fs::write(directory.join("waits"), std::process::id().to_string())?;
            let Some(signal) = next(&signals)? else { return Ok(()) };
            tell("STOPPING=1")?;
            exit(128 + signal)
        }
        _ => Err(format!("unknown word {word}").into()),
    }
}
