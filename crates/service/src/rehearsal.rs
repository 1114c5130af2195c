//! The rehearsal of an upgrade: before the daemon gives anything up, the next program looks at what
//! it would take over, as a child of the daemon ([`crate::daemon::rehearse`]).

use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use control::{ControlError, Errno};
use serde::{Deserialize, Serialize};

use crate::failure::failed;
use crate::layouts::UPGRADED;

/// What the next program says. Later programs may say more.
#[derive(Default, Serialize, Deserialize)]
pub struct Answer {
    /// Why it could not take over.
    refused: Option<String>,
    /// The number of that error.
    #[serde(default)]
    errno: i32,
}

impl Answer {
    /// The answer of a program to which this happened.
    #[must_use]
    pub fn of(result: &Result<(), ControlError>) -> Answer {
        let refused = result.as_ref().err();
        Answer {
            refused: refused.map(|error| error.message.clone()),
            errno: refused.map_or(0, |error| error.errno.0),
        }
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Asks the program at `program`, with the command line of this one, what it would make of `fds`.
/// Waits for ten seconds.
///
/// # Errors
/// What it says; `EINVAL` for one that says nothing, `ETIMEDOUT`, the error of the system.
pub fn ask(program: &Path, fds: &[(String, OwnedFd)]) -> Result<(), ControlError> {
    let name = program.display();
    let (mut words, mut command) = (env::args_os(), Command::new(program));
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).env_remove(UPGRADED);
    let (status, text) = kept::rehearse(&mut command, fds, host::ask)
        .map_err(|error| failed(format!("{name} does not say whether it can take over"), &error))?;
    let answer = serde_json::from_slice(&text).ok().filter(|_| status.success());
    match answer {
        Some(Answer { refused: None, .. }) => Ok(()),
        Some(Answer { refused: Some(why), errno }) => {
            let message = format!("{name} cannot take over: {why}; the daemon goes on");
            Err(ControlError::new(Errno(errno), message))
        }
        None => Err(ControlError::invalid(format!(
            "{name} does not say whether it can take over with the options of this daemon \
             ({status}); the daemon goes on"
        ))),
    }
}
