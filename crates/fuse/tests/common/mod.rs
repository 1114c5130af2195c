//! A server in a process of its own: a test that waits for it can always be freed by killing it,
//! which a test that waited for itself could not.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod kept;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fuse::LoopOptions;
use testkit::{Need, TempDir};

/// After this the server is killed, and whoever waits for it gets an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with a server on its `files`. Dropping it clears everything away.
pub struct Served {
    pub root: TempDir,
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    _done: Sender<()>,
}

/// Do these tests have the kernel hand requests over by io_uring? A file of tests that is named so
/// is another one once more.
pub fn by_ring() -> bool {
    env!("CARGO_CRATE_NAME").ends_with("_by_ring")
}

/// [`testkit::met`], with what io_uring needs.
pub fn met(test: &str, needs: &[Need]) -> bool {
    let is_there = Path::new("/sys/module/fuse/parameters/enable_uring").exists();
    let ring = Need::Other { what: "FUSE over io_uring (Linux 6.14)", is_there };
    let more = if by_ring() { vec![Need::Root, ring] } else { Vec::new() };
    testkit::met(test, &[needs, &more].concat())
}

/// The example program that serves files.
pub fn program() -> PathBuf {
    example("serve_file")
}

/// An example program, which cargo builds with the tests of its package.
pub fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("the path of this test");
    path.pop();
    path.pop();
    path.push("examples");
    path.push(name);
    assert!(path.exists(), "{}: build it with 'cargo build --examples'", path.display());
    path
}

pub fn start() -> Served {
    start_in(TempDir::new())
}

pub fn start_in(root: TempDir) -> Served {
    start_with(root, &[])
}

/// With options of the program.
pub fn start_with(root: TempDir, options: &[&str]) -> Served {
    let mut command = Command::new(program());
    command.arg(root.join("files")).args(options);
    command.args(by_ring().then_some("--ring"));
    start_command(root, command)
}

/// A server in a mount namespace of its own, as in another container with the same path.
pub fn start_elsewhere(root: TempDir) -> Served {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave"]).arg(program()).arg(root.join("files"));
    start_command(root, command)
}

/// A server of the swap file `swap/swap0`, of a kind that `serve_swap` knows.
pub fn start_swap(root: TempDir, bytes: u64, threads: usize, kind: &str) -> Served {
    fs::create_dir_all(root.join("swap")).expect("a directory");
    let mut command = Command::new(example("serve_swap"));
    command.arg(root.join("swap/swap0"));
    command.args([bytes.to_string(), threads.to_string(), kind.to_owned()]);
    command.args(by_ring().then_some("ring"));
    start_command(root, command)
}

pub fn start_command(root: TempDir, mut command: Command) -> Served {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // For a backtrace a thread that panics opens the program's file, which it may not.
    command.env_remove("RUST_BACKTRACE");
    let mut child = command.spawn().expect("the server starts");
    let stdin = child.stdin.take();
    let stdout = BufReader::new(child.stdout.take().expect("its output"));
    let child = Arc::new(Mutex::new(child));
    let (done, waiting) = mpsc::channel();
    let watched = child.clone();
    thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the server is killed: the test took longer than {PATIENCE:?}");
            let _ = watched.lock().unwrap().kill();
        }
    });
    let mut served = Served { root, child, stdin, stdout, _done: done };
    served.answer().expect("the server mounts");
    assert_eq!(served.ask("ring"), Ok(by_ring().to_string()));
    served
}

impl Served {
    /// The path of a file of the mount.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files().join(name)
    }

    pub fn files(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("files")
    }

    /// The swap file.
    pub fn swap(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("swap/swap0")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// Gives one command and returns the answer without its first word.
    pub fn ask(&mut self, command: &str) -> Result<String, String> {
        writeln!(self.stdin.as_mut().expect("still open"), "{command}").expect("it listens");
        self.answer()
    }

    pub fn add(&mut self, name: &str, bytes: u64) -> PathBuf {
        self.ask(&format!("add {name} {bytes}")).expect("it is added").into()
    }

    /// What loop devices on the files of the mount need.
    pub fn loop_options(&mut self) -> LoopOptions {
        let limits = self.ask("loop-limits").expect("two numbers");
        let mut limits = limits.split(' ').map(|it| it.parse().ok());
        let (largest_kib, depth) = (limits.next().flatten(), limits.next().flatten());
        LoopOptions { largest_kib, depth, ..LoopOptions::default() }
    }

    /// How the disk is filled, as (kind, length).
    pub fn map(&mut self, name: &str) -> Vec<(String, u64)> {
        let text = self.ask(&format!("map {name}")).expect("a map");
        let run = |run: &str| {
            let (kind, length) = run.split_once(':').expect("KIND:LENGTH");
            (kind.to_owned(), length.parse().expect("a length"))
        };
        text.split_whitespace().map(run).collect()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("ok", text) => Ok(text.to_owned()),
            ("error", text) => Err(text.to_owned()),
            _ => panic!("the server died, or answered {line:?}"),
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.lock().unwrap().id().to_string();
        testkit::run(Command::new("kill").args(["-s", name, &pid]));
    }

    /// Stops all its threads, and comes back when they have stopped: the signal only asks for it.
    pub fn suspend(&self) {
        self.signal("STOP");
        self.has_stopped();
    }

    /// Waits until all its threads have stopped.
    pub fn has_stopped(&self) {
        let pid = self.child.lock().unwrap().id();
        let stopped = || {
            std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().starts_with(" T"))
            })
        };
        eventually("all its threads have stopped", stopped);
    }

    /// Ends it as the system would when memory is short.
    pub fn kill(&mut self) {
        let mut child = self.child.lock().unwrap();
        child.kill().expect("it can be killed");
        assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    }

    /// Closes its input, so that it cleans up, and gives the directory back.
    pub fn stop(mut self) -> bool {
        drop(self.stdin.take());
        self.child.lock().unwrap().wait().expect("it ends").success()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        clean(self.root.path());
    }
}

/// Waits for what the system does in its own time.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}: not after half a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Takes down whatever a failed test left below `root`, without the code under test.
pub fn clean(root: &Path) {
    let Ok(root) = root.canonicalize() else { return };
    let quietly = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status();
    };
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let inside = |line: &str| {
        let at = PathBuf::from(line.split(' ').nth(1)?);
        at.starts_with(&root).then_some(at)
    };
    let mut mounted: Vec<PathBuf> = text.lines().filter_map(inside).collect();
    let ours = |at: &Path| at == root.join("files") || at.starts_with(root.join("swap"));
    // What loop devices stand on comes last: afterwards nobody could tell whose they are.
    let served: Vec<PathBuf> = mounted.iter().filter(|at| ours(at)).cloned().collect();
    mounted.retain(|at| !ours(at));
    for at in mounted.iter().rev() {
        quietly("umount", &["-l".as_ref(), at.as_os_str()]);
    }
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(&file).starts_with(&root) {
            let node = Path::new("/dev").join(entry.file_name());
            quietly("losetup", &["-d".as_ref(), node.as_os_str()]);
        }
    }
    for at in served {
        quietly("umount", &["-l".as_ref(), at.as_os_str()]);
    }
}
