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
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use block::{Absent, BlockDevice};
use control::{ControlError, Errno};
use pagelog::LogDevice;
use store::{NotOpened, Spec, Store};
use units::PAGE_SIZE;
use zswap::{Headroom, Recovered, SwapType, Zswap};

use super::backing::OpenedBacking;
use super::cache::Cache;
use super::frees::Hearing;
use super::helpers::Helpers;
use super::left::Pages;
use super::report::Protection;
use super::served::Serving;
use super::stuck::Watcher;
use super::{kill_point, name};
use crate::engine::Machine;
use crate::observed::used_areas;
use crate::plan::KeptArea;
use crate::protocol::BackingLayout;
use crate::root::Root;
use crate::state::State;
use crate::state::swaps::{LeftSwap, SavedArea};
use crate::unfinished;

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
    /// None if it is gone, or stays.
    pub(super) serving: Option<Serving>,
    pub(super) hearing: Hearing,
    /// It cannot be served, and the kernel swaps to it: all that is left of it must stay.
    pub(super) stays: Option<Pages>,
    pub(super) cache: Cache,
    pub(super) log: Option<Arc<LogDevice>>,
    pub(super) backing: Option<OpenedBacking>,
}

impl Taken {
    /// The numbers of the devices that have files, whose mounts must stay, and the N of each
    /// `/dev/ublkbN`. A device that cannot be served for now stays as well.
    #[must_use]
    pub fn devices(&self) -> (Vec<usize>, Vec<u32>) {
        let there = || self.areas.iter().filter(|it| it.serving.is_some() || it.stays.is_some());
        let files = there().filter(|it| it.saved.ublk.is_none()).map(|it| it.saved.number);
        let ublks = there().filter_map(|it| Some(it.saved.ublk?.number));
        (files.collect(), ublks.collect())
    }
}

/// The backing devices by the numbers of areas, each with its log.
type OpenedBackings = BTreeMap<usize, (Option<Arc<LogDevice>>, OpenedBacking)>;

/// What was taken so far. A file that was made for a device goes with the last user of it, which is
/// not this process if it fails.
#[derive(Default)]
struct Taking {
    backings: RefCell<OpenedBackings>,
    zswap: Option<Arc<Zswap>>,
    helpers: Option<Helpers>,
    areas: Vec<TakenArea>,
    /// What the next area of those is made of.
    next: Option<(Cache, Option<OpenedBacking>)>,
}

/// Serves on the devices `left`, except those that are to `stay`. Returns what the user should
/// know, too.
///
/// # Errors
/// Those of [`Machine::recover_swap`] and of the threads beside the cache. Everything is as it was
/// then, for another process; this one must end.
pub fn take_over(
    (machine, root, state): (&Arc<Machine>, &Root, &State),
    left: LeftSwap,
    stay: &BTreeSet<usize>,
) -> Result<(Taken, Vec<String>), ControlError> {
    let LeftSwap { areas: saved, shared, cache, mut channels, mut frees } = left;
    kill_point("begun");
    let mut told = Vec::new();
    let (watcher, watched) = Watcher::new(Duration::from_secs(shared.oom_after));
    let taking = unfinished::take_over(Taking::default(), true, |taking| {
        let (zswap, recovered, said) = open(machine, state, &saved, &cache, &taking.backings)?;
        taking.zswap = Some(zswap.clone());
        told.extend(said.into_iter().chain(say(&recovered)));
        kill_point("recovered");
        let headroom = Headroom::of_frames(shared.headroom);
        taking.helpers = Some(Helpers::start(&zswap, headroom, watcher)?);
        kill_point("provided");
        for saved in saved {
            let number = saved.number;
            let (log, backing) = taking.backings.get_mut().remove(&number).unzip();
            let log = log.flatten();
            let (cache, _) =
                taking.next.insert((Cache::recovered(zswap.clone(), number)?, backing));
            let channels = channels.remove(&number).unwrap_or_default();
            // Before anybody uses it again.
            let left = frees.remove(&number).unwrap_or_default();
            let hearing = Hearing::take_over(cache, saved.pages, left);
            let at = root.swap().join(name(number));
            let device = device_of(cache, &saved);
            kill_point("unserved");
            let kept = KeptArea { number, ublk: saved.ublk.map(|id| id.number) };
            let mut stays = stay.contains(&number).then_some(Pages::Gone);
            let serving = match stays {
                Some(_) => None,
                None => {
                    Serving::take_over(&at, device, saved.ublk, channels).unwrap_or_else(|error| {
                        told.push(format!("{} is not served: {}", name(number), error.message));
                        stays = Some(Pages::Awaited);
                        None
                    })
                }
            };
            // What the kernel swaps to is not gone, whatever it seems.
            if serving.is_none() && stays.is_none() && used_areas(&[kept], root).contains(&number) {
                told.push(format!("{} is not served, and the kernel swaps to it", name(number)));
                stays = Some(Pages::Gone);
            }
            kill_point("served");
            if let Some((cache, backing)) = taking.next.take() {
                taking.areas.push(TakenArea {
                    saved,
                    serving,
                    hearing,
                    stays,
                    cache,
                    log,
                    backing,
                });
            }
        }
        Ok::<(), ControlError>(())
    })?;
    let Taking { zswap: Some(zswap), helpers: Some(helpers), areas, .. } = taking else {
        return Err(ControlError::invalid("the swap cache was not recovered"));
    };
    Ok((Taken { zswap, helpers, watched, areas }, told))
}

/// A recovered cache, what was recovered, and what cannot be of logs.
type Opened = (Arc<Zswap>, Recovered, Vec<String>);

/// Recovers the cache, with what is below its areas, which comes into `opened`.
fn open(
    machine: &Arc<Machine>,
    state: &State,
    saved: &[SavedArea],
    cache: &zswap::SavedSwap,
    opened: &RefCell<OpenedBackings>,
) -> Result<Opened, ControlError> {
    let told = RefCell::new(Vec::new());
    let below = |swap: SwapType| -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
        let number = swap.number();
        let Some(area) = saved.iter().find(|area| area.number == number) else { return Ok(None) };
        let Some(saved) = &area.backing else { return Ok(None) };
        let backing = OpenedBacking::open_again(state, saved)?;
        // In its place before anything can fail: its drop may remove the file.
        let mut opened = opened.borrow_mut();
        let (log, backing) = opened.entry(number).insert_entry((None, backing)).into_mut();
        let layout = match saved.log_bytes {
            Some(_) => BackingLayout::Log,
            None => BackingLayout::Pages,
        };
        let (name, path) = (name(number), backing.path().display().to_string());
        let spec = backing.spec(area.pages, layout, saved.is_sealed);
        let (was_sealed, left) = (saved.is_sealed, saved.log_bytes);
        let spec = Spec { was_sealed, left, ..spec.kept(state.memory(), &name) };
        let store = Store::open(spec).map_err(|error| match error {
            NotOpened::NoKey => {
                let message = format!("the key of {path}, which is below {name}, was not kept");
                ControlError::new(Errno::ENOTSUP, message)
            }
            NotOpened::Error(error) => error,
        })?;
        *log = store.log;
        told.borrow_mut().extend(store.findings.lines(&path));
        Ok(Some(store.device))
    };
    let (zswap, recovered) = machine.recover_swap(state.memory(), cache, &below, &|_| ())?;
    Ok((zswap, recovered, told.into_inner()))
}

/// The device of an area. One whose area is lost fails.
fn device_of(cache: &Cache, saved: &SavedArea) -> Arc<dyn BlockDevice> {
    match cache.is_on() {
        true => cache.device(),
        false => Arc::new(Absent::new(saved.pages * PAGE_SIZE as u64)),
    }
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
        if let Some(why) = &area.absent_device {
            told.push(format!("{name} has no backing device for now: {why}"));
        }
    }
    told.extend(recovered.findings.lines("swap"));
    told
}
