//! Ends the serving of a device without a request under way, so that the next server gets none
//! twice.
//!
//! After `QUIESCE_DEV` (Linux 6.16) the driver keeps what comes for the next server, and ends the
//! commands that wait for a request. A request under way is answered first; the command that
//! answers it waits for the next one, and ends with the next `QUIESCE_DEV`. So that is repeated
//! until each command has ended. The device then waits as after the death of its server.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{ENDING, Ublk};
use crate::control::Control;

const PAUSE: Duration = Duration::from_millis(1);

impl Ublk {
    /// Answers every request that the driver has given, and has it keep all others for the next
    /// server ([`Ublk::recover`]) or for [`Ublk::serve_on`]. A drop leaves the device as it is
    /// from now on. Waits up to five seconds; false if a request takes longer, or before Linux
    /// 6.16: requests under way come to the next server again, which is harmless.
    pub fn quiesce(&mut self) -> bool {
        if !self.quiesces {
            return false;
        }
        // Whatever becomes of it, requests go on with the next server.
        self.is_ours = false;
        let end = Instant::now() + ENDING;
        let queues = &self.threads[..self.mailboxes.len()];
        let pause = || {
            thread::sleep(PAUSE);
            end.checked_duration_since(Instant::now())
        };
        let is_over = || queues.iter().all(JoinHandle::is_finished);
        let done = end_commands(&mut self.control, self.number, ENDING, pause, is_over);
        let done = done.unwrap_or(false);
        if done {
            self.leave();
        }
        done
    }
}

/// The driver's part in it.
pub(crate) trait Keeps {
    /// `QUIESCE_DEV`.
    fn quiesce(&mut self, number: u32, most: Duration) -> io::Result<()>;
}

impl Keeps for Control {
    fn quiesce(&mut self, number: u32, most: Duration) -> io::Result<()> {
        Control::quiesce(self, number, most)
    }
}

/// Ends the commands of device `number` until `is_over`. `pause` returns the time that is left;
/// false if there is none.
pub(crate) fn end_commands(
    driver: &mut impl Keeps,
    number: u32,
    most: Duration,
    mut pause: impl FnMut() -> Option<Duration>,
    is_over: impl Fn() -> bool,
) -> io::Result<bool> {
    let mut left = Some(most);
    while let Some(most) = left {
        driver.quiesce(number, most)?;
        left = pause();
        if is_over() {
            return Ok(true);
        }
    }
    Ok(false)
}
