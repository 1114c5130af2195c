//! The rows of a device, in the kernel's words and formats.
//!
//! Source: Linux `Documentation/admin-guide/blockdev/zram.rst` (mm_stat, io_stat and the settings),
//! and for the one-value statistics the same document of 2014 (`Documentation/blockdev/zram.txt`).

use alloc::{format, sync::Arc};
use core::fmt::Write;

use control::{Access, Bound, Errno, Fault, Row};
use units::parse_size;
use zcomp::Params;

use crate::{Disk, Stats};

/// The attributes of a device, bound to it.
#[must_use]
pub fn attributes(disk: Arc<Disk>) -> Bound<Disk> {
    Bound::new(disk, ROWS)
}

/// The longest name of an algorithm that is looked up (`CRYPTO_MAX_ALG_NAME` in Linux).
const NAME_MAX: usize = 128;

macro_rules! statistic {
    ($name:literal, $unit:literal, $help:literal, $value:expr) => {
        Row {
            name: $name,
            access: Access::Read,
            unit: $unit,
            help: $help,
            show: Some(|disk: &Disk, out| {
                let value: fn(&Stats) -> u64 = $value;
                put(out, format_args!("{}\n", value(&disk.stats())))
            }),
            store: None,
        }
    };
}

fn put(out: &mut dyn Write, text: core::fmt::Arguments<'_>) -> Result<(), Fault> {
    out.write_fmt(text).map_err(|_| Fault::new(Errno::EIO, "the value could not be printed"))
}

fn size(text: &str) -> Result<u64, Fault> {
    parse_size(text).map_err(|error| Fault::invalid(format!("{error}")))
}

/// Every attribute of a device.
pub static ROWS: &[Row<Disk>] = &[
    Row {
        name: "disksize",
        access: Access::ReadWrite,
        unit: "bytes",
        help: "size of the disk; writing it (K M G T P E suffixes) makes the disk ready, once",
        show: Some(|disk, out| put(out, format_args!("{}\n", disk.bytes()))),
        store: Some(|disk, text| disk.set_disksize(size(text)?)),
    },
    Row {
        name: "initstate",
        access: Access::Read,
        unit: "flag",
        help: "1 once the disk has a size, else 0",
        show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.bytes() != 0)))),
        store: None,
    },
    Row {
        name: "reset",
        access: Access::ActOnWrite,
        unit: "flag",
        help: "a positive number gives up contents, size, settings and statistics",
        show: None,
        store: Some(|disk, text| match text.trim().parse::<u16>() {
            Ok(1..) => disk.reset(),
            _ => Err(Fault::invalid(format!(
                "reset takes a number from 1 to 65535, not {:?}",
                text.trim()
            ))),
        }),
    },
    Row {
        name: "comp_algorithm",
        access: Access::ReadWrite,
        unit: "name",
        help: "algorithms there are, the chosen one in brackets; chosen before the size is set",
        show: Some(|disk, out| {
            let (known, chosen) = disk.algorithms();
            for name in known {
                if name == chosen {
                    put(out, format_args!("[{name}] "))?;
                } else {
                    put(out, format_args!("{name} "))?;
                }
            }
            put(out, format_args!("\n"))
        }),
        store: Some(|disk, text| {
            if text.len() >= NAME_MAX {
                let message = format!("an algorithm's name has fewer than {NAME_MAX} characters");
                return Err(Fault::new(Errno::E2BIG, message));
            }
            disk.set_algorithm(text.trim())
        }),
    },
    Row {
        name: "algorithm_params",
        access: Access::Write,
        unit: "text",
        help: "parameters of the chosen algorithm before the size is set: level=NUMBER",
        show: None,
        store: Some(|disk, text| disk.set_params(parse_params(disk, text)?)),
    },
    Row {
        name: "max_comp_streams",
        access: Access::ReadWrite,
        unit: "count",
        help: "compression streams: one per CPU; a written number is checked and has no effect",
        show: Some(|disk, out| put(out, format_args!("{}\n", disk.stats().streams))),
        store: Some(|_, text| match text.trim().parse::<i32>() {
            Ok(1..) => Ok(()),
            _ => Err(Fault::invalid(format!(
                "max_comp_streams takes a number from 1 on, not {:?}",
                text.trim()
            ))),
        }),
    },
    Row {
        name: "mem_limit",
        access: Access::Write,
        unit: "bytes",
        help: "most memory the disk may take (K M G T P E suffixes), at any time; 0 lifts it",
        show: None,
        store: Some(|disk, text| {
            disk.set_mem_limit(size(text)?);
            Ok(())
        }),
    },
    Row {
        name: "mem_used_max",
        access: Access::ActOnWrite,
        unit: "bytes",
        help: "0 lets the peak of memory used be what is used now",
        show: None,
        store: Some(|disk, text| match text.trim() {
            "0" => {
                disk.reset_peak();
                Ok(())
            }
            other => Err(Fault::invalid(format!("mem_used_max takes only 0, not {other:?}"))),
        }),
    },
    Row {
        name: "compact",
        access: Access::ActOnWrite,
        unit: "flag",
        help: "anything moves objects together and gives memory back",
        show: None,
        store: Some(|disk, _| disk.compact().map(|_| ())),
    },
    statistic!("num_reads", "pages", "pages read", |s| s.num_reads),
    statistic!("num_writes", "pages", "pages written", |s| s.num_writes),
    statistic!("failed_reads", "pages", "page reads that failed", |s| s.failed_reads),
    statistic!("failed_writes", "pages", "page writes that failed", |s| s.failed_writes),
    statistic!("invalid_io", "count", "requests past the end of the disk", |s| s.invalid_io),
    statistic!("notify_free", "pages", "pages given up by discards", |s| s.notify_free),
    statistic!("zero_pages", "pages", "pages stored that are all zeroes", |s| s.zero_pages),
    statistic!("orig_data_size", "bytes", "uncompressed size of what is stored", |s| s.orig_bytes),
    statistic!("compr_data_size", "bytes", "compressed size of what is stored", |s| {
        s.compressed_bytes
    }),
    statistic!("mem_used_total", "bytes", "memory taken by what is stored", |s| s.pool_bytes),
    Row {
        name: "mm_stat",
        access: Access::Read,
        unit: "text",
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
    },
    Row {
        name: "io_stat",
        access: Access::Read,
        unit: "text",
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
    },
];

fn parse_params(disk: &Disk, text: &str) -> Result<Params, Fault> {
    const ALLOWED: &str = "write algo=NAME (the chosen one) and level=NUMBER";
    let mut params = Params::default();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some(("algo", name)) => {
                let chosen = disk.algorithms().1;
                if name != chosen {
                    let message = format!("the chosen algorithm is {chosen}, not {name:?}");
                    return Err(Fault::invalid(message));
                }
            }
            Some(("level", level)) => {
                let level = level.parse().map_err(|_| {
                    Fault::invalid(format!("a level is a whole number, not {level:?}"))
                })?;
                params.level = Some(level);
            }
            _ => return Err(Fault::invalid(format!("no parameter {word:?}; {ALLOWED}"))),
        }
    }
    Ok(params)
}
