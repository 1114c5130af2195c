//! Every attribute of a device: format, access, and each refusal with its error number.

use std::sync::Arc;

use block::{BlockDevice, IoError, Operation};
use control::{Access, Bound, Errno, Object};
use machine::{Machine, MachineOptions};
use units::{Cpu, PAGE_SIZE};
use zram::{Disk, NoHostFiles, attributes};

const CPU: Cpu = Cpu(0);

fn machine() -> Machine {
    let files = Arc::new(NoHostFiles);
    let options = MachineOptions {
        cpus: 2,
        memory: 1 << 30,
        files,
        swap_memory: Arc::new(host::Mmap),
        track_access: false,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

fn disk() -> (Arc<Disk>, Bound<Disk>) {
    let disk = machine().add().unwrap();
    (disk.clone(), attributes(disk))
}

/// The error number of a refused write; the value must be as before.
fn refused(attributes: &Bound<Disk>, name: &str, value: &str) -> Errno {
    let before = attributes.show(name).ok();
    let fault = attributes.store(name, value).expect_err(&format!("{name} took {value:?}"));
    assert_eq!(attributes.show(name).ok(), before, "{name} changed although it was refused");
    assert!(fault.message.len() > 10, "{name}: {fault}");
    fault.errno
}

/// A page that compresses, different for each stamp.
fn page(stamp: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    for (n, word) in page.chunks_exact_mut(8).enumerate() {
        let value = if n % 3 == 0 { stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { n as u64 };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    page
}

#[test]
fn the_attributes_are_these() {
    let (_, attributes) = disk();
    let rows = attributes.attributes();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(
        names.join(" "),
        "disksize initstate reset resize comp_algorithm recomp_algorithm algorithm_params \
         switch_algorithm recompress pack share max_comp_streams mem_limit when_full mem_used_max \
         compact track_access idle backing_dev writeback writeback_limit writeback_limit_enable \
         writeback_batch_size compressed_writeback sealed_backing backing_layout log_stat \
         backing_remote remote_stat scrub auto auto_target \
         auto_cpu_percent auto_slowest_read auto_writeback auto_stat num_reads num_writes failed_reads \
         failed_writes invalid_io \
         notify_free zero_pages orig_data_size compr_data_size mem_used_total lost_pages mm_stat \
         io_stat \
         bd_stat debug_stat stat block_state pack_stat share_stat"
    );
    for row in rows {
        assert!(!row.help.is_empty() && !row.unit.is_empty());
        let needs_size = row.name == "block_state";
        let readable = row.access.readable() && !needs_size;
        assert_eq!(attributes.show(row.name).is_ok(), readable, "{}", row.name);
        if row.access == Access::Read {
            assert_eq!(refused(&attributes, row.name, "1"), Errno::EACCES);
        }
    }
}

#[test]
fn the_cache_of_swap_devices_is_scrubbed_by_the_same_name() {
    let zswap = machine().swap().unwrap();
    let rows = Bound::new(zswap, zswap::DEBUG);
    let acts: Vec<_> = rows.attributes().into_iter().filter(|it| !it.access.readable()).collect();
    let (_, of_disks) = disk();
    let of_disk = of_disks.attributes().into_iter().find(|it| it.name == "scrub").unwrap();
    assert_eq!(acts.len(), 1);
    assert_eq!((acts[0].name, acts[0].access), (of_disk.name, of_disk.access));
    assert_eq!((acts[0].unit, acts[0].help), (of_disk.unit, of_disk.help));
    assert_eq!(rows.show("scrub").unwrap_err().errno, Errno::EACCES);
    assert_eq!(refused(&of_disks, "scrub", "1"), Errno::EINVAL, "no size");
    assert_eq!(rows.store("scrub", "1").unwrap_err().errno, Errno::EINVAL, "no device");
}

#[test]
fn disksize_makes_a_device_once() {
    let (disk, attributes) = disk();
    assert_eq!(attributes.show("disksize").unwrap(), "0\n");
    assert_eq!(attributes.show("initstate").unwrap(), "0\n");
    for bad in ["0", "", "\n", "foo", "1Gfoo", "10X", "-1", "1.5G", "0K", "99999999999999999999"] {
        assert_eq!(refused(&attributes, "disksize", bad), Errno::EINVAL, "{bad:?}");
    }
    for huge in ["17592186044417", "17T", "15E", "18446744073709551615"] {
        let error = attributes.store("disksize", huge).unwrap_err();
        assert_eq!(error.errno, Errno::ENOMEM, "{huge:?}");
        let said = "a disk has 16 TiB at most, which is 17592186044416 bytes, not";
        assert!(error.message.starts_with(said), "{huge}: {error}");
    }
    attributes.store("disksize", "10000\n").unwrap();
    assert_eq!(attributes.show("disksize").unwrap(), "12288\n", "rounded up to pages");
    assert_eq!(attributes.show("initstate").unwrap(), "1\n");
    assert_eq!(refused(&attributes, "disksize", "1M"), Errno::EBUSY);
    assert_eq!(disk.geometry().bytes, 12288);
}

#[test]
fn the_algorithm_is_chosen_before_the_size() {
    let (disk, attributes) = disk();
    assert_eq!(
        attributes.show("comp_algorithm").unwrap(),
        "lzo-rle lzo [lz4] lz4hc zstd deflate 842 \n"
    );
    let fault = attributes.store("comp_algorithm", "lzma").unwrap_err();
    assert_eq!(fault.errno, Errno::EINVAL);
    assert!(fault.message.contains("lzo-rle lzo lz4 lz4hc zstd deflate 842"), "{fault}");
    assert_eq!(refused(&attributes, "comp_algorithm", &"x".repeat(200)), Errno::E2BIG);
    attributes.store("comp_algorithm", "zstd\n").unwrap();
    assert_eq!(
        attributes.show("comp_algorithm").unwrap(),
        "lzo-rle lzo lz4 lz4hc [zstd] deflate 842 \n"
    );
    for bad in ["level", "level=x", "speed=1", "algo=lz4"] {
        assert_eq!(refused(&attributes, "algorithm_params", bad), Errno::EINVAL, "{bad:?}");
    }
    attributes.store("algorithm_params", "algo=zstd level=100").unwrap();
    assert_eq!(refused(&attributes, "disksize", "1M"), Errno::EINVAL, "judged with the size");
    attributes.store("algorithm_params", "level=-1").unwrap();
    attributes.store("disksize", "1M").unwrap();
    assert_eq!(refused(&attributes, "comp_algorithm", "lz4"), Errno::EBUSY);
    assert_eq!(refused(&attributes, "algorithm_params", "level=1"), Errno::EBUSY);
    assert_eq!(disk.stats().algorithm, "zstd");
}

#[test]
fn reset_gives_everything_back() {
    let (disk, attributes) = disk();
    attributes.store("comp_algorithm", "deflate").unwrap();
    attributes.store("mem_limit", "1M").unwrap();
    attributes.store("disksize", "1M").unwrap();
    disk.store_page(CPU, 0, &page(1)).unwrap();
    for bad in ["0", "x", "-1", "65536", ""] {
        assert_eq!(
            refused(&attributes, "reset", bad),
            if bad == "65536" { Errno::ERANGE } else { Errno::EINVAL },
            "{bad:?}"
        );
    }
    let user = disk.open();
    assert_eq!(refused(&attributes, "reset", "1"), Errno::EBUSY);
    assert_eq!(disk.stats().pages_stored, 1, "nothing is lost by a refused reset");
    drop(user);
    attributes.store("reset", "1\n").unwrap();
    assert_eq!(
        attributes.show("comp_algorithm").unwrap(),
        "lzo-rle lzo [lz4] lz4hc zstd deflate 842 \n"
    );
    let zeroes =
        "       0        0        0        0        0        0        0        0        0\n";
    assert_eq!(attributes.show("mm_stat").unwrap(), zeroes);
    let mut back = [0; PAGE_SIZE];
    assert_eq!(disk.load_page(CPU, 0, &mut back), Err(IoError::NotReady));
    attributes.store("disksize", "1M").unwrap();
    disk.load_page(CPU, 0, &mut back).unwrap();
    assert_eq!(back, [0; PAGE_SIZE], "contents do not survive a reset");
}

#[test]
fn statistics_count_what_happens() {
    let (disk, attributes) = disk();
    attributes.store("disksize", "1M").unwrap();
    disk.store_page(CPU, 0, &page(1)).unwrap();
    disk.store_page(CPU, 1, &[0; PAGE_SIZE]).unwrap();
    disk.store_page(CPU, 2, &[7; PAGE_SIZE]).unwrap();
    let mut random = [0; PAGE_SIZE];
    testkit::Rng::new(1).fill(&mut random);
    disk.store_page(CPU, 3, &random).unwrap();
    let mut back = [0; PAGE_SIZE];
    disk.load_page(CPU, 3, &mut back).unwrap();
    assert_eq!(back, random);
    let show = |name| attributes.show(name).unwrap();
    assert_eq!(show("num_writes"), "4\n");
    assert_eq!(show("num_reads"), "1\n");
    assert_eq!(show("zero_pages"), "1\n");
    assert_eq!(show("orig_data_size"), "16384\n");
    let stats = disk.stats();
    assert_eq!((stats.same_filled_pages, stats.huge_pages, stats.huge_pages_since), (2, 1, 1));
    assert!(stats.compressed_bytes > 4096 && stats.compressed_bytes < 8192);
    let mm_stat: Vec<u64> =
        show("mm_stat").split_whitespace().map(|word| word.parse().unwrap()).collect();
    let expected =
        [16384, stats.compressed_bytes, stats.pool_bytes, 0, stats.pool_bytes_peak, 2, 0, 1, 1];
    assert_eq!(mm_stat, expected);
    disk.discard_pages(CPU, 3, 1).unwrap();
    disk.discard_pages(CPU, 100, 2).unwrap();
    assert_eq!(show("notify_free"), "3\n", "empty pages count, as in the kernel");
    assert_eq!(disk.stats().huge_pages, 0);
    assert_eq!(disk.stats().huge_pages_since, 1);
    let past = Operation::Discard { offset: 1 << 20, length: 4096 };
    assert_eq!(disk.submit(CPU, past), Err(IoError::OutOfRange));
    assert_eq!(show("invalid_io"), "1\n");
    assert_eq!(show("io_stat"), "       0        0        1        3\n");
    for page in 0..4 {
        disk.discard_pages(CPU, page, 1).unwrap();
    }
    let stats = disk.stats();
    assert_eq!((stats.pages_stored, stats.compressed_bytes, stats.pool_bytes), (0, 0, 0));
}

#[test]
fn the_limit_is_kept_and_can_change() {
    let (disk, attributes) = disk();
    for bad in ["", "x", "1Kb"] {
        assert_eq!(refused(&attributes, "mem_limit", bad), Errno::EINVAL, "{bad:?}");
    }
    attributes.store("disksize", "16M").unwrap();
    attributes.store("mem_limit", "64K").unwrap();
    let mut failed = None;
    for index in 0..1000 {
        if let Err(error) = disk.store_page(CPU, index, &page(index)) {
            failed = Some((index, error));
            break;
        }
    }
    let (full, error) = failed.expect("1000 pages fit into 64 KiB");
    assert_eq!(error, IoError::NoSpace);
    assert_eq!(attributes.show("failed_writes").unwrap(), "1\n");
    assert!(disk.stats().pool_bytes <= 64 << 10);
    let mut back = [0; PAGE_SIZE];
    for index in 0..full {
        disk.load_page(CPU, index, &mut back).unwrap();
        assert_eq!(back, page(index), "page {index} was lost at the limit");
    }
    disk.load_page(CPU, full, &mut back).unwrap();
    assert_eq!(back, [0; PAGE_SIZE], "a failed write leaves what was there");
    attributes.store("mem_limit", "0").unwrap();
    disk.store_page(CPU, full, &page(full)).unwrap();
    let peak = disk.stats().pool_bytes_peak;
    disk.discard_pages(CPU, 0, 4096).unwrap();
    assert_eq!(disk.stats().pool_bytes_peak, peak);
    assert_eq!(refused(&attributes, "mem_used_max", "1"), Errno::EINVAL);
    attributes.store("mem_used_max", "0").unwrap();
    assert_eq!(disk.stats().pool_bytes_peak, 0);
}

#[test]
fn when_full_is_one_of_three_words_until_a_reset() {
    let (disk, attributes) = disk();
    assert_eq!(attributes.show("when_full").unwrap(), "fail\n");
    for bad in ["", "x", "0", "fail wait", "Wait"] {
        assert_eq!(refused(&attributes, "when_full", bad), Errno::EINVAL, "{bad:?}");
    }
    attributes.store("when_full", "spill\n").unwrap();
    assert_eq!(attributes.show("when_full").unwrap(), "spill\n");
    assert_eq!(refused(&attributes, "disksize", "1M"), Errno::ENODEV, "no backing device");
    attributes.store("when_full", "wait").unwrap();
    attributes.store("disksize", "1M").unwrap();
    assert_eq!(refused(&attributes, "when_full", "spill"), Errno::ENODEV);
    let saved = zram::saved_settings(&disk);
    assert!(saved.contains(&("when_full", "wait".into())), "{saved:?}");
    attributes.store("reset", "1").unwrap();
    assert_eq!(attributes.show("when_full").unwrap(), "fail\n");
}

#[test]
fn compact_needs_a_size() {
    let (disk, attributes) = disk();
    assert_eq!(refused(&attributes, "compact", "1"), Errno::EINVAL);
    attributes.store("disksize", "16M").unwrap();
    for index in 0..4096 {
        disk.store_page(CPU, index, &page(index)).unwrap();
    }
    for index in (0..4096).filter(|index| index % 4 != 0) {
        disk.discard_pages(CPU, index, 1).unwrap();
    }
    let before = disk.stats().pool_bytes;
    attributes.store("compact", "1").unwrap();
    let after = disk.stats();
    assert!(after.pool_bytes < before && after.pages_compacted > 0);
    disk.validate();
    let mut back = [0; PAGE_SIZE];
    for index in (0..4096).step_by(4) {
        disk.load_page(CPU, index, &mut back).unwrap();
        assert_eq!(back, page(index));
    }
}

#[test]
fn streams_are_checked() {
    let (disk, attributes) = disk();
    assert_eq!(attributes.show("max_comp_streams").unwrap(), "2\n");
    for bad in ["0", "-1", "x", ""] {
        assert_eq!(refused(&attributes, "max_comp_streams", bad), Errno::EINVAL, "{bad:?}");
    }
    attributes.store("max_comp_streams", "4").unwrap();
    assert_eq!(attributes.show("max_comp_streams").unwrap(), "4\n");
    attributes.store("disksize", "1M").unwrap();
    attributes.store("max_comp_streams", "1\n").unwrap();
    assert_eq!(disk.stats().streams, 1);
    attributes.store("max_comp_streams", "100").unwrap();
    assert_eq!(disk.stats().streams, 2, "never more than CPUs");
}

#[test]
fn machines_number_and_remove_devices() {
    let machine = machine();
    let disks: Vec<_> = (0..3).map(|_| machine.add().unwrap()).collect();
    assert_eq!(disks[2].name(), "zram2");
    let user = disks[1].open();
    assert_eq!(machine.remove(1).unwrap_err().errno, Errno::EBUSY);
    drop(user);
    machine.remove(1).unwrap();
    assert_eq!(machine.remove(1).unwrap_err().errno, Errno::ENODEV);
    assert_eq!(machine.add().unwrap().id(), 1, "the lowest free number is used again");
    assert_eq!(machine.disks().len(), 3);
}
