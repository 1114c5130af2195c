//! The threads that serve a swap file neither fault nor call the heap; and a device that does is
//! noticed.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Served, start_swap};
use fuse::{LoopDevice, LoopOptions};
use testkit::{Need, Rng, TempDir};

const P: usize = 4096;
const BYTES: usize = 4 << 20;
const THREADS: usize = 2;

/// Page faults and calls of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    faults: u64,
    heap: u64,
}

/// Of the threads that serve, since they are there.
fn counts(served: &mut Served) -> Counts {
    let threads = served.ask("threads").unwrap();
    let of_thread = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{}/task/{id}/stat", served.pid())).unwrap();
        // The name, in parentheses, may hold anything; the third field comes after it. Fields 10
        // and 12 count faults without and with I/O (proc_pid_stat(5)).
        assert!(stat.contains("(swap-io-"), "{stat}");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let field = |number: usize| fields[number - 3].parse::<u64>().unwrap();
        field(10) + field(12)
    };
    let faults = threads.split(' ').map(of_thread).sum();
    Counts { faults, heap: served.ask("heap").unwrap().parse().unwrap() }
}

/// Requests of every kind, of mostly up to `usual` bytes and of up to `most`.
fn work(file: &File, rounds: usize, (usual, most): (usize, usize), rng: &mut Rng) {
    let mut memory = vec![0u8; (1 << 20) + P];
    let skip = memory.as_ptr().align_offset(P);
    let buffer = &mut memory[skip..skip + (1 << 20)];
    for round in 0..rounds {
        let most = if rng.one_in(10) { most } else { usual };
        let length = (rng.below((most / P) as u64) as usize + 1) * P;
        let at = rng.below(((BYTES - length) / P + 1) as u64) * P as u64;
        match rng.below(5) {
            0 | 1 => {
                rng.fill(&mut buffer[..P]);
                file.write_all_at(&buffer[..length], at).unwrap();
            }
            2 | 3 => file.read_exact_at(&mut buffer[..length], at).unwrap(),
            _ => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let (at, length) = (at as i64, length as i64);
                // SAFETY: the call takes numbers only.
                let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, at, length) };
                assert_eq!(done, 0);
            }
        }
        if round % 100 == 0 {
            file.sync_data().unwrap();
            file.metadata().unwrap();
        }
    }
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Warms the threads up, then tells what some thousand requests cost.
fn measure(kind: &str, through_a_loop_device: bool, rng: &mut Rng) -> Counts {
    let mut served = start_swap(TempDir::new(), BYTES as u64, THREADS, kind);
    let device = through_a_loop_device
        .then(|| LoopDevice::attach(&served.swap(), LoopOptions::default()).unwrap());
    let path = device.as_ref().map_or_else(|| served.swap(), |device| device.path().to_owned());
    let file = direct(&path);
    // Both threads must have run all their code: more than one client keeps them busy. Their
    // buffers are another matter: these requests are small, and the others are not.
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let file = &file;
            scope.spawn(move || work(file, 300, (P, 2 * P), &mut Rng::new(seed)));
        }
    });
    let before = counts(&mut served);
    work(&file, 4000, (40 * P, 1 << 20), rng);
    drop(direct(&path));
    let after = counts(&mut served);
    drop(file);
    drop(device);
    Counts { faults: after.faults - before.faults, heap: after.heap - before.heap }
}

#[test]
fn serving_costs_no_fault_and_no_call_of_the_heap() {
    let name = "serving_costs_no_fault_and_no_call_of_the_heap";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    assert_eq!(measure("plain", false, &mut rng), Counts { faults: 0, heap: 0 });
}

#[test]
fn serving_a_loop_device_costs_none_either() {
    let name = "serving_a_loop_device_costs_none_either";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    assert_eq!(measure("plain", true, &mut rng), Counts { faults: 0, heap: 0 });
}

#[test]
fn fresh_memory_and_the_heap_are_noticed() {
    let name = "fresh_memory_and_the_heap_are_noticed";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let fresh = measure("fresh", false, &mut rng);
    assert!(fresh.faults > 1000 && fresh.heap == 0, "{fresh:?}");
    let greedy = measure("greedy", false, &mut rng);
    assert!(greedy.heap > 1000, "{greedy:?}");
}

/// Swap space that is swapped off in any case: its server must not end before that.
struct SwappedOn(PathBuf);

impl SwappedOn {
    fn new(device: &Path) -> SwappedOn {
        testkit::run(Command::new("mkswap").arg(device));
        testkit::run(Command::new("swapon").args(["-p", "32767"]).arg(device));
        SwappedOn(device.to_owned())
    }

    /// KiB that are swapped out to it.
    fn used(&self) -> u64 {
        let swaps = fs::read_to_string("/proc/swaps").unwrap();
        let line = swaps.lines().find(|line| Path::new(line.split(' ').next().unwrap()) == self.0);
        line.unwrap().split_whitespace().nth(3).unwrap().parse().unwrap()
    }
}

impl Drop for SwappedOn {
    fn drop(&mut self) {
        testkit::try_run(Command::new("swapoff").arg(&self.0));
    }
}

fn page_out(memory: &mut [u8]) {
    // SAFETY: the range is a whole part of a vector, and its contents stay.
    let done =
        unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_PAGEOUT) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

#[test]
fn the_kernel_swaps_to_it() {
    let name = "the_kernel_swaps_to_it";
    let mkswap = Need::program("mkswap", "util-linux");
    let swapon = Need::program("swapon", "util-linux");
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap, mkswap, swapon];
    if !common::met(name, &needs) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let mut served = start_swap(TempDir::new(), 64 << 20, THREADS, "plain");
    let options = LoopOptions { flush: false, ..LoopOptions::default() };
    let device = LoopDevice::attach(&served.swap(), options).unwrap();
    let swapped_on = SwappedOn::new(device.path());
    let mut memory = vec![0u8; (16 << 20) + P];
    let skip = memory.as_ptr().align_offset(P);
    let memory = &mut memory[skip..skip + (16 << 20)];
    let mut before = None;
    // The first round warms the threads up.
    for _ in 0..4 {
        rng.fill(memory);
        let copy = memory.to_vec();
        page_out(memory);
        let used = swapped_on.used();
        assert!(used > 4 << 10, "only {used} KiB went out");
        assert!(*memory == copy[..], "what comes back is what went out");
        let now = counts(&mut served);
        assert_eq!(*before.get_or_insert(now), now);
    }
}
