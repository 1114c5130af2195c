//! The start of a daemon, by the plan for what the daemon before left.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use control::{ControlError, Errno};
use rustix::fs::Mode;
use sync::Mutex;

use super::remains::{Spared, clear_leftovers};
use super::{Daemon, DaemonOptions, FileSystems};
use crate::devices::Devices;
use crate::engine::{self, Machine};
use crate::events::Event;
use crate::failure::{failed, sentence};
use crate::observed::observe;
use crate::plan::{Configured, Plan, plan};
use crate::root::{Root, RootLock};
use crate::state::{Connection, State};
use crate::swap::recovery::{self, Taken};
use crate::swap::{self, Swaps, protections};
use crate::unfinished;

/// What a start has made so far.
#[derive(Default)]
struct Parts {
    machine: Option<Arc<Machine>>,
    taken: Option<Taken>,
    claim: Option<RootLock>,
    daemon: Option<Daemon>,
}

impl Daemon {
    /// Starts a daemon without devices, after clearing what a killed one left in its root; or with
    /// the devices of the daemon before, by the [`plan`] for them.
    ///
    /// # Errors
    /// The error of the step that failed. Everything made before it is removed again.
    ///
    /// Where it has devices of a daemon before, nothing is removed: that daemon's successor may be
    /// another one, and the users of the devices wait for it. The process must end then.
    pub fn start(options: DaemonOptions, events: Sender<Event>) -> Result<Daemon, ControlError> {
        // From now on files and sockets are private, unless they get a mode on purpose.
        let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let inherited = options.state.as_ref().is_some_and(|state| state.is_inherited());
        let parts = unfinished::take_over(Parts::default(), inherited, |parts| {
            begin(parts, options, before, events)
        })?;
        parts.daemon.ok_or_else(|| ControlError::invalid("the daemon has not begun"))
    }
}

/// The plan for what the daemon before left, and the root where it is carried out.
///
/// # Errors
/// As [`Root::choose`].
pub fn planned(options: &DaemonOptions) -> Result<(Root, Plan), ControlError> {
    let DaemonOptions { root, transport, nbd, asked, state, .. } = options;
    let kept = state.as_deref().map(State::kept).unwrap_or_default();
    let before = match &kept.root {
        Some(path) => Root::choose(Some(path))?,
        None => root.clone(),
    };
    let (transport, nbd, asked) = (*transport, nbd.clone(), asked.clone());
    let configured = Configured { root: root.path().into(), transport, nbd, asked };
    // Without a daemon before nothing can be in use.
    let before_this = state.as_ref().filter(|state| state.is_inherited());
    let observed = before_this.map(|_| observe(&kept, &before)).transpose()?;
    let by = plan(&kept, &configured, &observed.unwrap_or_default());
    let root = if by.root == root.path() { root.clone() } else { before };
    Ok((root, by))
}

fn begin(
    parts: &mut Parts,
    options: DaemonOptions,
    umask: Mode,
    events: Sender<Event>,
) -> Result<(), ControlError> {
    let (root, by) = planned(&options)?;
    let DaemonOptions { transport, vhost, state, sockets, .. } = options;
    let mut told: Vec<String> = by.said.iter().cloned().chain(by.stays()).collect();
    let mut refused = Vec::new();
    // Whatever is read or said before they are served may wait for them.
    let swap = state.as_deref().map(State::take_swap).transpose();
    let swap = swap.map_err(|error| failed("cannot take over swap devices", &error))?.flatten();
    if let (Some(state), Some(swap)) = (&state, swap) {
        protections::be_ready();
        let (machine, disks) = engine::lasting(state, false)?;
        parts.machine = Some(machine.clone());
        match recovery::take_over((&machine, &root, state), swap, &by.left) {
            Ok((taken, said)) => {
                parts.taken = Some(taken);
                told.extend(said);
            }
            Err(error) if disks_go_on(&machine, &error) => {
                refused = state.kept().areas;
                told.push(format!("the swap devices are not served: {}", sentence(&error)));
            }
            Err(error) => return Err(error),
        }
        told.extend(disks);
    }
    if let Some(state) = &state {
        give_up_sockets(state, &by);
        state.set_asked(by.asked.clone());
    }
    let held = state.as_ref().map(|state| state.sockets()).unwrap_or_default();
    let claim = root.claim_with(&held)?;
    let left = match (&state, by.files) {
        (Some(state), true) => state.take_mount(),
        (Some(state), _) => {
            state.give_up(Connection::Files);
            None
        }
        (None, _) => None,
    };
    let mut ublks = match state.as_deref() {
        Some(state) if by.by_driver => state.ublks(),
        _ => Vec::new(),
    };
    let of_refused = || {
        let files = refused.iter().filter(|it| it.ublk.is_none()).map(|it| it.number);
        (files.collect(), refused.iter().filter_map(|it| it.ublk).collect())
    };
    let (swap_files, swap_ublks) = parts.taken.as_ref().map_or_else(of_refused, Taken::devices);
    ublks.extend(swap_ublks);
    let spared =
        Spared { sockets: &held, files: left.is_some(), swaps: &swap_files, ublks: &ublks };
    // Swap devices that were taken over need them as they are.
    if parts.taken.is_none() {
        swap::end_left();
    }
    let mut notes = clear_leftovers(&claim, spared);
    parts.claim = Some(claim);
    notes.extend(told);
    let machine = match (&state, parts.machine.take()) {
        (None, _) => engine::new()?,
        (_, Some(machine)) => machine,
        (Some(state), None) => {
            let (machine, told) = engine::lasting(state, true)?;
            notes.extend(told);
            machine.forget_swap(state.memory());
            machine
        }
    };
    let nbd_options = (!transport.is_fuse()).then(|| by.serves.clone());
    let devices = Arc::new(Devices::new(root, machine.clone(), state));
    devices.set_asked(by.asked.clone());
    let Some(claim) = parts.claim.take() else { return Ok(()) };
    // From here on a drop of the daemon removes what was made.
    let daemon = parts.daemon.insert(Daemon {
        swaps: Arc::new(Swaps::new(devices.clone())),
        file_systems: Arc::new(FileSystems::new(devices.clone(), umask)),
        devices,
        machine,
        commands: None,
        control: None,
        nbd: Mutex::new(None),
        nbd_options,
        vhost,
        sockets,
        tree: Mutex::new(None),
        notes,
        claim,
    });
    daemon.swaps.leave(refused);
    daemon.open((&by, spared), (left, &mut parts.taken), transport, events)
}

/// Is it the cache of the swap devices that is refused, before anything of it is served, while
/// others wait for disks? What is left of it stays, for a program that can read it. What else fails
/// may go well later, so the next daemon tries again.
fn disks_go_on(machine: &Machine, error: &ControlError) -> bool {
    // Damage or another layout, a codec or a key that is missing, an unknown setting.
    let is_final = [Errno::EINVAL, Errno::ENOTSUP, Errno::ENOENT].contains(&error.errno);
    is_final && machine.swap_if_made().is_none() && !machine.saved().is_empty()
}

/// Gives up the sockets that do not go on: nobody listens at them from now on.
fn give_up_sockets(state: &State, by: &Plan) {
    let sockets = [
        (by.control, Connection::Control),
        (by.nbd, Connection::Nbd),
        (by.nbd_tcp, Connection::NbdTcp),
    ];
    for (goes_on, connection) in sockets {
        if !goes_on && state.kept_before(connection) {
            state.give_up(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::protocol::Add;

    #[test]
    fn disks_go_on_without_what_no_later_daemon_could_read() {
        let root = Root::choose(Some(Path::new("/nonexistent/rampack"))).unwrap();
        let machine = engine::new().unwrap();
        let go_on = |errno| disks_go_on(&machine, &ControlError::new(errno, "refused"));
        assert!(!go_on(Errno::EINVAL), "there is no disk");
        Devices::new(root, machine.clone(), None).add(&Add::default()).unwrap();
        for errno in [Errno::EINVAL, Errno::ENOTSUP, Errno::ENOENT] {
            assert!(go_on(errno), "{errno:?}");
        }
        for passing in [Errno::ENOMEM, Errno::EBUSY, Errno(host::errno::EMFILE), Errno::EIO] {
            assert!(!go_on(passing), "{passing:?}");
        }
    }
}
