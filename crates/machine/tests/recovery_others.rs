//! One disk or swap area that cannot be recovered stops no other, and what there is of it stays for
//! another process.

#[path = "recovery_swap/areas.rs"]
#[allow(dead_code)]
mod areas;
#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::{BlockDevice, IoError};
use control::{ControlError, Errno, Object};
use host::{KeptRegion, Memfds};
use machine::{DiskOutcome, Machine};
use store::{Layout, Spec, Store};
use testkit::{Need, Rng, TempDir, met};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, SavedDisk, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 400;
/// Pages of each disk with a backing device that are there.
const BACKED: std::ops::Range<u64> = 30..60;

/// Half noise; each disk and version has its own.
fn contents(disk: u32, page: u64, version: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    Rng::new(u64::from(disk) << 40 | version << 20 | page).fill(&mut bytes[..PAGE_SIZE / 2]);
    bytes
}

fn set(disk: &Arc<Disk>, name: &str, value: &str) {
    attributes(disk.clone()).store(name, value).unwrap();
}

fn fill(disk: &Disk, version: u64) {
    for page in 0..PAGES {
        disk.store_page(CPU, page, &contents(disk.id(), page, version)).unwrap();
    }
}

fn load(disk: &Disk, page: u64) -> Result<Page, IoError> {
    let mut bytes = [0; PAGE_SIZE];
    disk.load_page(CPU, page, &mut bytes).map(|()| bytes)
}

fn check(disk: &Disk, version: u64) {
    for page in 0..PAGES {
        let right = contents(disk.id(), page, version);
        assert!(load(disk, page) == Ok(right), "page {page} of {}", disk.name());
    }
}

fn write_back(disk: &Disk) -> Result<(), ControlError> {
    let what = Writeback { select: None, pages: vec![(BACKED.start, BACKED.end - 1)] };
    disk.writeback(&what).map(drop)
}

/// What a dead process left.
struct Left {
    regions: Vec<KeptRegion>,
    disks: Vec<SavedDisk>,
}

impl Left {
    /// A drop is like a death, but for locks of files.
    fn by(memory: &Memfds, machine: Machine) -> Left {
        Left { regions: memory.regions(), disks: machine.saved() }
    }

    /// Three disks without a backing device.
    fn plain() -> Left {
        let memory = Memfds::new();
        let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
        for _ in 0..3 {
            let disk = machine.add().unwrap();
            disk.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
            fill(&disk, 1);
        }
        Left::by(&memory, machine)
    }

    fn recover(&self) -> (Memfds, Machine, Vec<DiskOutcome>) {
        let memory = kept::adopted(&self.regions);
        let (machine, outcomes) = self.recover_in(&memory);
        (memory, machine, outcomes)
    }

    fn recover_in(&self, memory: &Memfds) -> (Machine, Vec<DiskOutcome>) {
        let (provider, options) = (Arc::new(host::Mmap), kept::options());
        let (machine, outcomes) =
            Machine::recover(memory, provider, options, &self.disks, &|_| ()).unwrap();
        assert_eq!(machine.contradictions(), [""; 0]);
        (machine, outcomes)
    }

    fn word(&self, name: &str, at: u64, change: impl FnOnce(u64) -> u64) {
        let region = self.regions.iter().find(|region| region.name == name).expect(name);
        let mut word = [0; 8];
        region.file.read_exact_at(&mut word, at * 8).unwrap();
        let changed = change(u64::from_ne_bytes(word)).to_ne_bytes();
        region.file.write_all_at(&changed, at * 8).unwrap();
    }
}

#[test]
fn a_disk_whose_backing_device_is_gone_has_all_else() {
    let directory = TempDir::new();
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
    let kinds = [None, Some(("pages", "0")), Some(("pages", "1")), Some(("log", "0"))];
    let kinds = kinds.into_iter().chain([Some(("log", "1"))]).collect::<Vec<_>>();
    let path = |id: u32| directory.path().join(format!("backing{id}"));
    for kind in &kinds {
        let disk = machine.add().unwrap();
        if let Some((layout, sealed)) = kind {
            let path = path(disk.id());
            File::create(&path).unwrap().set_len(5 << 20).unwrap();
            set(&disk, "sealed_backing", sealed);
            set(&disk, "backing_layout", layout);
            set(&disk, "backing_dev", path.to_str().unwrap());
        }
        disk.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
        fill(&disk, 1);
        if kind.is_some() {
            write_back(&disk).unwrap();
        }
    }
    let mut left = Left::by(&memory, machine);
    let hidden = |id: u32| directory.path().join(format!("hidden{id}"));
    (1..5).for_each(|id| fs::rename(path(id), hidden(id)).unwrap());
    // Twice: the next process but one finds what the next one left.
    for version in [2, 3] {
        let (memory, machine, outcomes) = left.recover();
        assert_eq!(outcomes.len(), kinds.len());
        for DiskOutcome { id, recovered } in outcomes {
            let (told, disk) = (recovered.unwrap(), machine.disk(id).unwrap());
            assert_eq!(
                (told.lost, told.findings.all),
                (0, 0),
                "zram{id}: {:?}",
                told.findings.told
            );
            assert_eq!(told.absent_backing, disk.absent_backing());
            if id == 0 {
                assert_eq!(told.absent_backing, None);
                fill(&disk, version);
                continue;
            }
            let why = told.absent_backing.expect("no backing device");
            assert!(why.contains("backing") && why.contains("No such file"), "{why}");
            for page in 0..PAGES {
                match BACKED.contains(&page) {
                    true => assert_eq!(load(&disk, page), Err(IoError::Failed), "page {page}"),
                    false => {
                        let was = if page < 10 { version - 1 } else { 1 };
                        assert!(load(&disk, page) == Ok(contents(id, page, was)), "page {page}");
                    }
                }
            }
            // Nothing is written there, and no page is lost by that.
            (0..10).for_each(|page| {
                disk.store_page(CPU, page, &contents(id, page, version)).unwrap();
            });
            let what = Writeback { select: None, pages: vec![(0, 9)] };
            assert_eq!(disk.writeback(&what).unwrap_err().errno, Errno::EIO);
            assert!(load(&disk, 3) == Ok(contents(id, 3, version)));
            // A page that is replaced needs it no more.
            if version == 3 {
                let page = BACKED.start;
                disk.store_page(CPU, page, &contents(id, page, version)).unwrap();
                assert!(load(&disk, page) == Ok(contents(id, page, version)));
            }
            disk.validate();
        }
        assert_eq!(machine.contradictions(), [""; 0]);
        left = Left::by(&memory, machine);
    }
    (1..5).for_each(|id| fs::rename(hidden(id), path(id)).unwrap());
    let (_memory, machine, outcomes) = left.recover();
    for DiskOutcome { id, recovered } in outcomes {
        let (told, disk) = (recovered.unwrap(), machine.disk(id).unwrap());
        assert_eq!((told.lost, told.findings.all, told.absent_backing), (0, 0, None), "zram{id}");
        for page in 0..PAGES {
            let version = if id == 0 || page < 10 || page == BACKED.start { 3 } else { 1 };
            assert!(load(&disk, page) == Ok(contents(id, page, version)), "{page} of zram{id}");
        }
        fill(&disk, 4);
        if id > 0 {
            write_back(&disk).unwrap();
        }
        check(&disk, 4);
    }
}

/// Makes disk 1 one that cannot be recovered, and right again.
type Damage = (&'static str, Errno, fn(&Left), fn(&mut Left));

#[test]
fn a_disk_that_is_refused_stays_as_it_is_while_the_others_go_on() {
    let damages: [Damage; 5] = [
        (
            "its record has layout 73",
            Errno::EINVAL,
            |left| left.word("zram1.1.record", 1, |it| it ^ 1 << 6 ^ 10),
            |left| left.word("zram1.1.record", 1, |it| it ^ 1 << 6 ^ 10),
        ),
        (
            "is none of",
            Errno::EINVAL,
            |left| left.word("zram1.1.record", 2, |it| it + 1),
            |left| left.word("zram1.1.record", 2, |it| it - 1),
        ),
        (
            "what was kept of codec 0 is damaged (K7)",
            Errno::EINVAL,
            |left| left.word("zram1.1.record", 18, |it| it ^ 1),
            |left| left.word("zram1.1.record", 18, |it| it ^ 1),
        ),
        (
            "its objects lie in other size classes than this program has (K8)",
            Errno::ENOTSUP,
            |left| left.word("zram1.1.zspages", 2, |it| it ^ 1 << 40),
            |left| left.word("zram1.1.zspages", 2, |it| it ^ 1 << 40),
        ),
        ("mem_limit of zram1", Errno::EINVAL, |_| (), |_| ()),
    ];
    for (said, errno, damage, repair) in damages {
        let mut left = Left::plain();
        damage(&left);
        if said.starts_with("mem_limit") {
            left.disks[1].settings.push(("mem_limit".into(), "much".into()));
        }
        // Twice: the next process but one finds what the next one left.
        for version in [2, 3] {
            let (memory, machine, outcomes) = left.recover();
            let refused = machine.refused();
            assert_eq!(refused.len(), 1);
            assert_eq!(outcomes[1].recovered, Err(refused[0].why.clone()));
            let ControlError { errno: found, message } = &refused[0].why;
            assert!(*found == errno && message.contains(said), "{said}: {message}");
            assert!(message.contains("zram1"), "{message}");
            for id in [0, 2] {
                let told = outcomes[id as usize].recovered.as_ref().unwrap();
                assert_eq!((told.id, told.lost, told.findings.all), (id, 0, 0));
                let disk = machine.disk(id).unwrap();
                check(&disk, version - 1);
                // What it gives up and takes anew is not what the other one has.
                disk.discard_pages(CPU, 0, PAGES).unwrap();
                machine.frames().drain();
                fill(&disk, version);
            }
            // Its number is taken.
            assert!(machine.disk(1).is_none());
            let other = machine.add().unwrap();
            assert_eq!(other.id(), 3);
            machine.remove(3).unwrap();
            assert_eq!(machine.contradictions(), [""; 0]);
            machine.frames().validate();
            left = Left::by(&memory, machine);
            left.disks.sort_by_key(|disk| disk.id);
        }
        repair(&mut left);
        left.disks[1].settings.retain(|(_, value)| value != "much");
        let (_memory, machine, outcomes) = left.recover();
        assert!(outcomes.iter().all(|it| it.recovered.as_ref().is_ok_and(|it| it.lost == 0)));
        for (id, version) in [(0, 3), (1, 1), (2, 3)] {
            check(&machine.disk(id).unwrap(), version);
        }
    }
}

/// A table that another process left and nobody handed over is no empty one.
#[test]
fn a_disk_whose_memory_is_not_there_is_refused_by_its_name() {
    let mut left = Left::plain();
    let all = left.regions.clone();
    for missing in ["zram1.1.slots", "zram1.1.slots.1", "zram1.1.zspages"] {
        left.regions = all.clone();
        left.regions.retain(|region| region.name != missing);
        let (memory, machine, outcomes) = left.recover();
        let why = outcomes[1].recovered.clone().unwrap_err().message;
        assert_eq!(
            why,
            format!("zram1 cannot be recovered: its memory {missing} is not there (K3)")
        );
        [0, 2].into_iter().for_each(|id| check(&machine.disk(id).unwrap(), 1));
        let names = |regions: &[KeptRegion]| {
            let mut names: Vec<_> = regions.iter().map(|it| it.name.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&memory.regions()), names(&left.regions), "nothing is given up or made");
        drop(machine);
    }
    left.regions = all;
    let (_memory, machine, _) = left.recover();
    (0..3).for_each(|id| check(&machine.disk(id).unwrap(), 1));
}

#[test]
fn a_refused_disk_can_be_given_up() {
    let left = Left::plain();
    left.word("zram1.1.record", 0, |_| 7);
    left.word("zram2.1.record", 0, |_| 7);
    let (memory, machine, _) = left.recover();
    let allocated = || machine.frames().stats().allocated;
    let (before, of_others) = (allocated(), machine.disk(0).unwrap().stats().pool_bytes);
    assert!(before > of_others / PAGE_SIZE as u64);
    let has = |id: u32| {
        let beginning = format!("zram{id}.");
        memory.regions().iter().any(|region| region.name.starts_with(&beginning))
    };
    // Nobody can say which frames are whose, as long as there is one.
    machine.remove(1).unwrap();
    assert_eq!((allocated(), has(1), has(2)), (before, false, true));
    assert_eq!(machine.remove(1).unwrap_err().errno, Errno::ENODEV);
    machine.remove(2).unwrap();
    assert_eq!(allocated(), of_others / PAGE_SIZE as u64);
    assert!(!has(2) && machine.refused().is_empty());
    assert_eq!(machine.contradictions(), [""; 0]);
    check(&machine.disk(0).unwrap(), 1);
    assert_eq!(machine.add().unwrap().id(), 1);
}

/// What concerns all disks leaves everything as it was, for the same process too.
#[test]
fn a_recovery_that_fails_as_a_whole_gives_nothing_up() {
    let left = Left::plain();
    let memory = kept::adopted(&left.regions);
    let mut twice = left.disks.clone();
    twice.push(left.disks[0].clone());
    let (provider, options) = (Arc::new(host::Mmap), kept::options());
    let refused = Machine::recover(&memory, provider, options, &twice, &|_| ()).err().unwrap();
    assert_eq!((refused.errno, &*refused.message), (Errno::EEXIST, "there are two devices zram0"));
    let (machine, _) = left.recover_in(&memory);
    (0..3).for_each(|id| check(&machine.disk(id).unwrap(), 1));
}

/// The system has memory for keys.
fn secret_memory(test: &str) -> bool {
    let is_there = Memfds::new().secret("key", |_| Ok(())).is_ok();
    met(test, &[Need::other(is_there, "secret memory (memfd_secret, Linux 5.14)")])
}

/// What is below swap area 0: `device` with a key and seals that outlive the process, if it
/// `is_sealed`.
fn below_area(
    memory: &Memfds,
    device: &Arc<dyn BlockDevice>,
    (is_sealed, was_sealed): (bool, bool),
) -> Result<Arc<dyn BlockDevice>, ControlError> {
    let layout = Layout::SwapSpace(areas::PAGES * areas::P);
    let spec = Spec::new(device.clone(), "below", layout).kept(memory, "swap0");
    Ok(Store::open(Spec { is_sealed, was_sealed, ..spec })?.device)
}

/// A key without its seals opens nothing, and seals without their key neither. What was sealed is
/// an error then: under a new key a page that has no seal would read as zeroes.
#[test]
fn a_swap_area_whose_key_is_gone_reads_as_errors() {
    use areas::{PAGES, contents, device, fill, on, plain, read};
    if !secret_memory("a_swap_area_whose_key_is_gone_reads_as_errors") {
        return;
    }
    for missing in [&["swap0.key.1"][..], &["swap0.seals.1"], &["swap0.key.1", "swap0.seals.1"]] {
        let (memory, below) = (Memfds::new(), plain(PAGES));
        let machine = areas::machine(&memory);
        let zswap = machine.kept_swap(&memory).unwrap();
        let sealed = below_area(&memory, &below, (true, false)).unwrap();
        on(&zswap, 0, "default", Some(sealed));
        fill(&device(&zswap, 0), 0..PAGES);
        zswap.reclaim(CPU, 100);
        let (memory, saved) = areas::dies(&memory, machine);
        assert!(missing.iter().all(|name| memory.forget(name)));
        let (machine, _) = kept::recover(&memory, &[]).unwrap();
        let open = |_| below_area(&memory, &below, (true, true)).map(Some);
        let (zswap, told) = machine.recover_swap(&memory, &saved, &open, &|_| ()).unwrap();
        let area = &told.areas[0];
        assert!(area.on_device > 0 && area.absent_device.is_some(), "{missing:?}: {area:?}");
        let (device, mut failed) = (device(&zswap, 0), 0);
        for page in 0..PAGES {
            match read(&device, page) {
                Err(IoError::Failed) => failed += 1,
                found => assert!(found == Ok(contents(page)), "{missing:?}: page {page}"),
            }
        }
        assert_eq!(failed, area.on_device, "{missing:?}");
    }
}

fn a_swap_area_comes_back_with_its_device(is_sealed: bool) {
    use areas::{PAGES, contents, device, fill, on, plain, read, write};
    let below = [plain(PAGES), plain(PAGES)];
    let memory = Memfds::new();
    let machine = areas::machine(&memory);
    let zswap = machine.kept_swap(&memory).unwrap();
    on(&zswap, 0, "default", Some(below_area(&memory, &below[0], (is_sealed, false)).unwrap()));
    on(&zswap, 5, "default", Some(below[1].clone()));
    for number in [0, 5] {
        fill(&device(&zswap, number), 0..PAGES);
    }
    zswap.reclaim(CPU, 100);
    let of_seal = |memory: &Memfds| {
        let names = memory.regions().into_iter().map(|region| region.name);
        let is_one = |name: &String| name.contains(".key.") || name.contains(".seals.");
        let mut names: Vec<String> = names.filter(is_one).collect();
        names.sort();
        names
    };
    let opens = of_seal(&memory);
    assert_eq!(!opens.is_empty(), is_sealed);
    let (mut memory, mut saved) = areas::dies(&memory, machine);
    // Gone, then too short, and at last there again.
    for round in 0..3 {
        let (machine, _) = kept::recover(&memory, &[]).unwrap();
        let open = |area: zswap::SwapType| match (area.number(), round) {
            (0, 0) => Err(ControlError::new(Errno::ENOENT, "swap0 is gone")),
            (0, 1) => below_area(&memory, &plain(PAGES - 1), (is_sealed, is_sealed)).map(Some),
            (0, _) => below_area(&memory, &below[0], (is_sealed, is_sealed)).map(Some),
            _ => Ok(Some(below[1].clone())),
        };
        let (zswap, told) = machine.recover_swap(&memory, &saved, &open, &|_| ()).unwrap();
        assert_eq!(told.findings.all, 0, "{:?}", told.findings.told);
        let [first, other] = &told.areas[..] else { panic!("{told:?}") };
        assert!(first.on_device > 0 && first.cached > 0, "{first:?}");
        assert_eq!((first.lost, other.lost, &other.absent_device), (0, 0, &None));
        let short = "swap area 0 has 600 pages, and its device 599";
        let why = [Some("swap0 is gone"), Some(short), None][round];
        assert_eq!(first.absent_device.as_deref(), why);
        assert_eq!(of_seal(&memory), opens, "round {round}");
        let (mut failed, device) = (0, device(&zswap, 0));
        for page in 0..PAGES {
            match read(&device, page) {
                Err(IoError::Failed) => failed += 1,
                found => assert!(found == Ok(contents(page)), "page {page}"),
            }
            assert!(read(&areas::device(&zswap, 5), page) == Ok(contents(page)));
        }
        assert_eq!(failed, if round < 2 { first.on_device } else { 0 });
        // Pages in memory stay there when they cannot be written back, and new ones come.
        zswap.reclaim(CPU, 50);
        let now = zswap.stats();
        assert_eq!(now.lost_pages, 0);
        write(&device, 7, &contents(7));
        assert_eq!(read(&device, 7), Ok(contents(7)));
        zswap.validate();
        (memory, saved) = areas::dies(&memory, machine);
    }
}

#[test]
fn a_swap_area_whose_device_is_gone_has_all_else() {
    a_swap_area_comes_back_with_its_device(false);
}

#[test]
fn a_swap_area_whose_sealed_device_is_gone_has_all_else() {
    if secret_memory("a_swap_area_whose_sealed_device_is_gone_has_all_else") {
        a_swap_area_comes_back_with_its_device(true);
    }
}

#[test]
fn a_cache_of_swap_areas_that_is_refused_stays_and_stops_no_disk() {
    use areas::{PAGES, cache, device, fill, read_word, write_word};
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    let disk = machine.add().unwrap();
    disk.set_disksize(self::PAGES * PAGE_SIZE as u64).unwrap();
    self::fill(&disk, 1);
    let disks = machine.saved();
    let (memory, saved) = areas::dies(&memory, machine);
    let record = (areas::RECORD, 1);
    let right = read_word(&memory, record);
    write_word(&memory, record, u64::from(zswap::LAYOUT) + 1);
    let (machine, _) = kept::recover(&memory, &disks).unwrap();
    let none = |_| Ok(None);
    for _ in 0..2 {
        let why = machine.recover_swap(&memory, &saved, &none, &|_| ()).err().unwrap();
        assert!(why.message.contains("its record has layout 4"), "{why}");
        assert_eq!(machine.saved_swap().as_ref(), Some(&saved));
    }
    check(&machine.disk(0).unwrap(), 1);
    write_word(&memory, record, right);
    // Its tables must all be there, too.
    for name in ["swap.entries", "swap.entries.1", "swap.zspages"] {
        let regions = memory.regions();
        let region = regions.into_iter().find(|region| region.name == name).unwrap();
        assert!(memory.forget(name));
        let why = machine.recover_swap(&memory, &saved, &none, &|_| ()).err().unwrap();
        assert!(why.message.ends_with(&format!("its memory {name} is not there (K3)")), "{why}");
        let file = region.file.try_clone().unwrap().into();
        memory.adopt(name, file, region.bytes).unwrap();
    }
    let (zswap, told) = machine.recover_swap(&memory, &saved, &none, &|_| ()).unwrap();
    areas::check(&zswap, &told, &[]);
}
