//! The FUSE frontend of a daemon: the mount of the daemon before, or one of its own.

use std::sync::Arc;

use control::ControlError;
use fuse::{Mount, check_loops};
use host::{effective_user, in_user_namespace};

use super::remains::{Spared, clear_leftovers};
use crate::devices::Files;
use crate::engine::Machine;
use crate::failure::{frontend_error, served_without};
use crate::loops::Loops;
use crate::root::RootLock;
use crate::state::{Connection, State};
use crate::swap::served::say_lack;
use crate::takeover::{self, Left};
use crate::transport::Transport;
use crate::unfinished;

/// Opens the FUSE frontend, with the mount `left` by the daemon before if there is one. Adds to
/// `notes` what the user should know.
pub(super) fn open(
    claim: &RootLock,
    machine: &Machine,
    (left, kept): (Option<Left>, Spared<'_>),
    transport: Transport,
    state: Option<&State>,
    notes: &mut Vec<String>,
) -> Result<Option<Files>, ControlError> {
    let mut taken = None;
    match left.map(|left| takeover::mount(left, claim.root(), machine)) {
        Some(Ok(mount)) => taken = Some(mount),
        // Its users wait for the next process, which tries again.
        Some(Err(error)) if error.is_passing() => return Err(frontend_error(&error)),
        Some(Err(error)) => {
            notes.push(format!(
                "the users of block devices and files of the daemon before get errors: {}",
                frontend_error(&error).message
            ));
            if let Some(state) = state {
                state.give_up(Connection::Files);
            }
            let held = state.map(State::sockets).unwrap_or_default();
            let kept = Spared { sockets: &held, files: false, ..kept };
            notes.extend(clear_leftovers(claim, kept));
        }
        None => {}
    }
    let is_taken = taken.is_some();
    let made = || new_mount(claim, transport, state.is_some(), notes);
    let mount = match taken.map_or_else(made, |mount| Ok(Some(mount))) {
        // Nobody lost it, and others have users.
        Err(error) if state.is_some_and(State::is_inherited) => {
            notes.push(served_without(&error));
            None
        }
        mount => mount?,
    };
    let Some(mount) = mount else { return Ok(None) };
    let mut loops = has_loops(notes).then(|| Arc::new(Loops::here()));
    let mut keep = |state: &State| -> Result<(), ControlError> {
        if !is_taken {
            notes.extend(takeover::keep_mount(state, &mount)?);
        }
        if loops.is_some() && mount.channel().is_some() {
            let (helpers, note) = takeover::loops(state)?;
            loops = Some(Arc::new(helpers));
            notes.extend(note);
        }
        Ok(())
    };
    if let Err(error) = state.map_or(Ok(()), &mut keep) {
        if is_taken {
            // Its drop would take it away from its users.
            unfinished::leave(mount);
        }
        return Err(error);
    }
    Ok(Some(Files { mount, loops, made: claim.made().clone() }))
}

/// Makes the mount, if `transport`, this machine and this user allow one.
fn new_mount(
    claim: &RootLock,
    transport: Transport,
    lasts: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Mount>, ControlError> {
    match transport {
        Transport::Nbd | Transport::Ublk => return Ok(None),
        // Without root a user could have a file, but no block device.
        Transport::Auto if effective_user() != 0 => {
            notes.push("no block device, NBD only: that needs root".into());
            return Ok(None);
        }
        _ => {}
    }
    let (at, made) = (claim.root().files(), claim.made());
    made.directory(&at)?;
    let ring = transport != Transport::FuseClassic && !lasts;
    let mount = Mount::new(&at, fuse::Options { ring, ..takeover::options(lasts) });
    if let Ok(mount) = &mount {
        say_lack(transport == Transport::FuseRing, lasts, &at, mount.lacks_ring());
    }
    mount.map(Some).or_else(|error| {
        made.remove(&at);
        if transport != Transport::Auto {
            return Err(frontend_error(&error));
        }
        notes.push(format!("no block device, NBD only: {error}"));
        Ok(None)
    })
}

/// Can this process make loop devices?
fn has_loops(notes: &mut Vec<String>) -> bool {
    let is_root = effective_user() == 0;
    match check_loops() {
        Ok(()) if is_root && in_user_namespace() => {
            notes.push("no block device, only a file: a user namespace cannot mount one".into());
            false
        }
        Ok(()) => is_root,
        Err(error) => {
            if is_root {
                notes.push(format!("no block device, only a file: {error}"));
            }
            false
        }
    }
}
