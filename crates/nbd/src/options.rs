//! The options of a server.

use std::time::Duration;

use units::Cpu;

use crate::tls::Tls;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CPU of the calling thread, asked once per batch of requests.
    pub cpu: fn() -> Cpu,
    /// How long a thread polls for the next request before it sleeps. It polls only on a connection
    /// where polling found requests; zero turns it off.
    pub spin: Duration,
    /// The most connections at once. When one more comes, the server cuts off the oldest one that
    /// has not chosen an export; if there is none, it closes the new one.
    pub max_connections: usize,
    /// So many of these connections, but at most half of them, are not for clients over TCP.
    pub reserved: usize,
    /// How long a client may take to choose an export, also if it takes no replies. After that its
    /// socket is closed.
    pub handshake: Duration,
    /// Bytes of memory for long requests, for all connections together; the longest request has
    /// room in any case. Each connection has half a MiB of its own besides. A request for which
    /// there is no memory waits.
    pub memory: usize,
    /// While requests wait for memory, a client that stalls for so long in the middle of a long
    /// request, or takes no part of a long reply for so long, is cut off.
    pub stall: Duration,
    /// Certificates for clients over TCP, which then have to use TLS; None for no TLS. Other
    /// clients never use it.
    pub tls: Option<Tls>,
    /// The most threads for requests that would wait, for all connections together. With 0 such a
    /// request waits on the thread of its connection.
    pub waiters: usize,
    /// How long [`Server::join`](crate::Server::join) waits for clients to take their last replies,
    /// and then once more for devices to carry out their last requests.
    pub grace: Duration,
}

impl Default for Options {
    /// CPU 0 for every thread, 50 microseconds of polling, 256 connections of which 16 are not for
    /// TCP, half a minute for the handshake, 256 MiB for long requests, ten seconds to stall, no
    /// TLS, 16 waiter threads, five seconds of grace.
    fn default() -> Options {
        Options {
            cpu: || Cpu(0),
            spin: Duration::from_micros(50),
            max_connections: 256,
            reserved: 16,
            handshake: Duration::from_secs(30),
            memory: 256 << 20,
            stall: Duration::from_secs(10),
            tls: None,
            waiters: 16,
            grace: Duration::from_secs(5),
        }
    }
}
