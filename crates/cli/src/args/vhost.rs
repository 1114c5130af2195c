//! The options of vhost-user.

use clap::Args;
use control::{ControlError, Errno};

use super::values::user;

/// How virtual machines are served.
#[derive(Args, Clone, Default, Debug)]
pub struct VhostOptions {
    /// Serve each device to a virtual machine as well, by vhost-user-blk on the socket NAME.vhost
    /// in the root directory. Only the daemon's own user and root can connect, one at a time. Only
    /// in a program that was built with `--features vhost`
    #[arg(long)]
    pub vhost_user: bool,

    /// Give the sockets of --vhost-user to this user (a number): only this user and root can
    /// connect then.
    #[arg(long, value_name = "UID", requires = "vhost_user", value_parser = user)]
    pub vhost_user_owner: Option<u32>,
}

impl VhostOptions {
    /// How the daemon serves virtual machines with them, if it does.
    #[must_use]
    pub fn options(&self) -> Option<service::transport::VhostOptions> {
        let options = service::transport::VhostOptions { owner: self.vhost_user_owner };
        self.vhost_user.then_some(options)
    }

    /// Checks that this program and this user can do it.
    ///
    /// # Errors
    /// `ENOTSUP` in a program without vhost-user, `EPERM` for the socket of another user.
    pub fn check(&self) -> Result<(), ControlError> {
        if self.vhost_user && !cfg!(feature = "vhost") {
            let message = "--vhost-user: this program was built without vhost-user; build it with \
                           `--features vhost`";
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        let own = host::effective_user();
        match self.vhost_user_owner {
            Some(owner) if own != 0 && owner != own => {
                let message = format!(
                    "--vhost-user-owner {owner}: only root gives a socket away; user {own} can \
                     only have its own"
                );
                Err(ControlError::new(Errno::EPERM, message))
            }
            _ => Ok(()),
        }
    }
}
