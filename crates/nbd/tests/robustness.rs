//! Input in pieces, input in heaps, and input from clients that mean no good.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;

use common::*;
use testkit::Rng;

/// A conversation with every kind of message in it.
fn conversation() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(option_bytes(OPT_LIST, &[]));
    bytes.extend(option_bytes(OPT_STARTTLS, b"IHAVEOPT"));
    bytes.extend(option_bytes(OPT_EXTENDED, &[]));
    bytes.extend(option_bytes(OPT_GO, &[9; 66_000]));
    bytes.extend(option_bytes(OPT_INFO, &info_data("", &[0, 1, 2, 3])));
    bytes.extend(option_bytes(OPT_INFO, &info_data("nothing", &[])));
    bytes.extend(&hello(Style::Allocation)[4..]);
    let mut cookie = 0;
    let mut request = |flags, command, offset, length: u32, data: &[u8]| {
        cookie += 1;
        bytes.extend(request_bytes(flags, command, cookie, offset, length));
        bytes.extend(data);
    };
    request(0, WRITE, 4000, 5000, &[7; 5000]);
    request(0, WRITE, u64::MAX, 300, &[8; 300]);
    request(FUA, WRITE, 0, 3, b"abc");
    request(0, READ, 0, 16_384, &[]);
    request(DF, READ, 3000, 9000, &[]);
    request(NO_HOLE, WRITE_ZEROES, 4096, 4096, &[]);
    request(0, TRIM, 8192, 4096, &[]);
    request(0, CACHE, 0, 1, &[]);
    request(0, BLOCK_STATUS, 0, 16_384, &[]);
    request(0, 77, 0, 1, &[]);
    request(0, FLUSH, 0, 0, &[]);
    request(0, READ, 0, u32::MAX, &[]);
    request(0, READ, 0, 16_384, &[]);
    request(0, DISC, 0, 0, &[]);
    bytes
}

/// What a server sends to a client that sends `pieces` one after another.
fn answers<'a>(pieces: impl Iterator<Item = &'a [u8]> + Send) -> Vec<u8> {
    let client = Client::new(Arc::new(nbd::One::new("disk", "", plain(16_384))));
    let (mut reading, mut writing) = (&client.socket, &client.socket);
    thread::scope(|scope| {
        scope.spawn(move || {
            for piece in pieces {
                // The server may have ended the connection already.
                if writing.write_all(piece).is_err() {
                    break;
                }
            }
            let _ = writing.shutdown(Shutdown::Write);
        });
        let mut answers = vec![];
        // A server that leaves input unread resets the connection, after its last answer.
        if let Err(error) = reading.read_to_end(&mut answers) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        answers
    })
}

#[test]
fn pieces_do_not_matter() {
    let input = conversation();
    let expected = nbd::drive(&input, plain(16_384));
    assert!(expected.len() > 3 * 16_384 / 2, "the conversation went through to its end");
    for size in [1, 2, 13, 27, 28, 29, 4096, input.len()] {
        assert!(answers(input.chunks(size)) == expected, "in pieces of {size}");
    }
}

#[test]
fn many_requests_in_one_write() {
    const COUNT: u64 = 5000;
    let mut client = Client::connected(plain(64 * 4096), Style::Simple);
    let mut input = vec![];
    for i in 0..COUNT {
        let at = (i * 37 % 64) * PAGE;
        input.extend(request_bytes(0, WRITE, 2 * i, at, 4096));
        input.extend([i as u8; 4096]);
        input.extend(request_bytes(0, READ, 2 * i + 1, at, 4096));
    }
    let mut sending = client.socket.try_clone().unwrap();
    let sender = thread::spawn(move || sending.write_all(&input).unwrap());
    for i in 0..COUNT {
        assert_eq!(client.simple(2 * i), 0);
        assert_eq!(client.simple(2 * i + 1), 0);
        assert_eq!(client.take(4096), [i as u8; 4096]);
    }
    sender.join().unwrap();
}

#[test]
fn clients_that_vanish() {
    let input = conversation();
    let device = plain(16_384);
    let exports = Arc::new(nbd::One::new("disk", "", device));
    let first = Client::new(exports);
    let mut random = Rng::new(testkit::seed("clients_that_vanish"));
    let cuts = (0..40).map(|_| random.below(input.len() as u64) as usize);
    for cut in cuts.chain([0, 1, input.len() - 1, input.len() - 28]) {
        let client = Client::of(first.server.clone());
        let mut sending = client.socket.try_clone().unwrap();
        // A failure to send is a vanished server, which the last check would find.
        let _ = sending.write_all(&input[..cut]);
        let _ = sending.shutdown(Shutdown::Both);
    }
    // The server is still there for others.
    let mut last = Client::of(first.server.clone());
    last.greet(3);
    last.begin(Style::Simple);
    assert_eq!(last.read(5, 1).unwrap().len(), 1);
}

#[test]
fn a_write_cut_short_changes_nothing() {
    let device = plain(4096);
    let exports = Arc::new(nbd::One::new("disk", "", device));
    let mut client = Client::new(exports);
    client.greet(3);
    client.begin(Style::Simple);
    client.request(0, WRITE, 1, 0, 4096);
    client.send(&[1; 4095]);
    client.socket.shutdown(Shutdown::Write).unwrap();
    client.expect_end();
    let mut other = Client::of(client.server.clone());
    other.greet(3);
    other.begin(Style::Simple);
    assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]));
}

/// Input that is nearly right, from a seed: whole conversations with some bytes changed, cut out,
/// doubled, or put in.
fn mutate(random: &mut Rng, input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() as u64) as usize;
        let end = (at + random.below(40) as usize).min(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next_u64() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            _ => bytes[at..end].iter_mut().for_each(|byte| *byte = random.next_u64() as u8),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

#[test]
fn garbage_is_survived() {
    let mut random = Rng::new(testkit::seed("garbage_is_survived"));
    let whole = conversation();
    for round in 0..3000 {
        let input: Vec<u8> = match round % 3 {
            0 => (0..random.below(300)).map(|_| random.next_u64() as u8).collect(),
            1 => {
                // Past the hello, so that requests are reached as well.
                let mut bytes = hello(Style::Allocation);
                let tail = &whole[whole.len() - 6000..];
                bytes.extend(mutate(&mut random, tail));
                bytes
            }
            _ => mutate(&mut random, &whole),
        };
        let device = plain(16_384);
        let whole_output = nbd::drive(&input, device);
        assert!(whole_output.starts_with(b"NBDMAGICIHAVEOPT\0\x03"));
        if round % 50 == 0 {
            let size = 1 + random.below(60) as usize;
            assert!(answers(input.chunks(size)) == whole_output, "round {round}");
        }
    }
}

#[test]
fn replies_without_end_are_bounded() {
    // 28 bytes ask for a megabyte each.
    let mut input = hello(Style::Simple);
    for _ in 0..1000 {
        input.extend(request_bytes(0, READ, 0, 0, 1 << 20));
    }
    let output = nbd::drive(&input, plain(1 << 20));
    assert!((64 << 20..66 << 20).contains(&output.len()), "{}", output.len());
}
