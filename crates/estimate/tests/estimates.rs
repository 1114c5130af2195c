//! Estimates beside what storing the same pages takes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use estimate::{Codec, Image, Options, Process, Report, Source, estimate};
use machine::{Machine, MachineOptions};
use testkit::{Need, met};
use units::{Cpu, PAGE_SIZE};
use zram::Budgets;

/// Codecs that are tried.
const CODECS: [&str; 2] = ["lz4", "zstd"];
const PYTHON: Need = Need::program("python3", "python3");

fn report(sources: &[Source], sample: u64) -> Report {
    let codecs = CODECS.map(|name| Codec::parse(name).unwrap()).to_vec();
    let options = Options { codecs, sample, seed: testkit::seed("estimates") };
    let mut left_out = |error| panic!("{error}");
    let mut last = 0;
    let mut progress = |done, all| {
        assert!(done >= last && done <= all, "{done} of {all} after {last}");
        last = done;
    };
    estimate(sources, &options, &mut left_out, &mut progress).unwrap()
}

/// The bytes that a disk uses for pages.
fn stored(pages: &[u8], algorithm: &str) -> u64 {
    let machine = Machine::new(Arc::new(host::Mmap), MachineOptions::of_this_system()).unwrap();
    let disk = machine.add().unwrap();
    disk.set_algorithm(algorithm).unwrap();
    disk.set_disksize(pages.len() as u64).unwrap();
    let (whole, _) = pages.as_chunks::<PAGE_SIZE>();
    for (n, page) in whole.iter().enumerate() {
        disk.store_page(Cpu(0), n as u64, page).unwrap();
    }
    disk.stats().pool_bytes + 8 * whole.len() as u64
}

/// Pages of a program: the bytes of this test, with gaps of zeros, as in memory.
fn pages() -> Vec<u8> {
    let mut pages = fs::read("/proc/self/exe").unwrap();
    pages.truncate(24 << 20);
    let mut random = fastrand::Rng::with_seed(testkit::seed("estimates"));
    let mut noise = vec![0; 1 << 20];
    random.fill(&mut noise);
    pages.extend(noise);
    pages.extend(vec![0; 2 << 20]);
    pages.truncate(pages.len() / PAGE_SIZE * PAGE_SIZE);
    pages
}

fn image(pages: &[u8]) -> (tempfile::NamedTempFile, Source) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pages).unwrap();
    let image = Image::open(file.path()).unwrap();
    (file, Source::Image(image))
}

#[test]
fn all_pages_give_what_storing_them_takes() {
    let pages = pages();
    let (_file, source) = image(&pages);
    let report = report(&[source], u64::MAX);
    assert_eq!(report.sum.sampled_bytes, pages.len() as u64);
    for (codec, name) in report.sum.codecs.iter().zip(CODECS) {
        let truth = stored(&pages, name) as f64;
        let off = codec.stored.stored_bytes as f64 / truth - 1.0;
        // Frames that are not full are not in an estimate.
        assert!(off.abs() < 0.04, "{name}: {} and {truth}: {off:+.3}", codec.stored.stored_bytes);
        assert_eq!(codec.stored.error_bytes, Some(0));
        assert!(codec.stored.compression_us > 0.0 && codec.stored.decompression_us > 0.0);
    }
}

/// The intervals of twenty samples hold the truth, all but a few: an interval may miss it five
/// times of a hundred.
#[test]
fn a_sample_knows_how_wrong_it_may_be() {
    let pages = pages();
    let (_file, source) = image(&pages);
    let codecs = CODECS.map(|name| Codec::parse(name).unwrap()).to_vec();
    // What storing takes has frames that are not full, too: 3 % of so few pages.
    let all = report(std::slice::from_ref(&source), u64::MAX).sum.codecs;
    let truth = [0, 1].map(|n| all[n].stored.stored_bytes as f64);
    let mut missed = [0; 2];
    for seed in 0..20 {
        let options = Options { codecs: codecs.clone(), sample: 8 << 20, seed };
        let sources = std::slice::from_ref(&source);
        let mut left_out = |error| panic!("{error}");
        let report = estimate(sources, &options, &mut left_out, &mut |_, _| {}).unwrap();
        assert!(report.sum.sampled_bytes < pages.len() as u64 / 2);
        for (n, codec) in report.sum.codecs.iter().enumerate() {
            let off = (codec.stored.stored_bytes as f64 - truth[n]).abs();
            let error = codec.stored.error_bytes.unwrap() as f64;
            assert!(error < 0.15 * truth[n], "an interval of {error} says little");
            missed[n] += u32::from(off > error);
        }
    }
    assert!(missed.iter().all(|missed| *missed <= 4), "{missed:?} of 20");
}

/// What a disk with tiers uses for pages: all hot, all warm, all cold.
fn stored_by_tier(pages: &[u8]) -> [u64; 3] {
    // Reads of packed pages are too slow for the second.
    [(0, 0), (400, 20), (400, 0)].map(|(seconds, slowest)| stored_after(seconds, slowest, pages))
}

/// The same after these seconds, if reads may take so many microseconds. The disk has room for
/// more: on a full one, a tenth of the equal pages do not find each other.
fn stored_after(seconds: u32, slowest_read: u32, pages: &[u8]) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let (whole, _) = pages.as_chunks::<PAGE_SIZE>();
    let budgets = Budgets { cpu_percent: 100, slowest_read, ..Budgets::default() };
    let machine = Machine::new(Arc::new(host::Mmap), MachineOptions::of_this_system()).unwrap();
    let disk = machine.add().unwrap();
    disk.set_track_access(true).unwrap();
    disk.set_budgets(budgets).unwrap();
    disk.set_auto(true).unwrap();
    disk.set_disksize(2 * pages.len() as u64).unwrap();
    let begun = 1000;
    machine.set_clock(begun);
    for (n, page) in whole.iter().enumerate() {
        disk.store_page(Cpu(0), n as u64, page).unwrap();
    }
    // The slot, the time of last use, what is remembered of the page, and its fingerprint.
    let tables = whole.len() as u64 * (8 + 4 + 4 + 4);
    for now in (0..seconds).step_by(4) {
        machine.set_clock(begun + now + 4);
        disk.move_pages(4 * SECOND, &|| 0).unwrap();
    }
    let density = disk.density();
    let entries = 16 * (density.extents + density.shared_objects);
    disk.stats().pool_bytes + entries + tables
}

/// Pages of which some are equal, and some neighbours of noise.
fn mixed_pages() -> Vec<u8> {
    let mut pages = pages();
    // Many pages, for frames that are not full are not in an estimate: the same bytes with other
    // boundaries.
    let bytes = (pages.len() - 2000).min(22 << 20);
    for shift in [1000, 2000] {
        pages.extend_from_within(shift..shift + bytes);
    }
    let again = pages[4 << 20..6 << 20].to_vec();
    pages.extend(again);
    let mut random = fastrand::Rng::with_seed(!testkit::seed("estimates"));
    let (whole, _) = pages.as_chunks_mut::<PAGE_SIZE>();
    for page in whole[2048..3072].iter_mut().step_by(4) {
        random.fill(page);
    }
    pages
}

/// The estimate of each tier, in bytes.
fn estimated(pages: &[u8]) -> [u64; 3] {
    let (_file, source) = image(pages);
    let codecs = vec![Codec::parse("lz4").unwrap()];
    let options = Options { codecs, sample: u64::MAX, seed: 1 };
    let mut left_out = |error| panic!("{error}");
    let report = estimate(&[source], &options, &mut left_out, &mut |_, _| {}).unwrap();
    std::array::from_fn(|tier| {
        let stored = &report.sum.tiers[tier].stored;
        assert_eq!(stored.error_bytes, Some(0));
        assert!(stored.compression_us > 0.0 && stored.decompression_us > 0.0, "{stored:?}");
        assert!(stored.compression_error_us.is_some() && stored.decompression_error_us.is_some());
        stored.stored_bytes
    })
}

/// How far what was found is from the truth, as a part of it.
fn off(found: [u64; 3], truth: [u64; 3]) -> [f64; 3] {
    std::array::from_fn(|tier| found[tier] as f64 / truth[tier] as f64 - 1.0)
}

#[test]
fn all_pages_give_what_each_tier_takes() {
    let pages = mixed_pages();
    let truth = stored_by_tier(&pages);
    assert!(
        truth[0] > truth[1] + truth[1] / 10 && truth[1] > truth[2] + truth[2] / 20,
        "{truth:?}"
    );
    let found = off(estimated(&pages), truth);
    println!("off by {found:.4?}");
    // Only frames that are not full are missing, so it is never above the truth.
    assert!(found.iter().all(|off| (-0.03..0.005).contains(off)), "{found:.4?} of {truth:?}");
    // The same pages without their neighbours do not say what extents take.
    let some = &pages[..16 << 20];
    let mut apart = some.as_chunks::<PAGE_SIZE>().0.to_vec();
    fastrand::Rng::with_seed(testkit::seed("estimates")).shuffle(&mut apart);
    let [hot, warm, cold] = off(estimated(apart.as_flattened()), estimated(some));
    assert!(hot.abs() < 0.03 && warm.abs() < 0.03 && cold > 0.03, "{hot:.4} {warm:.4} {cold:.4}");
}

/// A process with pages that are known.
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// `fork` tells whether a child has the same pages, too.
fn holder(mib: usize, fork: bool) -> Holder {
    let program = "import os, sys\n\
        held = bytearray(b''.join(b'%07d ' % (n % 900000) for n in range(int(sys.argv[1]) << 17)))\n\
        held.extend(bytes(4 << 20))\n\
        if sys.argv[2] == 'fork' and os.fork() == 0:\n\
        \x20   pass\n\
        print(os.getpid(), flush=True)\n\
        sys.stdin.read()\n";
    let how = if fork { "fork" } else { "alone" };
    running(program, &[&mib.to_string(), how], 1 + usize::from(fork))
}

/// A program that has said so many lines.
fn running(program: &str, arguments: &[&str], lines: usize) -> Holder {
    let mut child = Command::new("python3")
        .args(["-c", program])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..lines {
        said.next().unwrap().unwrap();
    }
    Holder { child, input }
}

#[test]
fn a_process_is_read_while_it_runs() {
    if !met("a_process_is_read_while_it_runs", &[PYTHON]) {
        return;
    }
    let holder = holder(32, false);
    let process = Process::open(holder.child.id() as i32).unwrap();
    assert_eq!(process.name(), "python3");
    let report = report(&[Source::Process(process)], 16 << 20);
    let [source] = &report.sources[..] else { panic!("{report:?}") };
    assert!((36 << 20..120 << 20).contains(&source.resident_bytes), "{source:?}");
    assert!((8 << 20..32 << 20).contains(&source.sampled_bytes), "{source:?}");
    assert!((0.03..0.5).contains(&source.same_filled), "{source:?}");
    let ratio = |codec: usize| source.codecs[codec].stored.ratio;
    assert!(ratio(0) > 1.5 && ratio(1) > ratio(0));
    let picture = estimate::svg(&report).unwrap();
    for word in ["now", "lz4", "zstd", "idle, warm", "idle, cold", "python3", "</svg>"] {
        assert!(picture.contains(word), "{word} is missing");
    }
}

/// A program may reserve more addresses than one can look at page by page.
#[test]
fn addresses_without_memory_take_no_time() {
    if !met("addresses_without_memory_take_no_time", &[PYTHON]) {
        return;
    }
    // Without access, and not counted as memory (MAP_NORESERVE).
    let program = "import mmap, sys\n\
        how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n\
        for bits in (46, 38, 37):\n\
        \ttry: held = mmap.mmap(-1, 1 << bits, how, 0); break\n\
        \texcept OSError: pass\n\
        print(flush=True)\n\
        sys.stdin.read()\n";
    let holder = running(program, &[], 1);
    let process = Process::open(holder.child.id() as i32).unwrap();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(report(&[Source::Process(process)], 1 << 20)));
    let report = is_done.recv_timeout(Duration::from_secs(60)).expect("it looked at each page");
    assert!(report.sum.resident_bytes < 1 << 30, "{report:?}");
}

#[test]
fn frames_that_processes_share_count_once_in_the_sum() {
    if !met("frames_that_processes_share_count_once_in_the_sum", &[Need::Root, PYTHON]) {
        return;
    }
    let holder = holder(32, true);
    let parent = holder.child.id() as i32;
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let child: i32 = children.trim().parse().unwrap();
    let sources = [parent, child].map(|pid| Source::Process(Process::open(pid).unwrap()));
    let report = report(&sources, 16 << 20);
    let each: Vec<u64> = report.sources.iter().map(|it| it.resident_bytes).collect();
    assert!(each.iter().all(|bytes| *bytes > 36 << 20), "{each:?}");
    let (sum, most) = (report.sum.resident_bytes, each.iter().max().unwrap());
    assert!(sum < most + (16 << 20), "{sum} in sum, {each:?}");
}

#[test]
fn a_process_that_is_gone_is_told() {
    let error = Process::open(i32::MAX).unwrap_err();
    assert!(error.to_string().starts_with("cannot look at process 2147483647: "), "{error}");
    assert!(error.is_gone() && !error.is_refused());
}
