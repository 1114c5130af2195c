//! How a server behaves.

use std::time::Duration;

use units::Cpu;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CPU of the calling thread, asked once per batch of requests.
    pub cpu: fn() -> Cpu,
    /// How long a thread looks for the next request before it sleeps, where that has proved
    /// worth while; zero for never.
    pub spin: Duration,
    /// Connections served at once; further ones are closed as they are made.
    pub max_connections: usize,
    /// How long a client may take to choose an export; a socket that takes longer is closed.
    pub handshake: Duration,
    /// Threads at most for requests that would have to wait, of all connections together; 0 to have
    /// them wait on the thread of their connection.
    pub waiters: usize,
    /// How long [`Server::join`](crate::Server::join) waits for clients to take their last replies.
    pub grace: Duration,
}

impl Default for Options {
    /// CPU 0 for everyone, 50 microseconds of spinning, 256 connections, half a minute for the
    /// handshake, 16 threads that may wait, five seconds of grace.
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
