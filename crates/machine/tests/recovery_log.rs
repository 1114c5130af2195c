//! What another process makes of disks with a log on their backing device.

#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use kept::recover as try_recover;

use std::fs::File;
use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use block::IoError;
use control::{Errno, Object};
use host::Memfds;
use machine::Machine;
use testkit::{Rng, TempDir};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, LogStats, SavedDisk, Select, Writeback, attributes};

const CPU: Cpu = Cpu(0);
/// They fill most of one segment of three.
const PAGES: u64 = 400;
const MIB: u64 = 1 << 20;
const SLOTS: &str = "zram0.1.slots";
const LOG: &str = "zram0.1.log";

/// Half of it does not shrink.
fn contents(version: u64) -> Page {
    let mut page = [version as u8; PAGE_SIZE];
    Rng::new(version).fill(&mut page[..PAGE_SIZE / 2]);
    page
}

fn set(disk: &Arc<Disk>, name: &str, value: &str) {
    attributes(disk.clone()).store(name, value).unwrap();
}

fn show(disk: &Arc<Disk>, name: &str) -> String {
    attributes(disk.clone()).show(name).unwrap()
}

/// A disk with a log of three segments.
fn machine(directory: &Path, sealed: bool) -> (Memfds, Machine) {
    machine_on(directory, sealed, 3 * MIB)
}

/// A disk with a log on a device of so many bytes.
fn machine_on(directory: &Path, sealed: bool, bytes: u64) -> (Memfds, Machine) {
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let disk = machine.add().unwrap();
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(bytes).unwrap();
    for (name, value) in [
        ("sealed_backing", if sealed { "1" } else { "0" }),
        ("backing_layout", "log"),
        ("backing_dev", backing.to_str().unwrap()),
        ("disksize", &(PAGES * PAGE_SIZE as u64).to_string()),
    ] {
        set(&disk, name, value);
    }
    (memory, machine)
}

/// What another process finds when this one has died: also a copy of the backing file, because this
/// process has the first one locked.
fn dies(memory: &Memfds, machine: Machine) -> (Memfds, Vec<SavedDisk>) {
    let (regions, mut disks) = (memory.regions(), machine.saved());
    forget(machine);
    let settings = &mut disks[0].settings;
    let (_, path) = settings.iter_mut().find(|(name, _)| name == "backing_dev").unwrap();
    let copy = format!("{path}.copy");
    copy_data(path, &copy);
    *path = copy;
    (kept::adopted(&regions), disks)
}

/// A copy with the holes of the file.
fn copy_data(from: &str, to: &str) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let bytes = from.metadata().unwrap().len();
    to.set_len(bytes).unwrap();
    let mut piece = vec![0; MIB as usize];
    for at in (0..bytes).step_by(MIB as usize) {
        let piece = &mut piece[..MIB.min(bytes - at) as usize];
        from.read_exact_at(piece, at).unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            to.write_all_at(piece, at).unwrap();
        }
    }
}

fn store(disk: &Disk, versions: &mut [u64], page: usize, version: u64) {
    disk.store_page(CPU, page as u64, &contents(version)).unwrap();
    versions[page] = version;
}

fn write_back(disk: &Disk) {
    let what = Writeback { select: Some(Select::Any), pages: Vec::new() };
    disk.writeback(&what).unwrap();
}

fn load(disk: &Disk, page: usize) -> Result<Page, IoError> {
    let mut bytes = [0; PAGE_SIZE];
    disk.load_page(CPU, page as u64, &mut bytes).map(|()| bytes)
}

fn log_stats(disk: &Disk) -> LogStats {
    disk.log_stats().expect("a log")
}

fn word(memory: &Memfds, name: &str, at: u64, change: impl FnOnce(u64) -> u64) {
    let regions = memory.regions();
    let file = &regions.iter().find(|region| region.name == name).expect(name).file;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at * 8).unwrap();
    let word = change(u64::from_ne_bytes(bytes));
    file.write_all_at(&word.to_ne_bytes(), at * 8).unwrap();
}

fn pages_outlive_process_after_process(sealed: bool) {
    let directory = TempDir::new();
    let (mut memory, mut machine) = machine(directory.path(), sealed);
    let mut versions = vec![0; PAGES as usize];
    let mut rng = Rng::new(testkit::seed("pages_outlive_process_after_process"));
    let mut cleaned = 0;
    for round in 1..6 {
        let disk = machine.disk(0).unwrap();
        // The log is rewritten several times, and some pages stay in memory at the end.
        for sweep in 1..8 {
            for page in 0..versions.len() {
                if sweep * round == 1 || rng.one_in(3) {
                    store(&disk, &mut versions, page, (round * 8 + sweep) << 16 | page as u64);
                }
            }
            if sweep < 7 {
                write_back(&disk);
            }
        }
        let was = log_stats(&disk);
        cleaned += was.cleaned_segments;
        assert_eq!(machine.contradictions(), [""; 0]);
        drop(disk);
        let (next, disks) = dies(&memory, machine);
        let (recovered, told) = try_recover(&next, &disks).unwrap();
        assert_eq!((told[0].lost, &told[0].findings.told[..]), (0, &[][..]), "round {round}");
        let disk = recovered.disk(0).unwrap();
        for (page, version) in versions.iter().enumerate() {
            assert!(load(&disk, page) == Ok(contents(*version)), "round {round}, page {page}");
        }
        let is = log_stats(&disk);
        assert_eq!((is.live_bytes, is.segments), (was.live_bytes, 3));
        assert_eq!(show(&disk, "backing_layout"), "log\n");
        assert_eq!((disk.layout(), recovered.contradictions()), (5, Vec::new()));
        drop(disk);
        (memory, machine) = (next, recovered);
    }
    assert!(cleaned > 3, "{cleaned}");
    // What is given up goes, and a new size begins anew.
    let disk = machine.disk(0).unwrap();
    set(&disk, "reset", "1");
    assert!(memory.regions().iter().all(|region| !region.name.starts_with("zram0.")));
}

#[test]
fn a_log_outlives_process_after_process() {
    pages_outlive_process_after_process(false);
}

#[test]
fn a_sealed_log_outlives_process_after_process() {
    pages_outlive_process_after_process(true);
}

/// Every page is on the backing device.
fn written_back(directory: &Path, sealed: bool) -> (Memfds, Vec<SavedDisk>) {
    let (memory, machine) = machine(directory, sealed);
    let disk = machine.disk(0).unwrap();
    let mut versions = vec![0; PAGES as usize];
    for page in 0..versions.len() {
        store(&disk, &mut versions, page, page as u64);
    }
    write_back(&disk);
    assert_eq!(disk.stats().backed_pages, PAGES);
    drop(disk);
    dies(&memory, machine)
}

#[test]
fn what_cannot_be_costs_its_pages_only() {
    type Damage = fn(&Memfds);
    // The word of page 7, and that of the first segment, which has all pages.
    let damages: &[(&str, &[u64], Damage)] = &[
        ("its place is beyond the end of the log (K25)", &[7], |it| {
            word(it, SLOTS, 7, |word| word | 0xffff_ffff);
        }),
        ("its place is in a segment of the log that is free (K25)", &[7], |it| {
            word(it, SLOTS, 7, |word| word & !0xffff_ffff | (MIB / 64));
        }),
        ("its place is behind what was written to its segment of the log (K25)", &[7], |it| {
            word(it, SLOTS, 7, |word| word & !0xffff_ffff | (MIB / 64 - 1));
        }),
        ("nothing was kept of its codec 9 (K15)", &[7], |it| {
            word(it, SLOTS, 7, |word| word | 9 << 45);
        }),
    ];
    for (said, lost, damage) in damages {
        let directory = TempDir::new();
        let (memory, disks) = written_back(directory.path(), false);
        damage(&memory);
        let (machine, told) = try_recover(&memory, &disks).unwrap();
        let found = &told[0].findings.told;
        assert!(found.len() == 1 && found[0].ends_with(said), "{said}: {found:?}");
        let disk = machine.disk(0).unwrap();
        for page in 0..PAGES {
            match lost.contains(&page) {
                true => assert_eq!(load(&disk, page as usize), Err(IoError::Corrupt)),
                false => assert!(load(&disk, page as usize) == Ok(contents(page)), "page {page}"),
            }
        }
        assert_eq!(machine.contradictions(), [""; 0]);
    }
}

#[test]
fn pages_in_a_sealed_log_without_its_key_are_lost_by_name() {
    let directory = TempDir::new();
    let (memory, disks) = written_back(directory.path(), true);
    assert!(memory.forget("zram0.key.1") && memory.forget("zram0.seals.1"));
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].lost, PAGES);
    let said = "it was written back sealed, and the key ended with the process (K18)";
    assert_eq!(told[0].findings.told[0], format!("page 0 of zram0: {said}"));
    assert_eq!(load(&machine.disk(0).unwrap(), 7), Err(IoError::Corrupt));
    assert_eq!(machine.contradictions(), [""; 0]);
}

#[test]
fn a_page_that_names_the_object_of_another_gets_an_error_and_no_data() {
    let directory = TempDir::new();
    let (memory, disks) = written_back(directory.path(), false);
    let mut first = 0;
    word(&memory, SLOTS, 3, |word| {
        first = word;
        word
    });
    word(&memory, SLOTS, 7, |_| first);
    let (machine, _) = try_recover(&memory, &disks).unwrap();
    let disk = machine.disk(0).unwrap();
    assert_eq!(load(&disk, 7), Err(IoError::Corrupt));
    assert!(load(&disk, 3) == Ok(contents(3)));
    let said = machine.contradictions();
    assert!(said.iter().any(|text| text.contains("another page names its block")), "{said:?}");
}

#[test]
fn a_segment_of_which_nothing_is_known_costs_its_pages_and_is_used_again() {
    let directory = TempDir::new();
    let (memory, disks) = written_back(directory.path(), false);
    word(&memory, LOG, 1, |word| word | 1 << 51);
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].findings.told[0], "what was kept of segment 0 of its log cannot be (K24)");
    assert_eq!((told[0].lost, told[0].findings.all), (PAGES, 1 + PAGES));
    let (disk, mut versions) = (machine.disk(0).unwrap(), vec![0; PAGES as usize]);
    for version in [1000, 2000, 3000] {
        for page in 0..versions.len() {
            store(&disk, &mut versions, page, version + page as u64);
        }
        write_back(&disk);
    }
    for (page, version) in versions.iter().enumerate() {
        assert!(load(&disk, page) == Ok(contents(*version)), "page {page}");
    }
    assert_eq!(machine.contradictions(), [""; 0]);
}

fn stays_on_a_device_of_another_size_or_is_refused(sealed: bool) {
    let directory = TempDir::new();
    let (memory, mut disks) = written_back(directory.path(), sealed);
    let regions = memory.regions();
    let settings = &disks[0].settings;
    let path = settings.iter().find(|(name, _)| name == "backing_dev").unwrap().1.clone();
    let file = File::options().write(true).open(&path).unwrap();
    // Nothing but a part that nobody uses is cut off, but no log has less than three segments.
    file.set_len(3 * MIB - 4096).unwrap();
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    let why = told[0].absent_backing.as_deref().unwrap();
    assert!(why.contains("a log needs 3145728, three segments"), "{why}");
    assert_eq!((told[0].lost, told[0].findings.all), (0, 0));
    assert_eq!(load(&machine.disk(0).unwrap(), 0), Err(IoError::Failed));
    let left: Vec<_> = memory.regions().into_iter().map(|region| region.name).collect();
    assert!(regions.iter().all(|region| left.contains(&region.name)), "{left:?}");
    drop(machine);
    file.set_len(9 * MIB).unwrap();
    let memory = kept::adopted(&regions);
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    assert_eq!(told[0].findings.all, 0);
    assert_eq!(log_stats(&machine.disk(0).unwrap()).segments, 3);
    for page in 0..PAGES {
        assert!(load(&machine.disk(0).unwrap(), page as usize) == Ok(contents(page)));
    }
    // Nothing is known of a log of more segments, and without its layout nothing at all.
    forget(machine);
    std::fs::copy(&path, format!("{path}.next")).unwrap();
    let settings = &mut disks[0].settings;
    settings.iter_mut().find(|(name, _)| name == "backing_dev").unwrap().1 += ".next";
    // Seals are of as many blocks as at first.
    let now = if sealed { 3 * MIB } else { 9 * MIB };
    let too_small =
        |log: u64| format!("it had a log of {log} bytes on a device that has {now} bytes now");
    for (layout, said) in [
        (1 << 32 | 10, too_small(10 * MIB)),
        (4 << 32 | 3, too_small(12 * MIB)),
        (0, "nothing was kept of its log".into()),
    ] {
        let memory = kept::adopted(&regions);
        word(&memory, LOG, 0, |_| layout);
        let error = try_recover(&memory, &disks).err().expect("a refusal");
        let said = format!("zram0 cannot be recovered: {path}.next: {said} (K24)");
        assert_eq!((error.errno, error.message), (Errno::EINVAL, said));
    }
}

/// From 1 GiB on segments are larger: a log that is made there has fewer of them.
#[test]
fn a_log_keeps_its_many_small_segments_on_a_device_that_became_large() {
    let directory = TempDir::new();
    let (mut memory, mut machine) = machine_on(directory.path(), false, 300 * MIB);
    let mut versions = vec![0; PAGES as usize];
    for round in 0..3 {
        let disk = machine.disk(0).unwrap();
        for page in (0..versions.len()).skip(round) {
            store(&disk, &mut versions, page, (round as u64) << 16 | page as u64);
        }
        write_back(&disk);
        drop(disk);
        let (next, disks) = dies(&memory, machine);
        let path = &disks[0].settings.iter().find(|(name, _)| name == "backing_dev").unwrap().1;
        File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
        let (recovered, told) = try_recover(&next, &disks).unwrap();
        assert_eq!((told[0].lost, &told[0].findings.told[..]), (0, &[][..]), "round {round}");
        let disk = recovered.disk(0).unwrap();
        assert_eq!(log_stats(&disk).segments, 300);
        for (page, version) in versions.iter().enumerate() {
            assert!(load(&disk, page) == Ok(contents(*version)), "round {round}, page {page}");
        }
        assert_eq!(recovered.contradictions(), [""; 0]);
        drop(disk);
        (memory, machine) = (next, recovered);
    }
}

#[test]
fn a_log_stays_on_a_device_of_another_size_or_is_refused() {
    stays_on_a_device_of_another_size_or_is_refused(false);
}

#[test]
fn a_sealed_log_stays_on_a_device_of_another_size_or_is_refused() {
    stays_on_a_device_of_another_size_or_is_refused(true);
}

#[test]
fn what_is_at_remote_stores_does_not_outlive_a_process() {
    let directory = TempDir::new();
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let disk = machine.add().unwrap();
    set(&disk, "backing_layout", "log");
    let uri = format!("fs://{}", directory.path().display());
    let refused = attributes(disk).store("backing_remote", &uri).unwrap_err();
    assert_eq!(refused.errno, Errno::ENOTSUP);
    assert!(refused.message.contains("outlives its daemon"), "{refused}");
}
