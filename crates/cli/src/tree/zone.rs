//! The part of the tree about the page allocator: the zone that all devices of a daemon, and the
//! cache in front of its swap devices, take their frames from.

use std::sync::Arc;

use control::tree::Rows;
use control::{Access, Bound, Fault, Row};
use stack::Machine;

use super::block::put;
use crate::devices::Devices;
use crate::zone::{buddyinfo, free_frames};

/// Where the free blocks stand, below the directory the tree is mounted at: the kernel's are in
/// `/proc`, and a daemon has a link there.
pub const BUDDYINFO: &str = "kernel/debug/rampack/buddyinfo";

/// `kernel/debug/rampack`.
pub(super) fn directory(devices: &Arc<Devices>) -> Rows {
    Rows::new(Arc::new(Bound::new(devices.machine().clone(), ROWS)), |_| true)
}

macro_rules! number {
    ($name:literal, $unit:literal, $help:literal, $value:expr) => {
        Row {
            name: $name,
            access: Access::Read,
            unit: $unit,
            help: $help,
            show: Some(|machine: &Machine, out| -> Result<(), Fault> {
                let value: fn(&Machine) -> u64 = $value;
                put(out, format_args!("{}\n", value(machine)))
            }),
            store: None,
        }
    };
}

static ROWS: &[Row<Machine>] = &[
    Row {
        name: "buddyinfo",
        access: Access::Read,
        unit: "text",
        help: "free blocks of 1, 2, 4 to 1024 frames, as in /proc/buddyinfo",
        show: Some(|machine, out| {
            put(out, format_args!("{}", buddyinfo(&machine.frames().stats())))
        }),
        store: None,
    },
    Row {
        name: "zone/design",
        access: Access::Read,
        unit: "name",
        help: "how memory is lent to what is stored; chosen when the daemon is started",
        show: Some(|machine, out| put(out, format_args!("{}\n", machine.variants().zone))),
        store: None,
    },
    number!("zone/capacity", "pages", "frames there can ever be", |machine| {
        u64::from(machine.frames().capacity())
    }),
    number!("zone/managed", "pages", "frames asked of the system so far", |machine| {
        machine.frames().stats().managed
    }),
    number!("zone/lent", "pages", "frames lent to what is stored", |machine| {
        machine.frames().stats().lent
    }),
    number!("zone/cached", "pages", "frames in the stocks of CPUs", |machine| {
        machine.frames().stats().cached
    }),
    number!("zone/free", "pages", "frames that are free", |machine| {
        free_frames(&machine.frames().stats())
    }),
    number!("zone/returned_blocks", "count", "2 MiB blocks given back to the system so far", |m| {
        m.frames().stats().returned_blocks
    }),
    number!("zone/bad_frees", "count", "times something was freed that was not lent; 0", |m| {
        m.frames().stats().bad_frees
    }),
];
