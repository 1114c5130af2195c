//! The operations during which the process ends, on disks that were made for them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use host::Memfds;
use machine::Machine;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{
    Budgets, Disk, Pack, Recompress, Select, Share, WhenFull, Which, Writeback, attributes,
};

use crate::pages::{contents, make};
use crate::{Case, kept};

const CPU: Cpu = Cpu(0);
/// Pages of the disk, and those that were written before the operation.
const PAGES: u64 = 1100;
const WRITTEN: u64 = 160;
/// Versions of the written pages: version 4 is no part of a page.
const BEFORE: u64 = 4;

/// An operation of one thread.
struct Operation {
    name: &'static str,
    /// What comes before.
    prepare: fn(&Machine),
    run: fn(&Machine),
    /// The pages that it changes, with their new versions.
    changed: &'static [(u64, u64)],
    /// The sizes in pages that the disk may have after an end of the process; the last one when it
    /// is done. None: it has no size when it is done.
    sizes: &'static [u64],
    /// What `prepare` changed, not `run`: it is there whenever the process ends.
    prepared: bool,
    /// Every twentieth page is the same.
    alike: bool,
    /// The backing device holds a log.
    log: bool,
    /// What `run` changes of a clone that `prepare` makes, with the new versions. None: there is no
    /// clone, whatever `run` was making.
    clone: Option<&'static [(u64, u64)]>,
    /// The sizes in pages of the clone, as `sizes`.
    clone_sizes: &'static [u64],
}

const OPERATIONS: &[Operation] = &[
    Operation {
        run: |it| versions(it, &[(170, 2), (171, 2), (172, 2), (173, 2), (174, 2)]),
        changed: &[(170, 2), (171, 2), (172, 2), (173, 2), (174, 2)],
        ..of("store")
    },
    Operation {
        run: |it| versions(it, &[(1050, 2), (1051, 2)]),
        changed: &[(1050, 2), (1051, 2)],
        ..of("store in a new part")
    },
    Operation {
        prepare: |it| fill_up(it, WhenFull::Wait),
        run: overfill,
        changed: &ADDED,
        ..of("store that writes pages back")
    },
    Operation {
        prepare: |it| {
            disk(it).set_auto(true).unwrap();
            disk(it).limit_writeback(true);
            fill_up(it, WhenFull::Wait);
        },
        run: |it| {
            let before = disk(it).stats().pool_bytes;
            versions(it, &ADDED_FEW);
            assert!(disk(it).stats().pool_bytes < before, "pages moved");
        },
        changed: &ADDED_FEW,
        ..of("store that moves pages down")
    },
    Operation {
        prepare: |it| fill_up(it, WhenFull::Spill),
        run: overfill,
        changed: &ADDED,
        ..of("store that spills")
    },
    Operation {
        run: |it| versions(it, &[(10, 6), (11, 6), (12, 6), (13, 6)]),
        changed: &[(10, 6), (11, 6), (12, 6), (13, 6)],
        ..of("overwrite")
    },
    Operation {
        run: |it| beside_snapshot(it, &[(10, 6), (11, 6), (150, 6)]),
        changed: &[(10, 6), (11, 6), (150, 6)],
        ..of("overwrite beside a snapshot")
    },
    Operation {
        prepare: all_on_device,
        run: |it| beside_snapshot(it, &[(40, 5), (41, 6), (150, 6)]),
        changed: &[(40, 5), (41, 6), (150, 6)],
        ..of("overwrite on the device beside a snapshot")
    },
    Operation {
        run: |it| versions(it, &[(20, 5), (21, 5), (22, 5)]),
        changed: &[(20, 5), (21, 5), (22, 5)],
        ..of("modify")
    },
    Operation {
        run: |it| disk(it).discard_pages(CPU, 30, 3).unwrap(),
        changed: &[(30, 0), (31, 0), (32, 0)],
        ..of("discard")
    },
    Operation {
        run: |it| disk(it).discard_pages(CPU, 0, WRITTEN).unwrap(),
        changed: &ALL_EMPTY,
        ..of("discard all")
    },
    Operation { run: read_all, ..of("load") },
    Operation {
        prepare: thin_out,
        run: compact,
        changed: &THINNED,
        prepared: true,
        ..of("compact")
    },
    Operation { run: recompress, ..of("compress again") },
    Operation { prepare: all_idle, run: write_back, ..of("write back") },
    Operation { prepare: all_on_device, run: read_all, ..of("load from the device") },
    Operation {
        prepare: all_on_device,
        run: |it| versions(it, &[(40, 5), (41, 6), (42, 5)]),
        changed: &[(40, 5), (41, 6), (42, 5)],
        ..of("change on the device")
    },
    Operation { prepare: all_idle, run: pack, ..of("pack") },
    Operation { prepare: all_idle, run: share, alike: true, ..of("share") },
    Operation { prepare: all_old, run: move_pages, alike: true, ..of("compare") },
    Operation {
        prepare: |it| {
            all_old(it);
            allow_reads_of(it, 20);
        },
        run: move_pages,
        alike: true,
        ..of("move down to warm")
    },
    Operation {
        prepare: |it| {
            all_old(it);
            allow_reads_of(it, 20);
            move_pages(it);
            allow_reads_of(it, 0);
            it.set_clock(OLD + 600);
        },
        run: move_pages,
        alike: true,
        ..of("move down to cold")
    },
    Operation {
        prepare: |it| {
            all_old(it);
            pass(it);
            it.set_clock(OLD + 600);
        },
        run: move_pages,
        ..of("move down past warm")
    },
    Operation {
        prepare: |it| {
            all_old(it);
            move_pages(it);
            it.set_clock(OLD + 600);
            move_pages(it);
            it.set_clock(OLD + 610);
            read_all(it);
            move_pages(it);
            it.set_clock(OLD + 620);
            read_all(it);
        },
        run: move_pages,
        alike: true,
        ..of("move up")
    },
    Operation { prepare: all_cold, run: move_out, ..of("move out") },
    Operation { prepare: all_cold, run: move_out, log: true, ..of("move out to a log") },
    Operation {
        prepare: |it| {
            all_cold(it);
            move_out(it);
            use_all(it, OLD + 3000);
        },
        run: move_back,
        ..of("move back")
    },
    Operation {
        prepare: all_packed,
        run: |it| {
            disk(it).discard_pages(CPU, 30, 3).unwrap();
            versions(it, &[(10, 6), (11, 6), (20, 5), (21, 5)]);
        },
        changed: &[(30, 0), (31, 0), (32, 0), (10, 6), (11, 6), (20, 5), (21, 5)],
        ..of("change what is packed")
    },
    Operation {
        prepare: |it| {
            all_packed(it);
            thin_out(it);
        },
        run: |it| _ = disk(it).pack(&Pack::default()).unwrap(),
        changed: &THINNED,
        prepared: true,
        ..of("pack what is left")
    },
    Operation {
        prepare: all_shared,
        run: |it| disk(it).discard_pages(CPU, 0, WRITTEN).unwrap(),
        changed: &ALL_EMPTY,
        alike: true,
        ..of("discard what is shared")
    },
    Operation {
        prepare: |it| {
            all_shared(it);
            thin_out(it);
        },
        run: |it| _ = disk(it).compact().unwrap(),
        changed: &THINNED,
        prepared: true,
        alike: true,
        ..of("compact what is shared")
    },
    Operation {
        prepare: |it| {
            all_shared(it);
            all_packed(it);
        },
        run: write_back,
        alike: true,
        ..of("write back what is shared")
    },
    Operation { prepare: all_idle, run: write_back, log: true, ..of("write back to a log") },
    Operation { prepare: all_in_old_log, run: clean_log, log: true, ..of("clean a log") },
    Operation {
        prepare: all_on_device,
        run: |it| versions(it, &[(40, 5), (41, 6), (42, 5)]),
        changed: &[(40, 5), (41, 6), (42, 5)],
        log: true,
        ..of("change what is in a log")
    },
    Operation {
        run: change_codec,
        changed: &[(50, 6), (171, 2), (172, 2)],
        ..of("change the codec")
    },
    Operation { run: all_idle_again, ..of("mark idle") },
    Operation {
        run: |it| {
            disk(it).resize(2 * PAGES * PAGE_SIZE as u64).unwrap();
            versions(it, &[(2100, 2), (2101, 2), (2102, 2)]);
        },
        changed: &[(2100, 2), (2101, 2), (2102, 2)],
        sizes: &[PAGES, 2 * PAGES],
        ..of("grow")
    },
    Operation {
        run: |it| disk(it).resize(WRITTEN * PAGE_SIZE as u64).unwrap(),
        sizes: &[PAGES, WRITTEN],
        ..of("shrink")
    },
    Operation { run: |it| disk(it).reset().unwrap(), sizes: &[PAGES, 0], ..of("reset") },
    Operation { run: make_clone, ..of("clone") },
    Operation {
        prepare: |it| {
            all_packed(it);
            all_on_device(it);
            read_all(it);
        },
        run: make_clone,
        ..of("clone from the device")
    },
    Operation { prepare: all_shared, run: make_clone, alike: true, ..of("clone what is shared") },
    Operation { prepare: make_clone, run: make_clone, clone: Some(&[]), ..of("clone again") },
    Operation {
        prepare: make_clone,
        run: |it| versions(it, &[(10, 6), (11, 6), (20, 5), (170, 2)]),
        changed: &[(10, 6), (11, 6), (20, 5), (170, 2)],
        clone: Some(&[]),
        ..of("overwrite what a clone shares")
    },
    Operation {
        prepare: make_clone,
        run: |it| clone_versions(it, &[(10, 6), (11, 6), (20, 5), (170, 2)]),
        clone: Some(&[(10, 6), (11, 6), (20, 5), (170, 2)]),
        ..of("overwrite in a clone")
    },
    Operation {
        prepare: |it| {
            make_clone(it);
            thin_out(it);
            for page in (0..WRITTEN).filter(|page| page % 4 != 0) {
                clone(it).discard_pages(CPU, page, 1).unwrap();
            }
        },
        run: |it| _ = disk(it).compact().unwrap(),
        changed: &THINNED,
        prepared: true,
        clone: Some(&THINNED),
        ..of("compact what a clone shares")
    },
    Operation {
        prepare: |it| {
            make_clone(it);
            (0..WRITTEN).for_each(|page| make(&clone(it), CPU, (page, page), BEFORE));
            all_idle(it);
        },
        run: write_back,
        clone: Some(&[]),
        ..of("write back beside a clone")
    },
    Operation {
        prepare: make_clone,
        run: |it| {
            clone(it).resize(WRITTEN * PAGE_SIZE as u64).unwrap();
            clone(it).resize(PAGES * PAGE_SIZE as u64).unwrap();
            clone_versions(it, &[(170, 2)]);
        },
        clone: Some(&[(170, 2)]),
        clone_sizes: &[PAGES, WRITTEN, PAGES],
        ..of("shrink and grow a clone")
    },
    Operation {
        prepare: |it| {
            make_clone(it);
            versions(it, &[(10, 6), (11, 6), (20, 5)]);
            make_clone(it);
            it.remove(2).unwrap();
        },
        run: |it| it.remove(1).unwrap(),
        changed: &[(10, 6), (11, 6), (20, 5)],
        prepared: true,
        clone: Some(&[]),
        clone_sizes: &[PAGES, 0],
        ..of("remove a clone")
    },
];

pub fn cases() -> impl Iterator<Item = Case> {
    OPERATIONS.iter().map(|it| Case {
        name: it.name,
        machine: match it {
            Operation { alike: true, .. } => alike_machine,
            Operation { log: true, .. } => log_machine,
            _ => new_machine,
        },
        prepare: it.prepare,
        run: it.run,
        check: Box::new(|machine, done| it.check(machine, done)),
    })
}

const fn of(name: &'static str) -> Operation {
    Operation {
        name,
        prepare: |_| (),
        run: |_| (),
        changed: &[],
        sizes: &[PAGES],
        prepared: false,
        alike: false,
        log: false,
        clone: None,
        clone_sizes: &[PAGES],
    }
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

/// New pages, for which a disk near its limit has no room.
static ADDED: [(u64, u64); 24] = added();
static ADDED_FEW: [(u64, u64); 12] = added();

const fn added<const COUNT: usize>() -> [(u64, u64); COUNT] {
    let mut all = [(0, 2); COUNT];
    let mut page = 0;
    while page < COUNT {
        all[page].0 = 170 + page as u64;
        page += 1;
    }
    all
}

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

fn disk(machine: &Machine) -> Arc<Disk> {
    machine.disk(0).unwrap()
}

fn clone(machine: &Machine) -> Arc<Disk> {
    machine.disk(1).unwrap()
}

fn make_clone(machine: &Machine) {
    machine.clone_disk(&disk(machine)).unwrap();
}

fn clone_versions(machine: &Machine, changed: &[(u64, u64)]) {
    for (page, version) in changed {
        make(&clone(machine), CPU, (*page, *page), *version);
    }
}

fn new_machine(memory: &Memfds, directory: &Path) -> Machine {
    machine_with(memory, directory, |index| index, ("pages", 200 * PAGE_SIZE as u64))
}

fn alike_machine(memory: &Memfds, directory: &Path) -> Machine {
    machine_with(memory, directory, |index| index % 20, ("pages", 200 * PAGE_SIZE as u64))
}

fn log_machine(memory: &Memfds, directory: &Path) -> Machine {
    machine_with(memory, directory, |index| index, ("log", 3 << 20))
}

/// A machine with a disk, the page that is at each index, and how its backing device is used.
fn machine_with(
    memory: &Memfds,
    directory: &Path,
    page: fn(u64) -> u64,
    (layout, bytes): (&str, u64),
) -> Machine {
    let machine = Machine::kept(memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let disk = machine.add().unwrap();
    disk.set_algorithm_at(1, "zstd").unwrap();
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(bytes).unwrap();
    let attributes = attributes(disk.clone());
    let set = |name, value: &str| control::Object::store(&attributes, name, value).unwrap();
    set("track_access", "1");
    set("sealed_backing", "0");
    set("backing_layout", layout);
    set("backing_dev", backing.to_str().unwrap());
    set("compressed_writeback", "1");
    set("disksize", &(PAGES * PAGE_SIZE as u64).to_string());
    for index in 0..WRITTEN {
        make(&disk, CPU, (page(index), index), 2);
        make(&disk, CPU, (page(index), index), BEFORE);
    }
    machine
}

/// Changes pages while a snapshot is taken, which has what they were.
fn beside_snapshot(machine: &Machine, changed: &[(u64, u64)]) {
    let mut snapshot = disk(machine).snapshot(0).unwrap();
    snapshot.next_bytes().unwrap();
    versions(machine, changed);
    while snapshot.next_bytes().unwrap().is_some() {}
}

fn versions(machine: &Machine, changed: &[(u64, u64)]) {
    for (page, version) in changed {
        make(&disk(machine), CPU, (*page, *page), *version);
    }
}

fn read_all(machine: &Machine) {
    let mut bytes = [0; PAGE_SIZE];
    for page in 0..WRITTEN {
        disk(machine).load_page(CPU, page, &mut bytes).unwrap();
    }
}

fn thin_out(machine: &Machine) {
    for page in (0..WRITTEN).filter(|page| page % 4 != 0) {
        disk(machine).discard_pages(CPU, page, 1).unwrap();
    }
}

fn compact(machine: &Machine) {
    assert!(disk(machine).compact().unwrap() > 0, "frames came free");
}

fn recompress(machine: &Machine) {
    let which = Which { priority: Some(1), algorithm: None };
    disk(machine).recompress(&Recompress { which, ..Recompress::default() }).unwrap();
}

fn all_idle(machine: &Machine) {
    disk(machine).mark_idle(None).unwrap();
}

/// The second in which all pages are old enough to move. In second 0 they were written.
const OLD: u32 = 200;

fn all_old(machine: &Machine) {
    disk(machine).set_auto(true).unwrap();
    machine.set_clock(OLD);
}

/// No page moves where reads are slower than so many microseconds; 0 allows all.
fn allow_reads_of(machine: &Machine, slowest_read: u32) {
    let budgets = Budgets { slowest_read, ..Budgets::default() };
    disk(machine).set_budgets(budgets).unwrap();
}

fn pass(machine: &Machine) {
    assert!(!disk(machine).move_pages(1 << 40, &|| 0).unwrap(), "it had time for all");
}

fn move_pages(machine: &Machine) {
    pass(machine);
    let tiers = disk(machine).tier_stats().tiers;
    assert!(tiers.iter().any(|tier| tier.moved + tier.raised > 20), "{tiers:?}");
}

/// Pages moved down to where they can leave from.
fn all_cold(machine: &Machine) {
    let budgets = Budgets { written_a_day: u64::MAX, ..Budgets::default() };
    disk(machine).set_budgets(budgets).unwrap();
    all_old(machine);
    pass(machine);
    machine.set_clock(OLD + 600);
    move_pages(machine);
}

fn move_out(machine: &Machine) {
    for second in [OLD + 2400, OLD + 2500] {
        machine.set_clock(second);
        move_pages(machine);
    }
    let stats = disk(machine).stats();
    assert!(stats.backed_pages > 20, "{stats:?}");
}

/// All pages are used in two seconds, as those that come back are.
fn use_all(machine: &Machine, second: u32) {
    machine.set_clock(second);
    read_all(machine);
    disk(machine).move_pages(1 << 40, &|| 0).unwrap();
    machine.set_clock(second + 10);
    read_all(machine);
}

fn move_back(machine: &Machine) {
    let before = disk(machine).stats().backed_pages;
    disk(machine).move_pages(1 << 40, &|| 0).unwrap();
    let after = disk(machine).stats().backed_pages;
    assert!(after < before, "{before} pages were out, and {after} are");
}

/// The disk is near its limit.
fn fill_up(machine: &Machine, policy: WhenFull) {
    let disk = disk(machine);
    disk.set_mem_limit(disk.stats().pool_bytes + 8 * PAGE_SIZE as u64);
    disk.set_when_full(policy).unwrap();
}

/// Stores more than fits into memory.
fn overfill(machine: &Machine) {
    versions(machine, &ADDED);
    let written = disk(machine).stats().backed_writes;
    assert!(written > 4, "{written} pages were written back");
}

fn all_idle_again(machine: &Machine) {
    all_idle(machine);
    read_all(machine);
}

fn write_back(machine: &Machine) {
    let what = Writeback { select: Some(Select::Idle), pages: Vec::new() };
    disk(machine).writeback(&what).unwrap();
    assert!(disk(machine).stats().backed_pages > 20);
}

fn all_on_device(machine: &Machine) {
    all_idle(machine);
    write_back(machine);
}

/// Half of the pages are stored as they were, and all are written to the log.
fn write_half_again(machine: &Machine) {
    for page in (0..WRITTEN).step_by(2) {
        make(&disk(machine), CPU, (page, page), BEFORE);
    }
    all_idle(machine);
    write_back(machine);
}

/// What is left of each segment, until the next writeback needs to clean one.
fn all_in_old_log(machine: &Machine) {
    all_on_device(machine);
    let is_free = || disk(machine).log_stats().unwrap().free_segments > 1;
    while is_free() {
        write_half_again(machine);
    }
}

fn clean_log(machine: &Machine) {
    let cleaned = || disk(machine).log_stats().unwrap().cleaned_segments;
    let before = cleaned();
    (0..40).find(|_| {
        write_half_again(machine);
        cleaned() > before
    });
    assert!(cleaned() > before, "a segment was cleaned");
}

fn pack(machine: &Machine) {
    let what = Pack { select: Select::Idle, ..Pack::default() };
    assert!(disk(machine).pack(&what).unwrap() > 20);
}

fn share(machine: &Machine) {
    assert!(disk(machine).share(&Share::default()).unwrap() > 20);
}

fn all_packed(machine: &Machine) {
    all_idle(machine);
    disk(machine).pack(&Pack::default()).unwrap();
}

fn all_shared(machine: &Machine) {
    all_idle(machine);
    share(machine);
}

fn change_codec(machine: &Machine) {
    let disk = disk(machine);
    disk.switch_algorithm(0, "zstd", Params::at_level(2)).unwrap();
    versions(machine, &[(50, 6)]);
    let dictionary = Some((0..200).collect::<Vec<u8>>().into());
    let params = Params { dictionary, ..Params::default() };
    disk.switch_algorithm(0, "lz4", params).unwrap();
    versions(machine, &[(171, 2), (172, 2)]);
}

impl Operation {
    /// Checks the size of a disk, and each page; returns the size in pages.
    fn check_pages(&self, disk: &Disk, sizes: &[u64], changed: &[(u64, u64)], done: bool) -> u64 {
        let (size, last) = (disk.bytes() / PAGE_SIZE as u64, *sizes.last().unwrap());
        assert!(size == last || !done && sizes.contains(&size), "{size} pages");
        // Each page is where it should be, and what comes later in the operation is not there
        // before what comes earlier.
        let mut bytes = [0; PAGE_SIZE];
        for page in 0..size {
            disk.load_page(CPU, page, &mut bytes).unwrap();
            let content = if self.alike { page % 20 } else { page };
            let is = |version: u64| bytes == contents(content, version);
            let before = if page < WRITTEN { BEFORE } else { 0 };
            let after = changed.iter().find(|changed| changed.0 == page).map(|it| it.1);
            let right = match after {
                None => is(before),
                Some(after) => is(after) || !done && !self.prepared && is(before),
            };
            assert!(right, "page {page} of {} is no version of itself", disk.name());
        }
        size
    }

    /// Checks what an end of the process left; of an operation that was `done`, all.
    fn check(&self, machine: &Machine, done: bool) {
        let disk = disk(machine);
        let mut bytes = [0; PAGE_SIZE];
        let size = self.check_pages(&disk, self.sizes, self.changed, done);
        let there: Vec<u32> = machine.disks().iter().map(|disk| disk.id()).collect();
        assert_eq!(there, if self.clone.is_some() { &[0, 1][..] } else { &[0] });
        if let Some(changed) = self.clone {
            let clone = clone(machine);
            let size = self.check_pages(&clone, self.clone_sizes, changed, done);
            if size > 0 {
                assert_eq!(clone.clone_of().map(|it| it.id()), Some(0));
                // Each goes on without the other, and a disk gets what a clone gives up.
                clone.store_page(CPU, 1, &contents(9, 2)).unwrap();
                self.check_pages(&disk, self.sizes, self.changed, done);
                make_clone(machine);
                machine.remove(2).unwrap();
                machine.remove(1).unwrap();
                self.check_pages(&disk, self.sizes, self.changed, done);
            }
        }
        if size > 0 && disk.backing_log() {
            // So is its log, also when it is cleaned: each page stays what it is.
            let read = |page: u64| {
                let mut bytes = [0; PAGE_SIZE];
                disk.load_page(CPU, page, &mut bytes).unwrap();
                bytes
            };
            let before: Vec<Page> = (0..WRITTEN).map(read).collect();
            let stats = || disk.log_stats().unwrap();
            for _ in 0..60 {
                if stats().cleaned_segments > 0 {
                    break;
                }
                for (page, bytes) in (0..).zip(&before).step_by(2) {
                    disk.store_page(CPU, page, bytes).unwrap();
                }
                all_idle(machine);
                write_back(machine);
            }
            assert!((0..).zip(&before).all(|(page, bytes)| read(page) == *bytes));
            assert!(stats().cleaned_segments > 0, "a segment was cleaned: {:?}", stats());
        }
        if size > 0 {
            // It is a disk as any other.
            let other: Page = contents(7, 2);
            disk.store_page(CPU, 0, &other).unwrap();
            disk.compact().unwrap();
            disk.load_page(CPU, 0, &mut bytes).unwrap();
            assert!(bytes == other);
            assert_eq!(machine.contradictions(), [""; 0]);
        }
    }
}
