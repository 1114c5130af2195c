use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;
use std::thread;

use block::{
    Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Plain, Visit, Wait,
    ZeroMode,
};
use host::{Jobs, Mailbox};
use units::{Cpu, PAGE_SIZE};

use crate::answer::{Request, Served, parse};
use crate::leftovers::{Fate, Leftover, judge};
use crate::nodes::parse_device;
use crate::waiters::Job;
use crate::wire::{self, Command, Descriptor, Info, IoCommand, Parameters};
use crate::{Error, Options, Ublk};

const P: u64 = PAGE_SIZE as u64;
const BYTES: u64 = 64 * P;
const LARGEST: usize = 4 * PAGE_SIZE;

#[test]
fn commands_have_the_numbers_of_the_header() {
    // What a C compiler makes of UBLK_U_CMD_… and UBLK_U_IO_… on x86-64.
    assert_eq!(wire::GET_INFO, 0x8020_7502);
    assert_eq!(wire::ADD, 0xc020_7504);
    assert_eq!(wire::DELETE, 0xc020_7505);
    assert_eq!(wire::START, 0xc020_7506);
    assert_eq!(wire::STOP, 0xc020_7507);
    assert_eq!(wire::SET_PARAMETERS, 0xc020_7508);
    assert_eq!(wire::BEGIN_RECOVERY, 0xc020_7510);
    assert_eq!(wire::END_RECOVERY, 0xc020_7511);
    assert_eq!(wire::GET_FEATURES, 0x8020_7513);
    assert_eq!(wire::DELETE_LATER, 0x8020_7514);
    assert_eq!(wire::UPDATE_SIZE, 0xc020_7515);
    assert_eq!(wire::QUIESCE, 0xc020_7516);
    assert_eq!(wire::FETCH, 0xc010_7520);
    assert_eq!(wire::COMMIT_AND_FETCH, 0xc010_7521);
}

#[test]
fn commands_lie_in_entries_as_in_memory() {
    let mut command = Command::new(7, 99);
    (command.length, command.address) = (64, 0x1122_3344_5566_7788);
    let bytes = command.bytes();
    assert_eq!(bytes[..4], 7u32.to_ne_bytes());
    assert_eq!(bytes[4..6], [0xff; 2], "for no queue");
    assert_eq!(bytes[6..8], 64u16.to_ne_bytes());
    assert_eq!(bytes[8..16], 0x1122_3344_5566_7788u64.to_ne_bytes());
    assert_eq!(bytes[16..24], 99u64.to_ne_bytes());
    assert_eq!(bytes[24..], [0; 56]);
    let command = IoCommand { queue: 3, tag: 17, result: -5, address: 0x1000 };
    let bytes = command.bytes();
    assert_eq!(bytes[..2], 3u16.to_ne_bytes());
    assert_eq!(bytes[2..4], 17u16.to_ne_bytes());
    assert_eq!(bytes[4..8], (-5i32).to_ne_bytes());
    assert_eq!(bytes[8..], 0x1000u64.to_ne_bytes());
}

/// Two containers: each has a process 12, and a root at the same path, with a number of its own.
#[test]
fn only_the_maker_of_a_device_may_clear_it() {
    const MAKER: u32 = 0x8000_0001;
    const ANOTHER: u32 = 0x8000_0002;
    // Before the start and after the end, live, waiting, and a state that is not known.
    for (state, own, anothers) in [
        (0, Some(Fate::Clear), Some(Fate::OfAnother)),
        (1, Some(Fate::Live), None),
        (2, Some(Fate::Clear), Some(Fate::OfAnother)),
        (3, Some(Fate::Clear), Some(Fate::OfAnother)),
    ] {
        // The driver forgets the server when the device is stopped.
        for server in [-1, 12] {
            let mut info = Info::new(1, 64, 4096, wire::mark(MAKER));
            (info.state, info.server) = (state, server);
            let left = |fate| Leftover { number: 3, fate, is_waiting: state == 2 };
            let found = |maker| judge(3, &info, maker);
            assert_eq!(found(MAKER), own.map(left), "state {state} of {server}");
            for maker in [ANOTHER, 0, 12, u32::MAX] {
                assert_eq!(found(maker), anothers.map(left), "state {state} of {server}");
            }
            info.mark = u64::from(MAKER);
            assert_eq!(judge(3, &info, MAKER), None, "of a server of another kind");
        }
    }
}

#[test]
fn a_device_is_described_by_its_abilities() {
    let device = Plain::new(BYTES as usize);
    let (geometry, abilities) = (device.geometry(), device.abilities());
    let told = Parameters::new(geometry, abilities, 65536);
    assert_eq!((told.length, told.types, told.attributes), (64, 3, 0));
    assert_eq!((told.logical_block, told.physical_block, told.most_sectors), (12, 12, 128));
    assert_eq!((told.minimal, told.optimal), (12, 12));
    assert_eq!((told.sectors, told.discard_granularity), (BYTES / 512, 4096));
    assert_eq!((told.discard_segments, told.most_discarded), (1, 1 << 19));
    assert_eq!(told.most_zeroed, 1 << 19);
    let poor = block::Abilities { read_only: true, flush: true, ..block::Abilities::default() };
    let told = Parameters::new(geometry, poor, 65536);
    assert_eq!(told.attributes, wire::READ_ONLY | wire::VOLATILE_CACHE);
    assert_eq!((told.most_discarded, told.most_zeroed), (0, 0));
    // The driver refuses a granularity of 0, and more than one range at once.
    assert_eq!((told.discard_granularity, told.discard_segments), (4096, 1));
}

#[test]
fn marks_name_the_maker_and_nobody_elses() {
    for maker in [0, 4_194_304, u32::MAX] {
        assert_eq!(wire::marked_by(wire::mark(maker)), Some(maker));
    }
    for mark in [0, 1, u64::MAX, u64::from(u32::MAX)] {
        assert_eq!(wire::marked_by(mark), None);
    }
    let info = Info::new(2, 64, 65536, wire::mark(9));
    assert_eq!((info.queues, info.depth, info.largest, info.number), (2, 64, 65536, u32::MAX));
}

fn descriptor(what: u32, start: u64, sectors: u32) -> Descriptor {
    Descriptor { what, start, sectors, address: 0 }
}

#[test]
fn requests_are_read_from_their_descriptions() {
    let parse = |what, start, sectors| parse(&descriptor(what, start, sectors), LARGEST);
    assert_eq!(parse(0, 8, 16), Ok(Request::Read { offset: P, length: 2 * PAGE_SIZE }));
    assert_eq!(parse(1, 0, 32), Ok(Request::Write { offset: 0, length: LARGEST }));
    // Flags that matter to drivers of disks: failfast, metadata, forced access, swap.
    let flags = 0x0001_2f00;
    assert_eq!(parse(1 | flags, 8, 8), Ok(Request::Write { offset: P, length: PAGE_SIZE }));
    assert_eq!(parse(2, u64::MAX, u32::MAX), Ok(Request::Flush), "it has no range");
    // More than a buffer holds, but it needs none.
    assert_eq!(parse(3, 0, 512), Ok(Request::Discard { offset: 0, length: BYTES }));
    let zeroes = |mode| Ok(Request::WriteZeroes { offset: P, length: P, mode });
    assert_eq!(parse(5, 8, 8), zeroes(ZeroMode::MayPunch));
    assert_eq!(parse(5 | 1 << 15, 8, 8), zeroes(ZeroMode::KeepAllocated));
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let parse = |what, start, sectors| parse(&descriptor(what, start, sectors), LARGEST);
    // By the device, which judges ranges, if not here.
    let served = served(Checked::new(Plain::new(BYTES as usize)));
    let mut buffer = vec![0; LARGEST];
    let mut answer = |what, start, sectors| match parse(what, start, sectors) {
        Ok(request) => served.answer(request, &mut buffer, Wait::No),
        Err(errno) => Some(-errno),
    };
    for operation in [0, 1, 3, 5] {
        assert!(answer(operation, 504, 8) >= Some(0), "{operation}");
        for (start, sectors) in [(512, 8), (505, 8), (u64::MAX, 8), (u64::MAX >> 9, u32::MAX)] {
            assert_eq!(
                answer(operation, start, sectors),
                Some(-libc::EINVAL),
                "{operation} {start}"
            );
        }
    }
    // More than a buffer holds.
    assert_eq!(parse(0, 0, 40), Err(libc::EINVAL));
    assert_eq!(parse(1, 0, 40), Err(libc::EINVAL));
    for operation in [4, 6, 13, 15, 34, 255] {
        assert_eq!(parse(operation, 0, 8), Err(libc::EOPNOTSUPP));
    }
}

fn served(device: impl BlockDevice + 'static) -> Served {
    Served::new(Arc::new(device), || Cpu(0), LARGEST)
}

/// Would have to wait, whatever it is asked.
struct Below(Plain);

impl BlockDevice for Below {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        context.may_wait()?;
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}

#[test]
fn what_would_wait_has_no_answer_on_the_queues_thread() {
    let served = served(Below(Plain::new(BYTES as usize)));
    let mut buffer = vec![7; LARGEST];
    for request in [
        Request::Read { offset: 0, length: PAGE_SIZE },
        Request::Write { offset: 0, length: PAGE_SIZE },
        Request::Discard { offset: 0, length: P },
        Request::WriteZeroes { offset: 0, length: P, mode: ZeroMode::MayPunch },
        Request::Flush,
    ] {
        assert_eq!(served.answer(request, &mut buffer, Wait::No), None, "{request:?}");
        assert!(served.answer(request, &mut buffer, Wait::Yes) >= Some(0), "{request:?}");
    }
}

/// Queues hand jobs to waiters, who hand them back, as the threads of a device do; a tag is a
/// number here.
#[test]
fn every_job_comes_back_to_its_queue_once() {
    const QUEUES: u16 = 3;
    const DEPTH: u32 = 8;
    const TURNS: u32 = 2000;
    let mailbox = |_| Mailbox::<(u32, i32)>::new(DEPTH as usize).unwrap();
    let mailboxes: Vec<_> = (0..QUEUES).map(mailbox).collect();
    let jobs = Jobs::new(usize::from(QUEUES) * DEPTH as usize, 4);
    let request = Request::Flush;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((_, Job { queue, tag, .. })) = jobs.take() {
                    mailboxes[usize::from(queue)].send((tag, i32::from(queue) + 1));
                }
            });
        }
        let serve = |queue: u16| {
            let mailbox = &mailboxes[usize::from(queue)];
            let mut away = HashSet::new();
            let mut finished = 0;
            while finished < TURNS {
                for tag in 0..DEPTH {
                    if away.insert(tag) {
                        jobs.put(None, Job { queue, tag, request });
                    }
                }
                while let Some((tag, result)) = mailbox.take() {
                    assert!(away.remove(&tag), "{tag} came twice");
                    assert_eq!(result, i32::from(queue) + 1, "it came to another queue");
                    finished += 1;
                }
                thread::yield_now();
            }
            while !away.is_empty() {
                while let Some((tag, _)) = mailbox.take() {
                    assert!(away.remove(&tag));
                }
                thread::yield_now();
            }
        };
        let queues: Vec<_> = (0..QUEUES).map(|queue| scope.spawn(move || serve(queue))).collect();
        for queue in queues {
            queue.join().unwrap();
        }
        jobs.close();
    });
    for wake in mailboxes.iter().map(Mailbox::wake) {
        let mut count = [0; 8];
        (&**wake).read_exact(&mut count).unwrap();
        assert!(u64::from_ne_bytes(count) >= u64::from(TURNS), "each was announced");
        let again = (&**wake).read(&mut count);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EAGAIN), "it does not wait");
    }
}

#[test]
fn devices_are_read_from_the_systems_texts() {
    assert_eq!(parse_device("259:3\n"), Some((259, 3)));
    assert_eq!(parse_device("259"), None);
}

#[test]
fn what_cannot_be_served_is_told_before_the_driver_is_asked() {
    let serve = |bytes, options| match Ublk::serve(Arc::new(Plain::new(bytes)), options) {
        Err(error) => error,
        Ok(_) => panic!("it cannot be served"),
    };
    let options = Options::default();
    for (bytes, options) in [
        (0, options),
        (PAGE_SIZE + 512, options),
        (PAGE_SIZE, Options { queues: 0, ..options }),
        (PAGE_SIZE, Options { depth: 0, ..options }),
        (PAGE_SIZE, Options { depth: 4097, ..options }),
        (PAGE_SIZE, Options { depth: 4, recoverable: true, ..options }),
        (PAGE_SIZE, Options { largest: 0, ..options }),
        (PAGE_SIZE, Options { largest: 1000, ..options }),
    ] {
        assert!(matches!(serve(bytes, options), Error::Unfit(_)), "{bytes} {options:?}");
    }
}

mod quiesced;
mod recovery;
