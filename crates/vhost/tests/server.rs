//! A server and its front end: contents, limits, faults, waits, and peers that are wrong.

mod common;

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use block::{
    Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Plain, Visit, Wait,
};
use common::*;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testkit::Rng;
use units::Cpu;
use vhost::Options;
use vhost_protocol::vhost_user::VhostUserFrontend;
use vhost_protocol::{VhostBackend, VringConfigData};

const SIZE: usize = 16 << 20;

fn plain() -> Arc<Checked<Plain>> {
    Arc::new(Checked::new(Plain::new(SIZE)))
}

fn options() -> Options {
    Options { id: "zram7".into(), ..Options::default() }
}

/// A device that counts flushes, and waits where it is told to.
struct Watched {
    next: Checked<Plain>,
    bytes: AtomicU64,
    read_only: bool,
    seen: Mutex<Vec<String>>,
    /// Reads wait until this is false.
    waits: AtomicBool,
    /// Reads that it refused meanwhile because they would have to wait.
    refused: AtomicUsize,
    /// Turns of reads that wait.
    waiting: AtomicUsize,
}

impl Watched {
    fn new() -> Arc<Watched> {
        let next = Checked::new(Plain::new(SIZE));
        Arc::new(Watched {
            next,
            bytes: AtomicU64::new(SIZE as u64),
            read_only: false,
            seen: Mutex::default(),
            waits: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::SeqCst), ..self.next.geometry() }
    }
    fn abilities(&self) -> Abilities {
        Abilities { flush: true, read_only: self.read_only, ..self.next.abilities() }
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        while matches!(operation, Operation::Read { .. }) && self.waits.load(Ordering::SeqCst) {
            if context.wait == Wait::No {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Err(IoError::WouldBlock);
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        let (offset, length) = operation.range();
        let what = match &operation {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Discard { .. } => "discard",
            Operation::WriteZeroes { .. } => "zeroes",
            Operation::Flush => "flush",
        };
        self.seen.lock().unwrap().push(format!("{what} {offset} {length}"));
        if self.read_only && operation.changes() {
            return Err(IoError::ReadOnly);
        }
        self.next.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

#[test]
fn many_requests_are_under_way_in_two_queues() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    for round in 0..50u8 {
        for slot in 0..16 {
            for queue in 0..2 {
                let page = 8 * (u64::from(slot) + 16 * queue as u64);
                machine.begin((queue, slot), (OUT, page), &[round ^ slot as u8; 4096], 0);
            }
        }
        for queue in 0..2 {
            let mut slots: Vec<u16> = (0..16)
                .map(|_| machine.end(queue))
                .map(|(slot, status)| {
                    assert_eq!(status, 0);
                    slot
                })
                .collect();
            slots.sort_unstable();
            assert!(slots.iter().copied().eq(0..16));
        }
    }
    for slot in 0..16u8 {
        assert_eq!(machine.ask(IN, 8 * u64::from(slot), &[], 4096).1, [49 ^ slot; 4096]);
    }
}

#[test]
fn the_configuration_tells_what_the_device_can() {
    let served = serve(Watched::new(), options());
    let mut machine = served.connect();
    let config = machine.config();
    let number = |at: usize, bytes: usize| {
        config[at..at + bytes].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    assert_eq!(number(0, 8), SIZE as u64 / SECTOR);
    assert_eq!((number(12, 4), number(20, 4)), (126, 512));
    // Physical blocks of a page.
    assert_eq!((number(24, 1), number(26, 2), number(28, 4)), (3, 8, 8));
    assert_eq!(number(34, 2), 64);
    assert_eq!((number(36, 4), number(40, 4), number(44, 4)), (1 << 21, 32, 8));
    assert_eq!((number(48, 4), number(52, 4), number(56, 1)), (1 << 21, 32, 1));
    for feature in [2, 6, 9, 10, 12, 13, 14, 28, 29, 30, 32] {
        assert_ne!(machine.features & 1 << feature, 0, "feature {feature}");
    }
    assert_eq!(machine.features & 1 << 5, 0, "it can be written to");
    assert_eq!(machine.ask(GET_ID, 0, &[], 20).1, *b"zram7\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(machine.ask(GET_ID, 0, &[], 3).1, *b"zra");
}

/// A driver that was offered no flush takes the disk for one that writes through, as it is; nothing
/// is there that it could switch off. One that was offered a flush flushes by itself.
#[test]
fn nothing_of_the_cache_can_be_set() {
    let offered = |device| serve(device, options()).connect().features & (1 << 9 | 1 << 11);
    assert_eq!(offered(plain()), 0);
    assert_eq!(offered(Watched::new()), 1 << 9);
    let served = serve(Watched::new(), options());
    let mut machine = served.connect();
    let flags = vhost_protocol::vhost_user::message::VhostUserConfigFlags::WRITABLE;
    let _ = machine.front().set_config(32, flags, &[0]);
    assert!(machine.front().get_features().is_err(), "a wrong message ends the connection");
}

#[test]
fn a_front_end_is_told_of_a_new_size() {
    let device = Watched::new();
    let served = serve(device.clone(), options());
    served.server.has_new_size();
    let mut machine = served.connect();
    served.server.has_new_size();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    machine.front().set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    machine.front().get_features().unwrap();
    for bytes in [2 * SIZE as u64, 4096] {
        device.bytes.store(bytes, Ordering::SeqCst);
        served.server.has_new_size();
        let mut message = [0; 12];
        ours.read_exact(&mut message).unwrap();
        // Of the configuration, in version 1 and without an answer, with no body.
        assert_eq!(message, *[2u32, 1, 0].map(u32::to_ne_bytes).as_flattened());
        assert_eq!(machine.config()[..8], (bytes / SECTOR).to_le_bytes());
    }
    // One that does not listen holds up nobody.
    (0..10_000).for_each(|_| served.server.has_new_size());
    assert_eq!(machine.ask(IN, 0, &[], 512).0, 0);
    // The channel goes with its front end.
    drop(machine);
    let mut machine = served.connect();
    let mut rest = Vec::new();
    ours.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 10_000 * 12 && rest.len().is_multiple_of(12), "{}", rest.len());
    served.server.has_new_size();
    assert_eq!(machine.ask(IN, 0, &[], 512).0, 0);
    // What is no socket ends the connection.
    let _ = machine.front().set_backend_request_fd(&File::open("/dev/null").unwrap());
    assert!(machine.front().get_features().is_err());
}

#[test]
fn discards_and_zeroes_free_their_ranges() {
    let device = Watched::new();
    let served = serve(device.clone(), options());
    let mut machine = served.connect();
    assert_eq!(machine.ask(OUT, 0, &[7; 16 << 10], 0).0, 0);
    assert_eq!(machine.free(DISCARD, 8, 8, 0), 0);
    assert_eq!(machine.free(WRITE_ZEROES, 16, 1, 0), 0);
    assert_eq!(machine.free(WRITE_ZEROES, 24, 8, 1), 0);
    let two = [range(0, 1, 0), range(1, 1, 0)].concat();
    assert_eq!(machine.ask(WRITE_ZEROES, 0, &two, 0).0, 0);
    let now = machine.ask(IN, 0, &[], 16 << 10).1;
    let expected = [&[0; 1024][..], &[7; 3072], &[0; 4096 + 512], &[7; 3584], &[0; 4096]].concat();
    assert!(now == expected);
    let seen = device.seen.lock().unwrap().join(",");
    assert!(seen.contains("discard 4096 4096,zeroes 8192 512,zeroes 12288 4096,zeroes 0 512"));
}

#[test]
fn what_is_wrong_in_a_request_fails_it_alone() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    let end = SIZE as u64 / SECTOR;
    assert_eq!(machine.ask(OUT, 0, &[3; 512], 0).0, 0);
    for (kind, sector, out, room) in [
        (IN, end, 0, 512),
        (IN, end - 1, 0, 1024),
        (IN, u64::MAX, 0, 512),
        (IN, u64::MAX / 512, 0, 512),
        (IN, 0, 0, 100),
        (OUT, end, 512, 0),
        (OUT, 0, 511, 0),
        (DISCARD, 0, 15, 0),
        (DISCARD, 0, 0, 0),
        (DISCARD, 0, 33 * 16, 0),
        (WRITE_ZEROES, 0, 17, 0),
    ] {
        let status = machine.ask(kind, sector, &vec![0; out], room).0;
        assert_eq!(status, 1, "{kind} {sector} {out} {room}");
    }
    assert_eq!(machine.free(DISCARD, end, 8, 0), 1);
    assert_eq!(machine.free(DISCARD, 0, (1 << 21) + 1, 0), 1);
    assert_eq!(machine.free(DISCARD, u64::MAX, 8, 0), 1);
    for kind in [2, 3, 14, 99, u32::MAX] {
        assert_eq!(machine.ask(kind, 0, &[], 512).0, 2, "{kind}");
    }
    assert_eq!(machine.free(DISCARD, 0, 8, 1), 2);
    assert_eq!(machine.free(WRITE_ZEROES, 0, 8, 2), 2);
    assert_eq!(machine.ask(IN, 0, &[], 512), (0, vec![3; 512]));
}

/// Buffers may lie one above the other, so that a small machine can ask for as much as it likes.
#[test]
fn a_request_of_more_than_a_range_may_have_is_refused() {
    let device = Watched::new();
    let served = serve(device.clone(), options());
    let mut machine = served.connect();
    let (at, table) = (GUEST + machine.buffers(0, 0), machine.buffers(0, 1));
    for (kind, flags) in [(OUT, NEXT), (IN, NEXT | WRITE)] {
        let header = [&kind.to_le_bytes()[..], &[0; 12]].concat();
        machine.write(machine.buffers(0, 0), &header);
        machine.write(machine.buffers(0, 0) + 0x100, &[0xff]);
        let mut chain = vec![Descriptor { at, length: 16, flags: NEXT, next: 1 }];
        // 1 GiB and 8 MiB.
        chain.extend((2..131).map(|next| Descriptor {
            at: at + 0x1000,
            length: 8 << 20,
            flags,
            next,
        }));
        chain.push(Descriptor { at: at + 0x100, length: 1, flags: WRITE, next: 0 });
        let bytes: Vec<u8> = chain.iter().flat_map(|it| it.bytes()).collect();
        machine.write(table, &bytes);
        let length = bytes.len() as u32;
        machine.describe(
            0,
            0,
            &[Descriptor { at: GUEST + table, length, flags: INDIRECT, next: 0 }],
        );
        machine.offer(0, 0);
        assert!(machine.used(0, Duration::from_secs(60)).is_some());
        assert_eq!(machine.read(machine.buffers(0, 0) + 0x100, 1), [1], "{kind}");
        assert_eq!(*device.seen.lock().unwrap(), [""; 0], "{kind}");
    }
}

#[test]
fn chains_that_are_none_write_nothing_and_stop_nothing() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    let at = GUEST + machine.buffers(0, 0);
    let header = Descriptor { at, length: 16, flags: NEXT, next: 1 };
    let status = Descriptor { at: at + 0x100, length: 1, flags: WRITE, next: 0 };
    let table = machine.buffers(0, 1);
    let indirect = |length, flags| Descriptor { at: GUEST + table, length, flags, next: 1 };
    // A table in a table.
    machine.write(table, &indirect(16, INDIRECT).bytes());
    let chains: Vec<Vec<Descriptor>> = vec![
        // It does not end.
        vec![Descriptor { next: 0, ..header }],
        vec![header, Descriptor { next: 0, ..header }],
        // It leaves the table.
        vec![Descriptor { next: ENTRIES, ..header }],
        // No status, and no place for one.
        vec![Descriptor { flags: 0, ..header }],
        vec![header, Descriptor { length: 0, ..status }],
        // What is read comes after what is written.
        vec![Descriptor { flags: NEXT | WRITE, ..header }, Descriptor { flags: 0, ..header }],
        vec![indirect(16, INDIRECT)],
        vec![indirect(0, INDIRECT)],
        vec![indirect(15, INDIRECT)],
        vec![indirect(16, INDIRECT | NEXT), status],
        vec![Descriptor { at: u64::MAX - 3, ..indirect(16, INDIRECT) }],
        vec![Descriptor { at: 0, ..indirect(16, INDIRECT) }],
    ];
    for chain in chains {
        machine.describe(0, 0, &chain);
        machine.offer(0, 0);
        let used = machine.used(0, Duration::from_secs(60));
        assert_eq!(used, Some((0, 0)), "{chain:?}");
    }
    // A header, data or a status outside of the memory.
    for chain in [
        vec![Descriptor { at: 0, ..header }, status],
        vec![Descriptor { length: 15, ..header }, status],
        vec![
            header,
            Descriptor { at: u64::MAX, length: 512, flags: NEXT | WRITE, next: 2 },
            status,
        ],
    ] {
        machine.write(machine.buffers(0, 0) + 0x100, &[0xff]);
        machine.describe(0, 0, &chain);
        machine.offer(0, 0);
        assert!(machine.used(0, Duration::from_secs(60)).is_some());
        assert_eq!(machine.read(machine.buffers(0, 0) + 0x100, 1), [1], "{chain:?}");
    }
    machine.describe(0, 0, &[header, Descriptor { at: 0, ..status }]);
    machine.offer(0, 0);
    assert_eq!(machine.used(0, Duration::from_secs(60)), Some((0, 0)));
    assert_eq!(machine.ask(IN, 0, &[], 512), (0, vec![0; 512]));
}

#[test]
fn requests_may_be_cut_in_any_way() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    let (at, table) = (GUEST + machine.buffers(0, 0), machine.buffers(0, 1));
    // The header in three parts, the data in two, and the status with the second one, by a table.
    let mut header = OUT.to_le_bytes().to_vec();
    header.extend([0; 4]);
    header.extend(2u64.to_le_bytes());
    header.extend([5; 700]);
    header.extend([6; 324]);
    machine.write(machine.buffers(0, 0), &header);
    let parts = [(0, 3), (3, 13), (16, 700), (716, 324)];
    let mut chain: Vec<Descriptor> = (1..)
        .zip(parts)
        .map(|(next, (from, length))| Descriptor { at: at + from, length, flags: NEXT, next })
        .collect();
    chain.push(Descriptor { at: at + 0x800, length: 1, flags: WRITE, next: 0 });
    let offer = |machine: &mut Machine, chain: &[Descriptor]| {
        let bytes: Vec<u8> = chain.iter().flat_map(|it| it.bytes()).collect();
        machine.write(table, &bytes);
        let length = bytes.len() as u32;
        let whole = Descriptor { at: GUEST + table, length, flags: INDIRECT, next: 0 };
        machine.describe(0, 0, &[whole]);
        machine.offer(0, 0);
        machine.used(0, Duration::from_secs(60)).unwrap().1
    };
    assert_eq!(offer(&mut machine, &chain), 1);
    machine.write(machine.buffers(0, 0), &IN.to_le_bytes());
    let read = [
        Descriptor { at, length: 16, flags: NEXT, next: 1 },
        Descriptor { at: at + 0x1000, length: 10, flags: NEXT | WRITE, next: 2 },
        Descriptor { at: at + 0x2000, length: 1015, flags: WRITE, next: 0 },
    ];
    assert_eq!(offer(&mut machine, &read), 1025);
    let mut data = machine.read(machine.buffers(0, 0) + 0x1000, 10);
    data.extend(machine.read(machine.buffers(0, 0) + 0x2000, 1015));
    assert!(data == [&[5; 700][..], &[6; 324], &[0]].concat());
}

#[test]
fn a_ring_that_is_broken_is_left_alone_and_others_go_on() {
    let served = serve(plain(), options());
    for wrong in [0, 1] {
        let mut machine = served.connect();
        match wrong {
            // More requests than the ring has entries; a head beyond the table.
            0 => machine.set_available(1, ENTRIES + 1),
            _ => machine.offer(1, ENTRIES),
        }
        assert_eq!(machine.used(1, Duration::from_millis(50)), None);
        assert_eq!(machine.ask(OUT, 0, &[1; 512], 0).0, 0);
        // It stops as any other.
        machine.front().get_vring_base(1).unwrap();
        machine.front().get_vring_base(0).unwrap();
        drop(machine);
        served.server.settle(Duration::from_secs(60));
    }
}

#[test]
fn one_front_end_is_served_at_a_time() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    assert!(served.server.is_connected());
    let mut other = UnixStream::connect(served.socket()).unwrap();
    assert_eq!(other.read(&mut [0; 1]).unwrap(), 0, "it is refused");
    assert_eq!(machine.ask(OUT, 0, &[9; 512], 0).0, 0);
    drop(machine);
    let mut machine = served.connect();
    assert_eq!(machine.ask(IN, 0, &[], 512), (0, vec![9; 512]));
    assert!(served.server.disconnect());
    assert!(!served.server.is_connected());
    assert!(served.server.stop());
    assert!(UnixStream::connect(served.socket()).is_err());
}

#[test]
fn messages_that_are_wrong_end_the_connection_alone() {
    let served = serve(plain(), options());
    let number = |number: u64| number.to_ne_bytes();
    let wrong = [
        message(0, &[]),
        message(9999, &[]),
        // Features that were not offered; memory without files; a queue that is not there.
        message(2, &number(u64::MAX)),
        message(5, &number(1)),
        message(8, &[0xff; 8]),
        message(9, &[0xff; 40]),
        message(10, &[0xff; 8]),
        message(11, &[0xff; 8]),
        message(12, &number(0x1ff)),
        message(12, &number(0x100)),
        message(13, &number(0)),
        message(18, &[0xff; 8]),
        message(31, &[0xff; 24]),
        message(32, &[0; 24]),
        // Longer than a message may be.
        [&1u32.to_ne_bytes()[..], &1u32.to_ne_bytes(), &u32::MAX.to_ne_bytes()].concat(),
        vec![0; 4096],
    ];
    for bytes in wrong {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(&bytes);
        let ended = stream.read(&mut [0; 512]).map_or(true, |bytes| bytes == 0);
        assert!(ended, "{bytes:?}");
        served.server.settle(Duration::from_secs(60));
    }
    let mut rng = Rng::new(testkit::seed("messages_that_are_wrong"));
    for _ in 0..300 {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        for _ in 0..rng.below(6) {
            let mut body = vec![0; rng.below(64) as usize];
            rng.fill(&mut body);
            let _ = stream.write_all(&message(rng.below(44) as u32, &body));
        }
        drop(stream);
        served.server.settle(Duration::from_secs(60));
    }
    assert_eq!(served.connect().ask(IN, 0, &[], 512).0, 0);
}

/// A message of the protocol.
fn message(request: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_ne_bytes().to_vec();
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend((body.len() as u32).to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Any other file could have whoever reads it, writes to it or looks whether it is ready wait.
#[test]
fn signals_are_eventfds() {
    let served = serve(plain(), options());
    let [kick, call, error] = [12, 13, 14];
    let goes_on = |request: u32, file: BorrowedFd<'_>| {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = message(request, &0u64.to_ne_bytes());
        let parts = [IoSlice::new(&bytes)];
        sendmsg(&stream, &parts, &mut control, SendFlags::empty()).unwrap();
        // It may have been cut off by then.
        let _ = stream.write_all(&message(1, &[]));
        let goes_on = stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0);
        drop(stream);
        served.server.settle(Duration::from_secs(60));
        goes_on
    };
    let plain = File::create_new(served.root.join("f")).unwrap();
    let (from, into) = std::io::pipe().unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    for request in [kick, call, error] {
        for file in [plain.as_fd(), from.as_fd(), into.as_fd(), null.as_fd()] {
            assert!(!goes_on(request, file), "{request}, {file:?}");
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(goes_on(request, event.as_fd()), "{request}");
    }
    // Whether that is ready, another file may have to say.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    assert!(!goes_on(kick, set.as_fd()));
    assert_eq!(served.connect().ask(IN, 0, &[], 512).0, 0);
}

#[test]
fn rings_and_memory_that_are_not_there_end_the_connection() {
    let served = serve(plain(), options());
    let places = |at| VringConfigData {
        queue_max_size: ENTRIES,
        queue_size: ENTRIES,
        flags: 0,
        desc_table_addr: at,
        used_ring_addr: at,
        avail_ring_addr: at,
        log_addr: None,
    };
    let tries: [fn(&mut Machine, VringConfigData); 3] = [
        |machine, places| _ = machine.front().set_vring_addr(0, &places),
        |machine, _| _ = machine.front().set_vring_num(0, 63),
        |machine, _| {
            // Memory beyond the end of its file.
            let (short, _) = memory(1 << 20);
            let told = vhost_protocol::VhostUserMemoryRegionInfo {
                guest_phys_addr: 0,
                memory_size: 2 << 20,
                userspace_addr: 0,
                mmap_offset: 0,
                mmap_handle: std::os::fd::AsRawFd::as_raw_fd(&short),
            };
            let _ = machine.front().set_mem_table(&[told]);
        },
    ];
    for wrong in tries {
        let mut machine = served.connect();
        wrong(&mut machine, places(16));
        assert!(machine.front().get_features().is_err());
        drop(machine);
        served.server.settle(Duration::from_secs(60));
    }
    assert_eq!(served.connect().ask(IN, 0, &[], 512).0, 0);
}

#[test]
fn a_device_may_be_read_only() {
    let mut odd = Watched::new();
    Arc::get_mut(&mut odd).unwrap().read_only = true;
    let served = serve(odd, options());
    let mut machine = served.connect();
    assert_ne!(machine.features & 1 << 5, 0);
    assert_eq!(machine.features & (1 << 13 | 1 << 14), 0);
    assert_eq!(machine.ask(IN, 1, &[], 512).0, 0);
    assert_eq!(machine.ask(OUT, 1, &[0; 512], 0).0, 1);
}

#[test]
fn a_request_that_waits_holds_up_no_other() {
    for waiters in [4, 0] {
        let device = Watched::new();
        let served = serve(device.clone(), Options { waiters, ..options() });
        let mut machine = served.connect();
        device.waits.store(true, Ordering::SeqCst);
        machine.begin((0, 0), (IN, 0), &[], 4096);
        if waiters > 0 {
            machine.begin((0, 1), (OUT, 8), &[1; 4096], 0);
            assert_eq!(machine.end(0), (1, 0), "the later one is answered");
        }
        machine.begin((1, 0), (OUT, 16), &[1; 4096], 0);
        assert_eq!(machine.end(1), (0, 0), "so is that of another queue");
        assert_eq!(machine.used(0, Duration::from_millis(20)), None);
        device.waits.store(false, Ordering::SeqCst);
        assert_eq!(machine.end(0), (0, 0));
        // A stop waits for what is under way.
        let have_come = |device: &Watched| match waiters {
            0 => device.waiting.load(Ordering::SeqCst),
            _ => device.refused.load(Ordering::SeqCst) / 8,
        };
        device.refused.store(0, Ordering::SeqCst);
        device.waiting.store(0, Ordering::SeqCst);
        device.waits.store(true, Ordering::SeqCst);
        for slot in 0..8 {
            machine.begin((0, slot), (IN, 0), &[], 4096);
        }
        while have_come(&device) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            device.waits.store(false, Ordering::SeqCst);
        });
        let taken = machine.front().get_vring_base(0).unwrap();
        ends.join().unwrap();
        let answered = (0..8).filter(|_| machine.used(0, Duration::ZERO).is_some()).count();
        if waiters > 0 {
            assert_eq!((answered, begun.elapsed() >= Duration::from_millis(40)), (8, true));
        }
        assert_eq!(taken as usize, if waiters > 0 { 2 } else { 1 } + answered);
    }
}

#[test]
fn a_ring_goes_on_where_it_was_stopped() {
    let served = serve(plain(), options());
    let mut machine = served.connect();
    for round in 1..=3 {
        assert_eq!(machine.ask(OUT, 0, &[round; 512], 0).0, 0);
        // Disabled, it is left alone; memory may come again while it is served.
        machine.front().set_vring_enable(0, false).unwrap();
        machine.front().get_features().unwrap();
        machine.begin((0, 1), (IN, 0), &[], 512);
        assert_eq!(machine.used(0, Duration::from_millis(20)), None);
        machine.front().set_vring_enable(0, true).unwrap();
        assert_eq!(machine.end(0), (1, 0));
        machine.share(machine.front.as_ref().unwrap()).unwrap();
        assert_eq!(machine.ask(IN, 0, &[], 512), (0, vec![round; 512]));
    }
    assert_eq!(machine.front().get_vring_base(0).unwrap(), 9);
}
