//! Keys in memory that outlives the process.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use host::{KEY_BYTES, Memfds};
use testkit::{Need, met};
use units::PAGEBLOCK_SIZE;

/// The system has such memory (Linux 5.14, and not `secretmem.enable=0`).
fn secret_memory(test: &str) -> bool {
    let is_there = Memfds::new().secret("key", |_| Ok(())).is_ok();
    met(test, &[Need::other(is_there, "secret memory (memfd_secret, Linux 5.14)")])
}

#[test]
fn a_key_outlives_its_process_and_nobody_reads_the_file() {
    if !secret_memory("a_key_outlives_its_process_and_nobody_reads_the_file") {
        return;
    }
    let memory = Memfds::new();
    let key = memory.secret("key", |key| {
        key.fill(7);
        Ok(())
    });
    let key = key.unwrap();
    assert_eq!(*key, [7; KEY_BYTES]);
    let error = memory.secret("key", |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let regions = memory.regions();
    assert_eq!((regions.len(), regions[0].bytes), (1, PAGEBLOCK_SIZE as u64));
    assert!(regions[0].file.read_at(&mut [0; 64], 0).is_err(), "read(2) sees secret memory");

    let later = Memfds::new();
    let fd = regions[0].file.try_clone().unwrap().into();
    later.adopt("key", fd, regions[0].bytes).unwrap();
    assert_eq!(later.unused(), ["key"]);
    std::mem::forget(key);
    let again = later.secret("key", |_| panic!("there is a key")).unwrap();
    assert_eq!(*again, [7; KEY_BYTES]);
    assert!(later.unused().is_empty());
    // A recovery fails, and the next one has the key, too.
    drop(again);
    assert_eq!(later.unused(), ["key"]);
    let again = later.secret("key", |_| panic!("there is a key")).unwrap();
    assert_eq!(*again, [7; KEY_BYTES]);
    later.settle();
    drop(again);
    assert!(later.regions().is_empty(), "a key that is dropped is given up");
}

#[test]
fn a_key_that_was_not_complete_is_made_anew() {
    if !secret_memory("a_key_that_was_not_complete_is_made_anew") {
        return;
    }
    let memory = Memfds::new();
    let error = memory.secret("key", |key| {
        key.fill(1);
        Err(io::Error::other("no numbers"))
    });
    assert_eq!(error.unwrap_err().to_string(), "no numbers");
    assert!(memory.regions().is_empty());
    // The process dies while it makes the key: the next one finds half of it.
    let error = memory.secret("key", |key| {
        key.fill(2);
        let (later, region) = (Memfds::new(), memory.regions().remove(0));
        later.adopt("key", region.file.try_clone()?.into(), region.bytes)?;
        let again = later.secret("key", |key| {
            key.fill(3);
            Ok(())
        })?;
        assert_eq!(*again, [3; KEY_BYTES]);
        Err(io::Error::other("dead"))
    });
    assert_eq!(error.unwrap_err().to_string(), "dead");
}
