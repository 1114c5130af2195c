//! What `rampack status` says of swap devices, their cache and the page allocator.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, to_value};
use service::swap::report::{PoolReport, ServingReport, SwapReport};
use service::zone::ZoneReport;
use units::{PAGE_SIZE, human};

use crate::table;

const HEADINGS: [&str; 9] =
    ["NAME", "SIZE", "USED", "CACHED", "ON-DISK", "PRIO", "DEVICE", "BACKING", "STATE"];

fn pages(count: u64, exact: bool) -> String {
    size(count * PAGE_SIZE as u64, exact)
}

fn size(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { human(bytes).to_string() }
}

/// The part of `rampack status` about swap devices; empty when there are none.
pub(crate) fn table(swaps: &[SwapReport], pool: Option<&PoolReport>, exact: bool) -> String {
    if swaps.is_empty() {
        return String::new();
    }
    let mut lines = vec![HEADINGS.map(String::from).to_vec()];
    for swap in swaps {
        lines.push(vec![
            swap.name.clone(),
            size(swap.bytes, exact),
            size(swap.used, exact),
            pages(swap.cached_pages, exact),
            pages(swap.disk_pages, exact),
            swap.priority.map_or("-".into(), |priority| priority.to_string()),
            swap.block_device.clone(),
            swap.backing.clone().unwrap_or_else(|| "none".into()),
            if swap.active { "on" } else { "off" }.into(),
        ]);
    }
    let mut text = table::text(&lines, " ", |n| (1..=5).contains(&n));
    if let Some(pool) = pool {
        let ratio = pool.ratio().map(|ratio| format!(", ratio {ratio:.2}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "cache: {} in {} of {} memory{ratio}, {}; {} written back, {} not taken",
            pages(pool.stored_pages, exact),
            size(pool.pool_bytes, exact),
            size(pool.limit_bytes, exact),
            pool.compressor,
            pages(pool.written_back_pages, exact),
            pages(pool.rejected_pages, exact)
        );
        if pool.recompress_age > 0 || pool.warm_pages > 0 {
            let when = match pool.recompress_age {
                0 => "no more now".into(),
                seconds => format!("when not read for {seconds} seconds"),
            };
            let warm = pages(pool.warm_pages, exact);
            let _ = writeln!(text, "recompressed: {warm} of it, {when}");
        }
        if let Some(headroom) = pool.headroom_bytes {
            let _ = writeln!(
                text,
                "headroom: {} of memory ready; {} came too early for it",
                size(headroom, exact),
                pages(pool.late_pages, exact)
            );
        }
    }
    if let Some(pool) = pool.filter(|pool| pool.unread_pages + pool.unwritten_pages > 0) {
        let _ = writeln!(
            text,
            "BACKING FAILS: {} could not be read, {} of it changed there; {} could not be written, \
             and stayed in memory",
            pages(pool.unread_pages, exact),
            pages(pool.changed_pages, exact),
            pages(pool.unwritten_pages, exact)
        );
    }
    if let Some(pool) = pool.filter(|pool| pool.silent_seconds > 0) {
        let _ = writeln!(
            text,
            "BACKING DOES NOT ANSWER: {} wait for it, for {} seconds",
            pages(pool.waiting_pages, exact),
            pool.silent_seconds
        );
    }
    for swap in swaps {
        let Some(log) = &swap.log else { continue };
        let _ = writeln!(
            text,
            "{}: {} in {} of a log of {}; {} written, {} of it again to make room",
            swap.name,
            pages(swap.disk_pages, exact),
            size(log.live, exact),
            size(log.capacity, exact),
            size(log.written, exact),
            size(log.copied, exact)
        );
    }
    for swap in swaps.iter().filter(|swap| !swap.serving.by.is_empty()) {
        let ServingReport { by, threads, minor_faults, major_faults } = &swap.serving;
        let _ = writeln!(
            text,
            "{}: served by {by}, {threads} threads with {} page faults since it is on",
            swap.name,
            minor_faults + major_faults
        );
    }
    for swap in swaps.iter().filter(|swap| !swap.frees_by.is_empty()) {
        let _ = match &swap.frees_lack {
            Some(why) => {
                writeln!(
                    text,
                    "{}: freed pages are heard of by {}: {why}",
                    swap.name, swap.frees_by
                )
            }
            None => writeln!(
                text,
                "{}: freed pages are heard of by {}, {} so far",
                swap.name,
                swap.frees_by,
                pages(swap.freed_pages, exact)
            ),
        };
    }
    // Every device of a daemon has the same protections, and most notes.
    for swap in swaps.iter().take(1) {
        if let Some(front) = &swap.front {
            let _ = writeln!(text, "in front: {front}");
        }
        swap.missing().for_each(|line| text += &format!("{line}\n"));
    }
    let notes: BTreeSet<&String> = swaps.iter().flat_map(|swap| &swap.notes).collect();
    notes.into_iter().for_each(|note| text += &format!("NOTE: {note}\n"));
    text
}

/// The line about the page allocator. With `exact`, sizes are in bytes.
pub(crate) fn zone_line(zone: &ZoneReport, exact: bool) -> String {
    let mut line = format!(
        "zone {}: {} allocated, {} in pcp lists of CPUs, {} free; of {} asked of the system",
        zone.design,
        size(zone.allocated_bytes, exact),
        size(zone.cached_bytes, exact),
        size(zone.free_bytes, exact),
        size(zone.managed_bytes, exact)
    );
    // Most memory goes back in smaller parts, which nobody counts.
    if zone.returned_blocks > 0 {
        let _ = write!(line, "; {} whole pageblocks of 2M given back so far", zone.returned_blocks);
    }
    if zone.bad_frees > 0 {
        let _ = write!(line, "; {} BAD FREES: please report this", zone.bad_frees);
    }
    line + "\n"
}

/// A report as an object for programs, with other names and values for some of its fields.
fn object_of(report: &impl Serialize, other: &[(&str, &str, Value)]) -> Value {
    let mut object = to_value(report).unwrap_or_default();
    if let Value::Object(fields) = &mut object {
        for (field, name, value) in other {
            fields.remove(*field);
            fields.insert((*name).into(), value.clone());
        }
    }
    object
}

/// A swap device as an object for programs.
pub(crate) fn object(swap: &SwapReport) -> Value {
    let bytes = |pages: u64| Value::from(pages * PAGE_SIZE as u64);
    let other = [
        ("bytes", "size", swap.bytes.into()),
        ("cached_pages", "cached", bytes(swap.cached_pages)),
        ("disk_pages", "on_disk", bytes(swap.disk_pages)),
    ];
    object_of(swap, &other)
}

/// The cache as an object for programs.
pub(crate) fn pool_object(pool: &PoolReport) -> Value {
    let ratio = pool.ratio().map(|ratio| (ratio * 100.0).round() / 100.0);
    let headroom = ("headroom_bytes", "headroom", pool.headroom_bytes.into());
    object_of(pool, &[headroom, ("ratio", "ratio", ratio.into())])
}

#[cfg(test)]
mod tests;
