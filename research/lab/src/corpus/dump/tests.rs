use std::process::Command;

use super::*;
use crate::programs::Running;
use crate::sys::{self, Signal};

#[test]
fn takes_what_a_stopped_process_has_in_memory() {
    // The kernel puts the environment of a program on its stack, where it stays.
    let known: String = (0..10_000).map(|number| format!("{number:05} ")).collect();
    let mut command = Command::new("sleep");
    let mut program = Running::start(command.arg("1000").env("KNOWN", &known), false).unwrap();
    sys::signal(program.child(), Signal::SIGSTOP).expect("it runs");
    wait_until_stopped(program.id()).expect("it stops");
    // A page that the kernel is about to move is not in memory.
    interrupt::wait_for("its environment", Duration::from_secs(60), || {
        let taken = take(program.id(), usize::MAX)?;
        Ok(taken.windows(known.len()).any(|part| part == known.as_bytes()).then_some(()))
    })
    .expect("a dump with its environment");
    assert_eq!(take(program.id(), 5).expect("a dump of five pages").len(), 5 * PAGE_SIZE);
    program.kill();
}
