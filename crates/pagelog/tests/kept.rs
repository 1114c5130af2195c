//! A device in a log whose process died: what the next one finds.

mod suite;

use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::layer::{Fault, FaultPlan};
use block::{BlockDevice, IoError, Operation, Plain};
use host::Memfds;
use pagelog::{Finding, LogDevice, NotLeft, PageLog};
use suite::{Model, contents};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zcomp::Params;

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);
const PLACES: &str = "places";
const WORDS: &str = "words";

fn make(below: Arc<dyn BlockDevice>, memory: &Memfds, pages: u64) -> LogDevice {
    let log = PageLog::new(below, "below", 2).expect("a log");
    let codec = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    LogDevice::new(log, &memory.provider(PLACES).ahead(), pages, &*codec, 2).expect("a device")
}

fn begin(below: Arc<dyn BlockDevice>, pages: u64) -> (Memfds, LogDevice) {
    let memory = Memfds::new();
    let device = make(below, &memory, pages);
    device.keep(&memory.provider(WORDS).ahead()).expect("memory");
    (memory, device)
}

/// The process dies. The next one has the memory.
fn dies(memory: &Memfds, device: LogDevice) -> Memfds {
    forget(device);
    copy(memory)
}

/// The same memory, of another process.
fn copy(memory: &Memfds) -> Memfds {
    let next = Memfds::new();
    for region in memory.regions() {
        let file = region.file.try_clone().expect("a descriptor");
        next.adopt(&region.name, file.into(), region.bytes).expect("the region");
    }
    next
}

fn recover(
    below: Arc<dyn BlockDevice>,
    memory: &Memfds,
    pages: u64,
) -> Result<(LogDevice, Vec<Finding>), NotLeft> {
    let (device, mut found) = (make(below, memory, pages), Vec::new());
    device.recover(&memory.provider(WORDS).ahead(), |finding| found.push(finding))?;
    Ok((device, found))
}

#[test]
fn all_pages_outlive_the_process() {
    let mut rng = Rng::new(seed("all_pages_outlive_the_process"));
    // The second one is too large for its log, and its device fails now and then.
    for (pages, rate) in [(1000, 0), (2500, 20_000)] {
        let plan = FaultPlan {
            seed: rng.next_u64(),
            reads_per_million: rate,
            changes_per_million: rate,
            flushes_per_million: 0,
        };
        let below: Arc<dyn BlockDevice> = Arc::new(Fault::new(Plain::new(5 << 20), plan));
        let mut model = Model { versions: vec![0; pages as usize], version: 0 };
        let (mut memory, mut device) = begin(below.clone(), pages);
        let mut cleaned = 0;
        for life in 0..8 {
            model.check(&device, &mut rng, 400).unwrap_or_else(|why| panic!("life {life}: {why}"));
            let stats = device.stats();
            cleaned += stats.cleaned_segments;
            memory = dies(&memory, device);
            let (next, found) = recover(below.clone(), &memory, pages).expect("it was left");
            assert_eq!((found, next.stats().live_bytes), (Vec::new(), stats.live_bytes));
            device = next;
        }
        assert!(cleaned > 0);
        let all = Operation::Discard { offset: 0, length: pages * P };
        device.submit(CPU, all).expect("it is done");
        assert_eq!(device.stats().live_bytes, 0, "something was not freed");
    }
}

#[test]
fn a_word_that_cannot_be_costs_its_page_only() {
    const PAGES: u64 = 200;
    let below: Arc<dyn BlockDevice> = Arc::new(Plain::new(5 << 20));
    type Damage = (u64, fn(u64) -> u64, &'static str);
    let damages: [Damage; 6] = [
        (7, |word| word | 0x1fff << 32, "page 7 of its log: it has a word that cannot be (K25)"),
        (8, |word| word | 1 << 50, "page 8 of its log: it has a word that cannot be (K25)"),
        (9, |_| 5, "page 9 of its log: it has a word that cannot be (K25)"),
        (
            13,
            |word| word | 0xffff_ffff,
            "page 13 of its log: its place is beyond the end of the log (K25)",
        ),
        (
            14,
            |word| word & !0xffff_ffff | 3 << 14,
            "page 14 of its log: its place is in a segment of the log that is free (K25)",
        ),
        (
            18,
            |word| word & !0xffff_ffff | 0x7900,
            "page 18 of its log: its place is behind what was written to its segment of the log (K25)",
        ),
    ];
    for (page, damage, said) in damages {
        let (memory, device) = begin(below.clone(), PAGES);
        for index in 0..PAGES {
            // None is the same all over.
            let from = contents(5 * index + 3);
            device.submit(CPU, Operation::Write { offset: index * P, from: &from }).expect("room");
        }
        let memory = dies(&memory, device);
        let regions = memory.regions();
        let table = &regions.iter().find(|region| region.name == PLACES).expect("a table").file;
        let mut word = [0; 8];
        table.read_exact_at(&mut word, page * 8).expect("a word");
        let word = damage(u64::from_ne_bytes(word)).to_ne_bytes();
        table.write_all_at(&word, page * 8).expect("a word");
        let check = |device: &LogDevice| {
            let mut into = [0; PAGE_SIZE];
            for index in 0..PAGES {
                let read = Operation::Read { offset: index * P, into: &mut into };
                let read = device.submit(CPU, read);
                if index == page {
                    assert_eq!(read, Err(IoError::Corrupt), "{said}");
                } else {
                    assert!(read.is_ok() && into == contents(5 * index + 3), "page {index}");
                }
            }
        };
        let (device, found) = recover(below.clone(), &memory, PAGES).expect("it was left");
        assert_eq!(found.iter().map(Finding::to_string).collect::<Vec<_>>(), [said]);
        check(&device);
        // It stays lost for the next process, until it is written.
        let memory = dies(&memory, device);
        let (device, found) = recover(below.clone(), &memory, PAGES).expect("it was left");
        assert_eq!(found, []);
        check(&device);
        let from = contents(5 * page + 3);
        device.submit(CPU, Operation::Write { offset: page * P, from: &from }).expect("room");
        let mut into = [0; PAGE_SIZE];
        let mut read =
            |index| device.submit(CPU, Operation::Read { offset: index * P, into: &mut into });
        assert!((0..PAGES).all(|index| read(index).is_ok()), "a write heals it");
    }
}

/// Of segments of which nothing is known, the pages that lie there are lost.
#[test]
fn a_damaged_segment_costs_its_pages() {
    let below: Arc<dyn BlockDevice> = Arc::new(Plain::new(5 << 20));
    let (memory, device) = begin(below.clone(), 100);
    for index in 0..100 {
        let from = contents(5 * index + 3);
        device.submit(CPU, Operation::Write { offset: index * P, from: &from }).expect("room");
    }
    let memory = dies(&memory, device);
    let regions = memory.regions();
    let words = &regions.iter().find(|region| region.name == WORDS).expect("words").file;
    words.write_all_at(&[0xff; 8], 8).expect("the word of segment 0");
    let (device, found) = recover(below, &memory, 100).expect("it was left");
    assert_eq!(found.len(), 101);
    assert_eq!(found[0], Finding::Segment(0));
    let mut into = [0; PAGE_SIZE];
    let read = Operation::Read { offset: 0, into: &mut into };
    assert_eq!(device.submit(CPU, read), Err(IoError::Corrupt));
    Model { versions: vec![0; 100], version: 0 }
        .check(&device, &mut Rng::new(1), 0)
        .expect_err("all are lost");
    device.submit(CPU, Operation::Discard { offset: 0, length: 100 * P }).expect("it is done");
    assert_eq!(device.stats().live_bytes, 0);
}

#[test]
fn what_was_not_left_is_refused() {
    let below: Arc<dyn BlockDevice> = Arc::new(Plain::new(5 << 20));
    assert_eq!(recover(below.clone(), &Memfds::new(), 10).err(), Some(NotLeft::Nothing));
    let (memory, device) = begin(below, 10);
    let from = contents(4);
    device.submit(CPU, Operation::Write { offset: 0, from: &from }).expect("room");
    let memory = dies(&memory, device);
    let smaller: Arc<dyn BlockDevice> = Arc::new(Plain::new(4 << 20));
    let refused = recover(smaller, &copy(&memory), 10).err();
    assert_eq!(refused, Some(NotLeft::Size { log: 5 << 20, device: 4 << 20 }));
    // A larger one keeps the log that it had.
    let larger = Arc::new(Plain::new(9 << 20));
    let (device, found) = recover(larger, &memory, 10).expect("it was left");
    assert_eq!((found, device.stats().segments), (Vec::new(), 5));
}

/// In layout 1 all pages were of one codec, and word 0 did not have bit 43, by which programs that
/// know no other codecs refuse a log.
#[test]
fn a_log_of_layout_1_goes_on() {
    const CODECS: u64 = 1 << 43;
    let below: Arc<dyn BlockDevice> = Arc::new(Plain::new(5 << 20));
    let (memory, device) = begin(below.clone(), 10);
    for index in 0..10 {
        let from = contents(index);
        device.submit(CPU, Operation::Write { offset: index * P, from: &from }).expect("room");
    }
    let memory = dies(&memory, device);
    let regions = memory.regions();
    let words = &regions.iter().find(|region| region.name == WORDS).expect("the words").file;
    let layout = || {
        let mut word = [0; 8];
        words.read_exact_at(&mut word, 0).expect("a word");
        u64::from_ne_bytes(word)
    };
    let new = layout();
    assert_eq!(new & CODECS, CODECS);
    words.write_all_at(&(new & !CODECS).to_ne_bytes(), 0).expect("a word");
    let (device, found) = recover(below, &memory, 10).expect("it was left");
    assert_eq!((found, layout()), (Vec::new(), new));
    for index in 0..10 {
        let mut into = [0; PAGE_SIZE];
        device.submit(CPU, Operation::Read { offset: index * P, into: &mut into }).expect("it is");
        assert!(into == contents(index), "page {index}");
    }
}
