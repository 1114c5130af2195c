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
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use control::{ControlError, Errno};

use super::report::{Protection, protection};
use crate::failure::failed;

const NAME: &str = "does not sleep";
/// The states of sleep that the kernel offers; none in a container or in most guests.
const STATES: &str = "/sys/power/state";
/// This directory is there where systemd runs (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// How long logind may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What `cat` repeats once the inhibitor is held.
const HELD: &str = "held";

/// The inhibitor; a drop ends it.
pub struct Awake {
    _inhibitor: Option<Inhibitor>,
}

struct Inhibitor {
    child: Child,
    /// `cat` ends with it.
    input: Option<ChildStdin>,
}

impl Awake {
    /// Keeps the machine awake if possible. The result is a protection to report.
    #[must_use]
    pub fn keep() -> (Awake, Protection) {
        let states = fs::read_to_string(STATES).unwrap_or_default();
        let (inhibitor, tried) = match states.trim() {
            "" => (None, Ok("this machine cannot sleep".to_string())),
            _ if !Path::new(SYSTEMD).exists() => {
                let message = "there is no logind to ask";
                (None, Err(ControlError::new(Errno::ENODEV, message)))
            }
            _ => match Inhibitor::hold(Command::new("systemd-inhibit")) {
                Ok(held) => (Some(held), Ok("logind's inhibitor of sleep is held".to_string())),
                Err(error) => (None, Err(failed("systemd-inhibit did not hold sleep off", &error))),
            },
        };
        let without = "suspend and hibernation freeze the daemon, and programs that wait for it \
                       cannot be frozen; swap off first";
        (Awake { _inhibitor: inhibitor }, protection(NAME, tried, without))
    }
}

#[cfg(test)]
impl Awake {
    /// `command` is systemd-inhibit.
    pub(super) fn by(command: Command) -> Awake {
        Awake { _inhibitor: Some(Inhibitor::hold(command).unwrap()) }
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
        thread::Builder::new().name("inhibitor".into()).spawn(move || {
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
    fn a_refusal_is_an_error() {
        let dir = TempDir::new();
        for rest in ["exit 1", "echo no; exec cat > /dev/null"] {
            assert!(Inhibitor::hold(program(&dir, rest)).is_err(), "{rest}");
        }
        assert!(Inhibitor::hold(Command::new("/nonexistent/systemd-inhibit")).is_err());
    }
}
