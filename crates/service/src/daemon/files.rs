//! The FUSE frontend of a daemon: the mount of the daemon before, or one of its own.

use std::sync::Arc;

use rampack::control::ControlError;
use rampack::fuse::{Mount, check_loops};
use rampack::host::{effective_user, in_user_namespace};

use super::remains::{Spared, clear_leftovers};
use crate::devices::Files;
use crate::failure::frontend_error;
use crate::loops::Loops;
use crate::machine::Machine;
use crate::root::{Made, Root, RootLock};
use crate::state::State;
use crate::takeover::{self, Left};
use crate::transport::Transport;

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
    let (root, made) = (claim.root().clone(), claim.made().clone());
    let taken = left.map(|left| takeover::mount(left, &root, machine));
    let is_taken = matches!(taken, Some(Ok(_)));
    let files = match taken {
        Some(Ok(mount)) => {
            let loops = has_loops(notes).then(|| Arc::new(Loops::here()));
            Some(Files { mount, loops, made })
        }
        Some(Err(error)) => {
            notes.push(format!(
                "the users of block devices and files of the daemon before get errors: {}",
                error.message
            ));
            if let Some(state) = state {
                state.give_up_mount();
            }
            let held = state.map(State::sockets).unwrap_or_default();
            let kept = Spared { sockets: &held, files: false, ..kept };
            notes.extend(clear_leftovers(claim, kept));
            open_files(&root, &made, transport, state.is_some(), notes)?
        }
        None => open_files(&root, &made, transport, state.is_some(), notes)?,
    };
    let Some(state) = state else { return Ok(files) };
    let Some(mut files) = files else { return Ok(None) };
    if !is_taken {
        notes.extend(takeover::keep_mount(state, &files.mount)?);
    }
    if files.loops.is_some() && files.mount.channel().is_some() {
        let (loops, note) = takeover::loops(state)?;
        files.loops = Some(Arc::new(loops));
        notes.extend(note);
    }
    Ok(Some(files))
}

/// Opens the FUSE frontend as far as `transport`, this machine and this user allow.
fn open_files(
    root: &Root,
    made: &Arc<Made>,
    transport: Transport,
    lasts: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Files>, ControlError> {
    match transport {
        Transport::Nbd | Transport::Ublk => return Ok(None),
        // Without root a user could have a file, but no block device.
        Transport::Auto if effective_user() != 0 => {
            notes.push("no block device, NBD only: that needs root".into());
            return Ok(None);
        }
        Transport::Auto | Transport::Fuse => {}
    }
    made.directory(&root.files())?;
    let mount = match Mount::new(&root.files(), takeover::options(lasts)) {
        Ok(mount) => mount,
        Err(error) if transport == Transport::Auto => {
            made.remove(&root.files());
            notes.push(format!("no block device, NBD only: {error}"));
            return Ok(None);
        }
        Err(error) => {
            made.remove(&root.files());
            return Err(frontend_error(&error));
        }
    };
    let loops = has_loops(notes).then(|| Arc::new(Loops::here()));
    Ok(Some(Files { mount, loops, made: made.clone() }))
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
