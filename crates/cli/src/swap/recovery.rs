//! Serves on the swap devices of a daemon that died.
//!
//! The kernel waits for its swap space, and so does every program whose pages are there. The files
//! of a tmpfs are such pages, too: the log of this process, or what is below its root. So until the
//! devices are served, this process reads and writes no file that could be swapped out, and says
//! nothing. All it needs is with the service manager: memory that is never swapped out, and
//! descriptors. It also takes little memory, and has the kernel do no I/O to find it.
//!
//! [`take_over`] comes before all else that a daemon does, and ends when the devices are served.
//! What is left ([`super::Swaps::adopt`]) can wait for them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use rampack::block::BlockDevice;
use rampack::control::ControlError;
use rampack::pagelog::LogDevice;
use rampack::zswap::{Headroom, Recovered, SwapType, Zswap};

use super::backing::OpenedBacking;
use super::cache::Cache;
use super::helpers::Helpers;
use super::layers::Layers;
use super::report::Protection;
use super::served::Serving;
use super::stuck::Watcher;
use super::{kill_point, name, protections};
use crate::machine::Machine;
use crate::root::Root;
use crate::state::State;
use crate::state::swaps::{LeftSwap, SavedArea};

/// What was taken over. Its drop takes the devices away from their users.
pub struct Taken {
    pub(super) zswap: Arc<Zswap>,
    pub(super) helpers: Helpers,
    pub(super) watched: Protection,
    pub(super) areas: Vec<TakenArea>,
}

/// A swap device that is served again.
pub struct TakenArea {
    pub(super) saved: SavedArea,
    /// None if it is gone.
    pub(super) serving: Option<Serving>,
    pub(super) cache: Cache,
    pub(super) log: Option<Arc<LogDevice>>,
    pub(super) backing: Option<OpenedBacking>,
}

impl Taken {
    /// The numbers of the devices that have files, whose mounts must stay, and the N of each
    /// `/dev/ublkbN`.
    #[must_use]
    pub fn devices(&self) -> (Vec<usize>, Vec<u32>) {
        let served =
            || self.areas.iter().filter_map(|it| Some((it.saved.number, it.serving.as_ref()?)));
        let files = served().filter(|(_, serving)| serving.file().is_some()).map(|it| it.0);
        let ublks = served().filter_map(|(_, serving)| Some(serving.ublk()?.number));
        (files.collect(), ublks.collect())
    }
}

/// Serves on the devices `left`. Returns what the user should know, too.
///
/// # Errors
/// Those of [`Machine::recover_swap`], of the frontends and of the devices below. Everything is as
/// it was then, for another process; this one must end.
pub fn take_over(
    (machine, root, state): (&Arc<Machine>, &Root, &State),
    left: LeftSwap,
) -> Result<(ManuallyDrop<Taken>, Vec<String>), ControlError> {
    let LeftSwap { areas: saved, shared, cache, mut channels } = left;
    kill_point("begun");
    let Opened { mut backings, zswap, recovered, told } = open(machine, state, &saved, &cache)?;
    kill_point("recovered");
    let headroom = Headroom::of_frames(shared.headroom);
    let (watcher, watched) = Watcher::new(Duration::from_secs(shared.oom_after));
    let helpers = ManuallyDrop::new(Helpers::start(&zswap, headroom, watcher)?);
    kill_point("provided");
    let mut areas = ManuallyDrop::new(Vec::new());
    for saved in saved {
        let number = saved.number;
        let cache = ManuallyDrop::new(Cache::recovered(zswap.clone(), number)?);
        let (log, backing) = backings.remove(&number).unzip();
        let (log, backing) = (log.flatten(), ManuallyDrop::new(backing));
        let channels = channels.remove(&number).unwrap_or_default();
        let at = root.swap().join(name(number));
        let device = Arc::new(cache.device());
        let waits = saved.backing.is_some();
        kill_point("unserved");
        let serving = Serving::take_over(&at, device, saved.ublk, channels, waits)?;
        kill_point("served");
        let (cache, backing) = (ManuallyDrop::into_inner(cache), ManuallyDrop::into_inner(backing));
        areas.push(TakenArea { saved, serving, cache, log, backing });
    }
    let (areas, helpers) = (ManuallyDrop::into_inner(areas), ManuallyDrop::into_inner(helpers));
    let taken = Taken { zswap, helpers, watched, areas };
    let told = told.into_iter().chain(say(&recovered)).collect();
    Ok((ManuallyDrop::new(taken), told))
}

/// The backing devices by the numbers of areas, each with its log.
type Backings = BTreeMap<usize, (Option<Arc<LogDevice>>, OpenedBacking)>;

/// A recovered cache, and what is below its areas.
struct Opened {
    backings: ManuallyDrop<Backings>,
    zswap: Arc<Zswap>,
    recovered: Recovered,
    /// What cannot be of logs.
    told: Vec<String>,
}

/// Recovers the cache, with what is below its areas.
fn open(
    machine: &Arc<Machine>,
    state: &State,
    saved: &[SavedArea],
    cache: &rampack::SavedSwap,
) -> Result<Opened, ControlError> {
    // A file that was made for a device goes with the last user of it, which is not this process
    // if it fails.
    let opened = ManuallyDrop::new(RefCell::new(BTreeMap::new()));
    let told = RefCell::new(Vec::new());
    let below = |swap: SwapType| -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
        let number = swap.number();
        let Some(area) = saved.iter().find(|area| area.number == number) else { return Ok(None) };
        let Some(saved) = &area.backing else { return Ok(None) };
        let backing = ManuallyDrop::new(OpenedBacking::open_again(saved)?);
        let (Layers { device, log }, findings) = Layers::again(state, area, (saved, &backing))?;
        told.borrow_mut().extend(findings);
        opened.borrow_mut().insert(number, (log, ManuallyDrop::into_inner(backing)));
        Ok(Some(device))
    };
    let (zswap, recovered) = machine.recover_swap(state.memory(), cache, &below, &|_| ())?;
    let opened = ManuallyDrop::into_inner(opened);
    let backings = ManuallyDrop::new(opened.into_inner());
    Ok(Opened { backings, zswap, recovered, told: told.into_inner() })
}

fn say(recovered: &Recovered) -> Vec<String> {
    let mut told = Vec::new();
    for area in &recovered.areas {
        let (name, cached, below, lost) =
            (name(area.swap.number()), area.cached, area.on_device, area.lost);
        told.push(format!(
            "{name}: {cached} pages in memory and {below} on its backing device were recovered, \
             {lost} are lost"
        ));
    }
    told.extend(recovered.findings.iter().cloned());
    let more = recovered.all_findings - recovered.findings.len() as u64;
    if more > 0 {
        told.push(format!("swap: there are {more} more findings"));
    }
    told
}

/// Readies this process to serve swap space on; see [`protections::be_ready`].
pub fn be_ready() {
    protections::be_ready();
}
