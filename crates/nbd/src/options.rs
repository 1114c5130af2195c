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
    /// The most connections at once. A sixteenth is not for clients over a network, half of that
    /// only for this process's user and root. Any other user or address has at most half of what
    /// the others leave. When one more comes, the server cuts off a connection that has not chosen
    /// an export, of the same client or of one with many; if there is none, it closes the new one.
    pub max_connections: usize,
    /// How long a client may take to choose an export, also if it takes no replies. After that its
    /// socket is closed.
    pub handshake: Duration,
    /// Bytes of memory for long requests, for all connections together, in shares like those of
    /// the connections. Each connection has a MiB of its own besides. A longer request for which
    /// there is no memory is carried out in pieces.
    pub memory: usize,
    /// Certificates for clients over TCP, which then have to use TLS; None for no TLS. Other
    /// clients never use it.
    pub tls: Option<Tls>,
    /// The most threads for requests that would wait, for all connections together, in shares like
    /// those of the connections. A request that finds none waits on the thread of its connection.
    pub waiters: usize,
    /// How long [`Server::join`](crate::Server::join) waits for clients to take their last replies,
    /// and then once more for devices to carry out their last requests.
    pub grace: Duration,
}

impl Default for Options {
    /// CPU 0 for every thread, 50 microseconds of polling, 256 connections, half a minute for the
    /// handshake, 256 MiB for long requests, no TLS, 40 waiter threads, five seconds of grace.
    fn default() -> Options {
        Options {
            cpu: || Cpu(0),
            spin: Duration::from_micros(50),
            max_connections: 256,
            handshake: Duration::from_secs(30),
            memory: 256 << 20,
            tls: None,
            waiters: 40,
            grace: Duration::from_secs(5),
        }
    }
}
