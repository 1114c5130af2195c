//! Whose a connection is.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

/// Whose a connection is. All connections of a peer have one share of what the server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// This process's user, root, or who started this process with pipes.
    Own,
    /// Another user of this machine, at a unix socket.
    User(u32),
    /// Somebody at an address. A host has many addresses of IPv6, and many of its own: the first
    /// half of the one, and all of the others, count as one.
    Address(IpAddr),
}

impl Peer {
    /// Who is at the other end of a connected socket. Returns the socket, too.
    pub(crate) fn of(socket: OwnedFd) -> (Peer, OwnedFd) {
        if socket_domain(&socket).is_ok_and(|domain| domain != AddressFamily::UNIX) {
            let socket = TcpStream::from(socket);
            let address = socket.peer_addr().map(|address| address.ip());
            // Not of the internet, or gone: all of these are one.
            let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            return (Peer::at(address), socket.into());
        }
        let peer = match host::peer_of(&socket) {
            Ok(peer) if ![0, host::effective_user()].contains(&peer.user) => Peer::User(peer.user),
            _ => Peer::Own,
        };
        (peer, socket)
    }

    pub(crate) fn at(address: IpAddr) -> Peer {
        Peer::Address(match address.to_canonical() {
            own if own.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            address @ IpAddr::V4(_) => address,
        })
    }

    /// A peer takes nothing that is kept for peers of smaller ranks.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Peer::Own => 0,
            Peer::User(_) => 1,
            Peer::Address(_) => 2,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Own => f.write_str("the server's own user"),
            Peer::User(user) => write!(f, "user {user}"),
            Peer::Address(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_one_host_may_have_are_one() {
        let peer = |text: &str| Peer::at(text.parse().unwrap());
        for (one, other) in [
            ("127.0.0.1", "127.9.8.7"),
            ("127.0.0.1", "::1"),
            ("192.0.2.1", "::ffff:192.0.2.1"),
            ("2001:db8::1", "2001:db8::ffff:2"),
        ] {
            assert_eq!(peer(one), peer(other));
        }
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    }
}
