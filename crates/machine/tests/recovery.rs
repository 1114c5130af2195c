//! What another process makes of disks in memory that outlives the first: all that is right, and of
//! what cannot be right the pages that it concerns.

#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;
#[path = "recovery/sealed.rs"]
mod sealed;

use kept::recover as try_recover;

use std::fs::File;
use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::IoError;
use control::{Errno, Object};
use host::Memfds;
use machine::Machine;
use testkit::TempDir;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Disk, Recompress, Recovered, SavedDisk, Select, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 600;

/// A page of text and numbers, or of another kind every few pages.
fn contents(page: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (page * 512 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let value = match page % 8 {
            0 => page,
            1 => mixed,
            2 => page << 32,
            _ if n % 5 == 0 => mixed,
            _ => n as u64,
        };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

fn set(disk: &Arc<Disk>, name: &str, value: &str) {
    attributes(disk.clone()).store(name, value).unwrap();
}

fn show(disk: &Arc<Disk>, name: &str) -> String {
    attributes(disk.clone()).show(name).unwrap()
}

fn fill(disk: &Disk, pages: std::ops::Range<u64>) {
    for page in pages {
        disk.store_page(CPU, page, &contents(page)).unwrap();
    }
}

fn machine() -> (Memfds, Machine) {
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
    (memory, machine)
}

fn sized(machine: &Machine) -> Arc<Disk> {
    let disk = machine.add().unwrap();
    disk.set_algorithm_at(1, "zstd").unwrap();
    set(&disk, "disksize", &(PAGES * PAGE_SIZE as u64).to_string());
    disk
}

/// What another process finds when this one has died.
fn dies(memory: &Memfds, machine: Machine) -> (Memfds, Vec<SavedDisk>) {
    let (regions, disks) = (memory.regions(), machine.saved());
    forget(machine);
    (kept::adopted(&regions), disks)
}

/// Gives the last disk a copy of its backing file: this process has the first one locked.
fn move_backing(disks: &mut [SavedDisk]) {
    let settings = &mut disks.last_mut().unwrap().settings;
    let (_, path) = settings.iter_mut().find(|(name, _)| name == "backing_dev").unwrap();
    let copy = format!("{path}.copy");
    std::fs::copy(&*path, &copy).unwrap();
    *path = copy;
}

fn refusal(memory: &Memfds, disks: &[SavedDisk]) -> (Errno, String) {
    let error = try_recover(memory, disks).err().expect("a refusal");
    (error.errno, error.message)
}

fn load(disk: &Disk, page: u64) -> Result<Page, IoError> {
    let mut bytes = [0; PAGE_SIZE];
    disk.load_page(CPU, page, &mut bytes).map(|()| bytes)
}

fn region(memory: &Memfds, name: &str) -> Arc<File> {
    let regions = memory.regions();
    regions.into_iter().find(|region| region.name == name).expect(name).file
}

fn read_word(memory: &Memfds, name: &str, at: u64) -> u64 {
    let mut bytes = [0; 8];
    region(memory, name).read_exact_at(&mut bytes, at * 8).unwrap();
    u64::from_ne_bytes(bytes)
}

fn write_word(memory: &Memfds, name: &str, at: u64, word: u64) {
    region(memory, name).write_all_at(&word.to_ne_bytes(), at * 8).unwrap();
}

const SLOTS: &str = "zram0.1.slots";
const RECORD: &str = "zram0.1.record";

/// The disk of a recovered machine on which each page of `lost` is lost, and no other.
fn check(machine: &Machine, told: &Recovered, lost: &[u64]) -> Arc<Disk> {
    let disk = machine.disk(0).unwrap();
    for page in 0..PAGES {
        match lost.contains(&page) {
            true => assert_eq!(load(&disk, page), Err(IoError::Corrupt), "page {page}"),
            false => assert!(load(&disk, page) == Ok(contents(page)), "page {page}"),
        }
    }
    assert_eq!(told.lost, lost.len() as u64, "{:?}", told.findings.told);
    assert_eq!(disk.stats().lost_pages, lost.len() as u64);
    assert_eq!(machine.contradictions(), [""; 0]);
    disk.validate();
    disk
}

#[test]
fn a_word_that_cannot_be_costs_its_page_only() {
    // Pages 3 to 7 of eight are compressed, 8 is same-filled, 9 is huge, 10 a pattern.
    type Damage = fn(u64) -> u64;
    let damages: &[(u64, Damage, &str)] = &[
        (11, |word| word | 1 << 60, "says nothing that can be (K14)"),
        (11, |word| word | 1 << 57, "says nothing that can be (K14)"),
        (11, |word| word & !(0x1fff << 32), "says nothing that can be (K14)"),
        (11, |word| word | 0x1fff << 32, "says nothing that can be (K14)"),
        (11, |word| word | 9 << 45, "nothing was kept of its codec 9 (K15)"),
        (11, |word| word & !0xffff_ffff | 5, "there is no zspage 0 (K16)"),
        (11, |word| word | 0xffff_ffff, "there is no zspage"),
        (11, |word| word | 0x7f, "no such slot (K16)"),
        (11, |word| word & !(3 << 50) | 3 << 50, "there is no backing device (K18)"),
        (8, |word| word | 1 << 40, "says nothing that can be (K14)"),
        (9, |word| word | 1 << 45, "says nothing that can be (K14)"),
        (10, |word| word | 1 << 32, "says nothing that can be (K14)"),
        (300, |_| 1 << 55, "says nothing that can be (K14)"),
    ];
    for (page, damage, said) in damages {
        let (memory, machine) = machine();
        fill(&sized(&machine), 0..PAGES);
        let (memory, disks) = dies(&memory, machine);
        let word = read_word(&memory, SLOTS, *page);
        write_word(&memory, SLOTS, *page, damage(word));
        let (machine, told) = try_recover(&memory, &disks).unwrap();
        let found = &told[0].findings.told;
        assert!(found.len() == 1 && found[0].contains(said), "{said}: {found:?}");
        assert!(found[0].starts_with(&format!("page {page} of zram0: ")), "{found:?}");
        let disk = check(&machine, &told[0], &[*page]);
        // A change of a part needs what is lost. A whole page does not, nor does a discard.
        let part = block::Operation::Write { offset: page * PAGE_SIZE as u64, from: &[1] };
        let context = block::Context::waiting(CPU);
        let refused = block::BlockDevice::perform(&*disk, context, part);
        assert_eq!(refused, Err(IoError::Corrupt));
        assert_eq!(show(&disk, "lost_pages"), "1\n");
        // It stays lost for the next process.
        let (memory, disks) = dies(&memory, machine);
        let (machine, told) = try_recover(&memory, &disks).unwrap();
        assert_eq!(told[0].findings.all, 0);
        let disk = check(&machine, &told[0], &[*page]);
        fill(&disk, *page..*page + 1);
        assert!(load(&disk, *page) == Ok(contents(*page)));
        assert_eq!(show(&disk, "lost_pages"), "0\n");
        assert_eq!(machine.contradictions(), [""; 0]);
    }
}

#[test]
fn two_pages_with_one_object_are_both_lost() {
    let (memory, machine) = machine();
    fill(&sized(&machine), 0..PAGES);
    let (memory, disks) = dies(&memory, machine);
    write_word(&memory, SLOTS, 500, read_word(&memory, SLOTS, 11));
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].findings.all, 2, "{:?}", told[0].findings.told);
    let disk = check(&machine, &told[0], &[11, 500]);
    disk.discard_pages(CPU, 11, 1).unwrap();
    fill(&disk, 500..501);
    assert_eq!((load(&disk, 11), disk.stats().lost_pages), (Ok([0; PAGE_SIZE]), 0));
}

#[test]
fn locks_claims_and_marks_of_the_dead_are_released() {
    let (memory, machine) = machine();
    fill(&sized(&machine), 0..PAGES);
    let (memory, disks) = dies(&memory, machine);
    for (page, bits) in
        [(8, 1 << 63), (9, 3 << 62), (10, 1 << 52), (11, 1 << 53), (12, 1 << 63 | 3 << 52)]
    {
        write_word(&memory, SLOTS, page, read_word(&memory, SLOTS, page) | bits);
    }
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].findings.all, 0);
    let disk = check(&machine, &told[0], &[]);
    fill(&disk, 0..PAGES);
    check(&machine, &told[0], &[]);
}

#[test]
fn codecs_come_back_under_their_numbers() {
    let (memory, machine) = machine();
    let disk = sized(&machine);
    fill(&disk, 0..100);
    disk.switch_algorithm(0, "zstd", Params::at_level(3)).unwrap();
    fill(&disk, 100..200);
    let dictionary = Some(contents(3)[..1000].to_vec().into());
    let with =
        |level: Option<i32>| Params { level, dictionary: dictionary.clone(), window_bits: None };
    disk.switch_algorithm(0, "zstd", with(Some(-4))).unwrap();
    fill(&disk, 200..300);
    disk.switch_algorithm(0, "lz4", with(None)).unwrap();
    fill(&disk, 300..400);
    let windowed = Params { level: Some(2), window_bits: Some(-13), dictionary: None };
    disk.switch_algorithm(1, "deflate", windowed).unwrap();
    disk.recompress(&Recompress { max_pages: Some(50), ..Recompress::default() }).unwrap();
    disk.switch_algorithm(0, "lzo-rle", Params::default()).unwrap();
    fill(&disk, 400..PAGES);
    let was = ["comp_algorithm", "recomp_algorithm"].map(|name| show(&disk, name));
    let sizes = disk.stats().compressed_bytes;
    let (memory, disks) = dies(&memory, machine);
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].findings.all, 0);
    let disk = check(&machine, &told[0], &[]);
    assert_eq!(["comp_algorithm", "recomp_algorithm"].map(|name| show(&disk, name)), was);
    assert_eq!((told[0].compressed_bytes, told[0].pages), (sizes, PAGES));
    // The codecs make new objects as before: to the byte.
    fill(&disk, 400..PAGES);
    assert_eq!(disk.stats().compressed_bytes, sizes);
}

#[test]
fn a_damaged_codec_costs_its_pages_and_one_in_use_refuses_the_disk() {
    let (memory, machine) = machine();
    let disk = sized(&machine);
    fill(&disk, 3..4);
    disk.switch_algorithm(0, "842", Params::default()).unwrap();
    fill(&disk, 0..3);
    fill(&disk, 4..PAGES);
    let (memory, disks) = dies(&memory, machine);
    // Codec 0 was lz4, 1 is zstd, 2 is 842: 16 words, then 16 and a dictionary's for each.
    let codec = |number: u64| 16 + number * (16 + (1 << 17));
    let level = read_word(&memory, RECORD, codec(0) + 2);
    write_word(&memory, RECORD, codec(0) + 2, level ^ 3);
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    let found = &told[0].findings.told;
    assert_eq!(found[0], "what was kept of codec 0 is damaged (K7)");
    assert_eq!(found[1], "page 3 of zram0: nothing was kept of its codec 0 (K15)");
    check(&machine, &told[0], &[3]);
    let (memory, disks) = dies(&memory, machine);
    write_word(&memory, RECORD, codec(2), 0);
    let (errno, text) = refusal(&memory, &disks);
    assert_eq!(errno, Errno::EINVAL);
    let said = "zram0 cannot be recovered: nothing was kept of its primary codec (K7)";
    assert_eq!(text, said);
}

/// The device keeps its codecs itself only when it has a size.
#[test]
fn codecs_come_back_of_a_disk_that_has_no_size_yet() {
    let (memory, machine) = machine();
    let disk = machine.add().unwrap();
    for (name, value) in [
        ("comp_algorithm", "zstd"),
        ("algorithm_params", "priority=0 level=3"),
        ("recomp_algorithm", "algo=deflate priority=2"),
        // It is refused with the size, and not before.
        ("algorithm_params", "priority=2 level=99 deflate.winbits=-12"),
        ("algorithm_params", "priority=3 level=7"),
    ] {
        set(&disk, name, value);
    }
    let (memory, disks) = dies(&memory, machine);
    let (machine, _) = try_recover(&memory, &disks).unwrap();
    let disk = machine.disk(0).unwrap();
    assert!(show(&disk, "comp_algorithm").contains("[zstd]"));
    assert!(show(&disk, "recomp_algorithm").starts_with("#2: "));
    assert!(show(&disk, "recomp_algorithm").contains("[deflate]"));
    assert_eq!(machine.saved(), disks);
    assert!(zram::attributes(disk.clone()).store("disksize", "1M").is_err());
    set(&disk, "algorithm_params", "priority=2 level=9");
    set(&disk, "disksize", "1M");
    let saved = machine.saved();
    assert!(saved[0].settings.iter().all(|(name, _)| !name.starts_with("codec")), "{saved:?}");
    drop(disk);
    let (memory, disks) = dies(&memory, machine);
    let (machine, _) = try_recover(&memory, &disks).unwrap();
    assert!(show(&machine.disk(0).unwrap(), "comp_algorithm").contains("[zstd]"));
}

#[test]
fn settings_and_ages_come_back() {
    let (memory, machine) = machine();
    machine.set_clock(1000);
    let first = machine.add().unwrap();
    let disk = machine.add().unwrap();
    let directory = TempDir::new();
    let backing = directory.path().join("backing");
    File::create(&backing).unwrap().set_len(100 * PAGE_SIZE as u64).unwrap();
    for (name, value) in [
        ("track_access", "1"),
        ("sealed_backing", "0"),
        ("backing_dev", backing.to_str().unwrap()),
        ("compressed_writeback", "1"),
        ("mem_limit", "40M"),
        ("max_comp_streams", "2"),
        ("writeback_limit", "70"),
        ("writeback_limit_enable", "1"),
        ("writeback_batch_size", "7"),
        ("disksize", "2400K"),
    ] {
        set(&disk, name, value);
    }
    fill(&disk, 0..20);
    machine.set_clock(2000);
    fill(&disk, 20..40);
    disk.mark_idle(Some(500)).unwrap();
    let what = Writeback { select: Some(Select::Idle), pages: Vec::new() };
    disk.writeback(&what).unwrap();
    let stats = disk.stats();
    assert!(stats.backed_pages > 5, "{stats:?}");
    let state = show(&disk, "block_state");
    let was = disk.stats();
    let (memory, mut disks) = dies(&memory, machine);
    drop(first);
    move_backing(&mut disks);
    assert_eq!(disks.iter().map(|disk| disk.bytes).collect::<Vec<_>>(), [0, 2400 << 10]);
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!((told.len(), told[0].id, told[0].findings.all), (1, 1, 0));
    let disk = machine.disk(1).unwrap();
    assert_eq!(show(&disk, "block_state"), state);
    for (name, value) in [
        ("track_access", "1"),
        ("sealed_backing", "0"),
        ("compressed_writeback", "1"),
        ("max_comp_streams", "2"),
        ("writeback_limit_enable", "1"),
        ("writeback_batch_size", "7"),
        ("disksize", "2457600"),
    ] {
        assert_eq!(show(&disk, name), format!("{value}\n"), "{name}");
    }
    let now = disk.stats();
    assert_eq!(now.mem_limit, 40 << 20);
    assert_eq!(
        (now.pages_stored, now.compressed_bytes, now.same_filled_pages, now.huge_pages),
        (was.pages_stored, was.compressed_bytes, was.same_filled_pages, was.huge_pages)
    );
    assert_eq!((now.backed_pages, now.pool_bytes), (was.backed_pages, was.pool_bytes));
    for page in 0..40 {
        assert!(load(&disk, page) == Ok(contents(page)), "page {page}");
    }
    // The blocks that pages have are in use, and those of no page are free.
    set(&disk, "writeback_limit_enable", "0");
    disk.mark_idle(None).unwrap();
    disk.writeback(&what).unwrap();
    for page in 0..40 {
        assert!(load(&disk, page) == Ok(contents(page)), "page {page}");
    }
    assert_eq!(machine.contradictions(), [""; 0]);
}

/// Only what an administrator changes is saved. A page that is written back changes what is left,
/// and a disk whose daemon ends again and again must not begin anew each time.
#[test]
fn what_is_left_of_the_writeback_limit_outlives_the_process() {
    let directory = TempDir::new();
    let (memory, machine) = machine();
    let disk = machine.add().unwrap();
    let backing = directory.path().join("backing");
    File::create(&backing).unwrap().set_len(100 * PAGE_SIZE as u64).unwrap();
    for (name, value) in [
        ("sealed_backing", "0"),
        ("backing_dev", backing.to_str().unwrap()),
        ("writeback_limit", "70"),
        ("writeback_limit_enable", "1"),
        ("disksize", &(PAGES * PAGE_SIZE as u64).to_string()),
    ] {
        set(&disk, name, value);
    }
    fill(&disk, 0..40);
    let mut saved = machine.saved();
    let write_back = |disk: &Disk, pages| {
        disk.writeback(&Writeback { select: None, pages: vec![pages] }).unwrap();
    };
    write_back(&disk, (1, 3));
    write_back(&disk, (5, 6));
    let written = disk.stats().backed_pages;
    assert!(written > 0);
    assert_eq!(show(&disk, "writeback_limit"), format!("{}\n", 70 - written));
    let (memory, _) = dies(&memory, machine);
    move_backing(&mut saved);
    let (machine, _) = try_recover(&memory, &saved).unwrap();
    let disk = machine.disk(0).unwrap();
    assert_eq!(show(&disk, "writeback_limit"), format!("{}\n", 70 - written));
    // It counts on, and what an administrator sets holds at once.
    write_back(&disk, (9, 9));
    assert_eq!(show(&disk, "writeback_limit"), format!("{}\n", 69 - written));
    set(&disk, "writeback_limit", "8");
    drop(disk);
    let (memory, _) = dies(&memory, machine);
    move_backing(&mut saved);
    let (machine, _) = try_recover(&memory, &saved).unwrap();
    assert_eq!(show(&machine.disk(0).unwrap(), "writeback_limit"), "8\n");
    // An older program kept it with the settings alone.
    let (memory, mut saved) = dies(&memory, machine);
    write_word(&memory, RECORD, 9, 0);
    move_backing(&mut saved);
    let (machine, _) = try_recover(&memory, &saved).unwrap();
    assert_eq!(show(&machine.disk(0).unwrap(), "writeback_limit"), "8\n");
}

#[test]
fn what_cannot_be_recovered_is_refused_and_stays() {
    let (memory, machine) = machine();
    fill(&sized(&machine), 0..PAGES);
    let (regions, disks) = (memory.regions(), machine.saved());
    forget(machine);
    let none = refusal(&Memfds::new(), &disks);
    assert_eq!(none, (Errno::EINVAL, "there is no region \"zram.frames\"".into()));
    let memory = kept::adopted(&regions);
    let error = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).err().unwrap();
    assert_eq!(error.errno, Errno::EBUSY);
    let layout = read_word(&memory, RECORD, 1);
    for other in [2, 7] {
        let memory = kept::adopted(&regions);
        write_word(&memory, RECORD, 1, other);
        let (errno, text) = refusal(&memory, &disks);
        assert_eq!(errno, Errno::EINVAL);
        let said = format!(
            "zram0 cannot be recovered: its record has layout {other}; this program reads layouts \
             3 to 6 (K5)"
        );
        assert_eq!(text, said);
    }
    let memory = kept::adopted(&regions);
    write_word(&memory, RECORD, 1, layout);
    let mut later = disks.clone();
    later[0].generation = 2;
    let (errno, text) = refusal(&memory, &later);
    assert_eq!(errno, Errno::EINVAL);
    assert_eq!(text, "zram0 cannot be recovered: its record is none (K5)");
    let memory = kept::adopted(&regions);
    let twice = [disks[0].clone(), disks[0].clone()];
    let (errno, text) = refusal(&memory, &twice);
    assert_eq!((errno, &*text), (Errno::EEXIST, "there are two devices zram0"));
    let memory = kept::adopted(&regions);
    let mut wrong = disks.clone();
    wrong[0].settings.push(("mem_limit".into(), "much".into()));
    let (errno, text) = refusal(&memory, &wrong);
    assert_eq!(errno, Errno::EINVAL);
    assert!(text.starts_with("mem_limit of zram0: "), "{text}");
    // After all that, everything is there.
    let (machine, told) = try_recover(&kept::adopted(&regions), &disks).unwrap();
    check(&machine, &told[0], &[]);
}

#[test]
fn a_disk_that_was_reset_comes_back_without_a_size() {
    let (memory, machine) = machine();
    let disk = sized(&machine);
    fill(&disk, 0..PAGES);
    let (saved, regions) = (machine.saved(), memory.regions());
    disk.reset().unwrap();
    assert_eq!(machine.frames().stats().allocated, 0);
    forget(machine);
    let memory = kept::adopted(&regions);
    let (machine, told) = try_recover(&memory, &saved).unwrap();
    assert_eq!((told, machine.disk(0).unwrap().bytes()), (Vec::new(), 0));
    // A new size is a new generation, of which nothing is left of the old one.
    let disk = machine.disk(0).unwrap();
    set(&disk, "disksize", "1M");
    assert_eq!(load(&disk, 3), Ok([0; PAGE_SIZE]));
}

#[test]
fn a_machine_that_is_dropped_leaves_its_disks() {
    let (memory, machine) = machine();
    let disk = sized(&machine);
    fill(&disk, 0..PAGES);
    let (saved, regions) = (machine.saved(), memory.regions());
    drop(disk);
    drop(machine);
    for _ in 0..2 {
        let (machine, told) = try_recover(&kept::adopted(&regions), &saved).unwrap();
        check(&machine, &told[0], &[]);
        drop(machine);
    }
    // Who gives a disk up resets it.
    let (machine, _) = try_recover(&kept::adopted(&regions), &saved).unwrap();
    machine.remove(0).unwrap();
    drop(machine);
    let (machine, told) = try_recover(&kept::adopted(&regions), &saved).unwrap();
    assert_eq!((told, machine.disk(0).unwrap().bytes()), (Vec::new(), 0));
    assert_eq!(machine.frames().stats().allocated, 0);
}

/// Stores pages of text until one is refused, and returns their number.
fn texts_that_fit(disk: &Disk) -> u64 {
    let text = |number: u64| {
        let mut page = [0; PAGE_SIZE];
        for (n, word) in page.chunks_exact_mut(8).enumerate() {
            let digits = (number * 131 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
            word.copy_from_slice(format!("{:8}", digits % 100_000).as_bytes());
        }
        page
    };
    (0..PAGES * 4).take_while(|n| disk.store_page(CPU, *n, &text(*n)).is_ok()).count() as u64
}

/// The limits of a device that waits are those of a new one: some frames are for smaller objects.
#[test]
fn a_disk_that_waits_for_room_does_so_in_another_process() {
    let (memory, machine) = machine();
    for _ in 0..2 {
        let disk = machine.add().unwrap();
        let settings = [
            ("comp_algorithm", "lz4"),
            ("recomp_algorithm", "algo=zstd priority=1"),
            ("mem_limit", "1M"),
            ("when_full", "wait"),
            ("disksize", "16M"),
        ];
        settings.iter().for_each(|(name, value)| set(&disk, name, value));
    }
    let fit = texts_that_fit(&machine.disk(0).unwrap());
    let (memory, disks) = dies(&memory, machine);
    let (machine, _) = try_recover(&memory, &disks).unwrap();
    assert_eq!(texts_that_fit(&machine.disk(1).unwrap()), fit);
}

/// Pages that a process before has moved down come up again when they are used.
#[test]
fn a_daemon_before_moved_down() {
    let (memory, machine) = machine();
    machine.set_clock(1000);
    let disk = machine.add().unwrap();
    set(&disk, "track_access", "1");
    set(&disk, "auto", "1");
    set(&disk, "disksize", &(PAGES * PAGE_SIZE as u64).to_string());
    fill(&disk, 0..PAGES);
    let pass = |machine: &Machine, disk: &Disk, seconds: std::ops::Range<u32>| {
        for second in seconds {
            machine.set_clock(second);
            disk.move_pages(1 << 40, &|| 0).unwrap();
        }
    };
    let tiers = |disk: &Disk| disk.tier_stats().tiers;
    pass(&machine, &disk, 1001..2000);
    let before = tiers(&disk);
    assert!(before[1].moved > 0 && before[2].moved > 0, "{before:?}");
    let (memory, disks) = dies(&memory, machine);
    drop(disk);
    let (machine, _) = try_recover(&memory, &disks).unwrap();
    let disk = machine.disk(0).unwrap();
    pass(&machine, &disk, 2000..2010);
    // Twice: one use after a long time says nothing.
    for second in [2010, 2020] {
        machine.set_clock(second);
        (0..PAGES).for_each(|page| assert!(load(&disk, page) == Ok(contents(page))));
        pass(&machine, &disk, second + 1..second + 10);
    }
    let raised = [1, 2].map(|tier| tiers(&disk)[tier].raised);
    assert!(raised.iter().all(|raised| *raised > 0), "{raised:?} of {before:?}");
    assert_eq!(machine.contradictions(), [""; 0]);
}
