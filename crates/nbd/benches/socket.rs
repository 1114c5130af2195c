//! Measures the cost of the protocol and of two threads: 4 KiB requests, one after the other, over
//! a socket pair to a RAM disk that copies.
//!
//! ```sh
//! cargo bench -p rampack-nbd --bench socket
//! ```

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use block::{Checked, Plain};
use divan::Bencher;
use divan::counter::BytesCount;
use nbd::{One, Options, Server, Stream};

const PAGE: usize = 4096;
const PAGES: u64 = 1024;

const READ: u16 = 0;
const WRITE: u16 = 1;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const EXPORT_NAME: u32 = 1;

fn main() {
    divan::main();
}

/// A connection whose handshake is over, and the server behind it.
struct Client {
    socket: UnixStream,
    server: Server,
}

impl Client {
    fn new() -> Client {
        let disk = Arc::new(Checked::new(Plain::new(PAGES as usize * PAGE)));
        let export = Arc::new(One::new("disk", "", disk));
        let server = Server::new(export, Options::default()).expect("threads");
        let (socket, theirs) = UnixStream::pair().expect("descriptors");
        let stream = Stream::new(theirs.into()).expect("descriptors");
        server.spawn(stream).expect("a thread");
        let mut client = Client { socket, server };
        client.choose("disk");
        client
    }

    /// Chooses an export with EXPORT_NAME: the server replies with its size and flags only.
    fn choose(&mut self, name: &str) {
        let greeting: [u8; 18] = self.receive();
        assert!(greeting.starts_with(b"NBDMAGICIHAVEOPT"));
        // Fixed newstyle, and no zeroes after the flags.
        let mut option = 3u32.to_be_bytes().to_vec();
        option.extend(b"IHAVEOPT");
        option.extend(EXPORT_NAME.to_be_bytes());
        option.extend((name.len() as u32).to_be_bytes());
        option.extend(name.as_bytes());
        self.send(&option);
        let chosen: [u8; 10] = self.receive();
        assert_eq!(chosen[..8], (PAGES * PAGE as u64).to_be_bytes());
    }

    fn request(&mut self, command: u16, page: u64, payload: &[u8]) {
        let mut request = [0; 28 + PAGE];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&command.to_be_bytes());
        request[16..24].copy_from_slice(&(page * PAGE as u64).to_be_bytes());
        request[24..28].copy_from_slice(&(PAGE as u32).to_be_bytes());
        request[28..][..payload.len()].copy_from_slice(payload);
        self.send(&request[..28 + payload.len()]);
        let reply: [u8; 16] = self.receive();
        assert_eq!(reply[..4], SIMPLE_REPLY.to_be_bytes());
        assert_eq!(reply[4..8], [0; 4], "an error");
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("it is connected");
    }

    fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).expect("it is connected");
        bytes
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.server.shutdown();
        self.server.join();
    }
}

#[divan::bench]
fn write(bencher: Bencher) {
    let (mut client, mut page) = (Client::new(), 0);
    bencher.counter(BytesCount::new(PAGE)).bench_local(|| {
        page = (page + 1) % PAGES;
        client.request(WRITE, page, &[7; PAGE]);
    });
}

#[divan::bench]
fn read(bencher: Bencher) {
    let (mut client, mut page) = (Client::new(), 0);
    (0..PAGES).for_each(|page| client.request(WRITE, page, &[7; PAGE]));
    bencher.counter(BytesCount::new(PAGE)).bench_local(|| {
        page = (page + 1) % PAGES;
        client.request(READ, page, &[]);
        let found: [u8; PAGE] = client.receive();
        assert_eq!(found[PAGE - 1], 7);
    });
}
