//! `rampack upgrade`: has another program take the place of a running daemon.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::errno;

use crate::args::{Upgrade, absolute};
use crate::terminal::answer;
use service::client::{self, call};
use service::protocol::{self, DaemonReport, Request};
use service::root::Root;

/// How long no process may be there before nobody is expected any more: a keeper makes longer and
/// longer pauses, up to ten seconds.
const GONE: Duration = Duration::from_secs(30);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// `rampack upgrade`.
///
/// # Errors
/// The daemon's error: it goes on as before then. `EIO` if the daemon died.
pub fn run(root: &Root, options: &Upgrade) -> Result<(), ControlError> {
    let before = client::report(root)?;
    let program = options.to.as_deref().map(absolute);
    let start = Instant::now();
    let asked = Request::Upgrade(protocol::Upgrade { program });
    match call::<()>(root, &asked) {
        // The new program answers nothing that the one before was asked.
        Err(error) if error.errno == Errno(errno::ECONNRESET) => {}
        Err(error) if error.message.starts_with("no command") => {
            let message = format!(
                "the daemon (rampack {}, process {}) is of a version that cannot be upgraded in \
                 place; stop it and start the new one",
                before.rampack, before.pid
            );
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        other => return other,
    }
    let after = wait_for_answer(root, before.pid)?;
    if after.pid != before.pid {
        let message = format!(
            "the daemon (process {}) died during the upgrade; process {} (rampack {}) has its \
             devices now",
            before.pid, after.pid, after.rampack
        );
        return Err(ControlError::new(Errno::EIO, message));
    }
    answer(format!(
        "rampack {} serves in process {} after rampack {}; it answers again after {:.0?}\n",
        after.rampack,
        after.pid,
        before.rampack,
        start.elapsed()
    ))
}

/// Waits until a daemon answers. Its recovery takes as long as it takes.
fn wait_for_answer(root: &Root, process: u32) -> Result<DaemonReport, ControlError> {
    let mut seen = Instant::now();
    loop {
        match client::report(root) {
            Ok(report) => return Ok(report),
            Err(error) if seen.elapsed() > GONE => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
        if Path::new(&format!("/proc/{process}")).exists() || root.is_claimed() {
            seen = Instant::now();
        }
    }
}
