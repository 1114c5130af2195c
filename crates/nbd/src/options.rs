//! The options of a server.

use std::time::Duration;

use units::Cpu;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CPU of the calling thread, asked once per batch of requests.
    pub cpu: fn() -> Cpu,
    /// How long a thread polls for the next request before it sleeps. It polls only on a connection
    /// where polling found requests; zero turns it off.
    pub spin: Duration,
    /// The most connections at once. The server closes a further one at once.
    pub max_connections: usize,
    /// How long a client may take to choose an export. After that its socket is closed.
    pub handshake: Duration,
    /// The most threads for requests that would wait, for all connections together. With 0 such a
    /// request waits on the thread of its connection.
    pub waiters: usize,
    /// How long [`Server::join`](crate::Server::join) waits for clients to take their last replies.
    pub grace: Duration,
}

impl Default for Options {
    /// CPU 0 for every thread, 50 microseconds of polling, 256 connections, half a minute for the
    /// handshake, 16 waiter threads, five seconds of grace.
    fn default() -> Options {
        Options {
            cpu: || Cpu(0),
            spin: Duration::from_micros(50),
            max_connections: 256,
            handshake: Duration::from_secs(30),
            waiters: 16,
            grace: Duration::from_secs(5),
        }
    }
}
