//! Requests that a server puts off: the device would have to wait for them, so other threads carry
//! them out, while the client goes on sending, sends in pieces, or leaves.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{panic, thread};

use block::{BlockDevice, Operation};
use nbd::{One, Options, Server, Stream};
use units::Cpu;

use crate::blocking::Blocking;
use crate::nbd_client::{Conversation, DEVICE_BYTES, Sent};

const CMD_WRITE: u16 = 1;
const CMD_TRIM: u16 = 4;
const CMD_WRITE_ZEROES: u16 = 6;

/// Longer than anything takes. A server that hangs is a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads of a server report panics to nobody but the hook.
static PANICS: Mutex<u64> = Mutex::new(0);
static COUNT_PANICS: Once = Once::new();

fn panics() -> u64 {
    COUNT_PANICS.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            *PANICS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            before(info);
        }));
    });
    *PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the client leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It says that it sends no more, and takes all replies.
    InOrder,
    /// It closes the connection, at any byte.
    Leaves,
}

/// A client of a device that would block at some of its pages.
///
/// The first byte chooses whether the client leaves early, the next two the pages, the fourth how
/// the bytes are cut into pieces; the rest are requests as of `nbd_requests`. A client that stays
/// gets one answer to each request, in any order. If no two requests change the same bytes, the
/// device has then what it would have if nothing had been put off. The server ends in any case,
/// and nobody keeps the device.
pub fn nbd_put_off(input: &[u8]) {
    let [how, low, high, pieces, rest @ ..] = input else { return };
    let conversation = Conversation::from_fuzz(rest);
    let pages = u64::from(u16::from_le_bytes([*low, *high]));
    let blocks = pages | pages << 16 | pages << 32 | pages << 48;
    let device = Arc::new(Blocking::new(DEVICE_BYTES, blocks));
    let end = if how & 1 == 0 { End::InOrder } else { End::Leaves };
    let before = panics();
    let output = talk(&device, &conversation.bytes, usize::from(*how), usize::from(*pieces), end);
    assert_eq!(panics(), before, "a thread of the server has panicked");
    // The thread of a connection holds it until it ends, a moment after the connection.
    let since = Instant::now();
    while Arc::strong_count(&device) > 1 {
        assert!(since.elapsed() < PATIENCE, "somebody keeps the device");
        thread::yield_now();
    }
    let Some(requests) = conversation.requests.as_ref().filter(|_| end == End::InOrder) else {
        return;
    };
    // A reply names its request by the cookie alone.
    let mut cookies: Vec<u64> = requests.iter().map(|sent| sent.cookie).collect();
    cookies.sort_unstable();
    if cookies.windows(2).any(|two| two[0] == two[1]) {
        return;
    }
    if let Err(fault) = conversation.check(&output) {
        panic!("{fault}; requests: {requests:?}");
    }
    if are_apart(requests) {
        let other = Arc::new(Blocking::new(DEVICE_BYTES, 0));
        let _ = nbd::drive(&conversation.bytes, other.clone());
        assert!(contents(&device) == contents(&other), "the order of requests has an effect");
    }
}

/// Sends `bytes` in pieces to a server of `device`, and takes all that it sends.
fn talk(device: &Arc<Blocking>, bytes: &[u8], how: usize, piece: usize, end: End) -> Vec<u8> {
    let options = Options {
        waiters: 1 + (how >> 1) % 3,
        spin: Duration::ZERO,
        grace: PATIENCE,
        ..Options::default()
    };
    let device: Arc<dyn BlockDevice> = device.clone();
    let server = Server::new(Arc::new(One::new("disk", "", device)), options).expect("a server");
    let (client, socket) = UnixStream::pair().expect("sockets");
    server.spawn(Stream::from(socket)).expect("a thread");
    let output = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut output = Vec::new();
            // The connection is cut where the client leaves.
            let _ = (&client).read_to_end(&mut output);
            output
        });
        let stays = if end == End::InOrder { bytes.len() } else { bytes.len() * (how >> 3) / 31 };
        for part in bytes[..stays.min(bytes.len())].chunks(1 + piece * piece) {
            // A server may leave first, when the client breaks the protocol.
            if (&client).write_all(part).is_err() {
                break;
            }
        }
        let how = if end == End::InOrder { Shutdown::Write } else { Shutdown::Both };
        let _ = client.shutdown(how);
        reader.join().expect("the replies")
    });
    drop(client);
    server.shutdown();
    assert!(server.join(), "the server does not end");
    output
}

/// Do the requests change different bytes, so that their order has no effect on the device?
fn are_apart(requests: &[Sent]) -> bool {
    let changes = [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES];
    let mut ranges: Vec<(u64, u64)> = requests
        .iter()
        .filter(|sent| changes.contains(&sent.command))
        .map(|sent| (sent.offset, sent.offset.saturating_add(sent.length.into())))
        .collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|two| two[0].1 <= two[1].0)
}

fn contents(device: &Blocking) -> Vec<u8> {
    let mut bytes = vec![0; DEVICE_BYTES];
    let read = Operation::Read { offset: 0, into: &mut bytes };
    device.submit(Cpu(0), read).expect("it is in memory");
    bytes
}

/// Requests in order and out of order, of clients that stay and of clients that leave.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for requests in crate::nbd_client::request_seeds() {
        for (how, pages, piece) in [(0, 0x5555u16, 255), (2, 0xffff, 3), (4, 0x0010, 9)] {
            let [low, high] = pages.to_le_bytes();
            seeds.push([vec![how, low, high, piece], requests.clone()].concat());
            seeds.push([vec![how | 0x81, low, high, piece], requests.clone()].concat());
        }
    }
    seeds
}
