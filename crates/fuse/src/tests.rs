use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use block::Plain;
use units::Cpu;

use crate::table::Table;
use crate::worker::{Buffers, LARGEST, with_buffer};
use crate::{Error, User};

#[test]
fn a_closed_table_waits_for_no_request() {
    let table = Arc::new(Table::new(2));
    table.add("zram0", Arc::new(Plain::new(0))).unwrap();
    // A request to a device that never answers.
    let held = table.named(Path::new("zram0")).unwrap();
    let removing = thread::spawn({
        let table = table.clone();
        move || table.remove("zram0").is_some()
    });
    while table.named(Path::new("zram0")).is_some() {
        thread::yield_now();
    }
    assert!(!removing.is_finished(), "it waits for the request");
    table.close();
    assert!(removing.join().unwrap());
    assert!(table.is_closed() && table.remove("zram0").is_none());
    drop(held);
}

#[test]
fn names_are_checked_and_numbers_never_used_again() {
    let table = Table::new(2);
    let add = |name: &str| table.add(name, Arc::new(Plain::new(0)));
    for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
        assert!(matches!(add(name), Err(Error::Name { .. })), "{name:?}");
    }
    let mut seen = HashSet::new();
    for _ in 0..3 {
        add("zram0").unwrap();
        add(&"x".repeat(255)).unwrap();
        assert!(matches!(add("zram0"), Err(Error::Name { .. })));
        for file in table.all() {
            assert!(seen.insert(file.number));
            let reader = table.enter(Cpu(0));
            assert_eq!(table.numbered(&reader, file.number).unwrap().name, file.name);
        }
        table.remove("zram0").unwrap();
        table.remove(&"x".repeat(255)).unwrap();
    }
    assert!(table.remove("zram0").is_none());
    let reader = table.enter(Cpu(1));
    assert!(seen.iter().all(|number| table.numbered(&reader, *number).is_none()));
    for number in [0, 1, 15, 10_000, u64::MAX] {
        assert!(table.numbered(&reader, number).is_none(), "{number} was never a file's");
    }
}

#[test]
fn a_removed_device_is_not_served_any_more() {
    let table = Table::new(2);
    let device = Arc::new(Plain::new(0));
    table.add("zram0", device.clone()).unwrap();
    let served = table.named(Path::new("zram0")).unwrap();
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| drop(table.remove("zram0")));
        while table.named(Path::new("zram0")).is_some() {
            std::thread::yield_now();
        }
        assert!(!remover.is_finished(), "a request is still being served from it");
        drop(served);
        remover.join().unwrap();
    });
    assert_eq!(Arc::strong_count(&device), 1);
}

#[test]
fn buffers_are_aligned_and_kept() {
    let buffers = Arc::new(Buffers::new(1));
    let place = |length| {
        with_buffer(&buffers, length, |bytes| {
            let bytes = bytes.unwrap();
            assert_eq!(bytes.len(), length);
            assert_eq!(bytes.as_ptr() as usize % units::PAGE_SIZE, 0);
            bytes.as_ptr() as usize
        })
    };
    let first = place(1);
    assert_eq!(place(LARGEST), first);
    assert_eq!(place(5000), first);
    place(2 * LARGEST);
    // The buffer of the mount went back when it became too small.
    let another = std::thread::scope(|scope| scope.spawn(|| place(1)).join().unwrap());
    assert_eq!(another, first);
}

#[test]
fn a_read_without_memory_fails_and_ends_nothing() {
    let buffers = Arc::new(Buffers::new(0));
    let is_there = |length| with_buffer(&buffers, length, |bytes| bytes.is_some());
    assert!(!is_there(usize::MAX / 4));
    assert!(is_there(4096));
}

#[test]
fn errors_are_sentences() {
    let users = vec![User::MountedAt("/mnt".into()), User::Swap, User::Holder("dm-0".into())];
    let busy = Error::Busy { what: "/dev/loop3".into(), users };
    let text = "/dev/loop3 is in use: mounted at /mnt, used as swap, held by block device dm-0";
    assert_eq!(busy.to_string(), text);
    let gone = std::io::Error::from_raw_os_error(libc::ENOENT);
    assert!(Error::NoFuse(gone).to_string().contains("install the package fuse3"));
}

#[test]
fn the_names_of_users_are_printable() {
    let bad = "\x1b[31mx";
    let users = [
        User::MountedAt(PathBuf::from(bad)),
        User::Holder(bad.into()),
        User::LoopDevice(PathBuf::from(bad)),
        User::Process { pid: 7, name: bad.into() },
    ];
    for user in users {
        let text = user.to_string();
        assert!(text.contains("\\u{1b}[31mx") && !text.contains('\x1b'), "{text:?}");
    }
}
