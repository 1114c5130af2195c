//! The designs of page allocators in the lab: the only list of them.
//!
//! Each design exists without a probe at its locks, as in the product, for times; and with a
//! [`LockStat`], for its locks. All are called as the engine calls them: through `dyn Frames`. The
//! product's design has single frames only, so it takes no part where blocks are wanted.

use std::sync::Arc;

use anyhow::{Result, bail};
use designs::zones::{Blocks, Cluster, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice};
use pagealloc::{Frames, MemoryProvider, NoMemory, Zone, ZoneOptions};

use super::lock_stat::LockStat;
use super::mutex_buddy::MutexBuddy;
use super::pcp_only::PcpOnly;

/// A zone that is measured.
#[derive(Clone)]
pub struct Subject {
    /// Its single frames.
    pub frames: Arc<dyn Frames>,
    /// Its blocks of more than one frame, if it has some.
    pub blocks: Option<Arc<dyn Blocks>>,
}

impl Subject {
    fn of_frames<Z: Frames + 'static>(zone: Z) -> Subject {
        Subject { frames: Arc::new(zone), blocks: None }
    }

    fn of_blocks<Z: Blocks + 'static>(zone: Z) -> Subject {
        let zone = Arc::new(zone);
        Subject { frames: zone.clone(), blocks: Some(zone) }
    }
}

type Made = Result<Subject, NoMemory>;
type MakePlain = fn(&dyn MemoryProvider, ZoneOptions) -> Made;
type MakeProbed = fn(&dyn MemoryProvider, ZoneOptions, LockStat) -> Made;

/// A design.
#[derive(Debug)]
pub struct Design {
    /// Its name.
    pub name: &'static str,
    /// Whether it is only a control, and no part of the engine.
    pub control: bool,
    /// Whether it has blocks of more than one frame.
    pub blocks: bool,
    /// Whether it shows its free blocks.
    pub shows_free: bool,
    /// Makes a zone without a probe.
    pub plain: MakePlain,
    /// Makes a zone with a probe, if the design supports that.
    pub probed: Option<MakeProbed>,
}

/// A design whose zones come from `$make(provider, options, trace)`.
macro_rules! design {
    ($name:expr, $make:path, control: $control:expr, blocks: $blocks:expr, $subject:path) => {
        Design {
            name: $name,
            control: $control,
            blocks: $blocks,
            shows_free: true,
            plain: |provider, options| Ok($subject($make(provider, options, ())?)),
            probed: Some(|provider, options, lock_stat| {
                Ok($subject($make(provider, options, lock_stat)?))
            }),
        }
    };
    ($name:expr, $make:path, control: $control:expr) => {
        design!($name, $make, control: $control, blocks: true, Subject::of_blocks)
    };
}

/// The engine's designs, the default first, and the controls.
pub const DESIGNS: &[Design] = &[
    design!(Zone::NAME, Zone::with_probe, control: false, blocks: false, Subject::of_frames),
    design!(ListZone::<Spin>::NAME, ListZone::<Spin, _>::with_probe, control: false),
    design!(ListZone::<RangeRw>::NAME, ListZone::<RangeRw, _>::with_probe, control: false),
    design!(ListZone::<Splice>::NAME, ListZone::<Splice, _>::with_probe, control: false),
    design!(ListZone::<Premerge>::NAME, ListZone::<Premerge, _>::with_probe, control: false),
    design!(ListZone::<NoMerge>::NAME, ListZone::<NoMerge, _>::with_probe, control: false),
    design!(ListZone::<Cluster>::NAME, ListZone::<Cluster, _>::with_probe, control: false),
    design!(MutexBuddy::<()>::NAME, MutexBuddy::with_probe, control: true),
    Design {
        name: PcpOnly::NAME,
        control: true,
        blocks: false,
        shows_free: false,
        plain: |provider, options| Ok(Subject::of_frames(PcpOnly::new(provider, options)?)),
        probed: None,
    },
];

/// The designs of these names; `all` means all.
///
/// # Errors
/// A name is unknown, or appears twice.
pub fn named(names: &[String]) -> Result<Vec<&'static Design>> {
    if names.iter().any(|name| name == "all") {
        if names.len() > 1 {
            bail!("--design all: it cannot be named beside others");
        }
        return Ok(DESIGNS.iter().collect());
    }
    let mut found: Vec<&'static Design> = Vec::new();
    for name in names {
        let Some(design) = DESIGNS.iter().find(|design| design.name == name) else {
            let all = DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>().join(", ");
            bail!("--design {name}: there is no such design; there are {all}, and all");
        };
        if found.iter().any(|other| other.name == design.name) {
            bail!("--design {name}: it takes part already");
        }
        found.push(design);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_once() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            named(&names).map(|found| found.iter().map(|design| design.name).collect::<Vec<_>>())
        };
        assert_eq!(named(&["all"]).expect("all").len(), DESIGNS.len());
        assert_eq!(named(&["pcp-only", "mutex-buddy"]).expect("two"), ["pcp-only", "mutex-buddy"]);
        for wrong in [&["hope"][..], &["all", "pcp-only"], &["pcp-only", "pcp-only"]] {
            assert!(named(wrong).is_err(), "{wrong:?}");
        }
        let error = named(&["hope"]).expect_err("no such design").to_string();
        assert!(error.contains("mutex-buddy"), "{error}");
    }

    #[test]
    fn no_name_is_there_twice_and_controls_come_last() {
        for (at, design) in DESIGNS.iter().enumerate() {
            assert!(DESIGNS[..at].iter().all(|other| other.name != design.name));
            assert!(DESIGNS[..at].iter().all(|other| design.control || !other.control));
        }
    }
}
