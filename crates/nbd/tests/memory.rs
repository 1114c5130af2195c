//! The memory that clients make a server take.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::*;
use nbd::{Listener, One, Options, Server};

#[global_allocator]
static HEAP: host::Heap = host::Heap;

const MIB: usize = 1 << 20;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tests of this program run one after another: the memory is that of the process. As in the
/// daemon, what one frees is not kept: a buffer of a later test would have all its pages at once.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    host::return_freed_memory();
    turn
}

/// For tests whose clients take no replies: their end takes this time.
const GRACE: Duration = Duration::from_secs(2);

fn server(options: Options) -> Arc<Server> {
    let exports = Arc::new(One::new("disk", "", plain(32 * MIB)));
    Arc::new(common::new_server(exports, options).unwrap())
}

fn connect(server: &Arc<Server>) -> Client {
    connect_in(server, Style::Simple)
}

fn connect_in(server: &Arc<Server>, style: Style) -> Client {
    let mut client = Client::of(server.clone());
    client.greet(3);
    client.begin(style);
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
    // The end of 255 connections takes a busy machine a while.
    let server = server(Options { grace: Duration::from_secs(60), ..Options::default() });
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
fn long_requests_need_no_memory_of_others() {
    let _turn = alone();
    // There is nothing to share: they are carried out in pieces.
    let server = server(Options { memory: 0, ..Options::default() });
    let before = host::resident_bytes();
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
    drop(clients);
    let mut other = connect(&server);
    assert!(other.read(0, 32 * MIB as u32).unwrap() == data);
    let taken = host::resident_bytes().saturating_sub(before);
    assert!(taken < 128 * MIB as u64, "{taken} bytes, and only this test has 64 MiB of it");
    server.shutdown();
    assert!(server.join());
}

#[test]
fn who_pauses_gives_back_what_it_had() {
    let _turn = alone();
    // There is room for one of the longest requests, and for a whole reply of no other.
    let server = server(Options { memory: 33 * MIB, grace: GRACE, ..Options::default() });
    let mut first = connect_in(&server, Style::Structured);
    let whole = |client: &mut Client| {
        client.request(DF, READ, 1, 0, 32 * MIB as u32);
        client.chunk().kind == 1
    };
    assert!(whole(&mut first));
    let mut second = connect_in(&server, Style::Structured);
    let end = Instant::now() + PATIENCE;
    while !whole(&mut second) {
        assert!(Instant::now() < end, "the other one has it for ever");
    }
    server.shutdown();
    assert!(server.join());
}

/// Sends `count` clients over TCP that ask for the longest replies and take nothing.
fn deaf_clients(server: &Server, count: usize) -> Vec<TcpStream> {
    let listener = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    server.listen(listener).unwrap();
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&hello(Style::Simple)).unwrap();
        // The greeting, and the replies to GO.
        stream.read_exact(&mut [0; 18 + 20 + 12 + 20]).unwrap();
        stream.write_all(&request_bytes(0, READ, 1, 0, 32 * MIB as u32)).unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn who_reads_nothing_holds_up_nobody() {
    let _turn = alone();
    let server = server(Options { grace: GRACE, ..Options::default() });
    let mut other = connect(&server);
    assert_eq!(other.write(0, 0, &vec![9; 32 * MIB]), 0);
    // As many as one address may have.
    let mut deaf = deaf_clients(&server, 120);
    // The header of each reply: all of them are under way.
    for stream in &mut deaf {
        let mut header = [0; 16];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    }
    // Read while they hold all they can have: long requests of the same peer, and of others.
    assert!(other.read(0, 512 << 10).unwrap() == vec![9; 512 << 10]);
    assert!(other.read(0, 32 * MIB as u32).unwrap() == vec![9; 32 * MIB]);
    assert_eq!(other.write(0, 0, &vec![8; 32 * MIB]), 0);
    assert_eq!(server.connections(), 121, "nobody was cut off for it");
    // A reply that was under way meanwhile is whole: each of its bytes is of before or after.
    for number in [0, 60, 119] {
        let mut reply = vec![0; 32 * MIB];
        deaf[number].read_exact(&mut reply).unwrap();
        assert!(reply.iter().all(|byte| [8, 9].contains(byte)), "client {number}");
    }
    server.shutdown();
    assert!(server.join());
}

#[test]
fn who_stalls_in_a_request_holds_up_nobody() {
    let _turn = alone();
    let server = server(Options { memory: 33 * MIB, ..Options::default() });
    let mut stalled = connect(&server);
    stalled.request(0, WRITE, 1, 0, 32 * MIB as u32);
    stalled.send(&[7; 600 << 10]);
    until_taken(&stalled);
    let mut other = connect(&server);
    assert_eq!(other.write(0, 0, &vec![3; 32 * MIB]), 0);
    assert!(other.read(0, 2 * MIB as u32).unwrap() == vec![3; 2 * MIB]);
    // It is not cut off either.
    stalled.send(&vec![7; 32 * MIB - (600 << 10)]);
    assert_eq!(stalled.simple(1), 0);
    assert!(other.read(0, 32 * MIB as u32).unwrap() == vec![7; 32 * MIB]);
    server.shutdown();
    assert!(server.join());
}
