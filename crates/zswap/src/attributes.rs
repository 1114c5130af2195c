//! The attributes of zswap: the parameters of Linux's zswap with a few of ours, and the counters of
//! Linux in the version of 2013 and in later ones.

use alloc::format;
use core::fmt;
use core::str::FromStr;

use control::{Access, Attribute, ControlError, Errno, ValueKind, parse_switch};
use units::{Cpu, PAGE_SIZE, parse_size};

use crate::{Memcg, Stats, Zswap};

fn put(out: &mut dyn fmt::Write, text: fmt::Arguments<'_>) -> Result<(), ControlError> {
    out.write_fmt(text).map_err(|_| ControlError::new(Errno::ENOMEM, "no memory for the text"))
}

fn line<N: fmt::Display>(out: &mut dyn fmt::Write, value: N) -> Result<(), ControlError> {
    put(out, format_args!("{value}\n"))
}

fn shown(on: bool) -> char {
    if on { 'Y' } else { 'N' }
}

fn number<N: FromStr>(name: &str, text: &str) -> Result<N, ControlError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.parse()
        .map_err(|_| ControlError::invalid(format!("{name} takes a whole number, not {text:?}")))
}

fn size(text: &str) -> Result<u64, ControlError> {
    parse_size(text).map_err(|error| ControlError::invalid(format!("{error}")))
}

macro_rules! parameter {
    ($name:literal, $unit:literal, $help:literal, $show:expr, $store:expr) => {
        Attribute {
            name: $name,
            access: Access::ReadWrite,
            unit: $unit,
            kind: ValueKind::Plain,
            help: $help,
            show: Some($show),
            store: Some($store),
        }
    };
}

macro_rules! switch_row {
    ($name:literal, $help:literal, $get:ident, $set:ident) => {
        parameter!(
            $name,
            "flag",
            $help,
            |zswap, out| line(out, shown(zswap.policy().$get())),
            |zswap, text| {
                zswap.policy().$set(parse_switch($name, text)?);
                Ok(())
            }
        )
    };
}

/// `module/zswap/parameters`.
pub static PARAMETERS: &[Attribute<Zswap>] = &[
    switch_row!("enabled", "whether new pages are taken", enabled, set_enabled),
    parameter!(
        "compressor",
        "name",
        "what new pages are compressed with; pages that are there stay as they are",
        |zswap, out| line(out, zswap.compressor()),
        |zswap, text| zswap.set_compressor(text.trim())
    ),
    parameter!(
        "max_pool_percent",
        "percent",
        "the most memory the pool may have, of all there is; max_pool_bytes comes first",
        |zswap, out| line(out, zswap.policy().max_pool_percent()),
        |zswap, text| zswap.set_max_pool_percent(number("max_pool_percent", text)?)
    ),
    parameter!(
        "max_pool_bytes",
        "bytes",
        "the most memory the pool may have (K M G T suffixes); 0 leaves it to max_pool_percent",
        |zswap, out| line(out, zswap.policy().max_pool_bytes()),
        |zswap, text| {
            zswap.set_max_pool_bytes(size(text)?);
            Ok(())
        }
    ),
    parameter!(
        "accept_threshold_percent",
        "percent",
        "to how much of its limit a full pool must shrink before it takes pages; 100 for no wait",
        |zswap, out| line(out, zswap.policy().accept_threshold_percent()),
        |zswap, text| {
            zswap.policy().set_accept_threshold_percent(number("accept_threshold_percent", text)?)
        }
    ),
    parameter!(
        "max_compression_ratio",
        "percent",
        "how much of a page may be left of it, else it is refused; 100 keeps all, as in Linux now",
        |zswap, out| line(out, zswap.policy().max_compression_ratio()),
        |zswap, text| {
            zswap.policy().set_max_compression_ratio(number("max_compression_ratio", text)?)
        }
    ),
    switch_row!(
        "same_filled_pages_enabled",
        "whether a page that is one pattern over and over is kept as that",
        same_filled,
        set_same_filled
    ),
    switch_row!(
        "non_same_filled_pages_enabled",
        "whether other pages are taken at all",
        non_same_filled,
        set_non_same_filled
    ),
    switch_row!(
        "exclusive_loads",
        "whether a load takes the page out; block devices keep it all the same",
        exclusive_loads,
        set_exclusive_loads
    ),
    switch_row!(
        "shrinker_enabled",
        "whether pages are written back when the system's memory is short",
        shrinker_enabled,
        set_shrinker_enabled
    ),
    parameter!(
        "writebacks_max",
        "pages",
        "the most pages that may be on their way to devices at once",
        |zswap, out| line(out, zswap.policy().writebacks_max()),
        |zswap, text| zswap.policy().set_writebacks_max(number("writebacks_max", text)?)
    ),
    parameter!(
        "auto",
        "flag",
        "whether pages that are not read are recompressed with zstd",
        |zswap, out| line(out, shown(zswap.auto())),
        |zswap, text| zswap.set_auto(parse_switch("auto", text)?)
    ),
    parameter!(
        "auto_age",
        "seconds",
        "after which time without a read; longer while such pages are read soon afterwards",
        |zswap, out| line(out, zswap.policy().auto_age()),
        |zswap, text| zswap.policy().set_auto_age(number("auto_age", text)?)
    ),
    parameter!(
        "auto_cpu_percent",
        "percent",
        "the most CPU time for this, in percent of one CPU",
        |zswap, out| line(out, zswap.policy().auto_cpu_percent()),
        |zswap, text| zswap.policy().set_auto_cpu_percent(number("auto_cpu_percent", text)?)
    ),
];

/// Rows of numbers, each with its kind, name, unit, value and meaning, and one row more.
macro_rules! figures {
    ({$($kind:ident $name:literal $unit:literal = |$stats:ident| $value:expr, $help:literal;)*}
     $last:expr) => {
        &[
            $(Attribute {
                name: $name,
                access: Access::ReadOwner,
                unit: $unit,
                kind: ValueKind::$kind,
                help: $help,
                show: Some(|zswap, out| {
                    let read: fn(Stats) -> u64 = |$stats| $value;
                    line(out, read(zswap.stats()))
                }),
                store: None,
            },)*
            $last,
        ]
    };
}

/// `kernel/debug/zswap`. Attributes that Linux renamed stand under both names.
pub static DEBUG: &[Attribute<Zswap>] = figures! {{
    Gauge "stored_pages" "pages" = |s| s.stored_pages, "pages in the cache";
    Gauge "pool_total_size" "bytes" = |s| s.pool_bytes, "memory of the pool";
    Plain "pool_pages" "pages" = |s| s.pool_bytes / PAGE_SIZE as u64, "memory of the pool (2013)";
    Counter "pool_limit_hit" "count" = |s| s.pool_limit_hit, "stores that found the pool full";
    Counter "written_back_pages" "pages" = |s| s.written_back_pages, "pages written back";
    Plain "flushed_pages" "pages" = |s| s.written_back_pages, "pages written back (2013)";
    Counter "writeback_attempted" "count" = |s| s.writeback_attempted,
        "stores that wrote others back to find space";
    Plain "reject_flush_attempted" "count" = |s| s.writeback_attempted, "the same (2013)";
    Counter "saved_by_writeback" "count" = |s| s.saved_by_writeback,
        "stores that found space by writing others back";
    Plain "saved_by_flush" "count" = |s| s.saved_by_writeback, "the same (2013)";
    Gauge "outstanding_writebacks" "pages" = |s| s.outstanding_writebacks,
        "pages on their way to devices";
    Plain "outstanding_flushes" "pages" = |s| s.outstanding_writebacks, "the same (2013)";
    Counter "writeback_fail" "pages" = |s| s.writeback_failed,
        "pages whose writing back failed; they stayed";
    Plain "reject_tmppage_fail" "count" = |s| s.writebacks_refused,
        "times as much was under way as may be (2013)";
    Counter "reject_reclaim_fail" "count" = |s| s.reject_reclaim_fail, "stores refused for a limit";
    Plain "reject_flush_fail" "count" = |s| s.reject_reclaim_fail, "the same (2013)";
    Counter "reject_alloc_fail" "count" = |s| s.reject_alloc_fail,
        "stores refused for want of a frame";
    Plain "reject_zsmalloc_fail" "count" = |s| s.reject_alloc_fail, "the same (2013)";
    Counter "reject_kmemcache_fail" "count" = |s| s.reject_entry_fail,
        "stores refused for want of an entry";
    Counter "reject_compress_fail" "count" = |s| s.reject_compress_fail,
        "stores refused that would not shrink";
    Counter "reject_compress_poor" "count" = |s| s.reject_compress_poor,
        "stores refused that shrank too little";
    Counter "reject_disabled" "count" = |s| s.reject_disabled, "stores refused while disabled";
    Counter "decompress_fail" "count" = |s| s.decompress_fail, "objects that did not decompress";
    Counter "duplicate_entry" "count" = |s| s.duplicate_entry, "stores that replaced a page";
    Gauge "same_filled_pages" "pages" = |s| s.same_filled_pages,
        "pages of one pattern in the cache";
    Gauge "stored_incompressible_pages" "pages" = |s| s.incompressible_pages,
        "pages in the cache as they are";
    Gauge "compressed_bytes" "bytes" = |s| s.compressed_bytes, "bytes of all objects";
    Gauge "overhead_bytes" "bytes" = |s| s.overhead_bytes, "memory of entries and indexes";
    Counter "compacted_pages" "pages" = |s| s.compacted_pages,
        "memory gained by moving objects together";
    Gauge "warm_pages" "pages" = |s| s.warm_pages, "pages in the cache that were recompressed";
    Gauge "packed_pages" "pages" = |s| s.packed_pages,
        "pages in the cache that are compressed as one with neighbours";
    Counter "recompressed_pages" "pages" = |s| s.recompressed, "pages recompressed so far";
    Counter "recompress_saved" "bytes" = |s| s.recompress_saved,
        "memory that recompression saved so far";
    Counter "recompress_vain" "pages" = |s| s.recompress_vain,
        "pages that recompression did not make smaller";
    Counter "recompress_left" "count" = |s| s.recompress_left,
        "times recompression had no room, or the page changed";
    Counter "recompress_us" "us" = |s| s.recompress_ns / 1000, "CPU time of recompression so far";
    Gauge "recompress_age" "seconds" = |s| s.recompress_age,
        "age at which pages are recompressed now; 0: none";
    Counter "warm_loads" "pages" = |s| s.warm_loads, "recompressed pages loaded so far";
    Counter "warm_loads_soon" "pages" = |s| s.warm_loads_soon,
        "recompressed pages loaded soon after that";
    Counter "zswpout" "pages" = |s| s.stores, "pages stored so far";
    Counter "zswpin" "pages" = |s| s.loads, "pages loaded from the cache so far";
    Plain "zswpwb" "pages" = |s| s.written_back_pages, "pages written back so far";
    Counter "through_pages" "pages" = |s| s.through, "pages refused and sent to devices";
    Counter "through_fail" "pages" = |s| s.through_failed,
        "pages refused whose write to a device failed";
    Counter "read_back_pages" "pages" = |s| s.read_back, "pages read from devices";
    Counter "read_back_fail" "pages" = |s| s.read_back_failed,
        "pages that could not be read from devices";
    Counter "read_back_changed" "pages" = |s| s.read_back_changed,
        "pages read from devices that these had changed";
    Gauge "lost_pages" "pages" = |s| s.lost_pages,
        "pages that were damaged when the cache was recovered";
    Gauge "device_pages" "pages" = |s| s.on_device, "pages on devices now";
}
Attribute {
    name: "scrub",
    access: Access::ActOnWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "anything reads all that was written back, and fails if a page is not as it was \
           written",
    show: None,
    store: Some(|zswap, _| zswap.scrub(Cpu(0)).map(|_| ())),
}
};

/// `fs/cgroup/NAME`, for each memcg.
pub static MEMCG_ATTRIBUTES: &[Attribute<Memcg>] = &[
    Attribute {
        name: "memory.zswap.current",
        access: Access::Read,
        unit: "bytes",
        kind: ValueKind::Gauge,
        help: "bytes of the memcg's objects",
        show: Some(|memcg, out| line(out, memcg.bytes())),
        store: None,
    },
    Attribute {
        name: "memory.zswap.max",
        access: Access::ReadWrite,
        unit: "bytes",
        kind: ValueKind::Plain,
        help: "the most bytes of objects it may have; max for any number",
        show: Some(|memcg, out| match memcg.max() {
            u64::MAX => line(out, "max"),
            bytes => line(out, bytes),
        }),
        store: Some(|memcg, text| {
            memcg.set_max(match text.trim() {
                "max" => u64::MAX,
                text => size(text)?,
            });
            Ok(())
        }),
    },
    Attribute {
        name: "memory.zswap.writeback",
        access: Access::ReadWrite,
        unit: "flag",
        kind: ValueKind::Plain,
        help: "whether its pages may go to a device",
        show: Some(|memcg, out| line(out, u8::from(memcg.writeback()))),
        store: Some(|memcg, text| {
            memcg.set_writeback(match text.trim() {
                "0" => false,
                "1" => true,
                other => {
                    let message = format!("memory.zswap.writeback takes 0 or 1, not {other:?}");
                    return Err(ControlError::invalid(message));
                }
            });
            Ok(())
        }),
    },
    Attribute {
        name: "memory.stat",
        access: Access::Read,
        unit: "text",
        kind: ValueKind::Plain,
        help: "bytes: zswap of its objects, zswapped of its pages, zswap_incomp of those that are \
               kept as they are; pages so far: zswpin loaded, zswpout stored, zswpwb written back",
        show: Some(|memcg, out| {
            let bytes_of = |pages: u64| pages * PAGE_SIZE as u64;
            let (objects, pages) = (memcg.bytes(), bytes_of(memcg.pages()));
            put(out, format_args!("zswap {objects}\nzswapped {pages}\n"))?;
            let (incompressible, loaded) = (bytes_of(memcg.incompressible()), memcg.loaded());
            put(out, format_args!("zswap_incomp {incompressible}\nzswpin {loaded}\n"))?;
            let (stored, written) = (memcg.stored(), memcg.written_back());
            put(out, format_args!("zswpout {stored}\nzswpwb {written}\n"))
        }),
        store: None,
    },
];

#[cfg(test)]
mod tests;
