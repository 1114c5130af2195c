//! Attributes of pages that move by themselves.

use control::{Access, Attribute, Number, ValueKind, parse_switch};

use super::keys::{decimal, put, size};
use crate::{Budgets, Disk, TierCounts};

pub(super) const AUTO: Attribute<Disk> = Attribute {
    name: "auto",
    access: Access::ReadWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "1 lets pages that are not used move to smaller forms by themselves, at any time",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.auto())))),
    store: Some(|disk, text| disk.set_auto(parse_switch("auto", text)?)),
};

pub(super) const AUTO_TARGET: Attribute<Disk> = Attribute {
    name: "auto_target",
    access: Access::ReadWrite,
    unit: "bytes",
    kind: ValueKind::Plain,
    help: "memory that auto aims at (K M G T P E suffixes); 0 moves all pages that are old enough",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.budgets().target))),
    store: Some(|disk, text| disk.set_budgets(Budgets { target: size(text)?, ..disk.budgets() })),
};

pub(super) const AUTO_CPU_PERCENT: Attribute<Disk> = Attribute {
    name: "auto_cpu_percent",
    access: Access::ReadWrite,
    unit: "percent",
    kind: ValueKind::Plain,
    help: "the most CPU time that auto takes, of one CPU: 1 to 100",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.budgets().cpu_percent))),
    store: Some(|disk, text| {
        let cpu_percent = decimal("auto_cpu_percent", text)?;
        disk.set_budgets(Budgets { cpu_percent, ..disk.budgets() })
    }),
};

pub(super) const AUTO_SLOWEST_READ: Attribute<Disk> = Attribute {
    name: "auto_slowest_read",
    access: Access::ReadWrite,
    unit: "us",
    kind: ValueKind::Plain,
    help: "auto moves no page where one read in a hundred takes longer; 0 is no limit",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.budgets().slowest_read))),
    store: Some(|disk, text| {
        let slowest_read = decimal("auto_slowest_read", text)?;
        disk.set_budgets(Budgets { slowest_read, ..disk.budgets() })
    }),
};

pub(super) const AUTO_WRITEBACK: Attribute<Disk> = Attribute {
    name: "auto_writeback",
    access: Access::ReadWrite,
    unit: "bytes",
    kind: ValueKind::Plain,
    help: "bytes a day that auto may write to backing_dev (K M G T P E suffixes); 0 writes nothing",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.budgets().written_a_day))),
    store: Some(|disk, text| {
        disk.set_budgets(Budgets { written_a_day: size(text)?, ..disk.budgets() })
    }),
};

pub(super) const AUTO_STAT: Attribute<Disk> = Attribute {
    name: "auto_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Table(
        "tier",
        &[
            Number::gauge("tier_age", "seconds", "age at which pages move to the tier"),
            Number::gauge("tier", "pages", "pages in the tier"),
            Number::counter("tier_moved", "pages", "pages moved to the tier"),
            Number::counter("tier_saved", "bytes", "memory saved by moves to the tier"),
            Number::counter("tier_raised", "pages", "pages brought up from the tier by a use"),
            Number::counter(
                "tier_too_soon",
                "pages",
                "uses of pages soon after they moved to the tier",
            ),
            Number::counter(
                "tier_late",
                "pages",
                "uses of pages long after they moved to the tier",
            ),
        ],
    ),
    help: "for each tier: name, age in seconds at which pages move there, pages there, pages moved \
           there, bytes saved, pages brought up, uses too soon, late uses; then passes, \
           compactions, ms of CPU time, bytes written to backing_dev and failed writes",
    show: Some(|disk, out| {
        let stats = disk.tier_stats();
        for tier in &stats.tiers {
            let TierCounts { name, age, pages, moved, saved, raised, too_soon, late } = tier;
            put(out, format_args!("{name} "))?;
            match age {
                Some(age) => put(out, format_args!("{age}"))?,
                None => put(out, format_args!("-"))?,
            }
            put(out, format_args!(" {pages} {moved} {saved} {raised} {too_soon} {late}\n"))?;
        }
        let (passes, compactions) = (stats.passes, stats.compactions);
        let ms = stats.cpu_ns / 1_000_000;
        let (bytes, failures) = (stats.written_bytes, stats.failed_writes);
        put(
            out,
            format_args!(
                "passes {passes} compactions {compactions} cpu_ms {ms} written {bytes} \
                 failed_writes {failures}\n"
            ),
        )
    }),
    store: None,
};
