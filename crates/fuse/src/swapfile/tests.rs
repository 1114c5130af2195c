//! The protocol, with a kernel that is played by the test.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit, Wait};
use units::Cpu;

use super::answer::File;
use super::buffer::Buffer;
use super::reply::{Attributes, Greeting, Reply};
use super::wire::{self, BEFORE_DATA, Call, ENTRY, HEADER, Malformed};
use super::{drive, serve};
use crate::ring::serving::Carried;

const UNIQUE: u64 = 0x1234_5678_9abc;

fn request(operation: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(operation.to_ne_bytes());
    bytes.extend(UNIQUE.to_ne_bytes());
    bytes.extend(1u64.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

/// Numbers of eight bytes each.
fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn read(offset: u64, length: u64) -> Vec<u8> {
    // Of two numbers of four bytes the first is meant.
    let length = if cfg!(target_endian = "big") { length << 32 } else { length };
    request(15, &longs(&[0, offset, length, 0, 0]))
}

fn write(offset: u64, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u64;
    let length = if cfg!(target_endian = "big") { length << 32 } else { length };
    request(16, &[longs(&[0, offset, length, 0, 0]), data.to_vec()].concat())
}

fn words(reply: &[u8]) -> Vec<u32> {
    reply.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// The error number of an answer without anything else, or its body.
fn body(answer: &[u8]) -> Result<&[u8], i32> {
    assert_eq!(words(answer)[0] as usize, answer.len());
    assert_eq!(answer[8..16], UNIQUE.to_ne_bytes());
    match words(answer)[1] as i32 {
        0 => Ok(&answer[16..]),
        error => {
            assert_eq!(answer.len(), 16);
            Err(-error)
        }
    }
}

#[test]
fn requests_are_understood() {
    let call = |bytes: &[u8]| wire::parse(bytes).unwrap().call;
    assert_eq!(call(&read(5, 7)), Call::Read { offset: 5, length: 7 });
    assert_eq!(call(&write(9, b"abc")), Call::Write { offset: 9, length: 3 });
    assert_eq!(call(&write(9, b"")), Call::Write { offset: 9, length: 0 });
    assert_eq!(
        call(&request(43, &longs(&[0, 1, 2, 0]))),
        Call::Allocate { offset: 1, length: 2, mode: 0 }
    );
    for (operation, expected) in [
        (2, Call::Silent),
        (36, Call::Silent),
        (42, Call::Silent),
        (3, Call::GetAttr),
        (17, Call::StatFs),
        (18, Call::Release),
        (20, Call::Sync),
        (25, Call::Flush),
        (38, Call::Destroy),
        (22, Call::Unknown),
        (46, Call::Unknown),
        (u32::MAX, Call::Unknown),
    ] {
        assert_eq!(call(&request(operation, &[])), expected, "{operation}");
    }
}

#[test]
fn what_is_cut_off_is_refused() {
    let whole = [read(0, 10), write(0, b"abc"), request(26, &[0; 64]), request(4, &[0; 88])];
    for whole in whole {
        for length in 0..whole.len() {
            let unique = (length >= 16).then_some(UNIQUE);
            // As it is, and with a length that is right.
            let mut cut = whole[..length].to_vec();
            assert_eq!(wire::parse(&cut), Err(Malformed { unique }), "{length} bytes");
            if length >= 4 && cut[4..] == whole[4..length] {
                cut[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                if let Ok(request) = wire::parse(&cut) {
                    assert!(!matches!(request.call, Call::Write { .. }), "{length} bytes");
                }
            }
        }
        let longer = [whole.clone(), vec![0]].concat();
        assert_eq!(wire::parse(&longer), Err(Malformed { unique: Some(UNIQUE) }));
    }
    let mut unnumbered = read(0, 10);
    unnumbered[8..16].fill(0);
    assert_eq!(wire::parse(&unnumbered), Err(Malformed { unique: None }));
}

#[test]
fn answers_have_the_kernels_shape() {
    let file = Attributes { size: 1000, mode: 0o100_600, owner: (3, 4), since: 5, block: 4096 };
    let reply = Reply::attributes(UNIQUE, &file);
    let told = body(reply.bytes()).unwrap();
    assert_eq!(told.len(), 104);
    assert_eq!(told[16..40], longs(&[1, 1000, 2]));
    assert_eq!(words(&told[76..]), [0o100_600, 1, 3, 4, 0, 4096, 0]);
    assert_eq!(body(Reply::statistics(UNIQUE, 7, 4096).bytes()).unwrap().len(), 80);
    assert_eq!(words(body(Reply::opened(UNIQUE).bytes()).unwrap()), [0, 0, 0b110_0001, 0]);
    assert_eq!(words(body(Reply::written(UNIQUE, 9).bytes()).unwrap()), [9, 0]);
    assert_eq!(body(Reply::error(UNIQUE, 5).bytes()), Err(5));
    assert_eq!(words(Reply::data(UNIQUE, 100).bytes())[0], 116);
    // What the kernel does not offer is not asked for.
    let mut greeting = Greeting {
        minor: 40,
        readahead: 8,
        flags: u32::MAX,
        flags2: 0,
        largest: 1 << 17,
        page: 1 << 14,
        ring: false,
    };
    let reply = Reply::greeting(UNIQUE, &greeting);
    let told = words(body(reply.bytes()).unwrap());
    assert_eq!(told.len(), 16);
    assert_eq!(told[..4], [7, 40, 8, 1 | 1 << 5 | 1 << 15 | 1 << 22]);
    assert_eq!(told[5..7], [1 << 17, 1]);
    assert_eq!(told[7].to_ne_bytes()[..2], 8u16.to_ne_bytes());
    assert_eq!(told[8], 0);
    greeting.flags2 = u32::MAX;
    let reply = Reply::greeting(UNIQUE, &greeting);
    let told = words(body(reply.bytes()).unwrap());
    assert_eq!((told.len(), told[3] >> 30, told[8]), (16, 1, 1 << 7));
    (greeting.minor, greeting.flags) = (22, 1 << 5);
    let reply = Reply::greeting(UNIQUE, &greeting);
    let told = words(body(reply.bytes()).unwrap());
    assert_eq!((told.len(), told[1], told[3]), (6, 22, 1 << 5));
    greeting.minor = 99;
    assert_eq!(words(Reply::greeting(UNIQUE, &greeting).bytes())[5], 40);
}

#[test]
fn requests_can_be_asked_for_again() {
    // A request that comes again has the highest bit in its number, and so has its answer.
    let mut again = read(0, 0);
    again[8..16].copy_from_slice(&(UNIQUE | 1 << 63).to_ne_bytes());
    let answer = drive(&again, Arc::new(Plain::new(4096))).unwrap();
    assert_eq!(answer[8..16], (UNIQUE | 1 << 63).to_ne_bytes());
    let greeting = |flags, flags2| Greeting {
        minor: 40,
        readahead: 0,
        flags,
        flags2,
        largest: 1 << 17,
        page: 4096,
        ring: false,
    };
    let has_resend = |flags, flags2| greeting(flags, flags2).agreed().resend;
    assert!(has_resend(1 << 30, 1 << 7));
    assert!(!has_resend(0, 1 << 7) && !has_resend(1 << 30, !(1 << 7)));
}

#[test]
fn rings_are_asked_for_where_they_are_wanted_and_offered() {
    let mut greeting = Greeting {
        minor: 45,
        readahead: 0,
        flags: u32::MAX,
        flags2: u32::MAX,
        largest: 1 << 17,
        page: 4096,
        ring: true,
    };
    let flags2 =
        |greeting: &Greeting| words(body(Reply::greeting(UNIQUE, greeting).bytes()).unwrap())[8];
    assert!(greeting.agreed().ring && !greeting.agreed().resend, "a ring cannot be handed over");
    assert_eq!(flags2(&greeting), 1 << 9);
    greeting.flags2 = !(1 << 9);
    assert!(!greeting.agreed().ring && greeting.agreed().resend);
    assert_eq!(flags2(&greeting), 1 << 7);
}

/// The header of an entry with a request, as the kernel fills it.
fn entry(operation: u32, operands: &[u8], data: u32) -> [u8; ENTRY] {
    let mut header = [0xee; ENTRY];
    header[..HEADER].copy_from_slice(&request(operation, operands)[..HEADER]);
    header[128..128 + operands.len()].copy_from_slice(operands);
    header[264..272].copy_from_slice(&UNIQUE.to_ne_bytes());
    header[272..276].copy_from_slice(&data.to_ne_bytes());
    header
}

#[test]
fn entries_of_a_ring_are_understood_and_answered() {
    let file = File::new(Arc::new(Plain::new(1 << 20)), || Cpu(0), (0, 0));
    let mut data = vec![0; 128 << 10];
    let ask = |header: &mut [u8; ENTRY], data: &mut [u8]| {
        assert_eq!(wire::entry_id(header), UNIQUE);
        let carried = serve::carry_out_entry(&file, header, data, Wait::Yes);
        assert!(matches!(carried, Carried::Out));
        assert_eq!(header[8..16], UNIQUE.to_ne_bytes());
        (-(words(&header[4..8])[0] as i32), words(&header[272..276])[0] as usize)
    };
    let operands = |offset, length| read(offset, length)[HEADER..].to_vec();
    data[..3].copy_from_slice(b"abc");
    assert_eq!(ask(&mut entry(16, &operands(4096, 3), 3), &mut data), (0, 8));
    assert_eq!(words(&data[..8]), [3, 0]);
    data.fill(0xee);
    assert_eq!(ask(&mut entry(15, &operands(4095, 5), 0), &mut data), (0, 5));
    assert_eq!(data[..6], *b"\0abc\0\xee");
    assert_eq!(ask(&mut entry(3, &[0; 16], 0), &mut data), (0, 104));
    assert_eq!(ask(&mut entry(20, &[0; 16], 0), &mut data), (0, 0));
    assert_eq!(ask(&mut entry(1, &[], 9), &mut data), (libc::ENOSYS, 0));
    // A write whose length is not that of its data, and more than there is room for.
    assert_eq!(ask(&mut entry(16, &operands(0, 3), 4), &mut data), (libc::EIO, 0));
    assert_eq!(ask(&mut entry(16, &operands(0, 1 << 18), 1 << 18), &mut data), (libc::EIO, 0));
    assert_eq!(ask(&mut entry(15, &operands(0, 1 << 18), 0), &mut data), (libc::EIO, 0));
}

#[test]
fn a_long_discard_is_for_a_thread_that_may_wait() {
    let file = File::new(Arc::new(Plain::new(64 << 20)), || Cpu(0), (0, 0));
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let waits = |length: u64, wait| {
        let operands = [longs(&[0, 0, length]), longs(&[punch.cast_unsigned().into()])].concat();
        let mut header = entry(43, &operands, 0);
        let carried = serve::carry_out_entry(&file, &mut header, &mut [], wait);
        assert_eq!(words(&header[4..8])[0] == 43, matches!(carried, Carried::WouldWait(_)));
        matches!(carried, Carried::WouldWait(_))
    };
    assert!(!waits(16 << 20, Wait::No) && waits(17 << 20, Wait::No) && !waits(17 << 20, Wait::Yes));
}

#[test]
fn data_begins_on_a_page_of_any_size() {
    for page in [4096, 16 << 10, 64 << 10, 256 << 10] {
        let largest = super::connection::largest(page);
        assert!(largest >= 128 << 10 && largest.is_multiple_of(page));
        let mut buffer = Buffer::new(largest, page);
        let start = buffer.request().as_ptr() as usize;
        assert!((start + BEFORE_DATA).is_multiple_of(page));
        assert_eq!(buffer.request().len(), BEFORE_DATA + largest);
        assert_eq!(buffer.data().as_ptr() as usize, start + BEFORE_DATA);
        assert_eq!(buffer.data().len(), largest);
    }
}

#[test]
fn what_a_file_need_not_know_is_not_implemented() {
    let device = || Arc::new(Plain::new(4096));
    for operation in [1, 5, 21, 22, 23, 31, 34, 39, 40, 46, 47, 49, 5000] {
        let answer = drive(&request(operation, &[0; 64]), device()).unwrap();
        assert_eq!(body(&answer), Err(libc::ENOSYS), "{operation}");
    }
    for operation in [2, 36, 41, 42] {
        assert_eq!(drive(&request(operation, &[0; 64]), device()), None, "{operation}");
    }
    for operation in [18, 20, 25, 38] {
        assert_eq!(body(&drive(&request(operation, &[0; 64]), device()).unwrap()), Ok(&[][..]));
    }
}

/// Panics when it is written to.
struct Touchy(Plain);

impl BlockDevice for Touchy {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        assert!(!operation.changes(), "it is touchy");
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}

#[test]
fn a_thread_goes_on_whatever_it_is_sent() {
    let (kernel, channel) = UnixDatagram::pair().unwrap();
    kernel.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It waits for the next request until the process of the test ends.
    thread::spawn(move || {
        let channel = std::fs::File::from(OwnedFd::from(channel));
        let file = File::new(Arc::new(Touchy(Plain::new(1 << 20))), || Cpu(0), (0, 0));
        let mut buffer = Buffer::new(128 << 10, 4096);
        serve::serve(&channel, &file, &mut buffer);
    });
    let mut memory = vec![0; 1 << 20];
    let mut ask = |bytes: &[u8]| {
        kernel.send(bytes).unwrap();
        let length = kernel.recv(&mut memory).unwrap();
        memory[..length].to_vec()
    };
    assert_eq!(body(&ask(&read(0, 100))).unwrap(), [0; 100]);
    // Neither has an answer; what is answered next is what was asked next.
    kernel.send(&[]).unwrap();
    kernel.send(&[1, 2, 3]).unwrap();
    kernel.send(&request(2, &[0; 8])).unwrap();
    assert_eq!(body(&ask(&request(16, &[0; 20]))), Err(libc::EIO));
    assert_eq!(body(&ask(&write(0, b"abc"))), Err(libc::EIO), "a panic");
    assert_eq!(body(&ask(&read(0, 1 << 20))), Err(libc::EIO), "more than there is room for");
    assert_eq!(body(&ask(&read(1 << 19, 128 << 10))).unwrap(), vec![0; 128 << 10]);
    assert_eq!(body(&ask(&read((1 << 20) - 10, 4096))).unwrap(), [0; 10]);
    assert_eq!(body(&ask(&read(u64::MAX, 4096))).unwrap(), [0; 0]);
    assert_eq!(body(&ask(&write(1 << 20, b"abc"))), Err(libc::ENOSPC));
    // Found by the fuzz target: the device refuses a range that begins beyond its end.
    assert_eq!(body(&ask(&write(u64::MAX, b""))).unwrap(), [0; 8]);
}
