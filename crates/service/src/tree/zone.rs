//! The part of the tree about the page allocator. All devices of a daemon and its swap cache
//! allocate their frames from one zone.

use std::path::Path;
use std::sync::Arc;

use control::tree::Attributes;
use control::{Access, Attribute, Bound, ControlError, ValueKind, parse_switch};
use fuse::leftovers;

use super::block::put;
use crate::devices::Devices;
use crate::engine::{self, Machine};
use crate::latency;
use crate::root::{Made, Root};
use crate::zone::{buddyinfo, free_frames};

/// The path of the free blocks below the mount point of the tree. The kernel has them in `/proc`,
/// and the root of a daemon has a link in its `proc`.
const PLACE: &str = "kernel/debug/rampack/buddyinfo";

/// The name of the link in a root's `proc`, as in `/proc`.
const BUDDYINFO: &str = "buddyinfo";

/// `kernel/debug/rampack`.
pub(super) fn directory(devices: &Arc<Devices>) -> Attributes {
    Attributes::new(Arc::new(Bound::new(devices.machine().clone(), ATTRIBUTES)), |_| true)
}

macro_rules! number {
    ($name:literal, $kind:ident, $unit:literal, $help:literal, $value:expr) => {
        Attribute {
            name: $name,
            access: Access::Read,
            unit: $unit,
            kind: ValueKind::$kind,
            help: $help,
            show: Some(|machine: &Machine, out| -> Result<(), ControlError> {
                let value: fn(&Machine) -> u64 = $value;
                put(out, format_args!("{}\n", value(machine)))
            }),
            store: None,
        }
    };
}

static ATTRIBUTES: &[Attribute<Machine>] = &[
    Attribute {
        name: "buddyinfo",
        access: Access::Read,
        unit: "text",
        kind: ValueKind::Plain,
        help: "free blocks of 1, 2, 4 to 1024 frames, as in /proc/buddyinfo",
        show: Some(|machine, out| {
            put(out, format_args!("{}", buddyinfo(&machine.frames().stats())))
        }),
        store: None,
    },
    Attribute {
        name: "latencies",
        access: Access::ReadWrite,
        unit: "flag",
        kind: ValueKind::Plain,
        help: "1 times one request of eight to each disk and swap device; 0 for the next daemon",
        show: Some(|_, out| put(out, format_args!("{}\n", u8::from(latency::is_on())))),
        store: Some(|_, text| {
            latency::set(parse_switch("latencies", text)?);
            Ok(())
        }),
    },
    Attribute {
        name: "zone/design",
        access: Access::Read,
        unit: "name",
        kind: ValueKind::Plain,
        help: "how memory is allocated",
        show: Some(|machine, out| put(out, format_args!("{}\n", engine::zone(machine).0))),
        store: None,
    },
    number!("zone/capacity", Gauge, "pages", "frames there can ever be", |machine| {
        u64::from(machine.frames().capacity())
    }),
    number!("zone/managed", Gauge, "pages", "frames asked of the system so far", |machine| {
        machine.frames().stats().managed
    }),
    number!("zone/allocated", Gauge, "pages", "frames allocated to what is stored", |machine| {
        machine.frames().stats().allocated
    }),
    number!("zone/cached", Gauge, "pages", "frames in the pcp lists of CPUs", |machine| {
        machine.frames().stats().cached
    }),
    number!("zone/free", Gauge, "pages", "frames that are free", |machine| {
        free_frames(&machine.frames().stats())
    }),
    number!(
        "zone/returned_blocks",
        Counter,
        "count",
        "2 MiB blocks given back to the system so far",
        |m| { m.frames().stats().returned_blocks }
    ),
    number!(
        "zone/bad_frees",
        Counter,
        "count",
        "times something was freed that was not allocated; 0",
        |m| { m.frames().stats().bad_frees }
    ),
];

/// Makes the link to the free blocks: programs look for them in `/proc`.
///
/// # Errors
/// The error of the system call.
pub(crate) fn link(root: &Root, made: &Made) -> Result<(), ControlError> {
    made.directory(&root.proc())?;
    let target = Path::new("..").join(leftovers::TREE).join(PLACE);
    made.link(&root.proc().join(BUDDYINFO), &target)
}

/// Removes what [`link`] made.
pub(crate) fn unlink(root: &Root, made: &Made) {
    made.remove(&root.proc().join(BUDDYINFO));
    made.remove(&root.proc());
}
