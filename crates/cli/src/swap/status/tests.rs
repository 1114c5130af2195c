use service::swap::report::{LogReport, Protection};

use super::*;

fn swap() -> SwapReport {
    let protection =
        |name: &str, had| Protection { name: name.into(), had, text: "what follows".into() };
    SwapReport {
        name: "swap0".into(),
        block_device: "/dev/loop3".into(),
        bytes: 64 << 20,
        active: true,
        used: 8 << 20,
        priority: Some(100),
        backing: Some("/var/swap".into()),
        backing_created: true,
        cached_pages: 1536,
        disk_pages: 512,
        log: None,
        serving: ServingReport { by: "ublk".into(), threads: 3, minor_faults: 0, major_faults: 0 },
        frees_by: "zswap_invalidate".into(),
        frees_lack: None,
        freed_pages: 256,
        protections: vec![protection("memory locked", true), protection("no I/O", false)],
        front: Some("what is in front".into()),
        notes: vec!["a filter stands in front".into()],
    }
}

#[test]
fn the_table_says_what_is_missing() {
    let pool = PoolReport {
        compressor: "lz4".into(),
        stored_pages: 1536,
        pool_bytes: 3 << 20,
        limit_bytes: 1 << 30,
        written_back_pages: 512,
        late_pages: 256,
        headroom_bytes: Some(8 << 20),
        warm_pages: 512,
        recompress_age: 64,
        ..PoolReport::default()
    };
    let expected = "\
NAME  SIZE USED CACHED ON-DISK PRIO DEVICE     BACKING   STATE
swap0  64M   8M     6M      2M  100 /dev/loop3 /var/swap on
cache: 6M in 3M of 1G memory, ratio 2.00, lz4; 2M written back, 0B not taken
recompressed: 2M of it, when not read for 64 seconds
headroom: 8M of memory ready; 1M came too early for it
swap0: served by ublk, 3 threads with 0 page faults since it is on
swap0: freed pages are heard of by zswap_invalidate, 1M so far
in front: what is in front
NOT PROTECTED (no I/O): what follows
NOTE: a filter stands in front
";
    assert_eq!(table(&[swap()], Some(&pool), false), expected);
    assert_eq!(table(&[], Some(&pool), false), "");
    let failing =
        PoolReport { unread_pages: 3, changed_pages: 1, unwritten_pages: 256, ..pool.clone() };
    let said = "BACKING FAILS: 12K could not be read, 4K of it changed there; 1M could not be \
                written, and stayed in memory\n";
    assert!(table(&[swap()], Some(&failing), false).contains(said));
    assert_eq!(pool_object(&failing)["unwritten_pages"], 256);
    let silent = PoolReport { waiting_pages: 64, silent_seconds: 12, ..pool.clone() };
    let said = "BACKING DOES NOT ANSWER: 256K wait for it, for 12 seconds\n";
    assert!(table(&[swap()], Some(&silent), false).contains(said));
    assert_eq!(pool_object(&pool)["ratio"], 2.0);
    assert_eq!(object(&swap())["on_disk"], 2 << 20);
    let why = Some("this kernel has no kprobes".to_owned());
    let deaf = SwapReport { frees_by: "discards".into(), frees_lack: why, ..swap() };
    let said = "swap0: freed pages are heard of by discards: this kernel has no kprobes\n";
    assert!(table(std::slice::from_ref(&deaf), Some(&pool), false).contains(said));
    let log = LogReport { capacity: 64 << 20, live: 640 << 10, written: 1 << 20, copied: 4 << 10 };
    let logged = SwapReport { log: Some(log), ..swap() };
    let said = "swap0: 2M in 640K of a log of 64M; 1M written, 4K of it again to make room\n";
    assert!(table(std::slice::from_ref(&logged), Some(&pool), false).contains(said));
    assert_eq!(object(&logged)["log"]["copied"], 4 << 10);
}

#[test]
fn a_device_that_could_not_be_taken_over_is_there_with_what_to_do() {
    let left = SwapReport {
        name: "swap0".into(),
        block_device: "/dev/ublkb0".into(),
        bytes: 64 << 20,
        active: true,
        used: 8 << 20,
        priority: Some(100),
        notes: vec!["let a program that can take it over start".into()],
        ..SwapReport::default()
    };
    let expected = "\
NAME  SIZE USED CACHED ON-DISK PRIO DEVICE      BACKING STATE
swap0  64M   8M     0B      0B  100 /dev/ublkb0 none    on
NOTE: let a program that can take it over start
";
    assert_eq!(table(&[left], None, false), expected);
}

#[test]
fn exact_numbers_are_bytes() {
    let text = table(&[swap()], None, true);
    assert!(text.contains(" 67108864 8388608 6291456 2097152 "), "{text}");
}

#[test]
fn the_line_of_the_allocator_tells_of_bad_frees_only_when_there_are_any() {
    let report = ZoneReport {
        design: "spin".into(),
        allocated_bytes: 1 << 20,
        cached_bytes: 64 << 10,
        managed_bytes: 32 << 20,
        returned_blocks: 3,
        ..ZoneReport::default()
    };
    let line = zone_line(&report, false);
    assert!(line.starts_with("zone spin: 1M allocated, 64K in pcp lists of CPUs, "), "{line}");
    assert!(
        line.ends_with("of 32M asked of the system; 3 whole pageblocks of 2M given back so far\n")
    );
    assert!(zone_line(&report, true).contains("1048576 allocated, 65536 in"));
    let report = ZoneReport { bad_frees: 2, returned_blocks: 0, ..report };
    assert!(!zone_line(&report, false).contains("pageblock"));
    assert!(zone_line(&report, false).contains("2 BAD FREES"));
}
