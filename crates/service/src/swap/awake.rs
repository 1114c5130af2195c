//! Keeps the machine from sleeping while it has swap devices.
//!
//! Suspend and hibernation freeze programs in any order, the daemon among them, and then may need
//! pages that only the daemon has. logind asks those who hold an inhibitor
//! (systemd.io/INHIBITOR_LOCKS). systemd-inhibit(1) holds one for as long as the program that it
//! runs: here `cat`, which ends when this process closes its input, also by being killed.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use control::{ControlError, Errno};
use sync::Mutex;

use super::report::{Protection, protection};
use crate::failure::failed;

const NAME: &str = "does not sleep";
const WITHOUT: &str = "suspend and hibernation freeze the daemon, and programs that wait for it \
                       cannot be frozen; swap off first";
/// The states of sleep that the kernel offers; none in a container or in most guests.
const STATES: &str = "/sys/power/state";
/// This directory is there where systemd runs (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// How long logind may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two tries. When a machine starts, swap space is there before logind.
const AGAIN: Duration = Duration::from_secs(60);
/// What `cat` repeats once the inhibitor is held.
const HELD: &str = "held";

/// The inhibitor, which is asked for again while it could not be had; a drop ends it.
pub struct Awake {
    state: Arc<Mutex<State>>,
    /// Its drop ends the tries.
    trying: Option<Sender<()>>,
}

struct State {
    inhibitor: Option<Inhibitor>,
    said: Protection,
}

struct Inhibitor {
    child: Child,
    /// `cat` ends with it.
    input: Option<ChildStdin>,
}

impl State {
    fn held(inhibitor: Inhibitor) -> State {
        let said = protection(NAME, Ok("logind's inhibitor of sleep is held".into()), WITHOUT);
        State { inhibitor: Some(inhibitor), said }
    }

    fn without(tried: Result<String, ControlError>) -> State {
        State { inhibitor: None, said: protection(NAME, tried, WITHOUT) }
    }
}

impl Awake {
    /// Keeps the machine awake, as soon as that is possible.
    #[must_use]
    pub fn keep() -> Awake {
        let states = fs::read_to_string(STATES).unwrap_or_default();
        let told = |tried| Awake::of(State::without(tried));
        match states.trim() {
            "" => told(Ok("this machine cannot sleep".into())),
            _ if !Path::new(SYSTEMD).exists() => {
                told(Err(ControlError::new(Errno::ENODEV, "there is no logind to ask")))
            }
            _ => Awake::by(|| Command::new("systemd-inhibit"), AGAIN),
        }
    }

    fn of(state: State) -> Awake {
        Awake { state: Arc::new(Mutex::new(state)), trying: None }
    }

    /// `inhibit` is systemd-inhibit. While it fails, it is tried again after each `pause`.
    pub(super) fn by(inhibit: impl Fn() -> Command + Send + 'static, pause: Duration) -> Awake {
        let error = match Inhibitor::hold(inhibit()) {
            Ok(held) => return Awake::of(State::held(held)),
            Err(error) => error,
        };
        let refused = failed("systemd-inhibit did not hold sleep off", &error);
        let mut awake = Awake::of(State::without(Err(refused)));
        let (trying, ended) = channel();
        let state = awake.state.clone();
        let again = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let Ok(held) = Inhibitor::hold(inhibit()) else { continue };
                let mut state = state.lock();
                if ended.try_recv() == Err(TryRecvError::Empty) {
                    *state = State::held(held);
                }
                return;
            }
        };
        let thread = thread::Builder::new().name("inhibitor".into());
        let thread = thread.stack_size(host::SERVING_STACK).spawn(again);
        awake.trying = thread.is_ok().then_some(trying);
        awake
    }

    /// The protection to report.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.state.lock().said.clone()
    }
}

impl Inhibitor {
    /// `command` is systemd-inhibit.
    fn hold(mut command: Command) -> io::Result<Inhibitor> {
        command.args(["--what=sleep", "--mode=block", "--who=rampack"]);
        command.args(["--why=programs wait for the server of swap space", "cat"]);
        // Ctrl-C goes to the daemon.
        let streams = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = streams.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // From here on a drop ends it.
        let mut held = Inhibitor { child, input };
        let (Some(input), Some(output)) = (&mut held.input, output) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        writeln!(input, "{HELD}")?;
        let (sender, answer) = channel();
        let thread = thread::Builder::new().name("inhibitor".into());
        thread.stack_size(host::SERVING_STACK).spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(output).read_line(&mut line);
            let _ = sender.send(line);
        })?;
        match answer.recv_timeout(PATIENCE) {
            Ok(line) if line.trim_end() == HELD => Ok(held),
            Ok(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        // In this order: a try that succeeds from here on keeps nothing.
        self.trying = None;
        self.state.lock().inhibitor = None;
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        self.input = None;
        // The inhibitor is a file of this process, and ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    /// A program in place of systemd-inhibit; it leaves its number and arguments in the file `at`.
    fn program(dir: &TempDir, rest: &str) -> Command {
        let script = dir.join("inhibit");
        let at = dir.join("at");
        fs::write(&script, format!("echo $$ $1 $2 $5 > {}\n{rest}\n", at.display())).unwrap();
        let mut command = Command::new("sh");
        command.arg(script);
        command
    }

    #[test]
    fn an_inhibitor_is_held_until_it_is_dropped() {
        let dir = TempDir::new();
        let held = Inhibitor::hold(program(&dir, "exec cat")).unwrap();
        let words = fs::read_to_string(dir.join("at")).unwrap();
        let (pid, rest) = words.split_once(' ').unwrap();
        assert_eq!(rest, "--what=sleep --mode=block cat\n");
        let process = Path::new("/proc").join(pid);
        assert!(process.exists());
        drop(held);
        assert!(!process.exists());
    }

    #[test]
    fn an_inhibitor_that_comes_later_is_held_then() {
        let dir = TempDir::new();
        // It refuses until this file is there.
        let rest = format!("test -e {} && exec cat", dir.join("logind").display());
        let inhibit = || {
            let script = dir.join("inhibit");
            program(&dir, &rest);
            move || {
                let mut command = Command::new("sh");
                command.arg(&script);
                command
            }
        };
        let awake = Awake::by(inhibit(), Duration::from_millis(1));
        let said = awake.protection();
        assert!(!said.had && said.text.contains("did not hold sleep off"), "{said:?}");
        fs::write(dir.join("logind"), "").unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !awake.protection().had && std::time::Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(awake.protection().had, "{:?}", awake.protection());
        let at = fs::read_to_string(dir.join("at")).unwrap();
        let process = Path::new("/proc").join(at.split_whitespace().next().unwrap());
        assert!(process.exists());
        drop(awake);
        assert!(!process.exists());
        // Nothing is held by a try that is over, or that never succeeds.
        fs::remove_file(dir.join("logind")).unwrap();
        drop(Awake::by(inhibit(), Duration::from_secs(60)));
    }

    #[test]
    fn a_refusal_is_an_error() {
        let dir = TempDir::new();
        for rest in ["exit 1", "echo no; exec cat > /dev/null"] {
            assert!(Inhibitor::hold(program(&dir, rest)).is_err(), "{rest}");
        }
        assert!(Inhibitor::hold(Command::new("/nonexistent/systemd-inhibit")).is_err());
    }
}
