//! Attributes of the settings.

use alloc::format;

use control::{Access, Attribute, ControlError, ValueKind, parse_switch};

use super::keys::{decimal, integer, put, size};
use crate::{Disk, WhenFull};

pub(super) const DISKSIZE: Attribute<Disk> = Attribute {
    name: "disksize",
    access: Access::ReadWrite,
    unit: "bytes",
    kind: ValueKind::Gauge,
    help: "size of the disk; writing it (K M G T P E suffixes) makes the disk ready, once",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.bytes()))),
    store: Some(|disk, text| disk.set_disksize(size(text)?)),
};

pub(super) const INITSTATE: Attribute<Disk> = Attribute {
    name: "initstate",
    access: Access::Read,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "1 once the disk has a size, else 0",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.bytes() != 0)))),
    store: None,
};

pub(super) const RESET: Attribute<Disk> = Attribute {
    name: "reset",
    access: Access::ActOnWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "a positive number gives up contents, size, settings and statistics",
    show: None,
    store: Some(|disk, text| match decimal::<u16>("reset", text)? {
        0 => Err(ControlError::invalid("reset takes a number from 1 to 65535, not 0")),
        _ => disk.reset(),
    }),
};

pub(super) const RESIZE: Attribute<Disk> = Attribute {
    name: "resize",
    access: Access::ActOnWrite,
    unit: "bytes",
    kind: ValueKind::Plain,
    help: "a new size for a disk in use: larger always, smaller if nothing is stored beyond it",
    show: None,
    store: Some(|disk, text| disk.resize(size(text)?)),
};

pub(super) const MAX_COMP_STREAMS: Attribute<Disk> = Attribute {
    name: "max_comp_streams",
    access: Access::ReadWrite,
    unit: "count",
    kind: ValueKind::Plain,
    help: "threads that may compress at once; at any time, unless there is a single stream",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.max_streams()))),
    store: Some(|disk, text| match integer::<i32>("max_comp_streams", text)? {
        count @ 1.. => disk.set_max_streams(count as u32),
        count => Err(ControlError::invalid(format!(
            "max_comp_streams takes a number from 1 on, not {count}"
        ))),
    }),
};

pub(super) const MEM_LIMIT: Attribute<Disk> = Attribute {
    name: "mem_limit",
    access: Access::Write,
    unit: "bytes",
    kind: ValueKind::Plain,
    help: "most memory the disk may take (K M G T P E suffixes), at any time; 0 lifts it",
    show: None,
    store: Some(|disk, text| {
        disk.set_mem_limit(size(text)?);
        Ok(())
    }),
};

pub(super) const WHEN_FULL: Attribute<Disk> = Attribute {
    name: "when_full",
    access: Access::ReadWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "what a write does at mem_limit: fail, wait for pages to move out, spill to backing_dev",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.when_full().name()))),
    store: Some(|disk, text| disk.set_when_full(WhenFull::parse(text)?)),
};

pub(super) const MEM_USED_MAX: Attribute<Disk> = Attribute {
    name: "mem_used_max",
    access: Access::ActOnWrite,
    unit: "bytes",
    kind: ValueKind::Plain,
    help: "0 lets the peak of memory used be what is used now",
    show: None,
    store: Some(|disk, text| match text.trim() {
        "0" => {
            disk.reset_peak();
            Ok(())
        }
        other => Err(ControlError::invalid(format!("mem_used_max takes only 0, not {other:?}"))),
    }),
};

pub(super) const COMPACT: Attribute<Disk> = Attribute {
    name: "compact",
    access: Access::ActOnWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "anything moves objects together and gives memory back",
    show: None,
    store: Some(|disk, _| disk.compact().map(|_| ())),
};

pub(super) const TRACK_ACCESS: Attribute<Disk> = Attribute {
    name: "track_access",
    access: Access::ReadWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "1 keeps the time of last use of each page, in 4 bytes; set before the size",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.tracks_access())))),
    store: Some(|disk, text| disk.set_track_access(parse_switch("track_access", text)?)),
};
