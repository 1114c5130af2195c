//! The process that is killed.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::UNIX_EPOCH;

use block::IoError;
use host::Memfds;
use machine::Machine;
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Disk, Pack, Recompress, Select, Share, Which, Writeback, attributes};

use crate::journal::Journal;
use crate::kept;
use crate::pages::{contents, make};
use crate::swap;

const DISKS: usize = 2;
/// Pages that threads write, of all disks together.
const PAGES: usize = 3000;
const WRITERS: usize = 3;
/// Pages of a disk, without and with the tail that a resize adds.
const SMALL: u64 = (PAGES / DISKS) as u64;
const LARGE: u64 = SMALL + 700;
/// The page of the tail that is written.
const TAIL: u64 = SMALL + 650;

/// The first thing of swap areas in the journal.
const SWAP: usize = PAGES + 2 * DISKS;

/// In the journal, behind the pages: the size and the page of the tail of a disk.
fn size_of(disk: usize) -> usize {
    PAGES + 2 * disk
}

fn tail_of(disk: usize) -> usize {
    PAGES + 2 * disk + 1
}

/// The disk and the index of a page.
fn place(page: usize) -> (usize, u64) {
    (page % DISKS, (page / DISKS) as u64)
}

/// The page of the tail: written in odd versions, empty in even ones.
fn tail_contents(disk: usize, version: u64) -> Page {
    match version % 2 {
        0 => [0; PAGE_SIZE],
        _ => [(version.wrapping_mul(7) + disk as u64) as u8 | 1; PAGE_SIZE],
    }
}

pub fn run(directory: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    let (state, journal) = (directory.join("state"), Journal::open(&directory.join("journal")));
    let machine = if state.exists() {
        let (regions, saved) = kept::read(&state);
        let machine = kept::recovered(&kept::adopted(&regions), &saved);
        check(&machine, &journal);
        machine
    } else {
        let memory = Memfds::new();
        let machine = new_machine(&memory, directory);
        for disk in 0..DISKS {
            journal.begin(size_of(disk), SMALL);
            journal.done(size_of(disk), SMALL);
        }
        let below = swap::make(&machine, &memory, directory);
        swap::begin(&journal, SWAP);
        let saved = kept::Saved::of(&machine, Some(below));
        kept::write(&state, &memory.regions(), &saved);
        machine
    };
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    assert_eq!(line, "go\n");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (rng, machine, journal) = (Rng::new(rng.next_u64()), &machine, &journal);
            scope.spawn(move || write(writer, rng, machine, journal));
        }
        for number in 0..DISKS {
            let (rng, disk) = (Rng::new(rng.next_u64()), machine.disk(number as u32).unwrap());
            let (machine, journal) = (&machine, &journal);
            scope.spawn(move || administer(rng, &disk, machine, journal));
        }
        for writer in 0..swap::WRITERS {
            let (rng, machine, journal) = (Rng::new(rng.next_u64()), &machine, &journal);
            scope.spawn(move || swap::write(writer, rng, machine, (journal, SWAP)));
        }
        let (rng, machine, journal) = (Rng::new(rng.next_u64()), &machine, &journal);
        scope.spawn(move || swap::administer(rng, machine, (journal, SWAP)));
    });
}

fn new_machine(memory: &Memfds, directory: &Path) -> Machine {
    let machine = Machine::kept(memory, Arc::new(host::Mmap), kept::options()).unwrap();
    for number in 0..DISKS {
        let disk = machine.add().unwrap();
        disk.set_algorithm_at(1, "zstd").unwrap();
        let attributes = attributes(disk.clone());
        let set = |name, value: &str| control::Object::store(&attributes, name, value).unwrap();
        set("track_access", "1");
        // A log of three segments, which is cleaned again and again, and a page in each block.
        let (name, bytes) = [("log", 3 << 20), ("backing", 1000 * PAGE_SIZE as u64)][number];
        let backing = directory.join(name);
        std::fs::File::create(&backing).unwrap().set_len(bytes).unwrap();
        set("sealed_backing", "0");
        set("backing_layout", if number == 0 { "log" } else { "pages" });
        set("backing_dev", backing.to_str().unwrap());
        set("compressed_writeback", "1");
        set("auto", "1");
        set("disksize", &(SMALL * PAGE_SIZE as u64).to_string());
    }
    machine
}

/// Compares everything with the journal, and settles what was under way. Returns how many versions
/// are there.
pub fn check(machine: &Machine, journal: &Journal) -> u64 {
    let (mut bytes, mut versions) = ([0; PAGE_SIZE], 0);
    for page in 0..PAGES {
        let (begun, done) = journal.get(page);
        let (disk, index) = place(page);
        let disk = machine.disk(disk as u32).unwrap();
        disk.load_page(Cpu(0), index, &mut bytes).unwrap();
        let found = [begun, done].into_iter().find(|it| bytes == contents(page as u64, *it));
        let Some(found) = found else {
            panic!("page {page} is neither version {begun}, which was begun, nor {done}, done");
        };
        settle(journal, page, found);
        versions += found;
    }
    for (number, disk) in machine.disks().iter().enumerate() {
        let (begun, done) = journal.get(size_of(number));
        let size = disk.bytes() / PAGE_SIZE as u64;
        assert!(size == begun || size == done, "{size} pages, not {begun} or {done}");
        settle(journal, size_of(number), size);
        let (begun, done) = journal.get(tail_of(number));
        if size < LARGE {
            assert_eq!((begun % 2, done), (0, begun), "a page was cut off");
            continue;
        }
        disk.load_page(Cpu(0), TAIL, &mut bytes).unwrap();
        let found = [begun, done].into_iter().find(|it| bytes == tail_contents(number, *it));
        settle(journal, tail_of(number), found.expect("the page of the tail"));
    }
    versions + swap::check(machine, (journal, SWAP))
}

pub fn settle(journal: &Journal, thing: usize, found: u64) {
    if journal.get(thing) != (found, found) {
        journal.begin(thing, found);
        journal.done(thing, found);
    }
}

/// Makes new versions of the pages of one writer, and reads some of them.
fn write(writer: usize, mut rng: Rng, machine: &Machine, journal: &Journal) {
    let cpu = Cpu(writer as u32);
    let disks = machine.disks();
    let own = (PAGES - writer).div_ceil(WRITERS);
    let mut bytes = [0; PAGE_SIZE];
    loop {
        // Some pages are written more often.
        let below = [own, own, 40][rng.below(3) as usize];
        let page = writer + WRITERS * rng.below(below as u64) as usize;
        let (disk, index) = place(page);
        let (_, done) = journal.get(page);
        if rng.below(5) == 0 {
            disks[disk].load_page(cpu, index, &mut bytes).unwrap();
            assert!(bytes == contents(page as u64, done), "page {page} is not version {done}");
            continue;
        }
        journal.begin(page, done + 1);
        make(&disks[disk], cpu, (page as u64, index), done + 1);
        journal.done(page, done + 1);
    }
}

/// Does what an administrator may do to a disk in use.
fn administer(mut rng: Rng, disk: &Disk, machine: &Machine, journal: &Journal) {
    let number = disk.id() as usize;
    loop {
        // A log is written often, so that it is cleaned.
        if disk.backing_log() && rng.below(3) == 0 {
            write_back(disk, Select::Any);
        }
        match rng.below(14) {
            0 => _ = disk.compact().unwrap(),
            1 => disk.mark_idle(None).unwrap(),
            2 => recompress(disk, Select::Idle),
            3 => recompress(disk, Select::Huge),
            4 => write_back(disk, Select::Idle),
            5 => {
                let name = ["lz4", "lzo-rle", "zstd", "842"][rng.below(4) as usize];
                let level = (name == "zstd").then(|| 1 + rng.below(3) as i32);
                disk.switch_algorithm(rng.below(2) as u8, name, Params::at_level(level)).unwrap();
            }
            6 => _ = machine.frames().maintain(8),
            7 => _ = disk.share(&Share { select: Select::Idle, max_pages: Some(300) }).unwrap(),
            8 | 9 => pack(disk),
            10 | 11 => {
                // A clock whose seconds are milliseconds: pages are old soon, also for the process
                // that comes next.
                let since = UNIX_EPOCH.elapsed().unwrap().as_millis();
                machine.set_clock(since as u32 & i32::MAX as u32);
                let _ = disk.move_pages(1 << 40, &|| 0).unwrap();
            }
            _ => change_size(disk, number, journal),
        }
    }
}

fn recompress(disk: &Disk, select: Select) {
    let which = Which { priority: Some(1), algorithm: None };
    let what = Recompress { select, max_pages: Some(300), which, ..Recompress::default() };
    disk.recompress(&what).unwrap();
}

fn pack(disk: &Disk) {
    // The codecs change; now and then none of them packs pages.
    let what = Pack { select: Select::Any, max_pages: Some(300), ..Pack::default() };
    let _ = disk.pack(&what);
}

fn write_back(disk: &Disk, select: Select) {
    // A full device is no error here.
    let _ = disk.writeback(&Writeback { select: Some(select), pages: Vec::new() });
}

fn change_size(disk: &Disk, number: usize, journal: &Journal) {
    let (_, size) = journal.get(size_of(number));
    let (_, tail) = journal.get(tail_of(number));
    let resize = |pages: u64| {
        journal.begin(size_of(number), pages);
        disk.resize(pages * PAGE_SIZE as u64).unwrap();
        journal.done(size_of(number), pages);
    };
    match (size, tail % 2) {
        (SMALL, _) => resize(LARGE),
        (_, 0) if tail % 4 == 2 => {
            // The end has moved twice for each page that was written there.
            resize(SMALL);
            resize(LARGE);
            store_tail(disk, number, tail + 1, journal).unwrap();
        }
        _ => store_tail(disk, number, tail + 1, journal).unwrap(),
    }
}

fn store_tail(disk: &Disk, number: usize, version: u64, journal: &Journal) -> Result<(), IoError> {
    journal.begin(tail_of(number), version);
    match version % 2 {
        0 => disk.discard_pages(Cpu(0), TAIL, 1)?,
        _ => disk.store_page(Cpu(0), TAIL, &tail_contents(number, version))?,
    }
    journal.done(tail_of(number), version);
    Ok(())
}
