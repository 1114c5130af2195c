//! Clones of disks that outlive their process: another process finds each with its own contents,
//! and they share memory as before.

#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use control::{Errno, Object};
use host::{KeptRegion, Memfds};
use machine::{Machine, inspect};
use testkit::{Rng, TempDir, cases, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, Pack, Recompress, SavedDisk, Select, Share, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
const PAGES: u64 = 600;
const CLONES: &str = "zram0.1.clones";

/// Text, noise or a pattern; version 0 is an empty page.
fn contents(page: u64, version: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    match version % 7 {
        _ if version == 0 => {}
        1 => bytes.fill(page as u8),
        2 => bytes
            .chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, page as u8])),
        3 => Rng::new(page << 20 | version).fill(&mut bytes),
        // Some are equal.
        4 => Rng::new(page % 5).fill(&mut bytes[..1000]),
        _ => Rng::new(page << 20 | version).fill(&mut bytes[..1200]),
    }
    bytes
}

fn set(disk: &Arc<Disk>, name: &str, value: &str) {
    attributes(disk.clone()).store(name, value).unwrap();
}

fn store(disk: &Disk, page: u64, version: u64) {
    match version {
        0 => disk.discard_pages(CPU, page, 1).unwrap(),
        _ => disk.store_page(CPU, page, &contents(page, version)).unwrap(),
    }
}

#[track_caller]
fn check(disk: &Disk, page: u64, version: u64) {
    let mut bytes = [0; PAGE_SIZE];
    disk.load_page(CPU, page, &mut bytes).unwrap();
    assert!(bytes == contents(page, version), "page {page} of {} is another", disk.name());
}

fn machine() -> (Memfds, Machine) {
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let disk = machine.add().unwrap();
    set(&disk, "track_access", "1");
    set(&disk, "disksize", &(PAGES * P).to_string());
    (memory, machine)
}

/// A disk with a version of each page, and a clone that has changed some pages.
fn cloned() -> (Memfds, Machine) {
    let (memory, machine) = machine();
    let disk = machine.disk(0).unwrap();
    (0..PAGES).for_each(|page| store(&disk, page, 5));
    let clone = machine.clone_disk(&disk).unwrap();
    (0..PAGES).step_by(10).for_each(|page| store(&clone, page, 6));
    (memory, machine)
}

fn check_cloned(machine: &Machine) {
    for page in 0..PAGES {
        check(&machine.disk(0).unwrap(), page, 5);
        check(&machine.disk(1).unwrap(), page, if page % 10 == 0 { 6 } else { 5 });
    }
}

/// What a process leaves.
struct Left {
    regions: Vec<KeptRegion>,
    disks: Vec<SavedDisk>,
}

impl Left {
    /// A drop is like a death, but for locks of files.
    fn by(memory: &Memfds, machine: Machine) -> Left {
        Left { regions: memory.regions(), disks: machine.saved() }
    }

    fn recover(&self) -> (Memfds, Machine) {
        let memory = kept::adopted(&self.regions);
        let saved = kept::Saved { disks: self.disks.clone(), ..kept::Saved::default() };
        let machine = kept::recovered(&memory, &saved);
        (memory, machine)
    }

    fn set_word(&self, name: &str, at: u64, word: u64) {
        let region = self.regions.iter().find(|region| region.name == name).expect(name);
        region.file.write_all_at(&word.to_ne_bytes(), at * 8).unwrap();
    }
}

#[test]
fn clones_share_memory_in_another_process_as_before() {
    let (memory, machine) = cloned();
    let used = |machine: &Machine| machine.disk(0).unwrap().stats().pool_bytes;
    let before = (used(&machine), machine.disk(0).unwrap().density());
    let mut left = Left::by(&memory, machine);
    assert_eq!(left.disks[1].clone_of, Some(0));
    for _ in 0..2 {
        let (memory, machine) = left.recover();
        check_cloned(&machine);
        assert_eq!((used(&machine), machine.disk(0).unwrap().density()), before);
        let (disk, clone) = (machine.disk(0).unwrap(), machine.disk(1).unwrap());
        assert_eq!((clone.stats().pages_stored, clone.bytes()), (PAGES, PAGES * P));
        let busy = disk.reset().unwrap_err();
        assert!(busy.message.contains("zram0 has clones: zram1"), "{}", busy.message);
        left = Left::by(&memory, machine);
    }
    // A clone is a disk as any other, and the last that has an object gives it back.
    let (_memory, machine) = left.recover();
    let (disk, clone) = (machine.disk(0).unwrap(), machine.disk(1).unwrap());
    let other = machine.clone_disk(&clone).unwrap();
    assert_eq!(other.clone_of().map(|it| it.id()), Some(0));
    (0..PAGES).for_each(|page| store(&disk, page, 3));
    (0..PAGES).for_each(|page| check(&other, page, if page % 10 == 0 { 6 } else { 5 }));
    machine.remove(1).unwrap();
    machine.remove(2).unwrap();
    assert_eq!(machine.contradictions(), [""; 0]);
    machine.remove(0).unwrap();
    assert_eq!(machine.frames().stats().allocated, 0);
}

#[test]
fn a_clone_that_nobody_was_told_of_is_given_up() {
    let (memory, machine) = cloned();
    let mut left = Left::by(&memory, machine);
    left.disks.pop();
    let (memory, machine) = left.recover();
    let disk = machine.disk(0).unwrap();
    (0..PAGES).for_each(|page| check(&disk, page, 5));
    // There is room for others, in the same place, and for the disk itself.
    disk.resize((2 * P) << 20).unwrap();
    check(&disk, PAGES, 0);
    disk.resize(PAGES * P).unwrap();
    let clone = machine.clone_disk(&disk).unwrap();
    (0..PAGES).step_by(10).for_each(|page| store(&clone, page, 6));
    let (_memory, machine) = Left::by(&memory, machine).recover();
    check_cloned(&machine);
    // A disk that a snapshot of the process had as a clone, and that was removed since, is empty.
    let (memory, machine) = cloned();
    let saved = machine.saved();
    machine.remove(1).unwrap();
    let left = Left { disks: saved, ..Left::by(&memory, machine) };
    let (_memory, machine) = left.recover();
    assert_eq!(machine.disk(1).unwrap().bytes(), 0);
    machine.disk(1).unwrap().set_disksize(P).unwrap();
    (0..PAGES).for_each(|page| check(&machine.disk(0).unwrap(), page, 5));
}

#[test]
fn a_family_that_cannot_be_recovered_stays_as_a_whole() {
    let (memory, machine) = cloned();
    let left = Left::by(&memory, machine);
    let damages: [(&str, u64, u64, &str); 7] = [
        (CLONES, 1, 5, "its clone zram1 cannot be (K26)"),
        (CLONES, 2, 10, "its clone zram1 cannot be (K26)"),
        (CLONES, 2, u64::MAX, "its clone zram1 cannot be (K26)"),
        (CLONES, 3, 5, "its clone zram1 cannot be (K26)"),
        (CLONES, 3, (PAGES + 1) * P, "its clone zram1 cannot be (K26)"),
        ("zram0.1.record", 1, 77, "its record has layout 77"),
        ("zram0.1.record", 2, 100_000 * P, "its clone zram1 cannot be (K26)"),
    ];
    for (region, at, word, why) in damages {
        let file = &left.regions.iter().find(|it| it.name == region).unwrap().file;
        let mut right = [0; 8];
        file.read_exact_at(&mut right, at * 8).unwrap();
        left.set_word(region, at, word);
        let memory = kept::adopted(&left.regions);
        let (provider, options) = (Arc::new(host::Mmap), kept::options());
        let (machine, outcomes) =
            Machine::recover(&memory, provider, options, &left.disks, &|_| ()).unwrap();
        let said: Vec<String> =
            outcomes.into_iter().map(|it| it.recovered.unwrap_err().message).collect();
        assert!(said[0].contains(why), "{said:?}");
        assert_eq!(
            said[1],
            "zram1 cannot be recovered: it is a clone of zram0, which cannot be recovered"
        );
        let found = inspect(&left.regions, &left.disks, None, false, &|_| ()).unwrap();
        assert!(!found.is_clean());
        let error = machine.remove(0).unwrap_err();
        assert_eq!(error.errno, Errno::EBUSY);
        assert!(error.message.contains("zram0 has clones: zram1"), "{}", error.message);
        assert_eq!(machine.saved(), left.disks);
        drop(machine);
        file.write_all_at(&right, at * 8).unwrap();
        let (_memory, machine) = left.recover();
        check_cloned(&machine);
    }
    // Two of one number.
    for (at, word) in [1, 1 << 30, PAGES, PAGES * P].into_iter().enumerate() {
        left.set_word(CLONES, 4 + at as u64, word);
    }
    let memory = kept::adopted(&left.regions);
    let error = kept::recover(&memory, &left.disks).err().unwrap();
    assert!(error.message.ends_with("(K26)"), "{}", error.message);
    left.set_word(CLONES, 7, 0);
    let found = inspect(&left.regions, &left.disks, None, true, &|_| ()).unwrap();
    assert!(found.is_clean(), "{found:?}");
    // Without the windows nobody can say whose the pages are.
    let mut without = Left { regions: left.regions.clone(), disks: left.disks.clone() };
    without.regions.retain(|region| region.name != CLONES);
    let error = kept::recover(&kept::adopted(&without.regions), &left.disks).err().unwrap();
    assert!(error.message.contains(CLONES), "{}", error.message);
    // It is given up by hand, the clone first.
    left.set_word(CLONES, 1, 5);
    let memory = kept::adopted(&left.regions);
    let (provider, options) = (Arc::new(host::Mmap), kept::options());
    let (machine, _) = Machine::recover(&memory, provider, options, &left.disks, &|_| ()).unwrap();
    machine.remove(1).unwrap();
    machine.remove(0).unwrap();
    assert_eq!(machine.frames().stats().allocated, 0);
}

/// What is done to a family at random, beside a model of each disk. The process dies now and then.
#[test]
fn families_are_as_their_models_over_deaths() {
    let mut rng = Rng::new(seed("families_are_as_their_models_over_deaths"));
    for round in 0..cases(12) {
        let directory = TempDir::new();
        let backing = directory.join("backing");
        File::create(&backing).unwrap().set_len(3 << 20).unwrap();
        let memory = Memfds::new();
        let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
        let disk = machine.add().unwrap();
        disk.set_algorithm_at(1, "zstd").unwrap();
        for (name, value) in [
            ("track_access", if round % 3 == 0 { "0" } else { "1" }),
            ("sealed_backing", "0"),
            ("backing_layout", if round % 2 == 0 { "log" } else { "pages" }),
            ("backing_dev", backing.to_str().unwrap()),
            ("compressed_writeback", "1"),
            ("disksize", &(PAGES * P).to_string()),
        ] {
            set(&disk, name, value);
        }
        drop(disk);
        let mut models = BTreeMap::from([(0, vec![0; PAGES as usize])]);
        let mut now = (memory, machine);
        for _ in 0..60 {
            let (_, machine) = &now;
            let ids: Vec<u32> = models.keys().copied().collect();
            let id = *rng.pick(&ids);
            let disk = machine.disk(id).unwrap();
            match rng.below(14) {
                0 | 1 if ids.len() < 6 => {
                    let clone = machine.clone_disk(&disk).unwrap();
                    models.insert(clone.id(), models[&id].clone());
                }
                2 if id != 0 => {
                    machine.remove(id).unwrap();
                    models.remove(&id);
                }
                3 => _ = disk.share(&Share::default()).unwrap(),
                4 => _ = disk.pack(&Pack::default()).unwrap(),
                5 => _ = disk.compact().unwrap(),
                6 => _ = disk.recompress(&Recompress::default()),
                7 => {
                    disk.mark_idle(None).unwrap();
                    let what = Writeback { select: Some(Select::Idle), pages: Vec::new() };
                    // A full device is no error here.
                    let _ = disk.writeback(&what);
                }
                _ => {
                    let model = models.get_mut(&id).unwrap();
                    for _ in 0..1 + rng.below(120) {
                        let (page, version) = (rng.below(PAGES), rng.below(20));
                        store(&disk, page, version);
                        model[page as usize] = version;
                    }
                }
            }
            if rng.one_in(4) {
                // The file below is locked until nobody has the disk.
                drop(disk);
                now = Left::by(&now.0, now.1).recover();
            }
            let (_, machine) = &now;
            for (id, model) in &models {
                let disk = machine.disk(*id).unwrap();
                (0..).zip(model).for_each(|(page, version)| check(&disk, page, *version));
            }
            assert_eq!(machine.contradictions(), [""; 0]);
        }
        let machine = now.1;
        models.into_keys().rev().for_each(|id| machine.remove(id).unwrap());
        assert_eq!(machine.frames().stats().allocated, 0);
    }
}
