//! Calls the kernel's OOM killer by hand.
//!
//! Its file takes other commands too, among them those that crash or restart the machine. So it is
//! open for one thread only, which has a table of descriptors of its own and writes nothing but one
//! command. No thread that serves clients has a number for that file.
//!
//! # Why unsafe
//! close_range(2) takes numbers, and a descriptor of the new table has no owner yet.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use crate::descriptors::own_descriptors;
use crate::sandbox::{Role, enter};
use crate::stack::{SERVING_STACK, touch_stack};

/// The file for sysrq commands, one character each (kernel document `admin-guide/sysrq.rst`).
/// `/proc/sys/kernel/sysrq` limits the keyboard, not this file.
const TRIGGER: &str = "/proc/sysrq-trigger";
/// "Will call the oom killer to kill a memory hog process, but do not panic if nothing can be
/// killed."
const KILL: &[u8] = b"f";

/// Calls the kernel's OOM killer. Its thread and its file are there before they are needed.
#[derive(Debug)]
pub struct OomKiller {
    /// Closed to end the thread.
    asking: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl OomKiller {
    /// Opens the file; it kills nothing.
    ///
    /// # Errors
    /// The error of the system: only root may open it, and in many containers not even root. It
    /// needs Linux 5.9.
    pub fn open() -> io::Result<OomKiller> {
        OomKiller::at(Path::new(TRIGGER))
    }

    pub(crate) fn at(path: &Path) -> io::Result<OomKiller> {
        let (asked, asking) = io::pipe()?;
        let (number, path) = (asked.as_raw_fd(), path.to_owned());
        let (ready, is_ready) = channel();
        let serve = move || {
            let opened =
                open_alone(number, &path).and_then(|open| enter(Role::OomKiller).map(|()| open));
            match opened {
                Ok((asked, trigger)) => {
                    let _ = ready.send(Ok(()));
                    call_when(asked, &trigger);
                }
                Err(error) => _ = ready.send(Err(error)),
            }
        };
        let thread = thread::Builder::new().name(Role::OomKiller.name().into());
        let thread = thread.stack_size(SERVING_STACK).spawn(serve)?;
        // `asked` stays open until the thread has its copy.
        let is_ready = is_ready.recv().map_err(io::Error::other)?;
        is_ready.map(|()| OomKiller { asking: Some(asking), thread: Some(thread) })
    }

    /// Makes the kernel kill the process that takes most memory, as in an OOM. It returns before
    /// the process is killed.
    ///
    /// # Errors
    /// `BrokenPipe` if the thread has ended.
    pub fn call(&self) -> io::Result<()> {
        self.asking.as_ref().map_or(Ok(()), |mut asking| asking.write_all(KILL))
    }
}

impl Drop for OomKiller {
    fn drop(&mut self) {
        self.asking = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported the panic of the thread.
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread descriptors of its own, and leaves it three: the standard streams, the
/// one with this `number`, and a new one of `path`.
fn open_alone(number: RawFd, path: &Path) -> io::Result<(File, File)> {
    let close = |first: RawFd, last: RawFd| {
        let (first, last) = (first as libc::c_uint, last as libc::c_uint);
        // SAFETY: three numbers. Nobody uses what is closed: this table is new, and the owners of
        // the descriptors are on other threads, which have another one.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    own_descriptors()?;
    close(number + 1, RawFd::MAX)?;
    if number > libc::STDERR_FILENO + 1 {
        close(libc::STDERR_FILENO + 1, number - 1)?;
    }
    // SAFETY: it is open, and its owner on another thread owns the one in the other table.
    let asked = unsafe { File::from_raw_fd(number) };
    Ok((asked, OpenOptions::new().write(true).open(path)?))
}

/// Calls the OOM killer for each byte that comes.
fn call_when(mut asked: File, trigger: &File) {
    touch_stack();
    while let Ok(1) = asked.read(&mut [0]) {
        // Nobody could do more about an error.
        let _ = trigger.write_at(KILL, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use testkit::TempDir;

    use super::*;

    /// The files that a thread of this process has open.
    fn open_files(thread: &str) -> Vec<String> {
        let table = format!("/proc/self/task/{thread}/fd");
        let links = fs::read_dir(table).unwrap().flatten().map(|entry| entry.path());
        let numbered = links.filter(|it| {
            it.file_name().is_some_and(|name| name.len() > 1 || name.as_encoded_bytes() > b"2")
        });
        numbered.filter_map(|it| Some(fs::read_link(it).ok()?.display().to_string())).collect()
    }

    fn killers() -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let is_one = |path: &Path| {
            fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "oom-killer\n")
        };
        let found = tasks.filter(|task| is_one(&task.path()));
        found.map(|task| task.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn only_its_own_thread_can_write_to_the_file() {
        let dir = TempDir::new();
        let path = dir.join("trigger");
        fs::write(&path, "").unwrap();
        let other = File::open("/dev/null").unwrap();
        let killer = OomKiller::at(&path).unwrap();
        let trigger = path.display().to_string();
        assert!(!open_files(&std::process::id().to_string()).contains(&trigger));
        let [thread] = &killers()[..] else { panic!("one thread") };
        let own = open_files(thread);
        assert_eq!(own.len(), 2, "{own:?}");
        assert!(own.contains(&trigger) && own.iter().any(|name| name.starts_with("pipe:")));
        killer.call().unwrap();
        drop(killer);
        assert_eq!(fs::read(&path).unwrap(), KILL);
        // A thread that has been joined is in the list of threads for a moment more.
        let begun = Instant::now();
        while !killers().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "its thread goes on");
            thread::yield_now();
        }
        // The descriptors of others are as they were.
        assert!(other.metadata().is_ok());
        assert!(OomKiller::at(&dir.join("none")).is_err());
    }
}
