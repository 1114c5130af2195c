//! The process ends at each step of each operation on a disk or a swap area: a step is an operation
//! on an atomic.
//! Another process then finds each page as it was before the operation, or as it is after.
//!
//! ```sh
//! RUSTFLAGS="--cfg killed" CARGO_TARGET_DIR=target/killed cargo test -p rampack-machine --test killed
//! ```
//!
//! `RAMPACK_STEPS` is the most steps of an operation that are tried; of more, it is a random choice.
//! `RAMPACK_OPERATION` names the only operation.
#![cfg(killed)]

#[path = "kills/kept.rs"]
mod kept;
#[path = "killed/operations.rs"]
mod operations;
#[path = "kills/pages.rs"]
mod pages;
#[path = "killed/swap.rs"]
mod swap;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use machine::Machine;
use sync::atomic::killed::end_after;
use testkit::{Rng, TempDir, asked};

const DIRECTORY: &str = "RAMPACK_KILLED_DIRECTORY";
const OPERATION: &str = "RAMPACK_KILLED_OPERATION";
const STEP: &str = "RAMPACK_KILLED_STEP";
/// Steps that no operation has.
const NEVER: u64 = u64::MAX / 2;

/// An operation of one thread, on a machine that was made for it.
struct Case {
    name: &'static str,
    machine: fn(&host::Memfds, &Path) -> Machine,
    /// What comes before.
    prepare: fn(&Machine),
    run: fn(&Machine),
    /// Checks what an end of the process left; of an operation that was done, all.
    check: Box<dyn Fn(&Machine, bool)>,
}

fn cases() -> Vec<Case> {
    operations::cases().chain(swap::cases()).collect()
}

/// The program of the child processes.
#[test]
fn child() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let number = |name| env::var(name).unwrap().parse::<u64>().unwrap();
    let case = &cases()[number(OPERATION) as usize];
    let memory = host::Memfds::new();
    let directory = Path::new(&directory);
    let machine = (case.machine)(&memory, directory);
    (case.prepare)(&machine);
    let saved = kept::Saved::of(&machine, Some(directory.join(swap::BELOW)));
    kept::write(&directory.join("state"), &memory.regions(), &saved);
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    end_after(number(STEP));
    (case.run)(&machine);
    println!("steps {}", number(STEP) - end_after(0));
    // A machine that is dropped gives up its disks.
    std::mem::forget(machine);
}

fn spawn(directory: &Path, operation: usize, step: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(DIRECTORY, directory);
    command.env(OPERATION, operation.to_string()).env(STEP, step.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Runs an operation in a child that ends before step `step`, and checks what it left. Returns how
/// many steps there were, if there were fewer.
fn try_step(number: usize, step: u64) -> Option<u64> {
    let case = &cases()[number];
    let directory = TempDir::new();
    let mut child = spawn(directory.path(), number, step);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.by_ref().any(|line| line.unwrap().ends_with("ready"));
    assert!(ready, "{}: it did not begin", case.name);
    let (regions, saved) = kept::read(&directory.path().join("state"));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said: Vec<String> = lines.map(|line| line.unwrap()).collect();
    child.wait().unwrap();
    let steps = said.iter().find_map(|line| line.strip_prefix("steps "));
    let memory = kept::adopted(&regions);
    let machine = kept::recovered(&memory, &saved);
    (case.check)(&machine, steps.is_some());
    steps.map(|steps| steps.parse().unwrap())
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
fn an_end_at_any_step_leaves_all_pages() {
    let mut rng = Rng::new(testkit::seed("an_end_at_any_step_leaves_all_pages"));
    let most = asked("RAMPACK_STEPS", testkit::cases(60) as u64);
    let only = env::var("RAMPACK_OPERATION").ok();
    let cases = cases();
    let is_chosen = |case: &Case| only.as_ref().is_none_or(|only| case.name == only);
    assert!(cases.iter().any(is_chosen), "there is no operation {only:?}");
    let chosen = cases.iter().enumerate().filter(|(_, case)| is_chosen(case));
    for (number, case) in chosen {
        let all = try_step(number, NEVER).expect("it has an end");
        let tried = choose(&mut rng, all, most);
        for step in &tried {
            let result = catch_unwind(AssertUnwindSafe(|| try_step(number, *step)));
            match result {
                Ok(_) => {}
                Err(_) => panic!("{}, step {step} of {all}", case.name),
            }
        }
        println!("{}: {} of {all} steps", case.name, tried.len());
    }
}
