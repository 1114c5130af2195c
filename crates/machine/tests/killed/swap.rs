//! The operations during which the process ends, on swap areas that were made for them.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use block::{BlockDevice, IoError, Operation as Io, ZeroMode};
use host::Memfds;
use machine::{HostSystem, Machine};
use pagelog::{LogDevice, LogStats};
use store::{Layout, Spec, Store};
use units::{Cpu, PAGE_SIZE, Page};
use zram::HostFiles;
use zswap::{AreaOptions, Key, SwapDevice, SwapType, Zswap};

use crate::{Case, kept, pages};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
/// The name of the file below area 0.
pub const BELOW: &str = "below";
/// Pages of area 0, and those that were written before the operation, in area 1 too.
const PAGES: u64 = 300;
const WRITTEN: u64 = 160;
/// The version of the written pages.
const BEFORE: u64 = 2;
/// The limit of the memcg before the operation, and after it.
const LIMITS: [u64; 2] = [50 << 20, 60 << 20];

/// Bytes of the device of area 0 if it is in a log: what is before the log, and four segments.
const LOG: u64 = 5 << 20;

/// An operation of one thread.
struct Operation {
    name: &'static str,
    prepare: fn(&Machine),
    run: fn(&Machine),
    /// The pages of area 0 that it changes, with their new versions.
    changed: &'static [(u64, u64)],
    /// It turns area 1 off.
    ends_area: bool,
    /// It changes the limit of the memcg.
    limits: bool,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        run: |it| versions(it, &[(170, 1), (171, 1), (172, 1), (173, 1), (174, 1)]),
        changed: &[(170, 1), (171, 1), (172, 1), (173, 1), (174, 1)],
        ..of("swap: store")
    },
    Operation {
        run: |it| versions(it, &[(10, 3), (11, 3), (12, 3), (13, 3)]),
        changed: &[(10, 3), (11, 3), (12, 3), (13, 3)],
        ..of("swap: overwrite")
    },
    Operation {
        run: |it| discard(it, 30, 3),
        changed: &[(30, 0), (31, 0), (32, 0)],
        ..of("swap: discard")
    },
    Operation {
        prepare: half_on_device,
        run: |it| discard(it, 0, PAGES),
        changed: &ALL_EMPTY,
        ..of("swap: discard all")
    },
    Operation { run: read_all, ..of("swap: load") },
    Operation {
        run: |it| {
            let key = Key { swap: area(0), offset: 33 };
            zswap(it).load_and_take(CPU, key, &mut [0; PAGE_SIZE]).unwrap();
        },
        changed: &[(33, 0)],
        ..of("swap: take")
    },
    Operation { run: half_on_device, ..of("swap: evict") },
    Operation { prepare: all_on_device, run: read_all, ..of("swap: load from the device") },
    Operation {
        prepare: all_on_device,
        run: |it| versions(it, &[(40, 3), (41, 3), (42, 3)]),
        changed: &[(40, 3), (41, 3), (42, 3)],
        ..of("swap: overwrite on the device")
    },
    Operation {
        prepare: all_on_device,
        run: |it| discard(it, 50, 3),
        changed: &[(50, 0), (51, 0), (52, 0)],
        ..of("swap: discard on the device")
    },
    Operation {
        prepare: |it| zswap(it).policy().set_enabled(false),
        run: |it| versions(it, &[(10, 3), (11, 3), (180, 1)]),
        changed: &[(10, 3), (11, 3), (180, 1)],
        ..of("swap: write through")
    },
    Operation { prepare: thin_out, run: compact, changed: &THINNED, ..of("swap: compact") },
    Operation { run: recompress, ..of("swap: recompress") },
    Operation {
        prepare: recompress,
        run: |it| versions(it, &[(10, 3), (11, 3), (170, 1)]),
        changed: &[(10, 3), (11, 3), (170, 1)],
        ..of("swap: overwrite what was recompressed")
    },
    Operation {
        run: change_codec,
        changed: &[(20, 3), (171, 1), (172, 1)],
        ..of("swap: change the codec")
    },
    Operation {
        run: |it| zswap(it).memcg("with").unwrap().set_max(LIMITS[1]),
        limits: true,
        ..of("swap: limit a memcg")
    },
    Operation { run: other_memcg, ..of("swap: make and remove a memcg") },
    Operation { run: other_area, ..of("swap: turn an area on") },
    Operation {
        run: |it| {
            zswap(it).invalidate_area(CPU, area(1));
            zswap(it).swapoff(area(1)).unwrap();
        },
        ends_area: true,
        ..of("swap: turn an area off")
    },
];

const fn of(name: &'static str) -> Operation {
    let (prepare, run): (fn(&Machine), fn(&Machine)) = (|_| (), |_| ());
    Operation { name, prepare, run, changed: &[], ends_area: false, limits: false }
}

/// Operations on an area in a log.
const LOGGED: &[Operation] = &[
    Operation {
        prepare: half_on_device,
        run: |it| discard(it, 0, PAGES),
        changed: &ALL_EMPTY,
        ..of("swap log: discard all")
    },
    Operation { run: half_on_device, ..of("swap log: evict") },
    Operation { prepare: all_on_device, run: read_all, ..of("swap log: load") },
    Operation {
        prepare: all_on_device,
        run: |it| {
            versions(it, &[(40, 3), (41, 3), (42, 3)]);
            discard(it, 50, 3);
            zswap(it).reclaim(CPU, 3);
        },
        changed: &[(40, 3), (41, 3), (42, 3), (50, 0), (51, 0), (52, 0)],
        ..of("swap log: change")
    },
    Operation { prepare: fill_the_log, run: clean, ..of("swap log: clean") },
];

pub fn cases() -> impl Iterator<Item = Case> {
    let case = |it: &'static Operation, machine| Case {
        name: it.name,
        machine,
        prepare: it.prepare,
        run: it.run,
        check: Box::new(|machine, done| it.check(machine, done)),
    };
    let plain = OPERATIONS.iter().map(move |it| case(it, new_machine));
    plain.chain(LOGGED.iter().map(move |it| case(it, new_machine_with_log)))
}

/// Every page empty.
static ALL_EMPTY: [(u64, u64); WRITTEN as usize] = {
    let mut all = [(0, 0); WRITTEN as usize];
    let mut page = 0;
    while page < WRITTEN as usize {
        all[page] = (page as u64, 0);
        page += 1;
    }
    all
};

/// Most pages empty: what is left lies in many zspages.
static THINNED: [(u64, u64); WRITTEN as usize] = {
    let mut all = ALL_EMPTY;
    let mut page = 0;
    while page < WRITTEN as usize {
        if page.is_multiple_of(4) {
            all[page].1 = BEFORE;
        }
        page += 1;
    }
    all
};

fn area(number: usize) -> SwapType {
    SwapType::new(number).unwrap()
}

fn zswap(machine: &Machine) -> Arc<Zswap> {
    machine.swap_if_made().unwrap()
}

fn device(machine: &Machine, number: usize) -> SwapDevice {
    SwapDevice::new(zswap(machine), area(number))
}

/// The page in a version, as a whole. Version 0 is a page that was never written.
fn contents(page: u64, version: u64) -> Page {
    pages::contents(page, 2 * version)
}

fn store(machine: &Machine, number: usize, page: u64, from: &Page) {
    device(machine, number).submit(CPU, Io::Write { offset: page * P, from }).unwrap();
}

fn read(machine: &Machine, number: usize, page: u64) -> Result<Page, IoError> {
    let mut into = [7; PAGE_SIZE];
    let read = Io::Read { offset: page * P, into: &mut into };
    device(machine, number).submit(CPU, read).map(|()| into)
}

fn versions(machine: &Machine, changed: &[(u64, u64)]) {
    changed.iter().for_each(|(page, version)| {
        store(machine, 0, *page, &contents(*page, *version));
    });
}

fn discard(machine: &Machine, first: u64, pages: u64) {
    let (offset, length) = (first * P, pages * P);
    let device = device(machine, 0);
    let zero = Io::WriteZeroes { offset, length, mode: ZeroMode::MayPunch };
    device.submit(CPU, zero).unwrap();
}

fn new_machine(memory: &Memfds, directory: &Path) -> Machine {
    machine_on(memory, directory, PAGES * P, |device, _| device)
}

/// The log of the process that ends.
static LOG_DEVICE: OnceLock<Arc<LogDevice>> = OnceLock::new();

fn new_machine_with_log(memory: &Memfds, directory: &Path) -> Machine {
    machine_on(memory, directory, LOG, |device, path| {
        let spec = Spec::new(device, path, Layout::Log(PAGES)).kept(memory, "swap0");
        LOG_DEVICE.get_or_init(|| Store::open(spec).unwrap().log.unwrap()).clone()
    })
}

fn log_stats() -> LogStats {
    LOG_DEVICE.get().unwrap().stats()
}

/// Writes most pages to the log again, as they are. Of each segment that is full some stay, so that
/// it cannot be used again before it is cleaned.
fn log_again(machine: &Machine) {
    let full = u64::from(log_stats().segments - log_stats().free_segments);
    let most = (0..WRITTEN).filter(|page| page % 8 >= full);
    versions(machine, &most.map(|page| (page, BEFORE)).collect::<Vec<_>>());
    all_on_device(machine);
}

/// The log has one free segment, and of each other one something is left.
fn fill_the_log(machine: &Machine) {
    all_on_device(machine);
    while log_stats().free_segments > 1 {
        log_again(machine);
    }
}

fn clean(machine: &Machine) {
    let rounds = (0..50).take_while(|_| log_stats().cleaned_segments == 0);
    rounds.for_each(|_| log_again(machine));
    assert!(log_stats().cleaned_segments > 0, "{:?}", log_stats());
}

fn machine_on(
    memory: &Memfds,
    directory: &Path,
    bytes: u64,
    above: impl Fn(Arc<dyn BlockDevice>, &str) -> Arc<dyn BlockDevice>,
) -> Machine {
    let machine = Machine::kept(memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let zswap = machine.kept_swap(memory).unwrap();
    let below = directory.join(BELOW);
    File::create(&below).unwrap().set_len(bytes).unwrap();
    for number in 0..2 {
        let path = below.to_str().unwrap();
        let open = || above(HostSystem.open_backing(path, None).unwrap(), path);
        let device = (number == 0).then(open);
        let memcg = zswap.memcg(["with", "without"][number]).unwrap();
        memcg.set_max(LIMITS[0]);
        zswap.swapon(area(number), PAGES, AreaOptions { device, memcg }).unwrap();
        for page in 0..WRITTEN {
            store(&machine, number, page, &contents(page, 1));
            store(&machine, number, page, &contents(page, BEFORE));
        }
    }
    machine
}

fn read_all(machine: &Machine) {
    for page in 0..PAGES {
        read(machine, 0, page).unwrap();
    }
}

fn half_on_device(machine: &Machine) {
    assert!(zswap(machine).reclaim(CPU, WRITTEN / 2).written >= WRITTEN / 2);
}

fn all_on_device(machine: &Machine) {
    zswap(machine).reclaim(CPU, WRITTEN);
    assert_eq!(zswap(machine).stats().on_device, WRITTEN);
}

fn thin_out(machine: &Machine) {
    (0..WRITTEN).filter(|page| page % 4 != 0).for_each(|page| discard(machine, page, 1));
}

fn compact(machine: &Machine) {
    assert!(zswap(machine).compact(CPU) > 0, "frames came free");
}

fn recompress(machine: &Machine) {
    let zswap = zswap(machine);
    zswap.set_auto(true).unwrap();
    for _ in 0..9 {
        zswap.recompress_old(CPU, 10_000_000_000, &|| 0);
    }
    assert!(zswap.stats().recompressed > 0, "{:?}", zswap.stats());
}

fn change_codec(machine: &Machine) {
    zswap(machine).set_compressor("zstd").unwrap();
    versions(machine, &[(20, 3)]);
    zswap(machine).set_compressor("842").unwrap();
    versions(machine, &[(171, 1), (172, 1)]);
}

fn other_memcg(machine: &Machine) {
    zswap(machine).memcg("other").unwrap().set_max(1 << 20);
    zswap(machine).remove_memcg("other").unwrap();
    zswap(machine).memcg("another").unwrap().set_writeback(false);
}

fn other_area(machine: &Machine) {
    let zswap = zswap(machine);
    let memcg = zswap.memcg("with").unwrap();
    zswap.swapon(area(7), 64, AreaOptions { device: None, memcg }).unwrap();
    store(machine, 7, 5, &contents(5, 1));
}

impl Operation {
    fn check(&self, machine: &Machine, done: bool) {
        let zswap = zswap(machine);
        let prepared = self.name == "swap: compact";
        for page in 0..PAGES {
            let found = read(machine, 0, page).unwrap();
            let is = |version: u64| found == contents(page, version);
            let before = if page < WRITTEN { BEFORE } else { 0 };
            let after = self.changed.iter().find(|changed| changed.0 == page).map(|it| it.1);
            let right = match after {
                None => is(before),
                Some(after) => is(after) || !done && !prepared && is(before),
            };
            assert!(right, "page {page} is no version of itself");
        }
        assert!(!(done && self.ends_area && zswap.is_on(area(1))), "the area is on");
        for page in (0..WRITTEN).filter(|_| zswap.is_on(area(1))) {
            let found = read(machine, 1, page).unwrap();
            let is_gone = self.ends_area && found == [0; PAGE_SIZE];
            assert!(is_gone || found == contents(page, BEFORE), "page {page} of the other area");
        }
        let limit = zswap.memcg("with").unwrap().max();
        let is_right = match (self.limits, done) {
            (false, _) => limit == LIMITS[0],
            (true, true) => limit == LIMITS[1],
            (true, false) => LIMITS.contains(&limit),
        };
        assert!(is_right, "a limit of {limit}");
        // It is a cache as any other.
        zswap.policy().set_enabled(true);
        let other = contents(7, 9);
        store(machine, 0, 0, &other);
        zswap.compact(CPU);
        zswap.reclaim(CPU, 20);
        assert!(read(machine, 0, 0).unwrap() == other);
        zswap.validate();
    }
}
