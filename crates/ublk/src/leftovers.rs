//! Finds and clears devices that a killed process left.
//!
//! When the process of a device ends, the driver removes the block device by itself: requests under
//! way and later ones fail. A device number and a character device remain. Each device of ours has
//! a mark with its process number, so the devices of other servers are not touched.

use std::fs;

use crate::Error;
use crate::control::Control;
use crate::device::wait_until_gone;
use crate::nodes::{self, Kind};
use crate::wire;

/// A device of ours whose process is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// The N of `/dev/ublkbN`.
    pub number: u32,
    /// The process that served it.
    pub pid: u32,
}

/// The devices that killed processes of ours left. The devices of living processes are not
/// included, nor is a device whose process number now belongs to another process. Any thread may
/// call it.
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
        let pid = pid_of(&mut control, number)?;
        found.extend(pid.filter(|pid| !is_alive(*pid)).map(|pid| Leftover { number, pid }));
    }
    Ok(found)
}

/// Deletes device `number`, which the process `pid` left. Does nothing if there is no such device,
/// if it is not ours, or if it belongs to another process.
///
/// # Errors
/// [`Error::Busy`] if the process is alive; the error of the driver.
pub fn clear(number: u32, pid: u32) -> Result<(), Error> {
    if !nodes::attributes(Kind::Character, number).exists() {
        return Ok(());
    }
    let mut control = Control::open()?;
    if pid_of(&mut control, number)? != Some(pid) {
        return Ok(());
    }
    let path = nodes::path(Kind::Block, number);
    if is_alive(pid) {
        return Err(Error::Busy(path));
    }
    let deleted = control.delete(number);
    deleted.map_err(Error::system(format!("delete {}", path.display())))?;
    wait_until_gone(number);
    nodes::remove(number);
    Ok(())
}

/// The process of the device; None if the device is not ours, or gone.
fn pid_of(control: &mut Control, number: u32) -> Result<Option<u32>, Error> {
    match control.info(number) {
        Ok(info) => Ok(wire::marked_by(info.mark)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        // The device of a user other than root: the driver wants its path.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(Error::system(format!("ask for ublk device {number}"))(error)),
    }
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
