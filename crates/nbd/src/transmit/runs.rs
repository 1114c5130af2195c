//! The state of a range, as a list of runs.

use core::ops::ControlFlow;

use block::{BlockDevice, Extent, ExtentKind, IoError};
use units::Cpu;

use crate::wire::{Request, STATE_HOLE, STATE_ZERO, cmd};

/// Descriptors in one BLOCK_STATUS reply, at most. The document lets a server stop early; a client
/// asks again from there.
const MAX_DESCRIPTORS: usize = 8192;

/// A part of a range in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Its length in bytes; never zero.
    pub(super) length: u32,
    /// `STATE_*` flags.
    pub(super) state: u32,
}

/// The runs of the last range.
#[derive(Default)]
pub(super) struct Runs {
    found: Vec<Run>,
}

const fn state_of(kind: ExtentKind) -> u32 {
    match kind {
        ExtentKind::Data => 0,
        ExtentKind::Zero => STATE_ZERO,
        ExtentKind::Hole => STATE_HOLE | STATE_ZERO,
    }
}

impl Runs {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = Run> {
        self.found.iter().copied()
    }

    /// Sets one run of data.
    pub(super) fn set_one(&mut self, length: u32) {
        self.found.clear();
        self.found.push(Run { length, state: 0 });
    }

    /// Splits the whole range into runs of zeroes and runs of data.
    pub(super) fn of_zeroes(
        &mut self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        request: Request,
    ) -> Result<(), IoError> {
        self.collect(device, cpu, request, STATE_ZERO, usize::MAX)?;
        // If the device reports a part only, the rest counts as data: that is always correct.
        let told: u32 = self.found.iter().map(|run| run.length).sum();
        let left = request.length - told;
        match self.found.last_mut() {
            _ if left == 0 => {}
            Some(last) if last.state == 0 => last.length += left,
            _ => self.found.push(Run { length: left, state: 0 }),
        }
        Ok(())
    }

    /// Splits the range by `base:allocation`. It may cover only the beginning of the range.
    pub(super) fn of_allocation(
        &mut self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        request: Request,
    ) -> Result<(), IoError> {
        let one = request.flags & cmd::FLAG_REQ_ONE != 0;
        let most = if one { 1 } else { MAX_DESCRIPTORS };
        self.collect(device, cpu, request, STATE_HOLE | STATE_ZERO, most)?;
        if self.found.is_empty() {
            self.set_one(request.length);
        }
        Ok(())
    }

    fn collect(
        &mut self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        request: Request,
        mask: u32,
        most: usize,
    ) -> Result<(), IoError> {
        self.found.clear();
        let found = &mut self.found;
        let mut left = request.length;
        device.extents(
            cpu,
            request.offset,
            u64::from(request.length),
            &mut |Extent { length, kind }| {
                let length = u64::from(left).min(length) as u32;
                let state = state_of(kind) & mask;
                let full = found.len() == most;
                match found.last_mut() {
                    _ if length == 0 => {}
                    Some(last) if last.state == state => last.length += length,
                    _ if full => return ControlFlow::Break(()),
                    _ => found.push(Run { length, state }),
                }
                left -= length;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
    }
}
