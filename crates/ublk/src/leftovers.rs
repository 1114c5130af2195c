//! Finds and clears devices that a killed process left.
//!
//! When the process of a device ends, the driver removes the block device by itself: requests under
//! way and later ones fail. A device number and a character device remain. A recoverable device
//! ([`crate::Options::recoverable`]) stays whole, and its requests wait. Each device of ours has
//! a mark with its process number, so the devices of other servers are not touched.
//!
//! A process number says nothing in another PID namespace: a device may belong to a living process
//! of another container. So the driver is asked as well. It calls a device live from its start
//! until it has noticed the end of the process (`ublk_stop_dev` in drivers/block/ublk_drv.c then
//! makes it dead), and a live device is never deleted.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::control::Control;
use crate::device::wait_until_gone;
use crate::nodes::{self, Kind};
use crate::wire::{self, Info};

/// How long the driver may take to notice that the process of a device has ended.
const NOTICING: Duration = Duration::from_secs(2);

/// A device of ours whose process is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// The N of `/dev/ublkbN`.
    pub number: u32,
    /// The process that served it last, by its number in its own PID namespace.
    pub pid: u32,
    /// The device is live: a process serves it that cannot be seen from here.
    pub is_live: bool,
    /// Its requests wait for another process, which recovers it.
    pub is_waiting: bool,
}

/// The devices of ours without a process that can be seen from here. Killed processes left those
/// that are not live. A device whose process number belongs to some process now is not included.
/// Any thread may call it; it may take two seconds.
///
/// # Errors
/// Those of [`crate::available`]. Without the driver the list is empty; that is not an error.
pub fn leftovers() -> Result<Vec<Leftover>, Error> {
    let numbers = nodes::numbers();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut control = Control::open()?;
    let mut found = Vec::new();
    for number in numbers {
        found.extend(look(&mut control, number)?.filter(|found| !is_alive(found.pid)));
    }
    // A process may have been killed a moment ago.
    let end = Instant::now() + NOTICING;
    while found.iter().any(|found| found.is_live) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
        for left in found.iter_mut().filter(|left| left.is_live) {
            // A device that is gone by now, or another one under this number, is not ours to clear.
            let now = look(&mut control, left.number)?.filter(|now| now.pid == left.pid);
            left.is_live = now.is_some_and(|now| now.is_live);
            left.is_waiting = now.is_some_and(|now| now.is_waiting);
        }
    }
    Ok(found)
}

/// Deletes device `number`, which the process `pid` left. If it waits, its requests fail. Does
/// nothing if there is no such device, if it is not ours, or if it belongs to another process.
///
/// # Errors
/// [`Error::Busy`] if the process is alive or the device live; the error of the driver.
pub fn clear(number: u32, pid: u32) -> Result<(), Error> {
    if !nodes::attributes(Kind::Character, number).exists() {
        return Ok(());
    }
    let mut control = Control::open()?;
    let Some(found) = look(&mut control, number)?.filter(|found| found.pid == pid) else {
        return Ok(());
    };
    let path = nodes::path(Kind::Block, number);
    if found.is_live || is_alive(pid) {
        return Err(Error::Busy(path));
    }
    let deleted = control.delete(number);
    deleted.map_err(Error::system(format!("delete {}", path.display())))?;
    wait_until_gone(number);
    nodes::remove(number);
    Ok(())
}

/// What the driver knows of the device; None if the device is not ours, or gone.
fn look(control: &mut Control, number: u32) -> Result<Option<Leftover>, Error> {
    match control.info(number) {
        Ok(info) => Ok(marked(number, &info)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        // The device of a user other than root: the driver wants its path.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(Error::system(format!("ask for ublk device {number}"))(error)),
    }
}

/// The device if it has our mark.
pub(crate) fn marked(number: u32, info: &Info) -> Option<Leftover> {
    let maker = wire::marked_by(info.mark)?;
    // The driver forgets the server when the device is stopped.
    let pid = u32::try_from(info.server).ok().filter(|pid| *pid > 0).unwrap_or(maker);
    let is_waiting = info.state == wire::QUIESCED;
    Some(Leftover { number, pid, is_live: info.state == wire::LIVE, is_waiting })
}

/// Is the process alive? A zombie is not.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

/// Has the process ended, by its line in /proc (proc_pid_stat(5))?
pub(crate) fn has_ended(stat: &str) -> bool {
    let state = stat.rfind(')').and_then(|end| stat[end + 1..].split_ascii_whitespace().next());
    matches!(state, None | Some("Z" | "X" | "x"))
}
