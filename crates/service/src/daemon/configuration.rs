//! What a daemon follows of a configuration in files.

use rampack::sync::Mutex;

use crate::plan::Asked;
use crate::transport::Transport;

/// The option that says which part of a configuration the daemon serves.
pub const PART: &str = "serve/config";
/// The value of [`PART`] of a daemon of disks.
pub const DISKS: &str = "disks";
/// The value of [`PART`] of a daemon of swap devices.
pub const SWAPS: &str = "swaps";
/// What options are of that say how devices are served.
pub(super) const SERVE: &str = "serve";

/// What the daemon follows.
pub(super) struct Configuration {
    pub(super) transport: Transport,
    pub(super) asked: Mutex<Asked>,
}

impl Configuration {
    pub(super) fn new(transport: Transport, asked: Asked) -> Configuration {
        Configuration { transport, asked: Mutex::new(asked) }
    }
}
