//! The designs of page allocators in the lab: the only list of them.
//!
//! Each design exists without a probe at its locks, as in the product, for times; and with a
//! [`LockStat`], for its locks. All are called as the engine calls them: through `dyn Frames`.

use std::sync::Arc;

use anyhow::{Result, bail};
use designs::zones::{Cluster, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice};
use pagealloc::{Frames, LockTrace, MemoryProvider, NoMemory, Zone, ZoneOptions};

use super::lock_stat::LockStat;
use crate::args::chosen;

type Made = Result<Arc<dyn Frames>, NoMemory>;
type MakePlain = fn(&dyn MemoryProvider, ZoneOptions) -> Made;
type MakeProbed = fn(&dyn MemoryProvider, ZoneOptions, LockStat) -> Made;

/// A design.
#[derive(Debug)]
pub struct Design {
    pub name: &'static str,
    /// Whether it is only a control, and no part of the engine.
    pub control: bool,
    /// Makes a zone without a probe.
    pub plain: MakePlain,
    /// Makes a zone with a probe.
    pub probed: MakeProbed,
}

/// A control: `spin` without pcp lists. Every call takes the lock for one frame, which shows the
/// use of pcp lists and batches, and that the lab detects contention.
fn without_pcp<P: LockTrace>(
    provider: &dyn MemoryProvider,
    options: ZoneOptions,
    trace: P,
) -> Result<ListZone<Spin, P>, NoMemory> {
    ListZone::with_probe(provider, ZoneOptions { cache_high: 1, batch: 1, ..options }, trace)
}

/// A design whose zones come from `$make(provider, options, trace)`.
macro_rules! design {
    ($name:expr, $make:path, control: $control:expr) => {
        Design {
            name: $name,
            control: $control,
            plain: |provider, options| Ok(Arc::new($make(provider, options, ())?)),
            probed: |provider, options, probe| Ok(Arc::new($make(provider, options, probe)?)),
        }
    };
}

/// The engine's designs, the default first, and the control.
static DESIGNS: [Design; 8] = [
    design!(Zone::NAME, Zone::with_probe, control: false),
    design!(ListZone::<Spin>::NAME, ListZone::<Spin, _>::with_probe, control: false),
    design!(ListZone::<RangeRw>::NAME, ListZone::<RangeRw, _>::with_probe, control: false),
    design!(ListZone::<Splice>::NAME, ListZone::<Splice, _>::with_probe, control: false),
    design!(ListZone::<Premerge>::NAME, ListZone::<Premerge, _>::with_probe, control: false),
    design!(ListZone::<NoMerge>::NAME, ListZone::<NoMerge, _>::with_probe, control: false),
    design!(ListZone::<Cluster>::NAME, ListZone::<Cluster, _>::with_probe, control: false),
    design!("no-pcp", without_pcp, control: true),
];

/// The designs of these names; `all` means all.
pub fn named(names: &[String]) -> Result<Vec<&'static Design>> {
    let all = names.iter().any(|name| name == "all");
    if all && names.len() > 1 {
        bail!("--design all: it cannot be named beside others");
    }
    let known = DESIGNS.each_ref().map(|design| design.name);
    let names = chosen("--design", if all { &[] } else { names }, &known)?;
    Ok(names.iter().filter_map(|name| DESIGNS.iter().find(|d| d.name == *name)).collect())
}
