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

use host::errno;

use super::{ENDING, Stand, Ublk};
use crate::Error;
use crate::control::Control;

const PAUSE: Duration = Duration::from_millis(1);

impl Ublk {
    /// Answers every request that the driver has given, and has it keep all others for the next
    /// server ([`Ublk::recover`]) or for [`Ublk::serve_on`]. A drop leaves the device as it is
    /// from now on. False before Linux 6.16: requests under way come to the next server again,
    /// which is harmless if this process has ended.
    ///
    /// # Errors
    /// [`Error::Busy`] if a request takes until `end`; the error of the driver. The device is to be
    /// served on.
    pub fn quiesce(&mut self, end: Instant) -> Result<bool, Error> {
        if !self.quiesces {
            return Ok(false);
        }
        // Whatever becomes of it, requests go on with the next server.
        self.stand = Stand::Left;
        let queues = &self.threads[..self.mailboxes.len()];
        let left = || end.checked_duration_since(Instant::now());
        let pause = || {
            thread::sleep(PAUSE);
            left()
        };
        let is_over = || queues.iter().all(JoinHandle::is_finished);
        let most = left().unwrap_or(PAUSE);
        let done = end_commands(&mut self.control, self.number, most, pause, is_over);
        let doing = Error::system(format!("have {} wait", self.path.display()));
        // Waiters without a request end at once.
        if done.map_err(doing)? && self.leave(Instant::now() + ENDING) {
            return Ok(true);
        }
        Err(Error::Busy(self.path.clone()))
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
        match driver.quiesce(number, most) {
            // No command has ended by then: each has a request under way.
            Err(error) if matches!(error.raw_os_error(), Some(errno::EBUSY | errno::EINTR)) => {}
            done => done?,
        }
        left = pause();
        if is_over() {
            return Ok(true);
        }
    }
    Ok(false)
}
