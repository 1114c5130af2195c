//! `rampack selftest swap`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use host::swaps;
use testkit::{Need, TempDir, met};

use crate::common::{program, rampack, refused, said};

/// Those who make somebody swap want to know where to.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // Another test's failure is no reason for this one's.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const NEEDS: [Need; 5] = [Need::Root, Need::Fuse, Need::Loop, Need::Swap, Need::MemoryGroup];

/// Nothing of the test with process number `pid` is there any more.
#[track_caller]
fn nothing_is_left(pid: u32) {
    let name = format!("rampack-selftest-{pid}");
    for place in ["/run", "/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
        let path = std::path::Path::new(place).join(&name);
        assert!(!path.exists(), "{}", path.display());
    }
    let highest = i32::from(host::HIGHEST_PRIORITY);
    assert!(swaps::all().iter().all(|swap| swap.priority != highest), "{:?}", swaps::all());
}

#[test]
fn the_selftest_passes_in_memory_and_with_a_file() {
    let disk = crate::swap_backing::with_a_file()[4];
    let [a, b, c, d, e] = NEEDS;
    if !met("the_selftest_passes_in_memory_and_with_a_file", &[a, b, c, d, e, disk]) {
        return;
    }
    let _alone = alone();
    let dir = TempDir::new();
    let backing = dir.join("backing");
    for below in [String::new(), format!(" --backing {}", backing.display())] {
        let line = format!("selftest swap --limit 8M --size 64M --rounds 1{below}");
        let mut command = program();
        command.args(line.split_whitespace());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let said = said(&child.wait_with_output().unwrap());
        assert_eq!(said.code, 0, "{}\n{}", said.out, said.err);
        assert!(said.out.ends_with("PASS\n"), "{}", said.out);
        assert!(said.out.contains("12288 pages, 0 wrong, 1 copies"), "{}", said.out);
        nothing_is_left(pid);
        assert!(!backing.exists());
    }
}

#[test]
fn the_selftest_leaves_nothing_when_it_is_broken_off() {
    if !met("the_selftest_leaves_nothing_when_it_is_broken_off", &NEEDS) {
        return;
    }
    let _alone = alone();
    let mut command = program();
    command.args(["selftest", "swap", "--limit", "8M", "--size", "64M", "--rounds", "1000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is swapped to"), "{line}");
    // SAFETY: two numbers; the child is ours and not yet waited for.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
    let said = said(&child.wait_with_output().unwrap());
    refused(&said, 1, &["broken off", "EINTR"]);
    nothing_is_left(pid);
}

#[test]
fn a_selftest_that_cannot_be_is_refused() {
    if !met("a_selftest_that_cannot_be_is_refused", &[Need::Root]) {
        return;
    }
    let said = rampack("selftest swap --limit 64M --size 64M");
    refused(&said, 1, &["--size 64M is too small", "288M", "EINVAL"]);
    refused(&rampack("selftest swap --limit 0"), 2, &["size 0"]);
}
