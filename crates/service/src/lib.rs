//! What a program needs that serves devices of rampack: it knows no command line and no terminal.
//!
//! A daemon ([`daemon`]) owns a machine with devices ([`devices`]) and serves them through
//! frontends: a FUSE file with a loop device on it, and NBD exports ([`exports`]). The kernel swaps
//! to its swap devices ([`swap`]): ublk devices, or FUSE files with loop devices. Everything the
//! daemon makes is under one [`root`]. Programs talk to it over a socket there ([`protocol`],
//! [`server`], [`client`]). The values they see come from the attribute rows of the device.
//!
//! Of the data path here are the layers between a frontend and a device: [`latency`], and that of
//! read-only [`exports`].
//!
//! # Layers
//!
//! A file imports only files of its own layer and of lower layers. No two files import each other,
//! directly or through others (`cargo xtask rules` checks it). From the bottom up:
//!
//! 1. [`outlet`], [`failure`], [`transport`]: the streams of the program, error messages, kinds of
//!    frontends.
//! 2. [`mounts`], [`filesystem`], [`guard`], [`root`]: what stands on a device or uses a place,
//!    file systems, and the state directory of a daemon.
//! 3. [`layouts`], [`state`], [`successor`]: what outlives the daemon, and who takes it over;
//!    [`loops`]: block devices on its files; [`engine`]: the machine; [`exports`], [`latency`],
//!    [`zone`]: views of it; [`rehearsal`]: whether another program could take over.
//! 4. [`swap::signals`], [`events`]: signals; [`swap::beneath`]: what devices stand on;
//!    [`swap::report`]: reports of swap devices.
//! 5. [`protocol`], [`pieces`], [`server`], [`client`]: the control socket.
//! 6. [`devices`]: devices behind frontends.
//! 7. [`swap`]: swap devices, except the files named in other layers.
//! 8. [`tree`]: the control tree; [`metrics`]: its numbers for programs that watch.
//! 9. `takeover`: what a daemon takes over from the one before; [`daemon`]: all of that in one
//!    root.
//! 10. [`notify`], [`restart`], [`panics`]: what a service manager and a user hear of a daemon;
//!     [`doctor`]: what the machine lacks for one.

pub mod client;
pub mod daemon;
pub mod devices;
pub mod doctor;
pub mod engine;
pub mod events;
pub mod exports;
pub mod failure;
pub mod filesystem;
pub mod guard;
pub mod latency;
pub mod layouts;
pub mod loops;
pub mod metrics;
pub mod mounts;
pub mod notify;
mod observed;
pub mod outlet;
pub mod panics;
pub mod pieces;
pub mod plan;
pub mod protocol;
pub mod rehearsal;
pub mod restart;
pub mod root;
pub mod server;
pub mod state;
pub mod successor;
pub mod swap;
mod takeover;
pub mod transport;
pub mod tree;
mod unfinished;
pub mod zone;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// Does the work of a helper, if this process was started as one: a daemon starts its own program
/// again to swap off ([`swap::off`]), to change loop devices ([`loops`]), and to unmount after a
/// kill ([`guard`]). The `main` of a program that serves devices calls this first, and returns what
/// it returned.
#[must_use]
pub fn helper() -> Option<ExitCode> {
    let mut words = env::args_os().skip(1);
    let (command, what) = (words.next()?, words.next()?);
    match command.to_str()? {
        swap::off::COMMAND => swap::off::help(Path::new(&what)),
        guard::COMMAND => guard::guard(what.to_str()?),
        loops::COMMAND => {
            if let Err(error) = loops::help(what.to_str()?) {
                failure::say(&format!("rampack: {}\n", failure::sentence(&error)));
                return Some(ExitCode::FAILURE);
            }
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}
