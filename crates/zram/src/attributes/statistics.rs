//! Attributes of the statistics.

use core::fmt::Write;

use control::{Access, Attribute, ControlError, Number, ValueKind};
use objects::Object;
use units::PAGE_SIZE;

use super::keys::put;
use crate::{Disk, Kind, Slot, Stats};

macro_rules! statistic {
    ($id:ident, $kind:ident, $name:literal, $unit:literal, $help:literal, $value:expr) => {
        pub(super) const $id: Attribute<Disk> = Attribute {
            name: $name,
            access: Access::Read,
            unit: $unit,
            kind: ValueKind::$kind,
            help: $help,
            show: Some(|disk: &Disk, out| {
                let value: fn(&Stats) -> u64 = $value;
                put(out, format_args!("{}\n", value(&disk.stats())))
            }),
            store: None,
        };
    };
}

statistic!(NUM_READS, Counter, "num_reads", "pages", "pages read", |s| s.num_reads);
statistic!(NUM_WRITES, Counter, "num_writes", "pages", "pages written", |s| s.num_writes);
statistic!(FAILED_READS, Counter, "failed_reads", "pages", "page reads that failed", |s| s
    .failed_reads);
statistic!(FAILED_WRITES, Counter, "failed_writes", "pages", "page writes that failed", |s| s
    .failed_writes);
statistic!(INVALID_IO, Counter, "invalid_io", "count", "requests past the end of the disk", |s| s
    .invalid_io);
statistic!(NOTIFY_FREE, Counter, "notify_free", "pages", "pages given up by discards", |s| s
    .notify_free);
statistic!(ZERO_PAGES, Gauge, "zero_pages", "pages", "pages stored that are all zeroes", |s| s
    .zero_pages);
statistic!(
    ORIG_DATA_SIZE,
    Plain,
    "orig_data_size",
    "bytes",
    "uncompressed size of what is stored",
    |s| { s.orig_bytes }
);
statistic!(
    COMPR_DATA_SIZE,
    Plain,
    "compr_data_size",
    "bytes",
    "compressed size of what is stored",
    |s| { s.compressed_bytes }
);
statistic!(
    MEM_USED_TOTAL,
    Plain,
    "mem_used_total",
    "bytes",
    "memory taken by what is stored",
    |s| { s.pool_bytes }
);

statistic!(
    LOST_PAGES,
    Gauge,
    "lost_pages",
    "pages",
    "pages that could not be recovered; reading one fails until it is written or discarded",
    |s| s.lost_pages
);

pub(super) const MM_STAT: Attribute<Disk> = Attribute {
    name: "mm_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("orig_data_size", "bytes", "uncompressed size of what is stored"),
        Number::gauge("compr_data_size", "bytes", "compressed size of what is stored"),
        Number::gauge("mem_used_total", "bytes", "memory taken by what is stored"),
        Number::gauge("mem_limit", "bytes", "most memory the disk may take; 0 is no limit"),
        Number::gauge("mem_used_max", "bytes", "most memory taken so far"),
        Number::gauge("same_pages", "pages", "pages stored that are one pattern"),
        Number::counter("compacted", "pages", "memory gained by moving objects together"),
        Number::gauge("huge", "pages", "pages stored that do not shrink"),
        Number::counter("huge_since", "pages", "pages stored so far that did not shrink"),
    ]),
    help: "orig_data_size compr_data_size mem_used_total mem_limit mem_used_max (bytes) \
           same_pages pages_compacted huge_pages huge_pages_since (pages)",
    show: Some(|disk, out| {
        let s = disk.stats();
        put(
            out,
            format_args!(
                "{:8} {:8} {:8} {:8} {:8} {:8} {:8} {:8} {:8}\n",
                s.orig_bytes,
                s.compressed_bytes,
                s.pool_bytes,
                s.mem_limit,
                s.pool_bytes_peak,
                s.same_filled_pages,
                s.pages_compacted,
                s.huge_pages,
                s.huge_pages_since
            ),
        )
    }),
    store: None,
};

pub(super) const IO_STAT: Attribute<Disk> = Attribute {
    name: "io_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Plain,
    help: "failed_reads failed_writes invalid_io notify_free",
    show: Some(|disk, out| {
        let s = disk.stats();
        put(
            out,
            format_args!(
                "{:8} {:8} {:8} {:8}\n",
                s.failed_reads, s.failed_writes, s.invalid_io, s.notify_free
            ),
        )
    }),
    store: None,
};

pub(super) const BD_STAT: Attribute<Disk> = Attribute {
    name: "bd_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("backed", "pages", "pages that are on the backing device"),
        Number::counter("backing_reads", "pages", "pages read from the backing device"),
        Number::counter("backing_writes", "pages", "pages written to the backing device"),
    ]),
    help: "pages that are on the backing device, pages read from it, pages written to it",
    show: Some(|disk, out| {
        let s = disk.stats();
        put(out, format_args!("{:8} {:8} {:8}\n", s.backed_pages, s.backed_reads, s.backed_writes))
    }),
    store: None,
};

pub(super) const DEBUG_STAT: Attribute<Disk> = Attribute {
    name: "debug_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Plain,
    help: "version of this format; 0, and frees that were missed (here none ever is)",
    show: Some(|_, out| put(out, format_args!("version: 1\n0 {:8}\n", 0))),
    store: None,
};

pub(super) const PACK_STAT: Attribute<Disk> = Attribute {
    name: "pack_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("packed", "pages", "pages in extents"),
        Number::gauge("extents", "count", "extents"),
        Number::gauge("extent", "bytes", "bytes of extents"),
        Number::gauge("extent_wasted", "bytes", "bytes of extents for pages that have left"),
    ]),
    help: "pages in extents, extents, bytes of them, bytes among these for pages that have left",
    show: Some(|disk, out| {
        let d = disk.density();
        put(
            out,
            format_args!(
                "{:8} {:8} {:8} {:8}\n",
                d.packed_pages, d.extents, d.extent_bytes, d.wasted_bytes
            ),
        )
    }),
    store: None,
};

pub(super) const SHARE_STAT: Attribute<Disk> = Attribute {
    name: "share_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("shared", "pages", "pages that share objects"),
        Number::gauge("shared_objects", "count", "objects that pages share"),
        Number::gauge("shared_saved", "bytes", "memory that sharing saves"),
    ]),
    help: "pages that share objects, these objects, bytes of memory that this saves",
    show: Some(|disk, out| {
        let d = disk.density();
        put(out, format_args!("{:8} {:8} {:8}\n", d.shared_pages, d.shared_objects, d.saved_bytes))
    }),
    store: None,
};

/// The same fields as in the block layer (Linux `Documentation/block/stat.rst`). No times are kept,
/// and each page of a request counts as a request.
pub(super) const STAT: Attribute<Disk> = Attribute {
    name: "stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Plain,
    help: "reads, merges, sectors, ms; the same for writes; in flight, ms, ms; the same four for \
           discards; flushes, ms; in pages, without times",
    show: Some(|disk, out| {
        let s = disk.stats();
        let sectors = PAGE_SIZE as u64 / 512;
        for [count, sectors] in
            [[s.num_reads, s.num_reads * sectors], [s.num_writes, s.num_writes * sectors]]
        {
            put(out, format_args!("{count:8} {:8} {sectors:8} {:8} ", 0, 0))?;
        }
        put(out, format_args!("{:8} {:8} {:8} ", 0, 0, 0))?;
        let discards = s.notify_free;
        put(out, format_args!("{discards:8} {:8} {:8} {:8} ", 0, discards * sectors, 0))?;
        put(out, format_args!("{:8} {:8}\n", 0, 0))
    }),
    store: None,
};

/// Source: Linux `Documentation/admin-guide/blockdev/zram.rst`, "memory tracking".
pub(super) const BLOCK_STATE: Attribute<Disk> = Attribute {
    name: "block_state",
    access: Access::ReadOwner,
    unit: "text",
    kind: ValueKind::Plain,
    help: "for each page with contents: number, seconds when last used, and s same-filled, w \
           written back, h huge, i idle, r compressed again, n incompressible",
    show: Some(|disk, out| block_state(disk, out)),
    store: None,
};

fn block_state(disk: &Disk, out: &mut dyn Write) -> Result<(), ControlError> {
    let engine = disk.ready_engine()?;
    let mut result = Ok(());
    let window = disk.window();
    engine.each(window.clone(), |index, slot| {
        if result.is_err() {
            return;
        }
        let reader = disk.readers.enter(units::Cpu(0));
        let again = match slot.kind() {
            Kind::Stored(Object::Compressed { codec, .. }) => {
                engine.priority_of(&reader, codec) > 0
            }
            Kind::Shared(part) => engine.is_again(&reader, part.entry),
            _ => false,
        };
        let flags = flags(slot, again);
        let flags = core::str::from_utf8(&flags).unwrap_or_default();
        let seconds = engine.last_access(index).unwrap_or(0);
        let index = index - window.start;
        result = put(out, format_args!("{index:12} {seconds:12}.000000 {flags}\n"));
    });
    result
}

fn flags(slot: Slot, again: bool) -> [u8; 6] {
    let kind = slot.kind();
    let huge = match kind {
        Kind::Stored(Object::Huge(_)) => true,
        Kind::WrittenBack(place) => place.form.huge,
        Kind::Shared(part) => part.huge,
        _ => false,
    };
    let all = [
        (matches!(kind, Kind::SameFilled(_) | Kind::Stored(Object::SameFilled(_))), b's'),
        (slot.is_backed(), b'w'),
        (huge, b'h'),
        (slot.is_idle(), b'i'),
        (again, b'r'),
        (slot.is_incompressible(), b'n'),
    ];
    all.map(|(is, letter)| if is { letter } else { b'.' })
}
