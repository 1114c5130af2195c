//! The command that `rampack up --mount DIR -- COMMAND` runs beside its daemon.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use control::{ControlError, Errno};
use host::Started;
use rustix::process::{Pid, Signal, kill_process};

use service::events::{Event, Events};
use service::failure::failed;

/// The time between two looks whether the command has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a command to its end, after which the daemon is told to end. Returns its exit code; a
/// signal that ended it counts as 128 and its number, as in a shell. Ctrl-C is for the command,
/// which gets it from the terminal. SIGTERM is passed on to it, and a client that asks for the end
/// of the daemon ends it, too. It has the umask and the limits that this program was `started`
/// with.
///
/// # Errors
/// The command cannot be started.
pub(crate) fn run(
    command: &[OsString],
    started: Started,
    events: &Events,
) -> Result<i32, ControlError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(0) };
    let cannot = |e: io::Error| failed(format!("cannot run {}", Path::new(program).display()), &e);
    let mut command = Command::new(program);
    started.give_to(command.args(arguments));
    let mut child = command.spawn().map_err(cannot)?;
    let mut asked = Vec::new();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| failed("cannot wait", &e))? {
            break status;
        }
        match events.wait(PAUSE) {
            None | Some(Event::Signal) => {}
            Some(Event::Upgrade { reply, .. }) => {
                let message = "it was started for a command, and ends with it";
                let _ = reply.send(ControlError::new(Errno::EBUSY, message));
            }
            Some(event) => {
                end(&child);
                asked.push(event);
            }
        }
    };
    asked.push(Event::Terminated);
    asked.into_iter().for_each(|event| _ = events.sender().send(event));
    Ok(code(status))
}

/// Asks the command to end.
fn end(child: &Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
