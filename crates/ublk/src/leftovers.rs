//! Finds and clears devices that a killed process left.
//!
//! When the process of a device ends, the driver removes the block device by itself: requests under
//! way and later ones fail. A device number and a character device remain. A recoverable device
//! ([`crate::Options::recoverable`]) stays whole, and its requests wait.
//!
//! Each device of ours has a mark with its maker ([`crate::Id::maker`]). Only the maker of a device
//! may clear it, and the maker knows that none of its processes serves any more. Nothing else
//! tells: the number of the server says nothing in another PID namespace, and the driver calls a
//! device dead before its start as well as after its end.
//!
//! A device is also not cleared while the driver calls it live. It does so from the start until it
//! has noticed the end of the process (`ublk_stop_dev` in drivers/block/ublk_drv.c then makes it
//! dead).

use std::thread;
use std::time::{Duration, Instant};

use host::errno;

use crate::Error;
use crate::control::Control;
use crate::device::wait_until_gone;
use crate::nodes::{self, Kind};
use crate::wire::{self, Info};

/// How long the driver may take to notice that the process of a device has ended.
const NOTICING: Duration = Duration::from_secs(2);

/// A device of ours that may have been left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// The N of `/dev/ublkbN`.
    pub number: u32,
    /// What may be done with it.
    pub fate: Fate,
    /// Its requests wait for another process, which recovers it.
    pub is_waiting: bool,
}

/// What the maker that asks may do with a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Clear it: the maker's own device, and no process serves it.
    Clear,
    /// Nothing: the maker's own device, and a process serves it all the same.
    Live,
    /// Nothing: another maker has it. Its process may have been killed, or is about to start it.
    OfAnother,
}

/// The devices of ours that a process of `maker` finds when it is the only one of its maker. Live
/// devices of other makers are not included. Any thread may call it; it may take two seconds.
///
/// # Errors
/// Those of [`crate::available`]. Without the driver the list is empty; that is not an error.
pub fn leftovers(maker: u32) -> Result<Vec<Leftover>, Error> {
    let numbers = nodes::numbers();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut control = Control::open()?;
    let mut found = Vec::new();
    for number in numbers {
        found.extend(look(&mut control, number)?.and_then(|info| judge(number, &info, maker)));
    }
    // A process may have been killed a moment ago.
    let end = Instant::now() + NOTICING;
    while found.iter().any(|left| left.fate == Fate::Live) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
        for left in found.iter_mut().filter(|left| left.fate == Fate::Live) {
            let now = look(&mut control, left.number)?;
            // A device that is gone by now is cleared already.
            *left = now.and_then(|info| judge(left.number, &info, maker)).unwrap_or(Leftover {
                fate: Fate::Clear,
                is_waiting: false,
                ..*left
            });
        }
    }
    Ok(found)
}

/// Deletes device `number` of `maker`. If it waits, its requests fail. Does nothing if there is no
/// such device, if it is not ours, or if it has another maker.
///
/// # Errors
/// [`Error::Busy`] if the device is live; the error of the driver.
pub fn clear(number: u32, maker: u32) -> Result<(), Error> {
    if !nodes::attributes(Kind::Character, number).exists() {
        return Ok(());
    }
    let mut control = Control::open()?;
    let found = look(&mut control, number)?.and_then(|info| judge(number, &info, maker));
    let path = nodes::path(Kind::Block, number);
    match found.map(|left| left.fate) {
        None | Some(Fate::OfAnother) => return Ok(()),
        Some(Fate::Live) => return Err(Error::Busy(path)),
        Some(Fate::Clear) => {}
    }
    let deleted = control.delete(number);
    deleted.map_err(Error::system(format!("delete {}", path.display())))?;
    wait_until_gone(number);
    nodes::remove(number);
    Ok(())
}

/// What the driver knows of the device; None if it is gone or cannot be ours.
fn look(control: &mut Control, number: u32) -> Result<Option<Info>, Error> {
    match control.info(number) {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.raw_os_error() == Some(errno::ENODEV) => Ok(None),
        // The device of a user other than root: the driver wants its path.
        Err(error) if error.raw_os_error() == Some(errno::EINVAL) => Ok(None),
        Err(error) => Err(Error::system(format!("ask for ublk device {number}"))(error)),
    }
}

/// What `maker` may do with a device. None if it is not ours, or if another maker serves it.
pub(crate) fn judge(number: u32, info: &Info, maker: u32) -> Option<Leftover> {
    let is_live = info.state == wire::LIVE;
    let fate = match (wire::marked_by(info.mark)? == maker, is_live) {
        (true, false) => Fate::Clear,
        (true, true) => Fate::Live,
        (false, false) => Fate::OfAnother,
        (false, true) => return None,
    };
    Some(Leftover { number, fate, is_waiting: info.state == wire::QUIESCED })
}
