//! Stores that are dead, slow, full, or return something else.

use std::fs;
use std::thread;
use std::time::Duration;

use block::{IoError, Operation};
use control::Errno;
use testkit::{TempDir, met};
use units::PAGE_SIZE;

use crate::device::{CHUNK, CHUNKS, CPU, World, open};
use crate::servers::{Hanging, REDIS, Redis, S3, files, wait_until};

#[test]
fn a_dead_store_is_left_alone_and_another_one_asked() {
    let name = "a_dead_store_is_left_alone_and_another_one_asked";
    if !met(name, &[REDIS]) {
        return;
    }
    let (redis, store) = (Redis::start(&[]), TempDir::new());
    let text = format!("{} fs://{} cold=0 deadline=2000", redis.uri(), store.path().display());
    let mut world = World::new(name, &text);
    world.fill();
    world.wait_until_away();
    drop(redis);
    for _ in 0..5 {
        assert_eq!(world.read_each(), [Ok(()); CHUNKS]);
    }
    let stats = world.stats();
    assert_eq!((stats.stores, stats.lost_stores), (2, 1));
    assert!(stats.failed_requests >= 3, "{stats:?}");
    // One store of two is not enough for what is new.
    world.fill();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(world.stats().local_bytes, (CHUNKS * CHUNK) as u64);
    assert_eq!(world.read_each(), [Ok(()); CHUNKS]);
    drop(world);
    assert!(files(store.path()).is_empty(), "the store that is there has nothing any more");
}

#[test]
fn a_store_that_hangs_is_an_error_until_it_answers() {
    let name = "a_store_that_hangs_is_an_error_until_it_answers";
    if !met(name, &[REDIS]) {
        return;
    }
    let redis = Redis::start(&[]);
    let mut world = World::new(name, &format!("{} cold=0 deadline=300", redis.uri()));
    world.fill();
    world.wait_until_away();
    redis.signal(libc::SIGSTOP);
    assert_eq!(world.read_each(), [Err(IoError::Failed); CHUNKS]);
    // What is away cannot be changed in part, and stays as it was.
    assert_eq!(world.write(3 * PAGE_SIZE, PAGE_SIZE), Err(IoError::Failed));
    assert_eq!(world.stats().lost_stores, 1);
    redis.signal(libc::SIGCONT);
    wait_until("it answers", || world.read_each() == [Ok(()); CHUNKS]);
    wait_until("it is known to be well", || world.stats().lost_stores == 0);
    // A busy machine may be late once more.
    wait_until("it can be changed", || world.write(3 * PAGE_SIZE, PAGE_SIZE).is_ok());
    wait_until("all is there", || world.read_each() == [Ok(()); CHUNKS]);
}

#[test]
fn a_full_store_leaves_the_rest_here() {
    let name = "a_full_store_leaves_the_rest_here";
    if !met(name, &[REDIS]) {
        return;
    }
    let redis = Redis::start(&["--maxmemory", "5mb", "--maxmemory-policy", "noeviction"]);
    let mut world = World::new(name, &format!("{} cold=0 deadline=500", redis.uri()));
    world.fill();
    wait_until("it is full", || world.stats().lost_stores == 1);
    let stats = world.stats();
    assert!(stats.local_bytes > 0 && stats.remote_bytes > 0, "{stats:?}");
    assert_eq!(world.read_each(), [Ok(()); CHUNKS], "what it has can be read");
}

#[test]
fn what_was_not_written_there_is_an_error_of_that_store() {
    let name = "what_was_not_written_there_is_an_error_of_that_store";
    let (one, other) = (TempDir::new(), TempDir::new());
    let uris = format!("fs://{} fs://{}", one.path().display(), other.path().display());
    let mut world = World::new(name, &format!("{uris} cold=0"));
    world.fill();
    world.wait_until_away();
    let old: Vec<Vec<u8>> = files(one.path()).iter().map(|path| fs::read(path).unwrap()).collect();
    world.fill();
    wait_until("the new objects are away", || {
        world.stats().local_bytes == 0 && files(one.path()).len() == CHUNKS
    });
    let paths = files(one.path());
    // Contents of former times, of another object, cut off, rotten, and none.
    fs::write(&paths[0], &old[0]).unwrap();
    fs::copy(&paths[2], &paths[1]).unwrap();
    fs::write(&paths[2], &fs::read(&paths[2]).unwrap()[..PAGE_SIZE]).unwrap();
    let mut rotten = fs::read(&paths[3]).unwrap();
    rotten.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&paths[3], rotten).unwrap();
    fs::remove_file(&paths[4]).unwrap();
    assert_eq!(world.read_each(), [Ok(()); CHUNKS], "the other store has them");
    assert!(world.stats().wrong_answers >= 3, "{:?}", world.stats());
    for path in files(other.path()) {
        fs::remove_file(path).unwrap();
    }
    let read = world.read_each();
    assert_eq!(read[..2], [Err(IoError::Corrupt); 2], "{read:?}");
    assert!(read[2].is_err() && read[4].is_err(), "{read:?}");
    assert_eq!((read[3], read[5]), (Err(IoError::Corrupt), Ok(())));
}

#[test]
fn what_a_store_has_lost_is_left_alone_and_nothing_else() {
    let name = "what_a_store_has_lost_is_left_alone_and_nothing_else";
    let store = TempDir::new();
    let mut world = World::new(name, &format!("fs://{} cold=0", store.path().display()));
    world.fill();
    world.wait_until_away();
    let mut paths = files(store.path());
    paths.sort();
    fs::remove_file(&paths[2]).unwrap();
    for _ in 0..100 {
        let read = world.read_each();
        assert_eq!(read.iter().filter(|read| read.is_ok()).count(), CHUNKS - 1, "{read:?}");
    }
    // A second or more goes by between two tries.
    let stats = world.stats();
    assert!((3..50).contains(&stats.failed_requests), "{stats:?}");
    assert_eq!(stats.lost_stores, 0, "it has the others");
    for path in paths.iter().filter(|path| path.exists()) {
        fs::remove_file(path).unwrap();
    }
    for _ in 0..100 {
        assert!(world.read_each().iter().all(Result::is_err));
    }
    let stats = world.stats();
    assert!(stats.failed_requests < 200, "600 reads: {stats:?}");
    assert_eq!(stats.lost_stores, 1, "it has nothing any more");
    // What is written anew is read from there again. What is lost cannot come back to be changed.
    let length = world.device.geometry().bytes;
    world.device.submit(CPU, Operation::Discard { offset: 0, length }).unwrap();
    world.fill();
    world.wait_until_away();
    assert_eq!(world.read_each(), [Ok(()); CHUNKS]);
    assert_eq!(world.stats().lost_stores, 0);
    drop(world);
    let left: Vec<_> = fs::read_dir(store.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_new_waits_for_its_budget() {
    for budget in ["bandwidth=1", "requests=1"] {
        let store = TempDir::new();
        let text = format!("fs://{} cold=0 {budget}", store.path().display());
        let mut world = World::new("what_is_new_waits_for_its_budget", &text);
        world.fill();
        wait_until("the first is away", || world.stats().remote_bytes == CHUNK as u64);
        thread::sleep(Duration::from_secs(1));
        assert_eq!(world.stats().remote_bytes, CHUNK as u64, "{budget}");
        assert_eq!(world.read_each(), [Ok(()); CHUNKS], "reads do not wait");
    }
}

/// A chunk takes longer than a deadline to get there, and to come back.
#[test]
fn a_slow_way_to_a_store_is_slow() {
    let server = S3::start();
    let text = format!("{} cold=0 deadline=1000", server.slow_uri(500 << 10));
    let mut world = World::new("a_slow_way_to_a_store_is_slow", &text);
    world.fill();
    wait_until("the first is away", || world.stats().remote_bytes > 0);
    let uploaded = world.stats().uploaded_bytes;
    assert!(uploaded < ((CHUNKS - 1) * CHUNK) as u64, "its room does not wait for the others");
    world.wait_until_away();
    assert_eq!(world.read_each(), [Ok(()); CHUNKS]);
    assert_eq!(world.write(3 * PAGE_SIZE, PAGE_SIZE), Ok(()), "the rest of its chunk comes back");
    world.read(0, CHUNK).unwrap();
}

#[test]
fn deletions_leave_half_of_the_requests_to_writes() {
    let store = TempDir::new();
    let text = format!("fs://{} cold=0 requests=12", store.path().display());
    let mut world = World::new("deletions_leave_half_of_the_requests_to_writes", &text);
    world.fill();
    world.wait_until_away();
    let length = world.device.geometry().bytes;
    world.device.submit(CPU, Operation::Discard { offset: 0, length }).unwrap();
    thread::sleep(Duration::from_secs(1));
    // Six of twelve requests are left, or more where the machine was busy and fewer objects went.
    let left = files(store.path()).len();
    assert!(left > CHUNKS / 2, "{left} of {CHUNKS} objects are left");
    world.fill();
    wait_until("something new is away", || world.stats().remote_bytes > 0);
    wait_until("old objects do not become more", || files(store.path()).len() <= CHUNKS);
}

/// It takes no threads of the device below, nor of another directory.
#[test]
fn a_directory_that_hangs_holds_nothing_up() {
    let (bad, good) = (TempDir::new(), TempDir::new());
    let uris = format!("fs://{} fs://{}", bad.path().display(), good.path().display());
    let mut world = World::new(
        "a_directory_that_hangs_holds_nothing_up",
        &format!("{uris} cold=0 copies=1 deadline=100"),
    );
    let _hanging = Hanging::at(bad.path(), CHUNKS);
    world.fill();
    world.wait_until_away();
    assert_eq!(files(good.path()).len(), CHUNKS);
    wait_until("the other one is asked", || world.read_each() == [Ok(()); CHUNKS]);
}

#[test]
fn a_store_that_does_not_work_is_refused() {
    let refused = "Connection refused (os error 111)";
    let s3 = "s3://b/p?endpoint=http%3A%2F%2F127.0.0.1%3A1&region=r&access_key_id=k\
              &secret_access_key=word";
    // If it were tried until the deadline, that would be the error.
    for text in ["redis://:word@127.0.0.1:1/0 deadline=600000", &format!("{s3} deadline=600000")] {
        let error = open(text).map(drop).unwrap_err();
        assert_eq!(error.errno, Errno::EIO, "{error}");
        assert!(error.message.ends_with(refused) && !error.message.contains("word"), "{error}");
    }
    // The store before it has no directory left.
    let store = TempDir::new();
    let text = format!("fs://{} redis://127.0.0.1:1", store.path().display());
    open(&text).map(drop).unwrap_err();
    assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
    for (text, errno, word) in [
        ("redis://:word@127.0.0.1:1/0 deadline=300", Errno::EIO, "redis://…@127.0.0.1:1/0 cannot"),
        ("fs:///proc/nothing deadline=300", Errno::EIO, "fs:///proc/nothing cannot be used"),
        ("nothing://there", Errno::EINVAL, "nothing://there is no store"),
    ] {
        let error = open(text).map(drop).unwrap_err();
        assert_eq!(error.errno, errno, "{error}");
        assert!(error.message.contains(word) && !error.message.contains(":word@"), "{error}");
    }
}
