//! What a daemon takes over from the one before: the mount of the files, and sockets.
//!
//! # The order of things
//!
//! The kernel, a client or a program waits for the next daemon as long as somebody has the
//! descriptor that it waits at. So whatever others can use is with the service manager before they
//! can use it, and in the table ([`crate::state`]):
//!
//! 1. The mount is made. It has no files.
//! 2. A device is made, and its file gets a number.
//! 3. The service manager gets the memory of the device, and with the first device the mount, the
//!    sockets and the pipe of helpers.
//! 4. The table says: this device, this file, this number.
//! 5. A helper attaches a loop device to the file. The link appears. The client gets its answer.
//!
//! A device goes in the opposite order: link, loop device, file, device, table. So a death leaves:
//!
//! | after step | the next daemon |
//! |---|---|
//! | 1, 2 | clears the mount, which has no users |
//! | 3 | has the service manager give up what the table does not name |
//! | 4 | serves the file, waits for the helper, and attaches a loop device if that did not |
//! | 5 | serves the file, and finds the loop device |
//!
//! A daemon starts in this order: it locks the root; recovers the memory; takes over the mount,
//! from when on I/O goes on; waits for helpers of the daemon before; finds loop devices; serves the
//! sockets, in whose queues clients wait.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use block::{Absent, BlockDevice};
use control::ControlError;
use fuse::{KeptFile, Mount, NEXT, Options};
use machine::RefusedDisk;
use nbd::Listener;

use crate::engine::Machine;
use crate::latency::Timed;
use crate::loops::{HelpersEnd, Loops};
use crate::root::Root;
use crate::state::{Connection, State};
use crate::transport::NbdOptions;

/// The most threads that read requests of a mount that outlives the daemon. They share a queue, and
/// the memory of each is locked.
const WORKERS: usize = 4;

/// What the daemon before served: the descriptor of the mount, with its files and their numbers.
pub type Left = (std::os::fd::OwnedFd, Vec<(String, u64)>);

/// How the mount of the files is served.
#[must_use]
pub fn options(lasts: bool) -> Options {
    let options = Options { cpu: host::cpu, ..Options::default() };
    match lasts {
        true => {
            Options { clone_fd: false, workers: Some(host::online_cpus().min(WORKERS)), ..options }
        }
        false => options,
    }
}

/// Serves the mount of the daemon before. It stays after an error that is passing; after another
/// one all its requests fail, and it is gone.
///
/// # Errors
/// Those of [`Mount::take_over`].
pub fn mount(left: Left, root: &Root, machine: &Machine) -> Result<Mount, fuse::Error> {
    let (channel, numbers) = left;
    // An older program kept none.
    let next = numbers.iter().find(|(name, _)| name == NEXT).map_or(0, |(_, next)| *next);
    let (disks, refused) = (machine.disks(), machine.refused());
    let file = |(name, number): (String, u64)| {
        let device: Arc<dyn BlockDevice> = match disks.iter().find(|disk| disk.name() == name) {
            Some(disk) => Arc::new(Timed::new(&name, disk.clone())),
            // A program that can take it over serves its users again.
            None => {
                let is_it = |it: &&RefusedDisk| name == format!("zram{}", it.saved.id);
                Arc::new(Absent::new(refused.iter().find(is_it)?.saved.bytes))
            }
        };
        Some(KeptFile { name, number, device })
    };
    let files = (numbers.into_iter().filter_map(file).collect(), next);
    Mount::take_over(&root.files(), channel, files, options(true))
}

/// Lets `mount` outlive the daemon. Returns what the user should know.
///
/// # Errors
/// As [`State::keep`].
pub fn keep_mount(state: &State, mount: &Mount) -> Result<Option<String>, ControlError> {
    let Some(channel) = mount.channel() else {
        let note = "this kernel is older than Linux 6.9: if this daemon dies, users of its block \
                    devices and files get errors; what is stored stays, and is served anew";
        return Ok(Some(note.to_owned()));
    };
    state.keep(Connection::Files, channel).map(|()| None)
}

/// What makes loop devices on files that outlive the daemon. Helpers of the daemon before have
/// ended: they may have waited for the mount, which must be served by now. Returns what the user
/// should know, too.
///
/// # Errors
/// As [`State::keep`].
pub fn loops(state: &State) -> Result<(Loops, Option<String>), ControlError> {
    let ended = state.take(Connection::Helpers).map_or(Ok(()), HelpersEnd::wait);
    let (loops, end) = Loops::of_helpers()?;
    state.keep(Connection::Helpers, end.descriptor().as_fd())?;
    Ok((loops, ended.err().map(|error| error.message)))
}

/// The socket of commands of the daemon before, if it is still at `path`.
#[must_use]
pub fn control_socket(state: &State, path: &Path) -> Option<UnixListener> {
    let socket = UnixListener::from(state.take(Connection::Control)?);
    let address = socket.local_addr().ok()?;
    (address.as_pathname() == Some(path) && path.exists()).then_some(socket)
}

/// The Unix socket of NBD of the daemon before, if it is still at `path`.
#[must_use]
pub fn nbd_socket(state: &State, path: &Path, nbd: &NbdOptions) -> Option<Listener> {
    Listener::unix_kept(state.take(Connection::Nbd)?, path, &nbd.allow_uid).ok()
}

/// The TCP socket of NBD of the daemon before, which has the address that is asked for: the plan
/// gave up another one.
#[must_use]
pub fn nbd_tcp_socket(state: &State) -> Option<Listener> {
    state.take(Connection::NbdTcp).map(Listener::listening)
}
