//! Idle marking, compressing again, writing back, resizing and switching codecs: what each does,
//! what it counts, and each refusal with its error number.

use std::sync::Arc;

use block::{BlockDevice, Operation, Plain};
use control::{Bound, ControlError, Errno, Object};
use machine::{Machine, MachineOptions};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zram::{Disk, HostFiles, attributes};

const CPU: Cpu = Cpu(0);
const BLOCKS: usize = 64;

/// One file to write back to, and a dictionary.
struct Files;

impl HostFiles for Files {
    fn open_backing(
        &self,
        path: &str,
        _: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        match path {
            "/backing" => Ok(Arc::new(Plain::new(BLOCKS * PAGE_SIZE))),
            _ => Err(ControlError::new(Errno::ENOENT, format!("there is no file {path}"))),
        }
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        match path {
            "/dictionary" => Ok(page(1).repeat(2)),
            "/empty" => Ok(Vec::new()),
            _ => Err(ControlError::new(Errno::ENOENT, format!("there is no file {path}"))),
        }
    }
}

fn machine() -> Machine {
    let options = MachineOptions {
        cpus: 2,
        memory: 1 << 30,
        files: Arc::new(Files),
        swap_memory: Arc::new(host::Mmap),
        track_access: true,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

struct Fixture {
    machine: Machine,
    disk: Arc<Disk>,
    rows: Bound<Disk>,
}

impl Fixture {
    fn new() -> Fixture {
        let machine = machine();
        let disk = machine.add().unwrap();
        let rows = attributes(disk.clone());
        Fixture { machine, disk, rows }
    }

    /// A device of 1 MiB that can write back and compress again.
    fn ready() -> Fixture {
        let fixture = Fixture::new();
        fixture.set("comp_algorithm", "lz4");
        fixture.set("recomp_algorithm", "algo=zstd priority=1");
        fixture.set("backing_dev", "/backing\n");
        fixture.set("disksize", "1M");
        fixture
    }

    fn set(&self, name: &str, value: &str) {
        if let Err(error) = self.rows.store(name, value) {
            panic!("{name} refused {value:?}: {error}");
        }
    }

    fn get(&self, name: &str) -> String {
        self.rows.show(name).unwrap()
    }

    fn refused(&self, name: &str, value: &str) -> Errno {
        let before = self.rows.show(name).ok();
        let error = self.rows.store(name, value).expect_err(&format!("{name} took {value:?}"));
        assert_eq!(self.rows.show(name).ok(), before, "{name} changed although it was refused");
        assert!(error.message.len() > 10, "{name}: {error}");
        error.errno
    }

    fn store(&self, index: u64, page: &[u8; PAGE_SIZE]) {
        self.disk.store_page(CPU, index, page).unwrap();
    }

    fn expect(&self, index: u64, page: &[u8; PAGE_SIZE]) {
        let mut back = [0xa5; PAGE_SIZE];
        self.disk.load_page(CPU, index, &mut back).unwrap();
        assert!(back == *page, "page {index} is not what was stored");
    }

    /// The flags of each page with contents.
    fn states(&self) -> Vec<(u64, String)> {
        let text = self.rows.show("block_state").unwrap();
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let index = words.next().unwrap().parse().unwrap();
            (index, words.nth(1).unwrap().to_string())
        };
        text.lines().map(line).collect()
    }

    fn state(&self, index: u64) -> String {
        let states = self.states();
        states.into_iter().find(|state| state.0 == index).map(|state| state.1).unwrap_or_default()
    }

    fn bd_stat(&self) -> Vec<u64> {
        self.get("bd_stat").split_whitespace().map(|word| word.parse().unwrap()).collect()
    }
}

/// A page of words that zstd makes much smaller than lz4 does.
fn page(stamp: u64) -> [u8; PAGE_SIZE] {
    let mut rng = Rng::new(stamp);
    core::array::from_fn(|_| b"etaoin s"[rng.below(8) as usize])
}

fn noise(stamp: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    Rng::new(stamp).fill(&mut page);
    page
}

#[test]
fn idle_is_marked_and_taken_away_by_use() {
    let it = Fixture::ready();
    it.store(0, &page(0));
    it.store(1, &noise(1));
    it.store(2, &[0; PAGE_SIZE]);
    it.store(3, &page(3));
    it.set("idle", "all\n");
    assert_eq!([it.state(0), it.state(1), it.state(2)], ["...i..", "..hi..", "s....."]);
    it.expect(0, &page(0));
    it.store(1, &noise(2));
    assert_eq!([it.state(0), it.state(1), it.state(3)], ["......", "..h...", "...i.."]);
    for bad in ["", "some", "-1", "1s"] {
        assert_eq!(it.refused("idle", bad), Errno::EINVAL, "{bad:?}");
    }
}

#[test]
fn ages_are_counted_in_seconds() {
    let it = Fixture::ready();
    it.machine.set_clock(1000);
    it.store(0, &page(0));
    it.machine.set_clock(1060);
    it.store(1, &page(1));
    it.set("idle", "60");
    assert_eq!([it.state(0), it.state(1)], ["...i..", "......"]);
    it.machine.set_clock(1100);
    it.expect(0, &page(0));
    it.set("idle", "0x1e");
    assert_eq!([it.state(0), it.state(1)], ["......", "...i.."]);
    let text = it.get("block_state");
    assert!(text.starts_with("           0         1100.000000 ......\n"), "{text}");
    let untracked = Fixture::new();
    untracked.set("track_access", "0");
    untracked.set("disksize", "1M");
    assert_eq!(untracked.refused("idle", "1"), Errno::EINVAL);
    untracked.set("idle", "all");
    assert_eq!(untracked.refused("track_access", "1"), Errno::EBUSY);
}

#[test]
fn pages_are_compressed_again() {
    let it = Fixture::ready();
    (0..8).for_each(|index| it.store(index, &page(index)));
    it.store(8, &noise(8));
    it.store(9, &[7; PAGE_SIZE]);
    let before = it.disk.stats();
    it.set("recompress", "type=huge");
    assert_eq!(it.state(8), "..h..n", "the strongest codec failed");
    assert_eq!(it.state(0), "......");
    it.set("idle", "all");
    it.expect(1, &page(1));
    it.set("recompress", "type=idle max_pages=3");
    let done = |it: &Fixture| it.states().iter().filter(|state| state.1.contains('r')).count();
    assert_eq!(done(&it), 3);
    assert_eq!(it.state(1), "......", "it was used");
    it.set("recompress", "threshold=3000");
    it.set("recompress", "algo=zstd priority=1");
    assert_eq!(done(&it), 8);
    let after = it.disk.stats();
    assert!(after.compressed_bytes < before.compressed_bytes * 9 / 10, "{before:?} {after:?}");
    assert!(after.pool_bytes <= before.pool_bytes);
    (0..8).for_each(|index| it.expect(index, &page(index)));
    it.expect(8, &noise(8));
    it.store(8, &page(8));
    assert_eq!(it.state(8), "......", "a store begins anew");
    it.disk.validate();
}

#[test]
fn compressing_again_is_refused_when_it_makes_no_sense() {
    let it = Fixture::new();
    assert_eq!(it.refused("recompress", "type=idle"), Errno::EINVAL, "not initialised");
    for bad in ["", "algo", "algo=", "algo=lzma", "priority=2", "algo=zstd priority=0"] {
        assert_eq!(it.refused("recomp_algorithm", bad), Errno::EINVAL, "{bad:?}");
    }
    assert_eq!(it.refused("recomp_algorithm", "algo=zstd priority=4"), Errno::EINVAL);
    assert_eq!(it.get("recomp_algorithm"), "");
    it.set("recomp_algorithm", "algo=deflate priority=3");
    it.set("recomp_algorithm", "algo=zstd");
    let shown = it.get("recomp_algorithm");
    assert!(shown.starts_with("#1: ") && shown.contains("[zstd]") && shown.contains("\n#3: "));
    it.set("disksize", "1M");
    assert_eq!(it.refused("recomp_algorithm", "algo=lz4"), Errno::EBUSY);
    for bad in [
        "type=cold",
        "type",
        "threshold=4000",
        "threshold=x",
        "max_pages=-1",
        "priority=0",
        "priority=2",
        "priority=4",
        "algo=lz4hc",
        "algo=zstd priority=3",
        "speed=1",
    ] {
        assert_eq!(it.refused("recompress", bad), Errno::EINVAL, "{bad:?}");
    }
    it.set("recompress", "algo=deflate type=huge_idle");
}

#[test]
fn what_no_codec_makes_smaller_is_tried_no_more() {
    let it = Fixture::new();
    it.set("comp_algorithm", "lz4");
    it.set("recomp_algorithm", "algo=deflate priority=1");
    it.set("recomp_algorithm", "algo=zstd priority=2");
    it.set("disksize", "1M");
    (0..5).for_each(|index| it.store(index, &noise(index)));
    let known = || it.states().iter().filter(|state| state.1.contains('n')).count();
    it.set("recompress", "priority=1");
    assert_eq!(known(), 0, "a stronger codec is left to try");
    for tries in 0..5 {
        assert_eq!(known(), tries, "a try in vain is one of max_pages, too");
        it.set("recompress", "priority=2 max_pages=1");
    }
    assert_eq!(known(), 5);
    (0..5).for_each(|index| it.expect(index, &noise(index)));
}

#[test]
fn a_codec_compresses_again_what_it_made_at_another_level() {
    let it = Fixture::new();
    it.set("comp_algorithm", "zstd");
    it.set("algorithm_params", "algo=zstd level=-5");
    it.set("recomp_algorithm", "algo=zstd priority=2");
    it.set("algorithm_params", "priority=2 level=19");
    it.set("disksize", "1M");
    it.store(0, &page(0));
    for _ in 0..2 {
        it.set("recompress", "algo=zstd");
        assert_eq!(it.state(0), "....r.", "it is not tried again by the same codec");
    }
    it.expect(0, &page(0));
    let same = Fixture::new();
    same.set("comp_algorithm", "zstd");
    same.set("recomp_algorithm", "algo=zstd");
    same.set("disksize", "1M");
    same.store(0, &page(0));
    same.set("recompress", "");
    assert_eq!(same.state(0), ".....n", "as large as it was is not smaller");
}

#[test]
fn compressing_again_keeps_to_the_memory_limit() {
    let it = Fixture::ready();
    (0..100).for_each(|index| it.store(index, &noise(index)));
    (100..120).for_each(|index| it.store(index, &page(index)));
    let stats = it.disk.stats();
    it.set("mem_limit", &stats.pool_bytes.to_string());
    // Nothing is small enough for the room that others leave, and no frame may be allocated.
    assert_eq!(it.refused("recompress", "threshold=2000"), Errno::ENOMEM);
    assert!(it.disk.stats().pool_bytes <= stats.pool_bytes);
    (100..120).for_each(|index| it.expect(index, &page(index)));
    it.set("mem_limit", "0");
    it.set("recompress", "");
    (0..100).for_each(|index| it.expect(index, &noise(index)));
    (100..120).for_each(|index| it.expect(index, &page(index)));
    assert!(it.disk.stats().pool_bytes < stats.pool_bytes);
    it.disk.discard_pages(CPU, 0, 256).unwrap();
    assert_eq!(it.disk.stats().pool_bytes, 0);
}

#[test]
fn pages_are_written_back_and_read() {
    for compressed in ["0", "1"] {
        let it = Fixture::new();
        it.set("backing_dev", "/backing");
        it.set("compressed_writeback", compressed);
        it.set("disksize", "1M");
        (0..10).for_each(|index| it.store(index, &page(index)));
        it.store(10, &noise(10));
        it.store(11, &[1; PAGE_SIZE]);
        let before = it.disk.stats();
        it.set("writeback", "huge");
        assert_eq!(it.bd_stat(), [1, 0, 1]);
        assert_eq!(it.state(10), ".wh...");
        it.set("writeback", "page_index=3");
        it.set("writeback", "page_indexes=5-7 page_index=0");
        assert_eq!(it.bd_stat(), [5 + 1, 0, 6], "pages 3 0 5 6 7 and the huge one");
        it.set("idle", "all");
        it.expect(1, &page(1));
        it.set("writeback", "type=idle");
        assert_eq!(it.state(1), "......", "it was used");
        assert_eq!(it.state(2), ".w....");
        assert_eq!(it.state(11), "s.....", "same-filled pages stay");
        let after = it.disk.stats();
        assert_eq!(after.orig_bytes, before.orig_bytes, "they still count as stored");
        assert!(after.compressed_bytes < before.compressed_bytes / 4);
        assert!(after.pool_bytes < before.pool_bytes);
        (0..10).for_each(|index| it.expect(index, &page(index)));
        it.expect(10, &noise(10));
        let [held, reads, writes] = it.bd_stat()[..] else { panic!() };
        assert_eq!((held, reads, writes), (10, 10, 10));
        // Parts of pages, several pages at once, and every way to lose a block.
        let mut bytes = vec![0; 12 * PAGE_SIZE - 200];
        let read = Operation::Read { offset: 100, into: &mut bytes };
        it.disk.submit(CPU, read).unwrap();
        assert_eq!(bytes[PAGE_SIZE - 100..2 * PAGE_SIZE - 100], page(1));
        assert_eq!(bytes[..PAGE_SIZE - 100], page(0)[100..]);
        let mut edited = page(2);
        edited[100..200].fill(0xee);
        let write = Operation::Write { offset: 2 * PAGE_SIZE as u64 + 100, from: &[0xee; 100] };
        it.disk.submit(CPU, write).unwrap();
        it.expect(2, &edited);
        assert_eq!(it.state(2), "......");
        it.store(3, &page(33));
        it.disk.discard_pages(CPU, 4, 2).unwrap();
        assert_eq!(it.bd_stat()[0], 6);
        it.disk.discard_pages(CPU, 0, 256).unwrap();
        assert_eq!(it.bd_stat()[0], 0);
        assert_eq!(it.disk.stats().pool_bytes, 0);
        it.disk.validate();
    }
}

#[test]
fn pages_that_are_named_need_not_be_of_the_kind_asked_for() {
    let it = Fixture::ready();
    (0..10).for_each(|index| it.store(index, &page(index)));
    it.store(10, &noise(10));
    it.set("writeback", "page_indexes=2-4 page_index=3 page_index=3 page_indexes=0-2 type=huge");
    assert_eq!(it.bd_stat(), [6, 0, 6], "pages 0 to 4 and the huge one, each once");
    (0..10).for_each(|index| it.expect(index, &page(index)));
    it.expect(10, &noise(10));
}

#[test]
fn a_full_backing_device_is_told_and_its_blocks_are_used_again() {
    let it = Fixture::ready();
    (0..100).for_each(|index| it.store(index, &page(index)));
    assert_eq!(it.refused("writeback", "page_indexes=0-99"), Errno::ENOSPC);
    assert_eq!(it.bd_stat()[0], BLOCKS as u64);
    (0..100).for_each(|index| it.expect(index, &page(index)));
    it.disk.discard_pages(CPU, 0, 256).unwrap();
    for round in 0..5 {
        (0..60).for_each(|index| it.store(index, &page(1000 * round + index)));
        it.set("writeback", "page_indexes=0-59");
        (0..60).for_each(|index| it.expect(index, &page(1000 * round + index)));
    }
    assert_eq!(it.bd_stat()[0], 60);
}

#[test]
fn writeback_is_refused_when_it_makes_no_sense() {
    let it = Fixture::new();
    assert_eq!(it.refused("writeback", "idle"), Errno::EINVAL, "not initialised");
    assert_eq!(it.get("backing_dev"), "none\n");
    assert_eq!(it.refused("backing_dev", "/elsewhere"), Errno::ENOENT);
    assert_eq!(it.refused("backing_dev", "\n"), Errno::EINVAL);
    let bare = Fixture::new();
    bare.set("disksize", "1M");
    assert_eq!(bare.refused("writeback", "idle"), Errno::ENODEV);
    assert_eq!(bare.refused("backing_dev", "/backing"), Errno::EBUSY);
    assert_eq!(bare.refused("compressed_writeback", "1"), Errno::EBUSY);
    it.set("backing_dev", "/backing\n");
    assert_eq!(it.get("backing_dev"), "/backing\n");
    for bad in ["", "2", "please"] {
        assert_eq!(it.refused("compressed_writeback", bad), Errno::EINVAL, "{bad:?}");
    }
    for bad in ["", "y", "on", "-1", "0x1", "18446744073709551616"] {
        assert_eq!(it.refused("writeback_limit_enable", bad), Errno::EINVAL, "{bad:?}");
    }
    it.set("disksize", "1M");
    for bad in ["", "cold", "type=", "type=cold", "page_index=x", "page_indexes=3", "speed=1"] {
        assert_eq!(it.refused("writeback", bad), Errno::EINVAL, "{bad:?}");
    }
    for bad in ["page_index=256", "page_indexes=5-4", "page_indexes=0-256"] {
        assert_eq!(it.refused("writeback", bad), Errno::ERANGE, "{bad:?}");
    }
    for bad in ["0", "-1", "x", "5000"] {
        assert_eq!(it.refused("writeback_batch_size", bad), Errno::EINVAL, "{bad:?}");
    }
    it.set("reset", "1");
    assert_eq!(it.get("backing_dev"), "none\n", "a reset lets go of it");
}

#[test]
fn switches_of_writeback_are_read_as_linux_reads_them() {
    let it = Fixture::new();
    // A switch by its first letter, or two.
    for (text, shown) in
        [("yes please", "1\n"), ("No\n", "0\n"), ("on", "1\n"), ("OFF", "0\n"), ("t", "1\n")]
    {
        it.set("compressed_writeback", text);
        assert_eq!(it.get("compressed_writeback"), shown, "{text:?}");
    }
    // A number.
    for (text, shown) in [("2", "1\n"), ("0\n", "0\n"), ("18446744073709551615\n", "1\n")] {
        it.set("writeback_limit_enable", text);
        assert_eq!(it.get("writeback_limit_enable"), shown, "{text:?}");
    }
}

#[test]
fn the_writeback_limit_holds() {
    let it = Fixture::ready();
    (0..50).for_each(|index| it.store(index, &page(index)));
    it.set("writeback_batch_size", "8");
    it.set("writeback_limit", "20");
    assert_eq!(it.get("writeback_limit_enable"), "0\n");
    it.set("writeback_limit_enable", "1");
    assert_eq!(it.refused("writeback", "page_indexes=0-49"), Errno::EIO);
    assert_eq!(it.bd_stat()[0], 20);
    assert_eq!(it.get("writeback_limit"), "0\n");
    assert_eq!(it.refused("writeback", "page_indexes=0-49"), Errno::EIO);
    it.set("writeback_limit", "2");
    it.set("writeback", "page_index=49");
    assert_eq!(it.get("writeback_limit"), "1\n");
    it.set("writeback_limit_enable", "0");
    it.set("writeback", "page_indexes=0-49");
    assert_eq!(it.bd_stat()[0], 50);
    it.disk.discard_pages(CPU, 0, 256).unwrap();
    (0..100).for_each(|index| it.store(index, &page(index)));
    it.set("writeback_limit", "100");
    it.set("writeback_limit_enable", "1");
    assert_eq!(it.refused("writeback", "page_indexes=0-99"), Errno::ENOSPC);
    assert_eq!(it.get("writeback_limit"), "36\n", "what found no block was given back");
    for bad in ["", "x", "-1", "1M"] {
        assert_eq!(it.refused("writeback_limit", bad), Errno::EINVAL, "{bad:?}");
    }
}

#[test]
fn a_disk_grows_always_and_shrinks_when_its_tail_is_free() {
    let it = Fixture::ready();
    assert_eq!(Fixture::new().refused("resize", "1M"), Errno::EINVAL, "not initialised");
    it.store(255, &page(1));
    it.set("resize", "2T");
    assert_eq!(it.get("disksize"), format!("{}\n", 2u64 << 40));
    let last = (2 << 40) / PAGE_SIZE as u64 - 1;
    it.store(last, &page(2));
    it.expect(255, &page(1));
    assert_eq!(it.refused("resize", "1T"), Errno::EBUSY);
    it.expect(last, &page(2));
    it.disk.discard_pages(CPU, last, 1).unwrap();
    it.set("resize", "1M");
    it.expect(255, &page(1));
    let mut back = [0; PAGE_SIZE];
    assert!(it.disk.load_page(CPU, 256, &mut back).is_err());
    assert_eq!(it.refused("resize", "512K"), Errno::EBUSY);
    for bad in ["0", "", "x", "1Mx"] {
        assert_eq!(it.refused("resize", bad), Errno::EINVAL, "{bad:?}");
    }
    assert_eq!(it.refused("resize", "15E"), Errno::ENOMEM);
    it.set("resize", "2M");
    it.expect(256, &[0; PAGE_SIZE]);
}

#[test]
fn the_codec_of_a_live_device_changes() {
    let it = Fixture::ready();
    let names = ["zstd", "deflate", "lz4"];
    for round in 0..100 {
        let name = names[round % 3];
        it.set("switch_algorithm", &format!("algo={name}"));
        assert_eq!(it.disk.stats().algorithm, name);
        it.store(round as u64 % 40, &page(round as u64));
    }
    (60..100).for_each(|round| it.expect(round % 40, &page(round)));
    let error = it.rows.store("switch_algorithm", "algo=zstd level=100").unwrap_err();
    assert_eq!(error.errno, Errno::EINVAL, "{error}");
    for bad in ["", "algo=lzma", "level", "speed=1", "priority=4", "priority=2"] {
        if bad.is_empty() {
            continue;
        }
        assert_eq!(it.refused("switch_algorithm", bad), Errno::EINVAL, "{bad:?}");
    }
    it.set("max_comp_streams", "1");
    it.set("switch_algorithm", "algo=zstd level=7");
    assert_eq!(it.disk.stats().streams, 1, "the limit holds for the new codec");
    it.store(50, &noise(50));
    it.set("recompress", "type=huge");
    assert_eq!(it.state(50), "..h..n");
    it.set("switch_algorithm", "algo=deflate priority=1 level=9");
    assert_eq!(it.state(50), "..h...", "there is another codec to try");
    it.set("recompress", "");
    (60..100).for_each(|round| it.expect(round % 40, &page(round)));
    it.disk.validate();
}

#[test]
fn too_many_codecs_in_use_are_refused() {
    let it = Fixture::ready();
    let mut refused = None;
    let zstd = (1..=19).map(|level| format!("algo=zstd level={level}"));
    let deflate = (1..=12).map(|level| format!("algo=deflate level={level}"));
    for (round, codec) in zstd.chain(deflate).enumerate() {
        it.store(round as u64, &page(round as u64));
        if let Err(error) = it.rows.store("switch_algorithm", &codec) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused.expect("31 are all there can be").errno, Errno::EBUSY);
    (0..20).for_each(|round| it.expect(round, &page(round)));
    it.disk.discard_pages(CPU, 0, 10).unwrap();
    it.set("switch_algorithm", "algo=deflate");
}

#[test]
fn parameters_belong_to_a_priority() {
    let it = Fixture::new();
    it.set("comp_algorithm", "zstd");
    it.set("recomp_algorithm", "algo=deflate priority=2");
    it.set("algorithm_params", "priority=2 level=9");
    it.set("algorithm_params", "algo=deflate level=8");
    it.set("algorithm_params", "level=-3");
    for bad in [
        "priority=4 level=1",
        "priority=2 algo=zstd",
        "algo=lz4 level=1",
        "dict=/elsewhere",
        "dict=/empty",
        "level",
        "level=x",
    ] {
        assert_eq!(it.refused("algorithm_params", bad), Errno::EINVAL, "{bad:?}");
    }
    it.set("algorithm_params", "algo=zstd dict=/dictionary");
    it.set("algorithm_params", "priority=1 level=100");
    it.set("recomp_algorithm", "algo=zstd priority=1");
    assert_eq!(it.refused("disksize", "1M"), Errno::EINVAL, "set before the codec was chosen");
    it.set("recomp_algorithm", "algo=lz4 priority=1");
    it.set("disksize", "1M");
    assert_eq!(it.refused("algorithm_params", "level=1"), Errno::EBUSY);
    it.store(0, &page(0));
    it.expect(0, &page(0));
}

#[test]
fn statistics_have_the_kernels_formats() {
    let it = Fixture::ready();
    it.store(0, &page(0));
    it.expect(0, &page(0));
    assert_eq!(it.get("bd_stat"), "       0        0        0\n");
    assert_eq!(it.get("debug_stat"), "version: 1\n0        0\n");
    let stat: Vec<u64> =
        it.get("stat").split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(stat.len(), 17);
    assert_eq!((stat[0], stat[2], stat[4], stat[6]), (1, 8, 1, 8));
}
