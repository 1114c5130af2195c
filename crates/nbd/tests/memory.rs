//! The memory that clients make a server take.

mod common;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::*;
use nbd::{One, Options, Server};

#[global_allocator]
static HEAP: host::Heap = host::Heap;

const MIB: usize = 1 << 20;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tests of this program run one after another: the memory is that of the process.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server(options: Options) -> Arc<Server> {
    let exports = Arc::new(One::new("disk", "", plain(32 * MIB)));
    let options = Options { grace: Duration::from_millis(100), ..options };
    Arc::new(common::new_server(exports, options).unwrap())
}

fn connect(server: &Arc<Server>) -> Client {
    let mut client = Client::of(server.clone());
    client.greet(3);
    client.begin(Style::Simple);
    client
}

/// Waits until the server has taken everything that `client` sent.
fn until_taken(client: &Client) {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut unread = 0;
        // SAFETY: the call writes one integer, which lives until it returns.
        let done =
            unsafe { libc::ioctl(client.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
        assert_eq!(done, 0);
        if unread == 0 {
            return;
        }
        assert!(Instant::now() < end, "{unread} bytes are not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_announced_write_takes_no_memory() {
    let _turn = alone();
    let server = server(Options::default());
    let mut other = connect(&server);
    assert_eq!(other.write(0, 0, &[1; 4096]), 0);
    let before = host::resident_bytes();
    let mut first = connect(&server);
    first.request(0, WRITE, 1, 0, 32 * MIB as u32);
    // More than a socket holds and than the first buffer, so that the server has gone on from it.
    first.send(&[7; 600 << 10]);
    let taken = host::resident_bytes().saturating_sub(before);
    assert!(taken < 8 * MIB as u64, "{taken} bytes for a request that did not come");
    let mut clients = vec![first];
    while clients.len() < 255 {
        let mut client = connect(&server);
        client.request(0, WRITE, 1, 0, 32 * MIB as u32);
        clients.push(client);
    }
    clients[1..].iter().for_each(until_taken);
    assert_eq!(other.read(0, 4096).unwrap(), [1; 4096]);
    let taken = host::resident_bytes().saturating_sub(before);
    assert!(taken < 64 * MIB as u64, "{taken} bytes for requests that did not come");
    server.shutdown();
    assert!(server.join());
}

#[test]
fn long_requests_share_what_there_is() {
    let _turn = alone();
    // There is room for one of the longest requests.
    let server = server(Options { memory: 0, stall: PATIENCE, ..Options::default() });
    let data = vec![5; 32 * MIB];
    let mut clients: Vec<_> = (0..6).map(|_| connect(&server)).collect();
    std::thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            let data = &data;
            scope.spawn(move || match number % 2 {
                0 => assert_eq!(client.write(0, 0, data), 0),
                _ => assert_eq!(client.read(0, 32 * MIB as u32).unwrap().len(), 32 * MIB),
            });
        }
    });
    // They pause now: what they had is given back.
    let mut other = connect(&server);
    assert!(other.read(0, 32 * MIB as u32).unwrap() == data);
    server.shutdown();
    assert!(server.join());
}

#[test]
fn short_requests_go_on_while_long_ones_wait() {
    let _turn = alone();
    let server = server(Options { memory: 0, stall: PATIENCE, ..Options::default() });
    let (mut holder, mut long, mut short) = (connect(&server), connect(&server), connect(&server));
    holder.request(0, WRITE, 1, 0, 32 * MIB as u32);
    holder.send(&[7; 600 << 10]);
    long.request(0, READ, 2, 0, 2 * MIB as u32);
    until_taken(&long);
    for page in 0..16 {
        assert_eq!(short.write(0, page * PAGE, &[3; 4096]), 0);
        assert_eq!(short.read(page * PAGE, 4096).unwrap(), [3; 4096]);
    }
    // A client that waits may leave.
    let mut leaving = connect(&server);
    leaving.request(0, READ, 3, 0, 2 * MIB as u32);
    until_taken(&leaving);
    drop(leaving);
    let end = Instant::now() + PATIENCE;
    while server.connections() > 3 {
        assert!(Instant::now() < end, "it still has its place");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The holder goes on, and so does the one that waits for it.
    holder.send(&vec![7; 32 * MIB - (600 << 10)]);
    assert_eq!(holder.simple(1), 0);
    assert_eq!(long.simple(2), 0);
    assert_eq!(long.take(2 * MIB).len(), 2 * MIB);
    server.shutdown();
    assert!(server.join());
}

#[test]
fn who_stalls_while_others_wait_is_cut_off() {
    let _turn = alone();
    let stall = Duration::from_millis(100);
    let server = server(Options { memory: 0, stall, ..Options::default() });
    let mut announced = connect(&server);
    announced.request(0, WRITE, 1, 0, 32 * MIB as u32);
    announced.socket.write_all(&[7; 600 << 10]).unwrap();
    let mut other = connect(&server);
    assert_eq!(other.read(0, 2 * MIB as u32).unwrap().len(), 2 * MIB);
    announced.expect_end();
    // The same where the client does not take its reply.
    let mut deaf = connect(&server);
    deaf.request(0, READ, 1, 0, 32 * MIB as u32);
    until_taken(&deaf);
    assert_eq!(other.read(0, 2 * MIB as u32).unwrap().len(), 2 * MIB);
    server.shutdown();
    assert!(server.join());
}
