//! Devices that a killed process left, and how they are cleared.
//!
//! When the process of a device ends, the driver takes the block device away by itself: requests
//! under way and later ones fail. What is left is a number, and a node to talk through. Each
//! device of ours bears a mark with the number of its process, so that no other server's is
//! touched.

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

/// Devices that processes of ours left when they were killed. Those of living processes are none,
/// and so is a device whose process number another process has by now.
///
/// # Errors
/// Those of [`crate::available`]. Without the driver there are none, which is no error.
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
/// if it is not ours, or if it is another process's.
///
/// # Errors
/// [`Error::Busy`] if the process is alive; what the driver answers.
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

/// Whose device it is; nothing if it is not one of ours, or gone.
fn pid_of(control: &mut Control, number: u32) -> Result<Option<u32>, Error> {
    match control.info(number) {
        Ok(info) => Ok(wire::marked_by(info.mark)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        // Of a user who is not root, and named by a path.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(Error::system(format!("ask for ublk device {number}"))(error)),
    }
}

/// A process that has ended is no more alive because nobody asked how it ended.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

/// Whether the process has ended, by its line in /proc (proc_pid_stat(5)).
pub(crate) fn has_ended(stat: &str) -> bool {
    let state = stat.rfind(')').and_then(|end| stat[end + 1..].split_ascii_whitespace().next());
    matches!(state, None | Some("Z" | "X" | "x"))
}
