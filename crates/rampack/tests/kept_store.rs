//! Stores in directories: what another process finds, however the one before ended.
//! `RAMPACK_KILLS` is the number of processes that are killed.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rampack::{Algorithm, Error, Rampack, Store, StoreOptions, Upkeep};
use testkit::{Need, Rng, TempDir, met};

const MEMORY: u64 = 64 << 20;
const FLOCK: Need = Need::program("flock", "util-linux");
const REGIONS: [&str; 5] = ["frames", "index", "chains", "groups", "zspages"];

fn rampack() -> Rampack {
    Rampack::builder().memory(MEMORY).upkeep(Upkeep::Manual).build().unwrap()
}

/// A store in a directory, with memory for all that the tests put.
fn options(directory: &Path) -> StoreOptions {
    StoreOptions::new().limit(32 << 20).evict(false).keep(directory)
}

fn open(directory: &Path) -> Store {
    rampack().store(options(directory)).unwrap()
}

fn refused(options: StoreOptions) -> String {
    rampack().store(options).err().expect("it is refused").to_string()
}

/// The value of a version of a key: small ones, some of one unit, some of many.
fn value(key: u64, version: u64) -> Vec<u8> {
    let text = format!("{{\"key\":{key},\"version\":{version},\"name\":\"user-{key}\"}}");
    let length = match (key * 31 + version * 7) % 16 {
        0..10 => text.len() + (version % 300) as usize,
        10..14 => 3000 + (version * 977 % 9000) as usize,
        14 => 40_000 + (version * 7919 % 30_000) as usize,
        _ => 8,
    };
    let mut random = fastrand::Rng::with_seed(key << 32 | version);
    let mut value = text.into_bytes();
    while value.len() < length {
        let word = random.u64(..) >> (random.u32(..4) * 16);
        value.extend(word.to_ne_bytes());
    }
    value.truncate(length.max(8));
    value[..8].copy_from_slice(&version.to_ne_bytes());
    value
}

fn fill(store: &Store, keys: u64) {
    for key in 0..keys {
        store.put(key.to_ne_bytes(), value(key, 1)).unwrap();
    }
}

/// How many keys have their value, and how many are not there. Others are wrong.
fn count(store: &Store, keys: u64) -> (u64, u64) {
    let mut counts = (0, 0);
    for key in 0..keys {
        match store.get(key.to_ne_bytes()) {
            Ok(None) => counts.1 += 1,
            Ok(Some(bytes)) if bytes == value(key, 1) => counts.0 += 1,
            Ok(Some(_)) | Err(_) => {}
        }
    }
    counts
}

#[test]
fn values_outlive_a_store_that_is_dropped() {
    let directory = TempDir::new();
    let path = directory.path().join("below").join("store");
    let store = open(&path);
    fill(&store, 2000);
    store.put_for("gone", "soon", Duration::ZERO).unwrap();
    store.put_for("here", "for long", Duration::from_secs(1 << 20)).unwrap();
    (0..500u64).for_each(|key| assert!(store.remove(key.to_ne_bytes())));
    let before = store.stats();
    drop(store);
    for _ in 0..2 {
        let store = open(&path);
        let after = store.stats();
        let sizes = |stats: &rampack::StoreStats| (stats.values, stats.data_bytes, stats.lost);
        assert_eq!(sizes(&after), sizes(&before));
        assert!(after.memory_bytes <= before.memory_bytes + (64 << 10), "{after:?} {before:?}");
        assert_eq!(count(&store, 2000), (1500, 500));
        assert_eq!(store.get("here").unwrap().as_deref(), Some(&b"for long"[..]));
        assert!(!store.contains("gone"));
        assert_eq!(store.keys().count(), 1501);
    }
    let store = open(&path);
    store.clear();
    assert_eq!((store.stats().values, store.stats().data_bytes), (0, 0));
    fill(&store, 3000);
    drop(store);
    assert_eq!(count(&open(&path), 3000), (3000, 0));
}

#[test]
fn a_child_that_is_being_started_keeps_no_store() {
    let directory = TempDir::new();
    let store = open(directory.path());
    let ((mut is_there, there), (go, mut goes)) = (pipe().unwrap(), pipe().unwrap());
    let mut command = Command::new("true");
    // Until it is another program, a child has open what this one has.
    let begin = move || (&there).write_all(b"!").and_then(|()| (&go).read_exact(&mut [0]));
    // SAFETY: it only writes a byte and reads one.
    unsafe { command.pre_exec(begin) };
    let child = thread::spawn(move || command.status().unwrap());
    is_there.read_exact(&mut [0]).unwrap();
    drop(store);
    let again = rampack().store(options(directory.path()));
    goes.write_all(b"!").unwrap();
    assert!(child.join().unwrap().success());
    assert_eq!(again.err().map(|error| error.to_string()), None);
}

#[test]
fn what_was_recompressed_outlives_its_process_too() {
    let directory = TempDir::new();
    let options = || options(directory.path()).recompress(Algorithm::ZSTD, Duration::ZERO);
    let rampack = rampack();
    let store = rampack.store(options()).unwrap();
    fill(&store, 1000);
    for _ in 0..60 {
        rampack.upkeep().unwrap();
    }
    let before = store.stats();
    assert!(before.recompressed > 100, "{before:?}");
    drop(store);
    let said = refused(self::options(directory.path()));
    assert!(said.contains("compressed by lz4, then zstd, not by lz4"), "{said}");
    let store = rampack.store(options()).unwrap();
    let after = store.stats();
    assert_eq!((after.values, after.data_bytes, after.lost), (1000, before.data_bytes, 0));
    assert_eq!(count(&store, 1000), (1000, 0));
}

#[test]
fn what_is_not_the_same_is_refused_by_name_and_stays() {
    let directory = TempDir::new();
    let path = directory.path().join("store");
    let store = open(&path);
    fill(&store, 300);
    let busy = |who: &str| match rampack().store(options(&path)) {
        Err(Error::Busy(said)) => assert!(said.ends_with(&format!("{who} has the store there"))),
        other => panic!("{:?}", other.err()),
    };
    busy("this process");
    drop(store);
    if met("what_is_not_the_same_is_refused_by_name_and_stays", &[FLOCK]) {
        let mut command = Command::new("flock");
        let mut other = command.arg("--no-fork").arg(&path).args(["sleep", "600"]).spawn().unwrap();
        let directory = File::open(&path).unwrap();
        while host::locker(&directory) != Some(other.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        busy(&format!("process {}", other.id()));
        // Who was killed lets go, though nobody has waited for its end.
        other.kill().unwrap();
        drop(open(&path));
        other.wait().unwrap();
    }
    let unit = refused(options(&path).unit(4096));
    assert!(unit.contains("16384") && unit.contains("4096"), "{unit}");
    let algorithm = refused(options(&path).algorithm(Algorithm::ZSTD));
    assert!(algorithm.contains("zstd") && algorithm.contains("lz4"), "{algorithm}");
    let limit = refused(options(&path).limit(1 << 60));
    assert!(limit.contains("bytes are free"), "{limit}");
    let limit = refused(options(&path).limit(512 << 10));
    assert!(limit.contains("1048576"), "{limit}");
    assert!(!path.join("open").exists(), "the next boot of the system would refuse the store");
    let record = fs::read(path.join("record")).unwrap();
    for at in 0..record.len() {
        let mut other = record.clone();
        other[at] ^= 0x10;
        fs::write(path.join("record"), other).unwrap();
        let said = refused(options(&path));
        assert!(said.contains("store: it"), "byte {at}: {said}");
    }
    fs::write(path.join("record"), &record).unwrap();
    fs::write(path.join("open"), "another boot").unwrap();
    assert!(refused(options(&path)).contains("the system ended"));
    fs::remove_file(path.join("open")).unwrap();
    for name in REGIONS {
        fs::rename(path.join(name), path.join("aside")).unwrap();
        assert!(refused(options(&path)).contains(name));
        File::create(path.join(name)).unwrap().set_len(2 << 20).unwrap();
        if path.join("aside").metadata().unwrap().len() != 2 << 20 {
            assert!(refused(options(&path)).contains(name), "{name} is short");
        }
        fs::rename(path.join("aside"), path.join(name)).unwrap();
    }
    assert_eq!(count(&open(&path), 300), (300, 0));
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter"), "mine").unwrap();
    assert!(refused(options(&other)).contains("letter"));
    assert_eq!(fs::read_dir(other).unwrap().count(), 1);
}

#[test]
fn a_directory_that_is_moved_is_closed_and_not_what_took_its_path() {
    let directory = TempDir::new();
    let (path, moved) = (directory.path().join("store"), directory.path().join("moved"));
    let store = open(&path);
    fill(&store, 300);
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("open"), "of another store").unwrap();
    drop(store);
    assert_eq!(fs::read(path.join("open")).unwrap(), b"of another store");
    assert!(!moved.join("open").exists(), "the next boot of the system would refuse the store");
    assert_eq!(count(&open(&moved), 300), (300, 0));
}

const SMALL: &str = "RAMPACK_KEPT_SMALL";

/// Fills the store of a directory many times over, and ends without closing it.
fn overfill(directory: &Path) -> ! {
    let rampack = Rampack::builder().memory(1 << 30).upkeep(Upkeep::Manual).build().unwrap();
    let store = rampack.store(StoreOptions::new().keep(directory)).unwrap();
    let said = store.set_limit(30 << 20).expect_err("there is no room").to_string();
    assert!(said.contains("bytes are free"), "{said}");
    thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let (mut rng, mut value) = (Rng::new(thread), [0; 4096]);
                for _ in 0..6000 {
                    rng.fill(&mut value);
                    store.put(rng.below(20_000).to_ne_bytes(), value).unwrap();
                    if rng.one_in(5) {
                        store.remove(rng.below(20_000).to_ne_bytes());
                    }
                }
            });
        }
    });
    assert!(store.stats().evicted > 1000, "{:?}", store.stats());
    process::exit(0);
}

#[test]
fn a_full_store_on_a_small_file_system_ends_no_process() {
    let name = "a_full_store_on_a_small_file_system_ends_no_process";
    if let Ok(directory) = env::var(SMALL) {
        overfill(Path::new(&directory));
    }
    if !met(name, &[Need::Root]) {
        return;
    }
    let mounted = Mounted::new("-ttmpfs -osize=32m none");
    let path = mounted.0.path().join("store");
    let said = refused(options(&path).limit(32 << 20));
    assert!(said.contains("bytes are free"), "{said}");
    // Who filled it up before has left its pages; and others may take the rest.
    for others in [false, true] {
        let mut other = File::create(mounted.0.path().join("other")).unwrap();
        while others && other.write_all(&[1; 4096]).is_ok() {}
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(SMALL, &path);
        testkit::run(&mut command);
    }
    fs::remove_file(mounted.0.path().join("other")).unwrap();
    let limit = 20 << 20;
    let store = rampack().store(StoreOptions::new().limit(limit).keep(&path)).unwrap();
    assert_eq!(store.stats().lost, 0);
    assert!(store.stats().values > 1000, "{:?}", store.stats());
    let mut other = File::create(mounted.0.path().join("other")).unwrap();
    while other.write_all(&[1; 4096]).is_ok() {}
    assert!(store.set_limit(limit + 1).is_err());
    store.set_limit(limit - (1 << 20)).unwrap();
}

const FAILING: &str = "RAMPACK_KEPT_FAILING";

#[test]
fn what_the_disk_did_not_take_is_refused() {
    let name = "what_the_disk_did_not_take_is_refused";
    let options = |path: &Path| StoreOptions::new().limit(8 << 20).keep(path);
    if let Ok(path) = env::var(FAILING) {
        let store = rampack().store(options(Path::new(&path))).unwrap();
        let (mut rng, mut value) = (Rng::new(1), [0; 4096]);
        for key in 0..1500u64 {
            rng.fill(&mut value);
            store.put(key.to_ne_bytes(), value).unwrap();
        }
        process::exit(0);
    }
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    if !met(name, &[Need::Root, Need::Loop, mkfs]) {
        return;
    }
    let memory = Mounted::new("-ttmpfs -osize=4m none");
    let image = memory.0.path().join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    testkit::run(
        Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal", "-N", "16"]).arg(&image),
    );
    let disk = Mounted::new(&format!("-oloop {}", image.display()));
    let path = disk.0.path().join("store");
    let mut command = Command::new(env::current_exe().unwrap());
    testkit::run(command.args([name, "--exact", "--nocapture"]).env(FAILING, &path));
    // The system writes what the process left, and nobody waits for it.
    testkit::try_run(Command::new("sync").arg("--file-system").arg(&path));
    let said = refused(options(&path));
    assert!(said.contains("frames: "), "{said}");
    let said = refused(options(&path));
    assert!(said.contains("the disk failed"), "{said}");
}

/// A file system of its own; unmounted when dropped.
struct Mounted(TempDir);

impl Mounted {
    /// `what` are words of mount(8) before the directory.
    fn new(what: &str) -> Mounted {
        let mounted = Mounted(TempDir::new());
        testkit::run(Command::new("mount").args(what.split(' ')).arg(mounted.0.path()));
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        testkit::try_run(Command::new("umount").arg("-l").arg(self.0.path()));
    }
}

/// Flips random bits of a file below `end`, where it has any.
fn damage(path: &Path, rng: &mut Rng, times: u64, end: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let end = end.min(file.metadata().unwrap().len());
    for _ in 0..times {
        let at = rng.below(end);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0] ^= 1 << rng.below(8);
        file.write_all_at(&byte, at).unwrap();
    }
}

#[test]
fn damage_costs_its_own_values() {
    let mut rng = Rng::new(testkit::seed("damage_costs_its_own_values"));
    for round in 0..10 {
        for (name, end) in
            [("index", 20 << 10), ("chains", 4 << 10), ("groups", 2048), ("zspages", 8192)]
        {
            let directory = TempDir::new();
            let store = open(directory.path());
            fill(&store, 1500);
            drop(store);
            damage(&directory.path().join(name), &mut rng, 1 + round * 3, end);
            match rampack().store(options(directory.path())) {
                Ok(store) => {
                    let (there, _) = count(&store, 1500);
                    // A group has up to 107 values here; a number of zspages costs all behind it.
                    let least = match name {
                        "zspages" => 0,
                        "groups" => 1500u64.saturating_sub(107 * (1 + round * 3)),
                        _ => 1500u64.saturating_sub(60 * (1 + round * 3)),
                    };
                    assert!(there >= least, "{name}: {there} values, {:?}", store.stats());
                    // It is a store as any other.
                    fill(&store, 1500);
                    assert_eq!(count(&store, 1500), (1500, 0), "{name}");
                    store.clear();
                    assert_eq!((store.stats().values, store.stats().data_bytes), (0, 0));
                }
                Err(error) => {
                    let said = error.to_string();
                    let known = ["index is damaged", "size classes"];
                    assert!(known.iter().any(|known| said.contains(known)), "{name}: {said}");
                }
            }
        }
    }
}

const DIRECTORY: &str = "RAMPACK_KEPT_DIRECTORY";
const SEED: &str = "RAMPACK_KEPT_SEED";
const KEYS: u64 = 600;
const WRITERS: u64 = 2;

/// What a child says of a key: it begins to make this version, or has done so. Version 0 is none.
/// A write of so few bytes to a pipe is whole.
fn say(done: bool, key: u64, version: u64) {
    let words = [u64::from_ne_bytes(*b"a report"), u64::from(done), key, version];
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    let mut out = File::options().write(true).open("/dev/stdout").unwrap();
    out.write_all(&bytes).unwrap();
}

/// The program of the child processes.
#[test]
fn child() {
    let (Ok(directory), Ok(seed)) = (env::var(DIRECTORY), env::var(SEED)) else { return };
    let mut rng = Rng::new(seed.parse().unwrap());
    let store = open(&PathBuf::from(directory));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mut rng, store) = (rng.fork(), &store);
            scope.spawn(move || {
                loop {
                    let key = rng.below(KEYS / WRITERS) * WRITERS + writer;
                    let name = key.to_ne_bytes();
                    if rng.below(8) == 0 {
                        say(false, key, 0);
                        store.remove(name);
                        say(true, key, 0);
                        continue;
                    }
                    let version = 1 + rng.below(1 << 40);
                    say(false, key, version);
                    store.put(name, value(key, version)).unwrap();
                    say(true, key, version);
                }
            });
        }
        // Others make the index grow and shrink, lives end, and objects move.
        let (mut rng, store) = (rng.fork(), &store);
        scope.spawn(move || {
            loop {
                let many = 1000 + rng.below(3000);
                for n in 0..many {
                    store.put_for(format!("other {n}"), "it goes", Duration::ZERO).unwrap();
                }
                for n in 0..many {
                    store.remove(format!("other {n}"));
                }
            }
        });
        scope.spawn(|| rampack_upkeep(store));
    });
}

fn rampack_upkeep(store: &Store) {
    loop {
        store.compact();
        thread::sleep(Duration::from_millis(2));
    }
}

/// Where the reports begin: the harness of the test says a few words first.
fn first_report(bytes: &[u8]) -> Option<usize> {
    bytes.windows(8).position(|window| window == b"a report")
}

/// Lets a child work for a while, from its begin or from its first report on, kills it, and reads
/// what it said.
fn run_and_kill(directory: &Path, seed: u64, opens: bool, time: Duration) -> Vec<[u64; 3]> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]);
    command.env(DIRECTORY, directory).env(SEED, seed.to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (reports, reported) = mpsc::channel();
    let reader = thread::spawn(move || {
        let (mut bytes, mut some) = (Vec::new(), [0; 1 << 16]);
        loop {
            let length = out.read(&mut some).unwrap();
            bytes.extend(&some[..length]);
            if first_report(&bytes).is_some() || length == 0 {
                // Nobody waits for it any more after the first.
                let _ = reports.send(());
            }
            if length == 0 {
                return bytes;
            }
        }
    });
    if !opens {
        reported.recv().unwrap();
    }
    thread::sleep(time);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "child {seed} ended by itself: {status}");
    let bytes = reader.join().unwrap();
    let reports = &bytes[first_report(&bytes).unwrap_or(bytes.len())..];
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    reports.chunks_exact(32).map(|it| [8, 16, 24].map(|at| word(&it[at..at + 8]))).collect()
}

#[test]
fn every_value_whose_put_returned_survives_every_kill() {
    let mut rng = Rng::new(testkit::seed("every_value_whose_put_returned_survives_every_kill"));
    let kills: u32 = testkit::asked("RAMPACK_KILLS", 12);
    let directory = TempDir::new();
    // The version of each key; 0 for none.
    let mut model: BTreeMap<u64, u64> = (0..KEYS).map(|key| (key, 0)).collect();
    let mut all = 0;
    for number in 0..kills {
        let seed = rng.next_u64();
        // Some die while they open the store.
        let opens = number % 5 == 4;
        let time = Duration::from_micros(rng.below(if opens { 30_000 } else { 400_000 }));
        let reports = run_and_kill(directory.path(), seed, opens, time);
        all += reports.len();
        let mut begun = BTreeMap::new();
        for [done, key, version] in reports {
            if done == 1 {
                begun.remove(&key);
                model.insert(key, version);
            } else {
                begun.insert(key, version);
            }
        }
        let store = open(directory.path());
        assert_eq!(store.stats().lost, 0, "kill {number}, child {seed}");
        for (key, version) in &mut model {
            let found = store.get(key.to_ne_bytes()).unwrap();
            let is = |version: u64| match &found {
                None => version == 0,
                Some(bytes) => version != 0 && *bytes == value(*key, version),
            };
            match begun.get(key) {
                Some(next) if is(*next) => *version = *next,
                _ => assert!(is(*version), "kill {number}, child {seed}: key {key} is no version"),
            }
        }
        let there = model.values().filter(|version| **version != 0).count();
        let walked = store.keys().filter(|(key, _)| key.len() == 8).count();
        assert_eq!(walked, there, "kill {number}, child {seed}");
        if number % 4 == 3 {
            // Nothing is left of what no key names.
            store.clear();
            let stats = store.stats();
            assert_eq!((stats.values, stats.data_bytes), (0, 0));
            assert!(stats.memory_bytes <= 64 << 10, "kill {number}, child {seed}: {stats:?}");
            model.values_mut().for_each(|version| *version = 0);
        }
    }
    println!("{kills} kills, {all} reports");
    assert!(all > 100, "{all} reports");
}

#[test]
fn a_store_that_is_kept_is_not_cloned() {
    let directory = TempDir::new();
    let store = open(directory.path());
    store.put("key", "value").unwrap();
    let Err(Error::Unsupported(said)) = store.clone_contents() else { panic!("it was cloned") };
    assert!(said.contains("save it"), "{said}");
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
