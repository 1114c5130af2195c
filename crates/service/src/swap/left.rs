//! Swap devices of the daemon before that this daemon cannot take down. What is swapped out to them
//! is kept until the kernel does not swap to them any more.

use std::path::PathBuf;

use control::{ControlError, Errno};
use fuse::find_by_backing;
use host::swaps;
use sync::Mutex;

use super::name;
use super::report::SwapReport;
use crate::observed::used_areas;
use crate::plan::KeptArea;
use crate::root::Root;

/// What becomes of who needs a page of such a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// He gets it.
    Served,
    /// He waits for a program that serves the device.
    Awaited,
    /// He gets an error: nothing leads there any more.
    Gone,
}

/// A device, and its pages.
pub(super) type LeftArea = (KeptArea, Pages);

/// The devices.
pub(super) struct LeftAreas(Mutex<Vec<LeftArea>>);

impl LeftAreas {
    /// None yet.
    pub(super) fn new() -> LeftAreas {
        LeftAreas(Mutex::new(Vec::new()))
    }

    /// Adds some.
    pub(super) fn add(&self, areas: impl IntoIterator<Item = LeftArea>) {
        self.0.lock().extend(areas);
    }

    /// Those that the kernel swaps to.
    pub(super) fn used(&self, root: &Root) -> Vec<LeftArea> {
        let mut left = self.0.lock();
        if !left.is_empty() {
            let areas: Vec<KeptArea> = left.iter().map(|(area, _)| area.clone()).collect();
            let used = used_areas(&areas, root);
            left.retain(|(area, _)| used.contains(&area.number));
        }
        left.clone()
    }
}

/// Why such a device is not taken down, and what to do.
pub(super) fn refusal((area, pages): &LeftArea) -> ControlError {
    let how = match pages {
        Pages::Served => "swap it off by its path in /proc/swaps",
        Pages::Awaited => {
            "its pages wait for a program that can: let one start, by `rampack upgrade` or after \
             the end of this process; until then `swapoff` would wait for ever"
        }
        Pages::Gone => "nothing leads to its pages any more, and `swapoff` gives them up",
    };
    let name = name(area.number);
    let message =
        format!("the kernel swaps to {name}, which this daemon could not take over; {how}");
    ControlError::new(Errno::EBUSY, message)
}

/// The report of such a device.
pub(super) fn report(left: &LeftArea, root: &Root) -> SwapReport {
    let (area, _) = left;
    let name = name(area.number);
    let device = match area.ublk {
        Some(number) => Some(format!("ublkb{number}")),
        None => {
            let loops = find_by_backing(&root.real(root.swap()).join(&name));
            loops.first().map(|number| format!("loop{number}"))
        }
    };
    let device = device.map(|device| PathBuf::from("/dev").join(device)).unwrap_or_default();
    let active = swaps::find(&device);
    SwapReport {
        name,
        block_device: machine::text_of(&device),
        bytes: active.as_ref().map_or(0, |active| active.bytes),
        active: active.is_some(),
        used: active.as_ref().map_or(0, |active| active.used),
        priority: active.map(|active| active.priority),
        notes: vec![refusal(left).message],
        ..SwapReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever follows the advice for a device that nobody serves would never come back.
    #[test]
    fn the_advice_does_not_wait_for_ever() {
        let said = |pages| refusal(&(KeptArea { number: 3, ublk: Some(7) }, pages)).message;
        for (pages, is_to_swap_off) in
            [(Pages::Served, true), (Pages::Awaited, false), (Pages::Gone, true)]
        {
            let text = said(pages);
            assert!(text.starts_with("the kernel swaps to swap3, which this daemon could not"));
            assert_eq!(text.contains("wait for ever"), !is_to_swap_off, "{text}");
        }
    }
}
