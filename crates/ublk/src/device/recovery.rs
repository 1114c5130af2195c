//! Serves on a device whose server died.
//!
//! The driver keeps a recoverable device when its server dies. Requests wait, and those that the
//! dead process had come again. So for users of the device the dead process was slow, no more. A
//! request that was carried out twice is harmless: a write writes the same bytes.
//!
//! ```text
//! GET_DEV_INFO             is it the device that was meant? its queues, depth and largest request
//! START_USER_RECOVERY      EBUSY until the driver has noticed the death and the files are closed
//! open, FETCH_REQ          as for a new device
//! END_USER_RECOVERY        the requests go on
//! ```
//!
//! A server that ends on purpose answers what it has first ([`Ublk::quiesce`], Linux 6.16), and
//! nothing comes twice. A kill between any two steps leaves a device that the next process can
//! recover.

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block::BlockDevice;
use host::errno;

use super::{Id, Options, Stand, Ublk};
use crate::Error;
use crate::control::Control;
use crate::nodes::{self, Kind};
use crate::wire::{self, Info};

/// How long the driver may take to notice that the process of a device has ended.
const NOTICING: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

impl Ublk {
    /// Serves on the device `id`, whose server died. `device` has the contents that the device had,
    /// and its size. Queues, depth and largest request stay as they are, whatever `options` says.
    ///
    /// The dead process must have ended with all its threads. This waits up to a minute until the
    /// kernel has cleaned up after it.
    ///
    /// # Errors
    /// [`Error::Unfit`] if there is no such device, it is not recoverable, or `device` has another
    /// size and the driver changes none; [`Error::Busy`] if it is still served; the error of the
    /// driver. The device is as it was then: it waits, and this or another process may try again.
    pub fn recover(id: Id, device: Arc<dyn BlockDevice>, options: Options) -> Result<Ublk, Error> {
        let mut control = Control::open()?;
        let path = nodes::path(Kind::Block, id.number);
        let info = match control.info(id.number) {
            Ok(info) => info,
            Err(error) if error.raw_os_error() == Some(errno::ENODEV) => {
                return Err(Error::Unfit("the device to recover is gone"));
            }
            Err(error) => {
                return Err(Error::system(format!("ask for {}", path.display()))(error));
            }
        };
        check(&info, id)?;
        let (size, resizable) = (device.geometry().bytes, info.flags & wire::RESIZABLE != 0);
        // The dead process may have died while the size was changed.
        let resized = bytes(id.number) != Some(size);
        if resized && !resizable {
            return Err(Error::Unfit("the device to recover has another size"));
        }
        let options = Options { maker: id.maker, ..options };
        let mut ublk = Ublk::new(control, &info, device, options);
        ublk.stand = Stand::Left;
        ublk.go_on(&info, NOTICING)?;
        if resized && let Err(error) = ublk.resize(size) {
            ublk.stand = Stand::Left;
            return Err(error);
        }
        Ok(ublk)
    }

    /// Serves on after [`Ublk::quiesce`], with other threads. Does nothing for a device that is
    /// served, or gone.
    ///
    /// # Errors
    /// [`Error::Busy`] if a thread carries out a request from before for so long; the error of the
    /// driver. The device waits then, and this is to be called again.
    pub fn serve_on(&mut self, patience: Duration) -> Result<(), Error> {
        if self.stand != Stand::Left {
            return Ok(());
        }
        if !self.leave(Instant::now() + patience) {
            return Err(Error::Busy(self.path.clone()));
        }
        let info = self.control.info(self.number);
        let doing = || Error::system(format!("ask for {}", self.path.display()));
        let info = info.map_err(doing())?;
        check(&info, self.id())?;
        self.go_on(&info, patience)
    }

    /// Until requests go on, a failure leaves the device to another process.
    fn go_on(&mut self, info: &Info, patience: Duration) -> Result<(), Error> {
        let doing = format!("recover {}", self.path.display());
        let end = Instant::now() + patience;
        let begun = begin(&mut self.control, self.number, || {
            thread::sleep(PAUSE);
            Instant::now() < end
        });
        match begun {
            Err(error) if error.raw_os_error() == Some(errno::EBUSY) => {
                return Err(Error::Busy(self.path.clone()));
            }
            begun => begun.map_err(Error::system(doing.clone()))?,
        }
        self.start(info)?;
        let ended = self.control.end_recovery(self.number);
        ended.map_err(Error::system(doing))?;
        self.stand = Stand::Serves;
        Ok(())
    }
}

/// Checks that a device is the one that was meant, and recoverable.
pub(crate) fn check(info: &Info, id: Id) -> Result<(), Error> {
    match wire::marked_by(info.mark) {
        Some(maker) if maker == id.maker => {}
        _ => return Err(Error::Unfit("the device to recover is gone; another has its number")),
    }
    if !info.is_recoverable() || ![wire::LIVE, wire::QUIESCED].contains(&info.state) {
        return Err(Error::Unfit("the device is not kept for a recovery"));
    }
    Ok(())
}

/// The driver's part in the begin of a recovery.
pub(crate) trait Driver {
    /// `START_USER_RECOVERY`.
    fn begin_recovery(&mut self, number: u32) -> io::Result<()>;
    /// [`Info::state`].
    fn state(&mut self, number: u32) -> io::Result<u16>;
}

impl Driver for Control {
    fn begin_recovery(&mut self, number: u32) -> io::Result<()> {
        Control::begin_recovery(self, number)
    }

    fn state(&mut self, number: u32) -> io::Result<u16> {
        self.info(number).map(|info| info.state)
    }
}

/// Begins the recovery of device `number`. As long as the kernel cleans up after the dead server,
/// it tries again, unless `pause` returns false.
pub(crate) fn begin(
    driver: &mut impl Driver,
    number: u32,
    mut pause: impl FnMut() -> bool,
) -> io::Result<()> {
    loop {
        match driver.begin_recovery(number) {
            Err(error) if error.raw_os_error() == Some(errno::EBUSY) && pause() => {}
            // A server that began a recovery was killed before it gave a queue to the driver. So
            // the driver has nothing to make ready (Linux 6.11), and the recovery goes on from
            // there.
            Err(error)
                if error.raw_os_error() == Some(errno::EINVAL)
                    && driver.state(number)? == wire::QUIESCED =>
            {
                return Ok(());
            }
            begun => return begun,
        }
    }
}

/// The size of the block device.
fn bytes(number: u32) -> Option<u64> {
    let size = fs::read_to_string(nodes::attributes(Kind::Block, number).join("size")).ok()?;
    size.trim().parse::<u64>().ok()?.checked_mul(1 << wire::SECTOR_SHIFT)
}
