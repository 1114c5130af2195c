//! Servers that are killed again and again, under a keeper in the process of the test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kept::{Backoff, Ended, Keeper};
use testkit::{Need, Rng, TempDir, asked};

use super::{clean, eventually, example};

/// After this the test has failed: the process ends, and with it whatever waits for the file.
const PATIENCE: Duration = Duration::from_secs(180);

/// The number of kills: `RAMPACK_EVENTS`, or `usual`.
pub fn kills(usual: usize) -> usize {
    asked("RAMPACK_EVENTS", usual)
}

pub fn has_resend() -> Need {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Need::other(version >= (6, 9), "Linux 6.9, for FUSE_NOTIFY_RESEND")
}

/// A keeper in this process, with servers that die.
pub struct Kept {
    pub root: TempDir,
    pub path: PathBuf,
    in_mount: bool,
    keeper: Option<JoinHandle<Ended>>,
    _done: Sender<()>,
}

impl Kept {
    pub fn start(kind: &str, bytes: usize, threads: usize) -> Kept {
        let root = TempDir::new();
        let path = root.path().canonicalize().unwrap().join("swap/swap0");
        fs::create_dir(root.join("swap")).unwrap();
        let (done, waiting) = mpsc::channel::<()>();
        let patience = PATIENCE + Duration::from_millis(300) * kills(0) as u32;
        thread::spawn(move || {
            if waiting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the test took longer than {patience:?}: somebody waits for the file");
                std::process::abort();
            }
        });
        let bytes = bytes.to_string();
        let words = [path.to_str().unwrap(), &bytes, &threads.to_string(), kind]
            .map(|word| OsString::from(word.to_owned()));
        let arguments = [&["serve_kept".into()], &words[..]].concat();
        let (first, longest) = (Duration::from_millis(1), Duration::from_millis(1));
        let keeper = thread::spawn(move || {
            let backoff = Backoff { first, longest, tries: 3 };
            let program = example("serve_kept");
            Keeper::new(&program, arguments, backoff, None).unwrap().run().unwrap()
        });
        let in_mount = kind.starts_with("mount-");
        let kept = Kept { root, path, in_mount, keeper: Some(keeper), _done: done };
        kept.wait_for_life(0);
        kept
    }

    /// The disk.
    pub fn disk(&self) -> PathBuf {
        if self.in_mount { self.path.join("disk") } else { self.path.clone() }
    }

    fn beside(&self, what: &str) -> PathBuf {
        self.path.with_extension(what)
    }

    /// The processes so far that have served.
    pub fn lives(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.beside("lives")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn wait_for_life(&self, number: usize) {
        let has_ended = || self.keeper.as_ref().is_none_or(JoinHandle::is_finished);
        eventually("another process serves", || {
            assert!(!has_ended(), "the keeper has given up");
            self.lives().len() > number
        });
    }

    /// Kills the process that serves, at a random moment, and waits for the next one.
    pub fn kill(&self, rng: &mut Rng) {
        thread::sleep(Duration::from_micros(rng.below(30_000)));
        let lives = self.lives();
        // SAFETY: two numbers; the process is a child of this one, whose keeper has not seen its
        // end, because it serves until it is killed here.
        assert_eq!(unsafe { libc::kill(*lives.last().unwrap(), libc::SIGKILL) }, 0);
        self.wait_for_life(lives.len());
    }

    /// Has the last process end by itself.
    pub fn stop(mut self) {
        fs::write(self.beside("stop"), "").unwrap();
        assert_eq!(self.keeper.take().unwrap().join().unwrap(), Ended::Exited(0));
        assert_eq!(mounted(&self.path), None);
        assert_eq!(self.path.exists(), self.in_mount, "the directory stays, the file does not");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::write(self.beside("stop"), "");
        clean(self.root.path());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// The number of the mount at `path`, which no other mount has.
pub fn mounted(path: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut here = fields.filter(|fields| fields.get(4).is_some_and(|at| Path::new(at) == path));
    here.next().map(|fields| format!("{} {}", fields[0], fields[2]))
}
