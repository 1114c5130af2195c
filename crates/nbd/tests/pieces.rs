//! Long requests without memory for them: they are carried out in pieces.

mod common;

use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, IoError, Operation};
use common::*;
use nbd::{One, Options};

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Allocation];
const MIB: u32 = 1 << 20;

/// A client of `device` whose server has no memory for long requests.
fn connected(device: Arc<dyn BlockDevice>, style: Style) -> Client {
    let exports = Arc::new(One::new("disk", "", device));
    let options = Options { memory: 0, ..Options::default() };
    let mut client = Client::of(Arc::new(common::new_server(exports, options).unwrap()));
    client.greet(3);
    client.begin(style);
    client
}

fn end(client: &Client) {
    client.server.shutdown();
    assert!(client.server.join());
}

/// A device of 3 MiB whose second MiB cannot be read or written.
fn broken() -> Arc<Odd> {
    let mut odd = Odd::new(3 << 20);
    odd.fail = |operation| {
        let (offset, length) = operation.range();
        let is_hit = offset < 2 << 20 && offset + length > 1 << 20;
        is_hit.then_some(match operation {
            Operation::Write { .. } => IoError::NoSpace,
            _ => IoError::Corrupt,
        })
    };
    Arc::new(odd)
}

#[test]
fn a_read_that_fails_says_where() {
    let device = broken();
    device
        .inner
        .submit(units::Cpu(0), Operation::Write { offset: 0, from: &[1; 2 << 20] })
        .unwrap();
    let mut client = connected(device, Style::Structured);
    client.request(0, READ, 5, 100, 2 * MIB);
    let mut at = 100;
    loop {
        let chunk = client.chunk();
        assert_eq!(chunk.cookie, 5);
        if chunk.kind != 1 {
            assert!(chunk.done);
            assert_eq!(chunk.error().0, EIO);
            assert_eq!(be64(&chunk.payload, chunk.payload.len() - 8), at);
            break;
        }
        assert!(!chunk.done);
        assert_eq!(be64(&chunk.payload, 0), at);
        at += chunk.payload.len() as u64 - 8;
    }
    assert!((512 << 10..=1 << 20).contains(&at), "{at}: what comes before is sent");
    // The connection goes on.
    assert_eq!(client.read_chunks(0, 2 << 20, MIB).unwrap().len(), 1 << 20);
    end(&client);
}

#[test]
fn a_simple_reply_that_fails_ends_the_connection() {
    let mut client = connected(broken(), Style::Simple);
    // Its first piece fails: that can still be said.
    assert_eq!(client.read(1 << 20, MIB), Err(EIO));
    client.request(0, READ, 5, 0, 2 * MIB);
    assert_eq!(client.simple(5), 0);
    client.take(512 << 10);
    let mut rest = vec![];
    let _ = std::io::Read::read_to_end(&mut client.socket, &mut rest);
    assert!(rest.len() < 1 << 20, "{}: more than is good", rest.len());
    end(&client);
}

#[test]
fn a_write_that_fails_is_refused_after_its_data() {
    for style in STYLES {
        let device = broken();
        let mut client = connected(device.clone(), style);
        assert_eq!(client.write(FUA, 0, &[1; 2 << 20]), ENOSPC);
        let log = device.taken_log();
        assert!(!log.contains(&"flush 0+0".to_string()), "{log:?}");
        // All of it is used: the next request is found.
        assert_eq!(client.write(FUA, 2 << 20, &[2; 1 << 20]), 0);
        let log = device.taken_log();
        assert_eq!(log.last().unwrap(), "flush 0+0", "{log:?}");
        assert!(log.len() > 2, "{log:?}: it was not written in pieces");
        // It fails at its last byte.
        assert_eq!(client.write(0, (1 << 20) - (512 << 10), &[3; (512 << 10) + 1]), ENOSPC);
        assert_eq!(client.command(0, FLUSH, 0, 0), 0);
        end(&client);
    }
}

#[test]
fn a_range_that_is_not_there_changes_nothing() {
    for style in STYLES {
        let device = Arc::new(Odd::new(3 << 20));
        let mut client = connected(device.clone(), style);
        assert_eq!(client.write(0, 2 << 20, &[1; (1 << 20) + 1]), ENOSPC);
        let read = match style {
            Style::Simple => client.read(2 << 20, MIB + 1),
            _ => client.read_chunks(0, 2 << 20, MIB + 1),
        };
        assert_eq!(read, Err(EINVAL));
        assert_eq!(device.taken_log(), [""; 0]);
        assert_eq!(client.write(0, (3 << 20) - 1, &[1]), 0);
        end(&client);
    }
}

#[test]
fn one_chunk_is_not_promised() {
    let mut client = connected(Arc::new(Odd::new(3 << 20)), Style::Structured);
    assert_eq!(client.read_chunks(DF, 0, MIB), Err(EOVERFLOW));
    assert_eq!(client.read_chunks(DF, 0, 256 << 10).unwrap(), [0; 256 << 10]);
    assert_eq!(client.read_chunks(0, 0, MIB).unwrap(), [0; 1 << 20]);
    end(&client);
}

#[test]
fn a_device_that_waits_holds_up_its_client_only() {
    let device = Gated::new(3 << 20, [300]);
    let mut client = connected(device.clone(), Style::Simple);
    client.request(0, WRITE, 1, 0, 2 * MIB);
    // The piece with that page and no more: the rest would not fit into the socket.
    client.send(&[6; (1 << 20) + (256 << 10)]);
    device.until_waiting(1);
    let mut other = Client::of(client.server.clone());
    other.greet(3);
    other.begin(Style::Simple);
    assert_eq!(other.read(0, MIB).unwrap(), [6; 1 << 20]);
    device.release(300);
    client.send(&[6; (1 << 20) - (256 << 10)]);
    assert_eq!(client.simple(1), 0);
    assert_eq!(other.read(0, 2 * MIB).unwrap(), [6; 2 << 20]);
    end(&client);
}

#[test]
fn no_other_reply_comes_between_the_pieces_of_a_simple_one() {
    let device = Gated::new(3 << 20, [700]);
    let six = Operation::Write { offset: 0, from: &[6; 2 << 20] };
    device.plain().submit(units::Cpu(0), six).unwrap();
    let mut client = connected(device.clone(), Style::Simple);
    client.request(0, READ, 1, 700 * PAGE, PAGE as u32);
    device.until_waiting(1);
    client.request(0, READ, 2, 0, 2 * MIB);
    // A server that sends the long reply in pieces now has begun by then.
    client.socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut header = [0; 16];
    let early = std::io::Read::read_exact(&mut client.socket, &mut header).is_ok();
    client.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    device.release(700);
    if !early {
        header.copy_from_slice(&client.take(16));
    }
    let mut cookies = vec![];
    loop {
        assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        let cookie = be64(&header, 8);
        let (length, value) = if cookie == 1 { (4096, 0) } else { (2 << 20, 6) };
        assert!(client.take(length).iter().all(|byte| *byte == value), "the data of {cookie}");
        cookies.push(cookie);
        if cookies.len() == 2 {
            break;
        }
        header.copy_from_slice(&client.take(16));
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    // The connection goes on.
    assert_eq!(client.read(0, MIB).unwrap(), [6; 1 << 20]);
    end(&client);
}

#[test]
fn who_leaves_in_a_piece_keeps_nothing() {
    let device = Gated::new(3 << 20, []);
    let mut client = connected(device.clone(), Style::Simple);
    client.request(0, WRITE, 1, 0, 2 * MIB);
    client.send(&[6; (1 << 20) + 5]);
    let server = client.server.clone();
    drop(client);
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&device), 2, "only the export has it");
    server.shutdown();
    assert!(server.join());
}
