//! A keeper under test, and the daemons that it starts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Ends, Need, Rng, asked};

use crate::common::{NbdClient, PATIENCE, Place, Said, program, rampack, wait_until};

/// The number of kills: `RAMPACK_KILLS`, or `usual`.
pub fn kills(usual: usize) -> usize {
    asked("RAMPACK_KILLS", usual)
}

/// What a mount and its block devices need to outlive a daemon.
pub fn has_resend() -> Need {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Need::other(version >= (6, 9), "Linux 6.9, for FUSE_NOTIFY_RESEND")
}

pub fn kill(process: i32, signal: i32) {
    // SAFETY: two numbers; the process is ours.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// The daemon of the keeper `keeper` now.
pub fn daemon_of(keeper: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// `rampack keep`; it ends with the test, and its daemon with it.
pub struct Keeper {
    child: Child,
    root: PathBuf,
    killed: i32,
    said: Arc<Mutex<Vec<String>>>,
}

impl Keeper {
    /// Starts `rampack keep LINE` in the root of `place`, and waits until the daemon serves.
    pub fn start(place: &Place, line: &str) -> Keeper {
        Keeper::start_by(program(), place, line)
    }

    /// As [`Keeper::start`], by a command that becomes the program.
    pub fn start_by(command: Command, place: &Place, line: &str) -> Keeper {
        let keeper = Keeper::begin(command, place, line);
        wait_until("there is a device", || keeper.ask("status zram0").code == 0);
        // It is there a moment before it has its size, and clients may connect last of all. Where
        // there is a socket for them, it is there before the device.
        let has_size = || keeper.ask("get zram0 initstate").out == "1\n";
        wait_until("it has its size", has_size);
        if keeper.nbd().exists() {
            keeper.serves("zram0");
        }
        keeper
    }

    /// As [`Keeper::start`], for a daemon of a swap device.
    pub fn start_swap(place: &Place, line: &str) -> Keeper {
        Keeper::start_swap_by(program(), place, line)
    }

    /// As [`Keeper::start_swap`], by a command that becomes the program.
    pub fn start_swap_by(command: Command, place: &Place, line: &str) -> Keeper {
        let keeper = Keeper::begin(command, place, line);
        wait_until("there is a swap device", || {
            let said = keeper.ask("status --json");
            said.code == 0 && said.out.contains("\"swap0\"")
        });
        keeper
    }

    fn begin(mut command: Command, place: &Place, line: &str) -> Keeper {
        command.arg("--root").arg(place.root()).arg("keep").args(line.split_whitespace());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (lines, all) = (BufReader::new(child.stderr.take().unwrap()).lines(), said.clone());
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| all.lock().unwrap().push(line));
        });
        Keeper { child, root: place.root(), killed: 0, said }
    }

    /// The keeper itself.
    pub fn process(&self) -> i32 {
        self.child.id() as i32
    }

    /// The daemon now, or the next one.
    pub fn daemon(&self) -> i32 {
        let mut found = None;
        wait_until("a daemon is started", || {
            found = daemon_of(self.child.id()).filter(|daemon| *daemon != self.killed);
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until a daemon serves. None may die meanwhile. But one is refused while a command that
    /// found no daemon has the root, and the next one is started.
    pub fn wait(&self) {
        let mut daemon = self.daemon();
        wait_until("a daemon serves", || {
            let serves = self.ask("status").code == 0;
            let before = std::mem::replace(&mut daemon, self.daemon());
            if daemon != before {
                self.says("already runs in");
            }
            serves && daemon == before
        });
    }

    /// Kills the daemon that is there, or the next one, which may not serve yet.
    pub fn kill(&mut self, signal: i32) {
        let daemon = self.daemon();
        kill(daemon, signal);
        while [libc::SIGSEGV, libc::SIGBUS].contains(&signal)
            && daemon_of(self.child.id()) == Some(daemon)
        {
            // The first one that is no fault of the process only takes away the handler of the
            // standard library.
            thread::sleep(Duration::from_millis(1));
            // SAFETY: two numbers; the process is ours.
            unsafe { libc::kill(daemon, signal) };
        }
        self.killed = daemon;
    }

    /// Kills the daemon, if it or the next one is there before the keeper ends.
    pub fn try_kill(&mut self, signal: i32) {
        while self.is_there() {
            if let Some(daemon) = daemon_of(self.child.id()).filter(|it| *it != self.killed) {
                // SAFETY: two numbers; the process is ours until its parent, the keeper, asks for
                // its end, and the number is not used again at once.
                unsafe { libc::kill(daemon, signal) };
                self.killed = daemon;
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the keeper not ended?
    pub fn is_there(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills so many daemons, each at a random moment: mostly SIGKILL, sometimes as a fault does.
    pub fn kill_often(&mut self, times: usize, rng: &mut Rng) {
        for number in 0..times {
            // Users of a daemon that never serves would get nowhere.
            if number % 3 == 2 {
                self.wait();
            }
            self.daemon();
            // Some daemons die before they serve, some have served for long.
            let most = if rng.one_in(4) { 20 } else { 300 };
            thread::sleep(Duration::from_micros(rng.below(most * 1000)));
            let faults = [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS];
            let signal = if rng.one_in(6) { *rng.pick(&faults) } else { libc::SIGKILL };
            self.kill(signal);
        }
        self.wait();
    }

    /// Gives the daemon a command.
    pub fn ask(&self, line: &str) -> Said {
        rampack(&format!("--root {} {line}", self.root.display()))
    }

    /// As [`Keeper::ask`], for a command that must succeed.
    #[track_caller]
    pub fn does(&self, line: &str) -> String {
        let said = self.ask(line);
        assert_eq!(said.code, 0, "{line}: {}\n{}", said.err, self.said());
        said.out
    }

    /// Clients connect meanwhile all the time, and are not refused.
    pub fn is_there_while(socket: &Path, work: impl FnOnce()) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    UnixStream::connect(socket).expect("clients wait for the next one");
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let _ends = Ends(&over);
            work();
        });
    }

    /// The block device of a device.
    pub fn block_device(&self, name: &str) -> PathBuf {
        let link = self.root.join("dev").join(name);
        // The device itself is told of before its link is there.
        wait_until("there is a link", || link.symlink_metadata().is_ok());
        fs::read_link(link).unwrap()
    }

    pub fn nbd(&self) -> PathBuf {
        self.root.join("nbd.sock")
    }

    /// Waits until clients may connect to a device by NBD: only then does it outlive its daemon.
    #[track_caller]
    pub fn serves(&self, name: &str) {
        let socket = self.nbd();
        wait_until("clients may connect", || NbdClient::is_served(&socket, name));
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits until keeper or daemons have said `text`: a daemon answers commands before it has done
    /// all that its start has to do, and its words come through a pipe.
    #[track_caller]
    pub fn says(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            assert!(Instant::now() < end, "it does not say {text:?}, but:\n{}", self.said());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What keeper and daemons have said.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// The exit code of the keeper, when it has ended.
    pub fn ended(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Stops the daemon, and with it the keeper.
    #[track_caller]
    pub fn stop(mut self) {
        wait_until("the daemon stops", || self.ask("stop").code == 0);
        let ended = self.child.wait().unwrap();
        assert_eq!(ended.into_raw(), 0, "{}", self.said());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // What it keeps ends with it, so that nobody waits for ever.
            if let Some(daemon) = daemon_of(self.child.id()) {
                kill(self.child.id() as i32, libc::SIGKILL);
                kill(daemon, libc::SIGKILL);
            } else {
                kill(self.child.id() as i32, libc::SIGKILL);
            }
            let _ = self.child.wait();
            eprintln!("{}", self.said());
        }
    }
}
