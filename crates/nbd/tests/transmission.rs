//! Every command, every flag, every error.

mod common;

use std::sync::{Arc, Mutex, Weak};

use block::{BlockDevice, Geometry, IoError, Operation};
use common::*;
use nbd::{ExportInfo, Exports, OpenError};

const MAX: u32 = 32 << 20;

#[test]
fn simple_replies() {
    let mut client = Client::connected(plain(3 * 4096), Style::Simple);
    assert_eq!(client.write(0, 1, b"hello"), 0);
    assert_eq!(client.read(0, 7), Ok(b"\0hello\0".to_vec()));
    assert_eq!(client.write(0, 4095, b"across"), 0);
    assert_eq!(client.read(4094, 8), Ok(b"\0across\0".to_vec()));
    assert_eq!(client.command(0, WRITE_ZEROES, 4096, 4096), 0);
    assert_eq!(client.read(4094, 8), Ok(b"\0a\0\0\0\0\0\0".to_vec()));
    assert_eq!(client.command(0, TRIM, 0, 4096), 0);
    assert_eq!(client.read(0, 7), Ok(vec![0; 7]));
    assert_eq!(client.command(0, FLUSH, 0, 0), 0);
    assert_eq!(client.command(0, CACHE, 0, 3 * 4096), 0);
    client.request(0, DISC, 0, 0, 0);
    client.expect_end();
}

#[test]
fn a_simple_reply_to_the_byte() {
    let mut client = Client::connected(plain(4096), Style::Simple);
    assert_eq!(client.write(0, 0, b"ab"), 0);
    client.request(0, READ, 0x0102_0304_0506_0708, 0, 2);
    let expected = b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08ab";
    assert_eq!(client.take(18), expected);
}

#[test]
fn structured_replies_to_the_byte() {
    let mut client = Client::connected(plain(3 * 4096), Style::Structured);
    assert_eq!(client.write(0, 4096, b"ab"), 0);
    client.request(0, READ, 0x0a0b, 4094, 4);
    let mut expected = vec![0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b];
    expected.extend([0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0x0f, 0xfe, 0, 0, 0, 2]);
    expected.extend([0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b]);
    expected.extend([0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0x10, 0, b'a', b'b']);
    assert_eq!(client.take(expected.len()), expected);
}

#[test]
fn holes_and_zeroes_are_not_sent() {
    let odd = Arc::new(Odd::new(5 * 4096));
    let mut client = Client::connected(odd.clone(), Style::Structured);
    assert_eq!(client.write(0, 4096, &[7; 4096]), 0);
    assert_eq!(client.command(NO_HOLE, WRITE_ZEROES, 2 * 4096, 4096), 0);
    client.request(0, READ, 1, 0, 4 * 4096);
    let hole = client.chunk();
    assert_eq!((hole.done, hole.kind, hole.payload.len()), (false, 2, 12));
    let data = client.chunk();
    assert_eq!((data.done, data.kind, data.payload.len()), (false, 1, 8 + 4096));
    // The zero page and the hole after it are one chunk.
    let zeroes = client.chunk();
    assert_eq!((zeroes.done, zeroes.kind), (true, 2));
    assert_eq!((be64(&zeroes.payload, 0), be32(&zeroes.payload, 8)), (8192, 8192));

    // One page costs one look at what it holds, and a hole is not read.
    odd.taken_log();
    assert_eq!(client.read_chunks(0, 0, 4096), Ok(vec![0; 4096]));
    assert_eq!(odd.taken_log(), ["extents 0+4096"]);
    assert_eq!(client.read_chunks(0, 4096, 4096), Ok(vec![7; 4096]));
    assert_eq!(odd.taken_log(), ["extents 4096+4096", "read 4096+4096"]);
}

#[test]
fn unfragmented_reads_are_one_chunk_of_data() {
    let mut client = Client::connected(plain(16 * 4096), Style::Structured);
    assert_eq!(client.write(0, 4096, &[7; 4096]), 0);
    client.request(DF, READ, 1, 0, 16 * 4096);
    let chunk = client.chunk();
    assert_eq!((chunk.done, chunk.kind, chunk.payload.len()), (true, 1, 8 + 16 * 4096));
    assert_eq!(chunk.payload[8 + 4095..8 + 4098], [0, 7, 7]);
}

#[test]
fn empty_ranges() {
    let odd = Arc::new(Odd::new(4096));
    let mut client = Client::connected(odd.clone(), Style::Simple);
    for offset in [0, 1, 4096] {
        assert_eq!(client.read(offset, 0), Ok(vec![]));
        assert_eq!(client.write(0, offset, &[]), 0);
        for command in [TRIM, WRITE_ZEROES, CACHE] {
            assert_eq!(client.command(0, command, offset, 0), 0);
        }
    }
    assert_eq!(odd.taken_log(), [""; 0]);
    let mut client = Client::connected(plain(4096), Style::Allocation);
    assert_eq!(client.read_chunks(0, 4096, 0), Ok(vec![]));
    assert_eq!(client.read_chunks(0, 4097, 0), Err(EINVAL));
    assert_eq!(client.status(0, 0, 0), Err(EINVAL));
}

#[test]
fn ranges_past_the_end() {
    for style in [Style::Simple, Style::Structured] {
        let mut client = Client::connected(plain(5000), style);
        for (offset, length) in [(5000, 1), (4999, 2), (0, 5001), (u64::MAX, 1), (u64::MAX - 3, 9)]
        {
            let read = match style {
                Style::Simple => client.read(offset, length),
                _ => client.read_chunks(0, offset, length),
            };
            assert_eq!(read, Err(EINVAL));
            assert_eq!(client.write(0, offset, &vec![1; length as usize]), ENOSPC);
            assert_eq!(client.command(0, WRITE_ZEROES, offset, length), ENOSPC);
            assert_eq!(client.command(0, TRIM, offset, length), EINVAL);
            assert_eq!(client.command(0, CACHE, offset, length), EINVAL);
        }
        assert_eq!(client.write(0, 4999, b"x"), 0);
    }
}

#[test]
fn flags_where_they_do_not_belong() {
    for style in [Style::Simple, Style::Structured] {
        let mut client = Client::connected(plain(8192), style);
        for (bad, commands) in [
            (NO_HOLE, &[WRITE, TRIM, CACHE, FLUSH][..]),
            (DF, &[WRITE, TRIM, CACHE, WRITE_ZEROES]),
            (REQ_ONE, &[WRITE, TRIM, CACHE, WRITE_ZEROES]),
            (FAST_ZERO, &[WRITE, TRIM, CACHE, FLUSH]),
            (32, &[WRITE, TRIM, CACHE, FLUSH, WRITE_ZEROES]),
            (0x8000, &[WRITE, TRIM, CACHE, FLUSH, WRITE_ZEROES]),
        ] {
            for &command in commands {
                let error = match command {
                    WRITE => client.write(bad, 0, &[1; 100]),
                    FLUSH => client.command(bad, FLUSH, 0, 0),
                    _ => client.command(bad, command, 0, 4096),
                };
                assert_eq!(error, EINVAL, "flag {bad} on {command}");
            }
        }
        assert_eq!(client.command(0, FLUSH, 1, 0), EINVAL);
        assert_eq!(client.command(0, FLUSH, 0, 1), EINVAL);
        for flags in [NO_HOLE, REQ_ONE, FAST_ZERO, 64] {
            match style {
                Style::Simple => assert_eq!(client.read_flags(flags), Err(EINVAL)),
                _ => assert_eq!(client.read_chunks(flags, 0, 1), Err(EINVAL)),
            }
        }
        if style == Style::Simple {
            assert_eq!(client.read_flags(DF), Err(EINVAL), "DF needs structured replies");
        }
    }
}

impl Client {
    fn read_flags(&mut self, flags: u16) -> Result<(), u32> {
        self.request(flags, READ, 3, 0, 1);
        match self.simple(3) {
            0 => {
                self.take(1);
                Ok(())
            }
            error => Err(error),
        }
    }
}

#[test]
fn unknown_commands() {
    let mut client = Client::connected(plain(4096), Style::Structured);
    for command in [8, 9, 255, u16::MAX] {
        assert_eq!(client.command(0, command, 0, 0), EINVAL);
        assert_eq!(client.command(0, command, 0, 4096), EINVAL);
    }
    assert_eq!(client.read_chunks(0, 0, 1), Ok(vec![0]));
}

#[test]
fn a_wrong_magic_number_ends_the_connection() {
    let mut client = Client::connected(plain(4096), Style::Simple);
    assert_eq!(client.write(0, 0, b"x"), 0);
    // The reply to what came before is still sent.
    let mut bytes = request_bytes(0, READ, 5, 0, 1);
    bytes.extend([0x25, 0x60, 0x95, 0x14]);
    client.send(&bytes);
    assert_eq!(client.simple(5), 0);
    assert_eq!(client.take(1), b"x");
    client.expect_end();
}

#[test]
fn forced_writes_are_flushed() {
    let odd = Arc::new(Odd::new(8192));
    let mut client = Client::connected(odd.clone(), Style::Simple);
    assert_eq!(client.write(FUA, 0, b"x"), 0);
    assert_eq!(odd.taken_log(), ["write 0+1", "flush 0+0"]);
    assert_eq!(client.command(FUA, TRIM, 0, 4096), 0);
    assert_eq!(odd.taken_log(), ["discard 0+4096", "flush 0+0"]);
    assert_eq!(client.command(FUA | NO_HOLE, WRITE_ZEROES, 0, 4096), 0);
    assert_eq!(odd.taken_log(), ["zero 0+4096", "flush 0+0"]);
    assert_eq!(client.command(FUA, FLUSH, 0, 0), 0);
    assert_eq!(odd.taken_log(), ["flush 0+0"]);
    // Clients are known to set it on commands that write nothing.
    assert_eq!(client.command(FUA, CACHE, 0, 1), 0);
    assert_eq!(client.read_flags(FUA), Ok(()));
    assert_eq!(odd.taken_log(), ["read 0+1"]);
    assert_eq!(client.write(0, 0, b"x"), 0);
    assert_eq!(odd.taken_log(), ["write 0+1"]);
}

#[test]
fn a_failing_flush_fails_what_forced_it() {
    let mut odd = Odd::new(8192);
    odd.fail = |operation| matches!(operation, Operation::Flush).then_some(IoError::Failed);
    let mut client = Client::connected(Arc::new(odd), Style::Simple);
    assert_eq!(client.write(0, 0, b"x"), 0);
    assert_eq!(client.write(FUA, 0, b"x"), EIO);
    assert_eq!(client.command(FUA, TRIM, 0, 1), EIO);
    assert_eq!(client.command(0, FLUSH, 0, 0), EIO);
}

#[test]
fn zeroes_with_and_without_holes() {
    let mut client = Client::connected(plain(4 * 4096), Style::Allocation);
    assert_eq!(client.write(0, 0, &[1; 4 * 4096]), 0);
    assert_eq!(client.command(NO_HOLE, WRITE_ZEROES, 4096, 4096), 0);
    assert_eq!(client.command(FAST_ZERO, WRITE_ZEROES, 2 * 4096, 4096), 0);
    assert_eq!(client.status(0, 0, 4 * 4096), Ok(vec![(4096, 0), (4096, 2), (4096, 3), (4096, 0)]));
    assert_eq!(client.read_chunks(0, 4096, 8192), Ok(vec![0; 8192]));
}

#[test]
fn fast_zeroes_are_refused_where_they_are_slow() {
    let mut odd = Odd::new(8192);
    odd.abilities.fast_zero = false;
    let mut client = Client::connected(Arc::new(odd), Style::Simple);
    assert_eq!(client.command(FAST_ZERO, WRITE_ZEROES, 0, 4096), ENOTSUP);
    assert_eq!(client.command(0, WRITE_ZEROES, 0, 4096), 0);
}

#[test]
fn block_status() {
    let mut client = Client::connected(plain(5 * 4096), Style::Allocation);
    assert_eq!(client.status(0, 0, 5 * 4096), Ok(vec![(5 * 4096, 3)]));
    assert_eq!(client.write(0, 4096, &[1; 8192]), 0);
    let all = vec![(4096, 3), (8192, 0), (8192, 3)];
    assert_eq!(client.status(0, 0, 5 * 4096), Ok(all));
    assert_eq!(client.status(REQ_ONE, 0, 5 * 4096), Ok(vec![(4096, 3)]));
    assert_eq!(client.status(REQ_ONE, 4096, 4 * 4096), Ok(vec![(8192, 0)]));
    assert_eq!(client.status(0, 4095, 2), Ok(vec![(1, 3), (1, 0)]));
    assert_eq!(client.status(0, 0, 5 * 4096 + 1), Err(EINVAL));
    assert_eq!(client.status(DF, 0, 4096), Err(EINVAL));
    for style in [Style::Simple, Style::Structured] {
        let mut client = Client::connected(plain(4096), style);
        client.request(0, BLOCK_STATUS, 4, 0, 4096);
        match style {
            Style::Simple => assert_eq!(client.simple(4), EINVAL),
            _ => assert_eq!(client.chunk().error().0, EINVAL),
        }
    }
}

#[test]
fn long_block_status_is_cut_short_and_can_be_continued() {
    let pages = 10_000u64;
    let mut client = Client::connected(plain(10_000 * 4096), Style::Allocation);
    for page in (0..pages).step_by(2) {
        assert_eq!(client.write(0, page * PAGE, &[1]), 0);
    }
    let (mut at, mut found) = (0, vec![]);
    while at < pages * PAGE {
        let part = client.status(0, at, (pages * PAGE - at) as u32).unwrap();
        at += part.iter().map(|(length, _)| u64::from(*length)).sum::<u64>();
        found.extend(part);
    }
    assert_eq!(found.len(), pages as usize);
    assert_eq!(found[..4], [(4096, 0), (4096, 3), (4096, 0), (4096, 3)]);
}

#[test]
fn the_largest_payload_goes_through() {
    for style in [Style::Simple, Style::Structured] {
        let mut client = Client::connected(plain(MAX as usize), style);
        let data: Vec<u8> = (0..MAX).map(|i| (i * 7 + i / 4096 + 1) as u8).collect();
        assert_eq!(client.write(0, 0, &data), 0);
        let read = match style {
            Style::Simple => client.read(0, MAX),
            _ => client.read_chunks(DF, 0, MAX),
        };
        assert!(read.unwrap() == data);
        // The buffers go back to their first size meanwhile, and nothing is lost.
        for at in 0..200u64 {
            assert_eq!(client.write(0, at * PAGE, &at.to_be_bytes()), 0);
        }
        for at in 0..200u64 {
            let read = match style {
                Style::Simple => client.read(at * PAGE, 8),
                _ => client.read_chunks(0, at * PAGE, 8),
            };
            assert_eq!(read.unwrap(), at.to_be_bytes());
        }
    }
}

#[test]
fn oversize_payloads_are_refused() {
    let mut client = Client::connected(plain(4096), Style::Simple);
    assert_eq!(client.read(0, MAX + 1), Err(EINVAL));
    assert_eq!(client.read(0, u32::MAX), Err(EINVAL));
    assert_eq!(client.write(0, 0, &vec![1; MAX as usize + 1]), EINVAL);
    assert_eq!(client.read(0, 4096), Ok(vec![0; 4096]));
    let mut client = Client::connected(plain(4096), Style::Structured);
    assert_eq!(client.read_chunks(0, 0, MAX + 1), Err(EOVERFLOW));
    assert_eq!(client.read_chunks(DF, 0, MAX + 1), Err(EOVERFLOW));
    assert_eq!(client.read_chunks(0, 0, 4096), Ok(vec![0; 4096]));
    // Nobody means to send this.
    client.request(0, WRITE, 1, 0, u32::MAX);
    client.expect_end();
}

#[test]
fn commands_without_payload_may_be_longer() {
    let bytes = 2 * MAX as usize;
    let mut client = Client::connected(plain(bytes), Style::Allocation);
    for command in [TRIM, WRITE_ZEROES, CACHE] {
        assert_eq!(client.command(0, command, 0, 2 * MAX), 0);
    }
    assert_eq!(client.status(0, 0, 2 * MAX), Ok(vec![(2 * MAX, 3)]));
}

#[test]
fn a_read_only_device_is_not_changed() {
    let mut odd = Odd::new(8192);
    odd.abilities.read_only = true;
    let odd = Arc::new(odd);
    let mut client = Client::connected(odd.clone(), Style::Simple);
    assert_eq!(client.write(0, 0, &[1; 5000]), EPERM);
    assert_eq!(client.command(0, TRIM, 0, 4096), EPERM);
    assert_eq!(client.command(0, WRITE_ZEROES, 0, 4096), EPERM);
    assert_eq!(odd.taken_log(), [""; 0]);
    assert_eq!(client.command(0, FLUSH, 0, 0), 0);
    assert_eq!(client.read(0, 2), Ok(vec![0, 0]));
}

#[test]
fn unaligned_ranges_of_a_device_with_blocks() {
    let mut odd = Odd::new(8192);
    odd.geometry = Geometry { bytes: 8192, minimum_block: 512, preferred_block: 4096 };
    let mut client = Client::negotiating(Arc::new(block::Checked::new(odd)));
    client.option(OPT_GO, &info_data("disk", &[]));
    assert_eq!([0; 3].map(|_| client.reply().kind), [REP_INFO, REP_INFO, ACK]);
    assert_eq!(client.write(0, 512, &[1; 512]), 0);
    assert_eq!(client.write(0, 1, &[1; 512]), EINVAL);
    assert_eq!(client.read(0, 5), Err(EINVAL));
    assert_eq!(client.read(512, 512), Ok(vec![1; 512]));
}

#[test]
fn errors_of_the_device() {
    // The page tells which error an operation on it fails with.
    const ERRORS: [IoError; 9] = [
        IoError::OutOfRange,
        IoError::Unaligned,
        IoError::NotReady,
        IoError::ReadOnly,
        IoError::NoSpace,
        IoError::NoMemory,
        IoError::Corrupt,
        IoError::Unsupported,
        IoError::Failed,
    ];
    const READING: [u32; 9] = [EINVAL, EINVAL, EIO, EPERM, ENOSPC, ENOMEM, EIO, ENOTSUP, EIO];
    for style in [Style::Simple, Style::Structured] {
        let mut odd = Odd::new(16 * 4096);
        odd.fail = |operation| ERRORS.get((operation.range().0 / PAGE) as usize).copied();
        let mut client = Client::connected(Arc::new(odd), style);
        for (page, expected) in READING.into_iter().enumerate() {
            let at = page as u64 * PAGE;
            let flags = if style == Style::Structured { DF } else { 0 };
            client.request(flags, READ, 2, at + 3, 9);
            if style == Style::Structured {
                let chunk = client.chunk();
                assert_eq!((chunk.done, chunk.kind), (true, 0x8002));
                let (error, text) = chunk.error();
                assert_eq!((error, text), (expected, ERRORS[page].to_string()));
                assert_eq!(be64(&chunk.payload, chunk.payload.len() - 8), at + 3);
            } else {
                assert_eq!(client.simple(2), expected);
            }
            let writing = if page == 0 { ENOSPC } else { expected };
            assert_eq!(client.write(0, at, &[1; 4096]), writing);
            assert_eq!(client.command(0, WRITE_ZEROES, at, 4096), writing);
            assert_eq!(client.command(0, TRIM, at, 4096), expected);
        }
        assert_eq!(client.write(0, 9 * PAGE, &[1; 4096]), 0, "the connection lives on");
    }
}

#[test]
fn a_read_that_fails_midway_says_where() {
    let mut odd = Odd::new(4 * 4096);
    odd.fail = |operation| match operation {
        Operation::Read { offset, .. } if *offset >= 2 * PAGE => Some(IoError::Corrupt),
        _ => None,
    };
    let mut client = Client::connected(Arc::new(odd), Style::Structured);
    assert_eq!(client.write(0, 0, &[1; 4096]), 0);
    assert_eq!(client.write(0, 2 * PAGE, &[1; 4096]), 0);
    client.request(0, READ, 1, 0, 4 * 4096);
    assert_eq!((client.chunk().kind, client.chunk().kind), (1, 2));
    let chunk = client.chunk();
    assert_eq!((chunk.done, chunk.kind, chunk.error().0), (true, 0x8002, EIO));
    assert_eq!(be64(&chunk.payload, chunk.payload.len() - 8), 2 * PAGE);
    assert_eq!(client.command(0, FLUSH, 0, 0), 0);
}

/// Makes a device per connection and remembers it.
struct Fresh(Mutex<Vec<Weak<dyn BlockDevice>>>);

impl Exports for Fresh {
    fn list(&self) -> Vec<ExportInfo> {
        vec![ExportInfo { name: "disk".into(), description: String::new() }]
    }

    fn open(&self, _: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let device = plain(4096);
        self.0.lock().unwrap().push(Arc::downgrade(&device));
        Ok(device)
    }
}

#[test]
fn a_device_is_held_as_long_as_its_connection() {
    let fresh = Arc::new(Fresh(Mutex::default()));
    let held = || fresh.0.lock().unwrap().iter().filter(|d| d.strong_count() > 0).count();
    let mut client = Client::new(fresh.clone());
    client.greet(3);
    // Asking for information holds nothing.
    assert_eq!(client.ask(OPT_INFO, &info_data("", &[])).kind, REP_INFO);
    assert_eq!(client.reply().kind, ACK);
    assert_eq!(held(), 0);
    client.begin(Style::Allocation);
    assert_eq!(client.status(0, 0, 1), Ok(vec![(1, 3)]));
    assert_eq!(held(), 1);
    client.request(0, DISC, 0, 0, 0);
    client.expect_end();
    client.server.shutdown();
    client.server.join();
    assert_eq!(held(), 0);
}
