//! The attributes that the block layer of Linux has for every disk
//! (`Documentation/ABI/stable/sysfs-block`), that programs read of zram devices. The
//! values are those of the kernel's zram.

use std::fmt::{self, Write};
use std::sync::Arc;

use control::tree::{Attributes, Directory, Node};
use control::{Access, Attribute, ControlError, Errno, ValueKind};
use zram::Disk;

use crate::devices::Devices;

/// Directories that exist and stay empty: no other device is stacked on a device or below it.
const EMPTY: [&str; 2] = ["holders", "slaves"];
/// The link that names the kind of device. systemd's programs refuse a device without it.
const SUBSYSTEM: &str = "subsystem";
/// The target of that link in `/sys/block/zramN`. Programs read its last component.
const BLOCK: &str = "../../class/block";

/// A device as the block layer sees it.
pub(super) struct BlockView {
    pub(super) devices: Arc<Devices>,
    pub(super) disk: Arc<Disk>,
}

pub(super) fn put(out: &mut dyn Write, text: fmt::Arguments<'_>) -> Result<(), ControlError> {
    out.write_fmt(text).map_err(|_| ControlError::new(Errno::EIO, "the value could not be printed"))
}

/// `major:minor` of the block device. Without one it is 0:0, which no device has.
fn number(view: &BlockView) -> (u32, u32) {
    view.devices.node(&view.disk).map_or((0, 0), |node| (node.major, node.minor))
}

macro_rules! fixed {
    ($name:literal, $unit:literal, $help:literal, $value:expr) => {
        Attribute {
            name: $name,
            access: Access::Read,
            unit: $unit,
            kind: ValueKind::Plain,
            help: $help,
            show: Some(|_: &BlockView, out| put(out, format_args!("{}\n", $value))),
            store: None,
        }
    };
}

/// The largest discard in bytes, in whole sectors of a 32-bit count.
const DISCARD_MAX: u64 = (u32::MAX as u64) << 9;

pub(super) static ATTRIBUTES: &[Attribute<BlockView>] = &[
    Attribute {
        name: "dev",
        access: Access::Read,
        unit: "text",
        kind: ValueKind::Plain,
        help: "number of the block device, major:minor; 0:0 without one",
        show: Some(|view, out| {
            let (major, minor) = number(view);
            put(out, format_args!("{major}:{minor}\n"))
        }),
        store: None,
    },
    Attribute {
        name: "size",
        access: Access::Read,
        unit: "sectors",
        kind: ValueKind::Plain,
        help: "size of the disk in sectors of 512 bytes",
        show: Some(|view, out| put(out, format_args!("{}\n", view.disk.bytes() >> 9))),
        store: None,
    },
    Attribute {
        name: "uevent",
        access: Access::Read,
        unit: "text",
        kind: ValueKind::Plain,
        help: "what programs are told when the device appears, a line for each value",
        show: Some(|view, out| {
            let (major, minor) = number(view);
            let name = view.disk.name();
            put(out, format_args!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=disk\n"))
        }),
        store: None,
    },
    fixed!("ro", "flag", "0: it takes writes", 0),
    fixed!("removable", "flag", "0: no medium that could be taken out", 0),
    fixed!("hidden", "flag", "0: it is to be seen", 0),
    fixed!("range", "count", "1: no partitions", 1),
    fixed!("ext_range", "count", "1: no partitions", 1),
    fixed!("capability", "flag", "0: none of the kernel's special kinds", 0),
    fixed!("alignment_offset", "bytes", "0: it begins at a block", 0),
    fixed!("discard_alignment", "bytes", "0: a discard begins at a block", 0),
    fixed!("queue/logical_block_size", "bytes", "the smallest request", 4096),
    fixed!("queue/physical_block_size", "bytes", "what is changed as a whole", 4096),
    fixed!("queue/hw_sector_size", "bytes", "the smallest request", 4096),
    fixed!("queue/minimum_io_size", "bytes", "the smallest request that is not slower", 4096),
    fixed!("queue/optimal_io_size", "bytes", "a request that is best", 4096),
    fixed!("queue/rotational", "flag", "0: nothing turns", 0),
    fixed!("queue/discard_granularity", "bytes", "what is given back as a whole", 4096),
    fixed!("queue/discard_max_bytes", "bytes", "the largest discard", DISCARD_MAX),
    fixed!("queue/discard_max_hw_bytes", "bytes", "the largest discard", DISCARD_MAX),
    fixed!("queue/discard_zeroes_data", "flag", "0, as in every kernel since 4.12", 0),
    fixed!("queue/write_zeroes_max_bytes", "bytes", "the largest request for zeroes", DISCARD_MAX),
    fixed!("queue/write_cache", "text", "write through: nothing is held back", "write through"),
    fixed!("queue/fua", "flag", "0: there is nothing to go round", 0),
    fixed!("queue/dax", "flag", "0: its memory cannot be mapped", 0),
    fixed!("queue/zoned", "text", "none: any page may be written", "none"),
];

/// A device's attributes, and the link and the empty directories beside them.
pub(super) struct BlockDirectory {
    pub(super) rows: Attributes,
}

impl Directory for BlockDirectory {
    fn names(&self) -> Vec<String> {
        let mut names = self.rows.names();
        if !names.is_empty() {
            names.extend(EMPTY.map(String::from));
            names.push(String::from(SUBSYSTEM));
        }
        names
    }

    fn get(&self, name: &str) -> Option<Node> {
        let beside = name == SUBSYSTEM || EMPTY.contains(&name);
        match beside && !self.rows.names().is_empty() {
            true if name == SUBSYSTEM => Some(Node::Link(String::from(BLOCK))),
            true => Some(Node::Directory(Arc::new(control::tree::Fixed::new()))),
            false => self.rows.get(name),
        }
    }

    fn identity(&self) -> u64 {
        self.rows.identity()
    }
}
