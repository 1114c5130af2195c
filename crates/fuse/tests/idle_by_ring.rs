//! A server that has nothing to do shows as idle.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use common::start;
use testkit::Need;

/// A control group of version 2 for this test. A drop removes it.
struct Group(PathBuf);

impl Group {
    fn make() -> Option<Group> {
        let all = host::mounts().unwrap();
        let top = &all.iter().find(|it| it.kind == "cgroup2")?.at;
        let group = Group(top.join(format!("rampack-idle-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        group.0.join("io.pressure").exists().then_some(group)
    }

    /// For how many microseconds some thread waited for I/O.
    fn stalled(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("io.pressure")).unwrap();
        let some = text.lines().next().unwrap();
        some.rsplit_once("total=").unwrap().1.parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The server has ended, and leaves it a moment later.
        common::eventually("the group is left", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The kernel has entries of its threads all the time, as if they waited for I/O.
#[test]
fn threads_without_requests_wait_for_no_io() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|it| it.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let newer = Need::Other { what: "Linux 6.15", is_there: version >= (6, 15) };
    let group = Group::make();
    let what = "a control group of version 2 with io.pressure";
    let told = Need::Other { what, is_there: group.is_some() };
    if !common::met(
        "threads_without_requests_wait_for_no_io",
        &[Need::Fuse, Need::UnifiedGroup, newer, told],
    ) {
        return;
    }
    let Some(group) = group else { return };
    let mut served = start();
    fs::write(group.0.join("cgroup.procs"), served.pid().to_string()).unwrap();
    let path = served.add("zram0", 1 << 20);
    for cpu in host::allowed_cpus() {
        // Its thread has had a request.
        host::pin_to_cpu(cpu).unwrap();
        assert_eq!(fs::read(Path::new(&path)).unwrap().len(), 1 << 20);
    }
    let (before, begun) = (group.stalled(), Instant::now());
    thread::sleep(Duration::from_millis(200));
    let stalled = Duration::from_micros(group.stalled() - before);
    // Nearly all of the time with the fault; its own pages may have to be read.
    assert!(stalled < begun.elapsed() / 2, "{stalled:?}");
    drop(served);
}
