//! The process ends at each step of each operation on a store that is kept: a step is an operation
//! on an atomic. Another process then finds each value as it was before the operation, or as it is
//! after.
//!
//! ```sh
//! RUSTFLAGS="--cfg killed" CARGO_TARGET_DIR=target/killed cargo test -p rampack --test killed_store
//! ```
//!
//! `RAMPACK_STEPS` is the most steps of an operation that are tried; of more, it is a random choice.
//! `RAMPACK_OPERATION` names the only operation.
#![cfg(killed)]

use std::env;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rampack::{Algorithm, Rampack, Store, StoreOptions, Upkeep};
use sync::atomic::killed::end_after;
use testkit::{Rng, TempDir};

const DIRECTORY: &str = "RAMPACK_KILLED_DIRECTORY";
const OPERATION: &str = "RAMPACK_KILLED_OPERATION";
const STEP: &str = "RAMPACK_KILLED_STEP";
/// Steps that no operation has.
const NEVER: u64 = u64::MAX / 2;
/// Bytes of values that are compressed alone, and of values in many chunks.
const ALONE: usize = 2000;
const LARGE: usize = 40_000;

/// A value: its key, its version (0 for none), and its length.
type Put = (u64, u64, usize);

/// An operation of one thread.
struct Case {
    name: &'static str,
    /// What is there before, in this order.
    before: Vec<Put>,
    changes: Vec<Put>,
    /// What is loaded from a snapshot, in any order.
    loads: Vec<Put>,
    /// What is done besides.
    run: fn(&Rampack, &Store),
    /// The store is opened again by steps.
    opens: bool,
}

fn cases() -> Vec<Case> {
    let puts = |keys: std::ops::Range<u64>, version: u64, length: usize| -> Vec<Put> {
        keys.map(|key| (key, version, length)).collect()
    };
    let of = |name, before, changes| Case {
        name,
        before,
        changes,
        loads: vec![],
        run: |_, _| (),
        opens: false,
    };
    let mixed = || [puts(0..60, 1, 400), puts(60..90, 1, ALONE), puts(90..95, 1, LARGE)].concat();
    let thinned = || {
        let gone = (60..95).filter(|key| key % 3 != 0).map(|key| (key, 0, 0));
        mixed().into_iter().chain(gone).collect()
    };
    vec![
        of("put", mixed(), vec![(100, 1, ALONE), (101, 1, 100), (102, 1, LARGE), (103, 1, 3)]),
        of("overwrite", mixed(), vec![(61, 2, ALONE), (91, 2, LARGE), (5, 2, ALONE), (92, 2, 10)]),
        of("remove", mixed(), vec![(61, 0, 0), (91, 0, 0), (5, 0, 0)]),
        // The last makes the group of all.
        of("group", puts(0..18, 1, 400), puts(18..24, 1, 400)),
        of("grow", puts(0..319, 1, ALONE), puts(319..324, 1, ALONE)),
        of(
            "shrink",
            [puts(0..330, 1, ALONE), (0..89).map(|key| (key, 0, 0)).collect()].concat(),
            (89..93).map(|key| (key, 0, 0)).collect(),
        ),
        Case { run: |_, store| _ = store.compact(), ..of("compact", thinned(), vec![]) },
        Case {
            run: |rampack, _| (0..3).for_each(|_| _ = rampack.upkeep().unwrap()),
            ..of("recompress", mixed(), vec![])
        },
        Case {
            loads: [puts(50..95, 2, 400), puts(85..100, 2, ALONE), vec![(7, 2, LARGE)]].concat(),
            ..of("load", mixed(), vec![])
        },
        Case { opens: true, ..of("open", mixed(), vec![]) },
    ]
}

fn value((key, version, length): Put) -> Option<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(key << 32 | version);
    let head = [key.to_ne_bytes(), version.to_ne_bytes()].concat();
    let rest = (0..length).map(|n| if n % 3 == 0 { random.u8(..) } else { b'a' });
    (version > 0).then(|| head.into_iter().chain(rest).collect())
}

fn open(directory: &Path) -> (Rampack, Store) {
    let rampack = Rampack::builder().memory(64 << 20).upkeep(Upkeep::Manual).build().unwrap();
    let options = StoreOptions::new().limit(32 << 20).evict(false).keep(directory);
    let store = rampack.store(options.recompress(Algorithm::ZSTD, Duration::ZERO)).unwrap();
    (rampack, store)
}

/// A snapshot of values.
fn saved(rampack: &Rampack, values: &[Put]) -> Vec<u8> {
    let (store, mut file) = (rampack.store(StoreOptions::new()).unwrap(), Vec::new());
    apply(&store, values);
    store.save(&mut file).unwrap();
    file
}

fn apply(store: &Store, puts: &[Put]) {
    for put in puts {
        match value(*put) {
            Some(value) => store.put(put.0.to_ne_bytes(), value).unwrap(),
            None => assert!(store.remove(put.0.to_ne_bytes())),
        }
    }
}

/// The program of the child processes.
#[test]
fn child() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let number = |name| env::var(name).unwrap().parse::<u64>().unwrap();
    let case = &cases()[number(OPERATION) as usize];
    let directory = PathBuf::from(directory);
    let (mut rampack, mut store) = open(&directory);
    apply(&store, &case.before);
    let file = saved(&rampack, &case.loads);
    if case.opens {
        drop(store);
        end_after(number(STEP));
        (rampack, store) = open(&directory);
    } else {
        end_after(number(STEP));
    }
    apply(&store, &case.changes);
    if !case.loads.is_empty() {
        store.load(&file[..]).unwrap();
    }
    (case.run)(&rampack, &store);
    println!("steps {}", number(STEP) - end_after(0));
}

/// Runs an operation in a child that ends before step `step`, and checks what it left. Returns how
/// many steps there were, if there were fewer.
fn try_step(number: usize, step: u64) -> Option<u64> {
    let case = &cases()[number];
    let directory = TempDir::new();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(DIRECTORY, directory.path());
    command.env(OPERATION, number.to_string()).env(STEP, step.to_string());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    let steps = said.lines().find_map(|line| line.split_once("steps ")).map(|(_, steps)| steps);
    check(case, &open(directory.path()).1, steps.is_some());
    steps.map(|steps| steps.parse().unwrap())
}

/// Checks what an end of the process left; of an operation that was `done`, all.
fn check(case: &Case, store: &Store, done: bool) {
    assert_eq!(store.stats().lost, 0);
    let of = |puts: &[Put], key: u64| puts.iter().rfind(|put| put.0 == key).copied();
    let (mut later, mut there) = (true, 0);
    for key in 0..400u64 {
        let found = store.get(key.to_ne_bytes()).unwrap();
        there += u64::from(found.is_some());
        let before = of(&case.before, key).and_then(value);
        let right = match of(&case.changes, key).or_else(|| of(&case.loads, key)) {
            None => found == before,
            Some(after) => found == value(after) || !done && found == before,
        };
        assert!(right, "key {key} is no version of itself");
    }
    // What comes later in the operation is not there before what comes earlier.
    for change in case.changes.iter().rev() {
        let is_done = store.get(change.0.to_ne_bytes()).unwrap() == value(*change);
        assert!(is_done || later, "key {} is not changed, and a later one is", change.0);
        later &= !is_done;
    }
    assert_eq!((store.stats().values, store.keys().count() as u64), (there, there));
    // It is a store as any other, and nothing else has memory.
    let again: Vec<Put> = (0..400).map(|key| (key, 9, 300)).collect();
    apply(store, &again);
    store.compact();
    assert!(again.iter().all(|put| store.get(put.0.to_ne_bytes()).unwrap() == value(*put)));
    store.clear();
    let stats = store.stats();
    assert_eq!((stats.values, stats.data_bytes), (0, 0));
    assert!(stats.memory_bytes <= 16 << 10, "{stats:?}");
}

/// The steps of an operation that are tried.
fn choose(rng: &mut Rng, all: u64, most: u64) -> Vec<u64> {
    if all <= most {
        return (1..=all).collect();
    }
    // Each part has one.
    (0..most).map(|n| 1 + (n * all + rng.below(all)) / most).collect()
}

#[test]
fn an_end_at_any_step_leaves_all_values() {
    let mut rng = Rng::new(testkit::seed("an_end_at_any_step_leaves_all_values"));
    let most = testkit::asked("RAMPACK_STEPS", testkit::cases(60) as u64);
    let only = env::var("RAMPACK_OPERATION").ok();
    let (cases, mut any) = (cases(), false);
    for (number, case) in cases.iter().enumerate() {
        if only.as_ref().is_some_and(|only| case.name != only) {
            continue;
        }
        any = true;
        let all = try_step(number, NEVER).expect("it has an end");
        let tried = choose(&mut rng, all, most);
        for step in &tried {
            let result = catch_unwind(AssertUnwindSafe(|| try_step(number, *step)));
            assert!(result.is_ok(), "{}, step {step} of {all}", case.name);
        }
        println!("{}: {} of {all} steps", case.name, tried.len());
    }
    assert!(any, "there is no operation {only:?}");
}
