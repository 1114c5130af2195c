//! What it costs to time requests (`latencies`): one page after the other is written to and read
//! from the file of a daemon, past the page cache, with it off, on, on, off. Each round is two
//! ratios: of the time, and of the CPU time of the daemon, which is steadier. The median of all is
//! printed, and the quarter of the rounds below and above it.
//!
//! ```sh
//! cargo bench -p rampack-cli --bench latencies
//! ```

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use common::{Daemon, measures, program, serve};
use testkit::TempDir;

const PAGE: usize = 4096;
/// Pages between two readings of the clock.
const PAGES: u64 = 2000;
const SIZE: &str = "16M";

fn time(root: &Path, on: bool) {
    let value = format!("latencies={}", u8::from(on));
    let set = program(root).args(["set", "kernel/debug/rampack", &value]).status();
    assert!(set.expect("the program").success(), "it is not set");
}

/// Nanoseconds of CPU time of all threads of a process (proc_pid_schedstat(5)).
fn cpu_time(process: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("its threads").flatten();
    let spent = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
    };
    tasks.map(spent).sum()
}

/// Nanoseconds for a page, and those of CPU time of the daemon.
fn turn(daemon: &Daemon, file: &File, page: &mut [u8], writes: bool) -> [f64; 2] {
    let (begun, cpu) = (Instant::now(), cpu_time(daemon.0.id()));
    for index in 0..PAGES {
        let offset = index * PAGE as u64;
        let done = match writes {
            true => file.write_all_at(page, offset),
            false => file.read_exact_at(page, offset),
        };
        done.expect("a page");
    }
    let time = begun.elapsed().as_nanos() as f64;
    [time, cpu_time(daemon.0.id()) - cpu].map(|time| time / PAGES as f64)
}

fn main() {
    let rounds = if measures() { 801 } else { 1 };
    let directory = TempDir::new();
    let root = directory.path().join("root");
    let Some((daemon, path)) = serve(&root, SIZE) else { return };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    let file = file.expect("the file");
    // A page for O_DIRECT, a third of it noise.
    let mut memory = vec![0; 2 * PAGE];
    let at = memory.as_ptr().align_offset(PAGE);
    let page = &mut memory[at..at + PAGE];
    testkit::Rng::new(1).fill(&mut page[..PAGE / 3]);
    turn(&daemon, &file, page, true);
    for (what, writes) in [("write", true), ("read", false)] {
        let rounds: Vec<[[f64; 2]; 4]> = (0..rounds)
            .map(|_| {
                [false, true, true, false].map(|on| {
                    time(&root, on);
                    turn(&daemon, &file, page, writes)
                })
            })
            .collect();
        for (of, kind) in ["time", "CPU time of the daemon"].into_iter().enumerate() {
            let ratio = |[off, on, also_on, also_off]: &[[f64; 2]; 4]| {
                (on[of] + also_on[of]) / (off[of] + also_off[of])
            };
            let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
            ratios.sort_by(f64::total_cmp);
            let part = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
            let off = rounds.iter().map(|round| round[0][of].min(round[3][of]));
            println!(
                "{what}, {kind}: {:.4} times as long with latencies=1 ({:.4} to {:.4}); off at \
                 least {:.0} ns a page",
                part(2),
                part(1),
                part(3),
                off.fold(f64::INFINITY, f64::min)
            );
        }
    }
}
