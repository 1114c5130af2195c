//! Many requests at once from one CPU get the thread of another one to help, and a few do not.

mod common;

use std::fs;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Served, eventually, start};
use testkit::{Ends, Need};

const P: u64 = 4096;
const PAGES: u64 = 256;

/// How often the thread of this name had nothing to do, and waited.
fn waits(served: &Served, name: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", served.pid())).unwrap().flatten();
    let is_named = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let path = tasks.map(|it| it.path()).find(|path| is_named(path)).expect("the thread");
    let status = fs::read_to_string(path.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("the number").trim().parse().unwrap()
}

#[test]
fn a_crowd_is_helped_and_one_alone_is_not() {
    let cpus = host::allowed_cpus();
    let two = Need::Other { what: "two CPUs", is_there: cpus.len() > 1 };
    if !common::met("a_crowd_is_helped_and_one_alone_is_not", &[Need::Fuse, two]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", PAGES * P);
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let contents = |n: u64| [n as u8; P as usize];
    let check = |n: u64| {
        let mut into = [0; P as usize];
        file.read_exact_at(&mut into, n % PAGES * P).unwrap();
        assert_eq!(into, contents(n % PAGES), "page {}", n % PAGES);
    };
    // All requests of this test come from the first CPU, whose thread is the first.
    host::pin_to_cpu(cpus[0]).unwrap();
    (0..PAGES).for_each(|n| file.write_all_at(&contents(n), n * P).unwrap());
    for _ in 0..5 {
        let (end, before) = (AtomicBool::new(false), waits(&served, "fuse-disk-1"));
        thread::scope(|scope| {
            let _ends = Ends(&end);
            for first in 0..16 {
                let (check, end, file) = (&check, &end, &file);
                scope.spawn(move || {
                    let mut n = first;
                    while !end.load(Ordering::Relaxed) {
                        check(n);
                        file.write_all_at(&contents(n % PAGES), n % PAGES * P).unwrap();
                        n += 16;
                    }
                });
            }
            eventually("another thread helps", || waits(&served, "fuse-disk-1") > before + 100);
        });
        eventually("the first thread is alone", || {
            let before = waits(&served, "fuse-disk-1");
            (0..200).for_each(&check);
            waits(&served, "fuse-disk-1") == before
        });
    }
}
