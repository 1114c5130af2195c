//! The options of NBD.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::values::{tcp_address, user};

/// How NBD is served.
#[derive(Args, Clone, Default, Debug)]
pub struct NbdOptions {
    /// Serve NBD on TCP as well. NBD has no password: anyone who reaches the address can read and
    /// write the devices. A port alone is on the loopback address. Another address needs
    /// --tls-verify-peer or --insecure.
    #[arg(long, value_name = "[HOST:]PORT", value_parser = tcp_address)]
    pub nbd_tcp: Option<SocketAddr>,

    /// Allow --nbd-tcp addresses that other machines reach, without client certificates.
    #[arg(long, requires = "nbd_tcp")]
    pub insecure: bool,

    /// Serve NBD on TCP with TLS only, with server-cert.pem and server-key.pem in this directory.
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,

    /// Serve only clients that have a certificate of the authority in ca-cert.pem in that
    /// directory.
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,

    /// Serve NBD read-only.
    #[arg(long)]
    pub nbd_read_only: bool,

    /// Let this user (a number) connect to the NBD socket of the root directory. May be repeated.
    /// Only the daemon's own user and root can connect otherwise.
    #[arg(long, value_name = "UID", value_parser = user)]
    pub nbd_allow_uid: Vec<u32>,
}

impl NbdOptions {
    /// The option that says more about NBD than its default, if there is one.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        if self.nbd_tcp.is_some() {
            Some("--nbd-tcp")
        } else if self.tls_certificates.is_some() {
            Some("--tls-certificates")
        } else if self.nbd_read_only {
            Some("--nbd-read-only")
        } else if !self.nbd_allow_uid.is_empty() {
            Some("--nbd-allow-uid")
        } else {
            None
        }
    }

    /// How the daemon serves NBD with them.
    #[must_use]
    pub fn options(&self) -> service::transport::NbdOptions {
        service::transport::NbdOptions {
            tcp: self.nbd_tcp,
            tls_certificates: self.tls_certificates.clone(),
            tls_verify_peer: self.tls_verify_peer,
            read_only: self.nbd_read_only,
            allow_uid: self.nbd_allow_uid.clone(),
        }
    }

    /// Checks that an address which other machines may reach is meant.
    ///
    /// # Errors
    /// A message with the ways out.
    pub fn check_address(&self) -> Result<(), String> {
        match self.nbd_tcp {
            Some(address)
                if !address.ip().to_canonical().is_loopback()
                    && !self.insecure
                    && !self.tls_verify_peer =>
            {
                Err(format!(
                    "--nbd-tcp {address}: NBD has no password, so anyone who reaches this address \
                     could read and change the devices; give the port alone, for the loopback \
                     address, or serve only clients with certificates (--tls-certificates DIR \
                     --tls-verify-peer), or add --insecure"
                ))
            }
            _ => Ok(()),
        }
    }
}
