//! Requests that have to wait, and those that must not wait for them.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, Checked, Operation};
use common::*;
use nbd::{One, Options};
use testkit::Rng;
use units::Cpu;

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Allocation];

fn connected(device: &Arc<Gated>, style: Style) -> Client {
    Client::connected(Arc::new(Checked::new(device.clone())), style)
}

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with so many threads that may wait, and a client of it.
fn with_waiters(device: &Arc<Gated>, waiters: usize) -> Client {
    let grace = Duration::from_secs(1);
    with(device, Options { waiters, grace, ..Options::default() })
}

/// A server with these options, and a client of it.
fn with(device: &Arc<Gated>, options: Options) -> Client {
    let device: Arc<dyn BlockDevice> = Arc::new(Checked::new(device.clone()));
    let server = common::new_server(Arc::new(One::new("disk", "", device)), options).unwrap();
    let mut client = Client::of(Arc::new(server));
    client.greet(3);
    client.begin(Style::Simple);
    client
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < end, "{what}: not after a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn others_are_answered_meanwhile() {
    for style in STYLES {
        let device = Gated::new(16 * 4096, [3, 5]);
        let mut client = connected(&device, style);
        // What is known to be zeroes need not be read.
        let plain = Operation::Write { offset: 3 * PAGE, from: &[1; 4000] };
        device.plain().submit(Cpu(0), plain).unwrap();
        client.request(0, READ, 100, 3 * PAGE, 4000);
        // A part of a page that has to be fetched.
        client.request(FUA, WRITE, 101, 5 * PAGE + 100, 8);
        client.send(b"12345678");
        client.request(NO_HOLE, WRITE_ZEROES, 102, 3 * PAGE + 4000, 200);
        device.until_waiting(3);
        for round in 0..50u64 {
            assert_eq!(client.write(0, (round % 3) * PAGE, &[round as u8; 4096]), 0);
            let read = match style {
                Style::Simple => client.read((round % 3) * PAGE, 4096),
                _ => client.read_chunks(0, (round % 3) * PAGE, 4096),
            };
            assert_eq!(read.unwrap(), [round as u8; 4096]);
            assert_eq!(client.command(0, FLUSH, 0, 0), 0);
        }
        // Another client is not held up either.
        let mut other = Client::of(client.server.clone());
        other.greet(3);
        other.begin(Style::Simple);
        assert_eq!(other.write(0, 0, &[9; 4096]), 0);
        device.release(5);
        assert_eq!(client.simple(101), 0);
        device.release(3);
        let mut replies = vec![];
        for _ in 0..2 {
            let (cookie, error) = reply(&mut client, style, |cookie| cookie == 100);
            assert_eq!(error, if cookie == 100 { 0x100 } else { 0 });
            replies.push(cookie);
        }
        replies.sort_unstable();
        assert_eq!(replies, [100, 102]);
        let wrote = match style {
            Style::Simple => client.read(5 * PAGE + 98, 12),
            _ => client.read_chunks(DF, 5 * PAGE + 98, 12),
        };
        assert_eq!(wrote.unwrap(), b"\0\x0012345678\0\0");
    }
}

/// Takes the reply to one request, whichever comes: its cookie and its error. Pages that were read
/// must be filled with one byte, which becomes the error's higher part.
fn reply(client: &mut Client, style: Style, is_read: impl Fn(u64) -> bool) -> (u64, u32) {
    let mut magic = [0; 4];
    client.socket.read_exact(&mut magic).unwrap();
    if magic == [0x67, 0x44, 0x66, 0x98] {
        let rest = client.take(12);
        let (error, cookie) = (be32(&rest, 0), be64(&rest, 4));
        if error != 0 || !is_read(cookie) {
            return (cookie, error);
        }
        let page = client.take(if cookie == 100 { 4000 } else { 4096 });
        assert!(page.iter().all(|byte| *byte == page[0]), "a page is mixed");
        return (cookie, u32::from(page[0]) << 8);
    }
    assert_eq!(magic, [0x66, 0x8e, 0x33, 0xef]);
    assert_ne!(style, Style::Simple);
    let rest = client.take(16);
    let payload = client.take(be32(&rest, 12) as usize);
    let cookie = be64(&rest, 4);
    assert_eq!(rest[..2], [0, 1], "one chunk, for these pages are all data or none");
    match u16::from_be_bytes([rest[2], rest[3]]) {
        1 => {
            assert!(payload[8..].iter().all(|byte| *byte == payload[8]), "a page is mixed");
            (cookie, u32::from(payload[8]) << 8)
        }
        2 => (cookie, 0),
        kind => panic!("a chunk of kind {kind}"),
    }
}

/// Batches of requests on different pages, some of which are held: those on the others are all
/// answered, in order, and those that were held as they are let go, in any order.
#[test]
fn a_device_is_what_was_written_whoever_waits() {
    const PAGES: u64 = 40;
    let name = "a_device_is_what_was_written_whoever_waits";
    let mut random = Rng::new(testkit::seed(name));
    for style in STYLES {
        let device = Gated::new((PAGES * PAGE) as usize, []);
        let mut client = connected(&device, style);
        // What is known to be zeroes need not be read, and does not wait.
        let mut model = [1u8; PAGES as usize];
        assert_eq!(client.write(0, 0, &[1; (PAGES * PAGE) as usize]), 0);
        let mut cookie = 1000;
        for _ in 0..60 {
            let mut pages: Vec<u64> = (0..PAGES).collect();
            random.shuffle(&mut pages);
            pages.truncate(1 + random.below(30) as usize);
            // At most as many as there are threads, so that any of them can be let go first.
            let held: Vec<u64> =
                pages.iter().copied().filter(|_| random.one_in(3)).take(16).collect();
            held.iter().for_each(|page| device.hold(*page));
            let mut expected = BTreeMap::new();
            let mut order = vec![];
            let mut reads = vec![];
            for page in &pages {
                cookie += 1;
                let answer = if random.one_in(2) {
                    let fill = random.next_u64() as u8 | 1;
                    model[*page as usize] = fill;
                    client.request(0, WRITE, cookie, page * PAGE, 4096);
                    client.send(&[fill; 4096]);
                    0
                } else {
                    client.request(0, READ, cookie, page * PAGE, 4096);
                    reads.push(cookie);
                    u32::from(model[*page as usize]) << 8
                };
                if held.contains(page) {
                    expected.insert(*page, (cookie, answer));
                } else {
                    order.push((cookie, answer));
                }
            }
            let next = |client: &mut Client| reply(client, style, |c| reads.contains(&c));
            for answer in order {
                assert_eq!(next(&mut client), answer);
            }
            device.until_waiting(held.len());
            let mut held = held;
            random.shuffle(&mut held);
            for page in held {
                device.release(page);
                assert_eq!(next(&mut client), expected[&page]);
            }
        }
    }
}

#[test]
fn no_more_are_under_way_than_may_be() {
    let device = Gated::new(16 * 4096, [3]);
    let mut client = with_waiters(&device, 4);
    for cookie in 0..200 {
        client.request(0, READ, cookie, 3 * PAGE, 4096);
    }
    client.request(0, READ, 1000, 0, 1);
    device.until_waiting(4);
    assert_eq!(device.begun(), 4, "there are four threads");
    device.release_all();
    let mut seen = vec![];
    for _ in 0..201 {
        let bytes = client.take(16);
        let cookie = be64(&bytes, 8);
        client.take(if cookie == 1000 { 1 } else { 4096 });
        seen.push(cookie);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).chain([1000]).collect::<Vec<_>>());
    // More bytes than may be under way: one after another.
    device.hold(3);
    for cookie in 0..5 {
        client.request(0, WRITE, cookie, 0, 16 * 4096);
        client.send(&[cookie as u8; 16 * 4096]);
    }
    device.release_all();
    for _ in 0..5 {
        client.take(16);
    }
    client.server.shutdown();
    client.server.join();
}

#[test]
fn without_threads_that_wait_it_waits_itself() {
    let device = Gated::new(16 * 4096, [3]);
    let mut client = with_waiters(&device, 0);
    client.request(0, READ, 1, 3 * PAGE, 1);
    client.request(0, READ, 2, 0, 1);
    device.until_waiting(1);
    device.release_all();
    assert_eq!((client.simple(1), client.take(1)), (0, vec![0]));
    assert_eq!((client.simple(2), client.take(1)), (0, vec![0]));
    client.server.shutdown();
    client.server.join();
}

#[test]
fn clients_that_vanish_while_they_wait() {
    let device = Gated::new(16 * 4096, [3]);
    let mut client = with_waiters(&device, 2);
    let server = client.server.clone();
    for cookie in 0..30 {
        client.request(0, READ, cookie, 3 * PAGE, 4096);
    }
    device.until_waiting(2);
    client.socket.shutdown(Shutdown::Both).unwrap();
    drop(client);
    assert_eq!(server.connections(), 1, "its device is in use");
    device.release_all();
    eventually("the connection ends", || server.connections() == 0);
    server.shutdown();
    server.join();
    assert_eq!(Arc::strong_count(&device), 2, "only the export has it");
}

#[test]
fn who_leaves_in_order_gets_all_answers() {
    for half_closed in [false, true] {
        let device = Gated::new(16 * 4096, [3]);
        let mut client = connected(&device, Style::Simple);
        for cookie in 0..20 {
            client.request(0, READ, cookie, 3 * PAGE, 4096);
        }
        if half_closed {
            client.socket.shutdown(Shutdown::Write).unwrap();
        } else {
            client.request(0, DISC, 99, 0, 0);
        }
        device.until_waiting(16);
        device.release_all();
        let mut seen = vec![];
        for _ in 0..20 {
            seen.push(be64(&client.take(16), 8));
            client.take(4096);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
        client.expect_end();
    }
}

#[test]
fn a_server_that_is_shut_down_answers_who_waits() {
    let device = Gated::new(16 * 4096, [3]);
    // So much grace that a slow machine cuts nobody off.
    let mut client = with(&device, Options { grace: PATIENCE, ..Options::default() });
    let mut other = Client::of(client.server.clone());
    other.greet(3);
    other.begin(Style::Simple);
    client.request(0, READ, 1, 3 * PAGE, 4096);
    device.until_waiting(1);
    client.server.shutdown();
    other.expect_end();
    let server = client.server.clone();
    let joining = std::thread::spawn(move || server.join());
    device.release_all();
    assert_eq!(client.simple(1), 0);
    assert_eq!(client.take(4096), vec![0; 4096]);
    client.expect_end();
    joining.join().unwrap();
    assert_eq!(client.server.connections(), 0);
}

#[test]
fn clients_that_take_nothing_hold_up_nobody() {
    let device = Gated::new(256 * 4096, [3]);
    let mut first = with_waiters(&device, 1);
    let mut greedy = vec![];
    for _ in 0..3 {
        let mut client = Client::of(first.server.clone());
        client.greet(3);
        client.begin(Style::Simple);
        // More replies than the socket holds.
        for cookie in 0..20 {
            client.request(0, READ, cookie, 0, 256 * 4096);
        }
        greedy.push(client);
    }
    device.until_waiting(1);
    device.release_all();
    for client in &mut greedy {
        // Its first reply is on its way, and the rest has nowhere to go.
        client.take(1);
    }
    for cookie in 0..10 {
        device.hold(3);
        first.request(0, READ, cookie, 3 * PAGE, 1);
        device.until_waiting(1);
        device.release_all();
        assert_eq!(first.simple(cookie), 0);
        first.take(1);
    }
    // Nothing is lost, repeated or mixed up. Replies may come in any order.
    for (number, client) in greedy.iter_mut().enumerate().skip(1) {
        let mut cookies = vec![];
        for n in 0..20 {
            // One byte of the first reply was taken before.
            let start = usize::from(n == 0);
            let header = client.take(16 - start);
            assert_eq!(header[..4 - start], [0x67, 0x44, 0x66, 0x98][start..], "client {number}");
            assert_eq!(be32(&header, 4 - start), 0, "client {number}");
            cookies.push(be64(&header, 8 - start));
            client.take(256 * 4096);
        }
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..20), "client {number}");
    }
    first.server.shutdown();
    assert!(first.server.join());
    assert_eq!(first.server.connections(), 0);
}

#[test]
fn the_end_does_not_wait_for_a_device_that_hangs() {
    let device = Gated::new(16 * 4096, [3]);
    let mut client = with_waiters(&device, 2);
    client.request(0, READ, 1, 3 * PAGE, 4096);
    device.until_waiting(1);
    client.server.shutdown();
    assert!(!client.server.join(), "its request is not done");
    assert_eq!(client.server.connections(), 1, "it still has the device");
    device.release_all();
    eventually("the connection ends", || client.server.connections() == 0);
    assert!(client.server.join());
    assert_eq!(Arc::strong_count(&device), 2, "only the export has it");
}

#[test]
fn a_device_that_panics_while_it_waits_ends_the_connection_only() {
    let device = Gated::new(16 * 4096, [3]);
    let mut client = connected(&device, Style::Simple);
    client.request(0, READ, 1, 3 * PAGE, 1);
    client.request(0, READ, 2, 3 * PAGE, 1);
    device.until_waiting(2);
    let mut other = Client::of(client.server.clone());
    other.greet(3);
    other.begin(Style::Simple);
    device.panic();
    device.release_all();
    client.expect_end();
    assert_eq!(other.read(3 * PAGE, 1).unwrap(), [0]);
}

#[test]
fn the_size_is_that_of_the_moment() {
    for style in STYLES {
        let device = Gated::new(16 * 4096, []);
        device.resize(8 * PAGE);
        let mut client = connected(&device, style);
        let read = |client: &mut Client, page: u64| match style {
            Style::Simple => client.read(page * PAGE, 4096).map(drop),
            _ => client.read_chunks(0, page * PAGE, 4096).map(drop),
        };
        assert_eq!(read(&mut client, 8), Err(EINVAL));
        device.resize(12 * PAGE);
        assert_eq!(read(&mut client, 11), Ok(()));
        assert_eq!(client.write(0, 11 * PAGE, &[1; 4096]), 0);
        assert_eq!(read(&mut client, 12), Err(EINVAL));
        device.resize(4 * PAGE);
        assert_eq!(read(&mut client, 3), Ok(()));
        assert_eq!(read(&mut client, 4), Err(EINVAL));
        assert_eq!(client.write(0, 4 * PAGE, &[1; 4096]), ENOSPC);
        assert_eq!(client.command(0, TRIM, 3 * PAGE, 8192), EINVAL);
        // Who connects now is told.
        let mut other = Client::of(client.server.clone());
        other.greet(3);
        let told = other.ask(OPT_GO, &info_data("disk", &[]));
        assert_eq!(be64(&told.data, 2), 4 * PAGE);
        assert_eq!(other.reply().kind, ACK);
        assert!(other.read(3 * PAGE, 4096).is_ok());
    }
}
