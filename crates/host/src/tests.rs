use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pagealloc::{MemoryProvider, NoMemory, RegionKeeper};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};

use crate::*;

const MIB: usize = 1 << 20;

/// Sets or asks each page of a committed piece.
fn fill(start: *mut u8, bytes: usize, value: u8) {
    for offset in (0..bytes).step_by(PAGE_SIZE) {
        // SAFETY: the callers pass committed pieces of regions that they hold.
        unsafe { start.add(offset).write_volatile(value) };
    }
}

fn all_are(start: *mut u8, bytes: usize, value: u8) -> bool {
    (0..bytes).step_by(PAGE_SIZE).all(|offset| {
        // SAFETY: as above.
        unsafe { start.add(offset).read_volatile() == value }
    })
}

/// Bytes of a range that are in memory, from the process's page map (kernel document
/// `admin-guide/mm/pagemap.rst`): bit 63 of a page's entry says that it is present.
fn resident_in(start: *mut u8, bytes: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mut entries = vec![0u8; bytes / PAGE_SIZE * 8];
    map.read_exact_at(&mut entries, (start as usize / PAGE_SIZE * 8) as u64).unwrap();
    entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count() * PAGE_SIZE
}

/// The flags of the mapping that has `address`, as proc_pid_smaps(5) writes them.
fn flags_at(address: *const u8) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_here = false;
    for line in text.lines() {
        let range = line.split(' ').next().unwrap().split_once('-');
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|it| (number(it.0), number(it.1))) {
            is_here = (start..end).contains(&(address as usize));
        }
        if let (true, Some(flags)) = (is_here, line.strip_prefix("VmFlags:")) {
            return flags.split_whitespace().map(str::to_owned).collect();
        }
    }
    panic!("nothing is mapped at {address:?}")
}

#[test]
fn what_is_stored_is_no_part_of_a_core_dump() {
    use std::alloc::{GlobalAlloc, Layout};
    let region = Mmap.reserve(4 * MIB).unwrap();
    let base = region.base().as_ptr();
    let is_kept_out = |address| flags_at(address).contains(&"dd".to_string());
    assert!(is_kept_out(base), "{:?}", flags_at(base));
    region.commit(0, 2 * MIB).unwrap();
    region.collapse(0);
    region.release(0, MIB);
    for address in [base, base.wrapping_add(3 * MIB)] {
        assert!(is_kept_out(address), "{:?}", flags_at(address));
    }
    let layout = Layout::from_size_align(8 << 20, 16).unwrap();
    // SAFETY: the piece is given up once, with its layout.
    unsafe {
        let piece = Heap.alloc(layout);
        assert!(is_kept_out(piece), "{:?}", flags_at(piece));
        Heap.dealloc(piece, layout);
    }
}

#[test]
fn regions_are_aligned_zero_and_costless_until_touched() {
    let region = Mmap.reserve(100 * MIB + 1).unwrap();
    let base = region.base().as_ptr();
    assert_eq!(base as usize % PAGEBLOCK_SIZE, 0);
    assert_eq!(region.bytes(), 102 * MIB);
    region.commit(0, 64 * MIB).unwrap();
    assert_eq!(resident_in(base, 102 * MIB), 0);
    assert!(all_are(base, 4 * MIB, 0));
    fill(base, PAGE_SIZE, 7);
    assert_eq!(
        resident_in(base.wrapping_add(4 * MIB), 60 * MIB),
        0,
        "one touched page must not bring others"
    );
    fill(base.wrapping_add(63 * MIB), MIB, 9);
    assert_eq!(resident_in(base.wrapping_add(62 * MIB), 2 * MIB), MIB);
}

#[test]
fn released_memory_is_gone_and_reads_as_zeroes() {
    let region = Mmap.reserve(8 * MIB).unwrap();
    region.commit(0, 8 * MIB).unwrap();
    let base = region.base().as_ptr();
    fill(base, 8 * MIB, 0xa5);
    assert_eq!(resident_in(base, 8 * MIB), 8 * MIB);
    region.release(2 * MIB, 4 * MIB);
    assert_eq!(resident_in(base, 8 * MIB), 4 * MIB);
    assert!(all_are(base, 2 * MIB, 0xa5));
    assert!(all_are(base.wrapping_add(2 * MIB), 4 * MIB, 0));
    assert!(all_are(base.wrapping_add(6 * MIB), 2 * MIB, 0xa5));
    fill(base, 8 * MIB, 1);
    assert!(all_are(base, 8 * MIB, 1), "a released part stays usable");
}

#[test]
fn a_secret_is_locked_and_in_no_core_dump_and_no_child() {
    let secret = crate::Secret::new(|| Ok([0xa5u8; 64])).unwrap();
    let flags = flags_at(secret.as_ptr());
    for flag in ["lo", "dd", "dc"] {
        assert!(flags.contains(&flag.to_string()), "{flag} is missing in {flags:?}");
    }
    assert!(crate::Secret::<u8>::new(|| Err(std::io::Error::other("none"))).is_err());
}

#[test]
fn only_whole_pages_of_the_system_are_released() {
    use crate::mmap::whole_pages;
    const KIB: usize = 1024;
    for page in [4, 16, 64] {
        let page = page * KIB;
        assert_eq!(whole_pages(0, 2 * MIB, page), 0..2 * MIB, "a pageblock goes whole");
        assert_eq!(whole_pages(page, page, page), page..2 * page);
        assert_eq!(whole_pages(2 * MIB, 0, page), 2 * MIB..2 * MIB);
    }
    assert_eq!(whole_pages(4 * KIB, 4 * KIB, 4 * KIB), 4 * KIB..8 * KIB);
    for (offset, bytes, page, whole) in [
        (4, 4, 16, None),
        (12, 8, 16, None),
        (4, 28, 16, Some(16..32)),
        (16, 28, 16, Some(16..32)),
        (12, 24, 16, Some(16..32)),
        (4, 120, 64, None),
        (60, 72, 64, Some(64..128)),
        (64, 124, 64, Some(64..128)),
    ] {
        let found = whole_pages(offset * KIB, bytes * KIB, page * KIB);
        let expected =
            whole.map(|whole: core::ops::Range<usize>| whole.start * KIB..whole.end * KIB);
        assert_eq!((!found.is_empty()).then_some(found), expected, "{bytes} KiB at {offset} KiB");
    }
}

#[test]
fn frames_beside_a_released_part_keep_their_contents_where_pages_are_large() {
    for page in [16 << 10, 64 << 10] {
        if page < page_bytes() as usize {
            continue;
        }
        // Stands for a system with larger pages: Linux would round the length up to them.
        let mapping = crate::mmap::Mapping::new(2 * MIB, page).unwrap();
        mapping.commit(0, 2 * MIB).unwrap();
        let base = mapping.base().as_ptr();
        fill(base, 2 * MIB, 7);
        // A single frame, a run across the edge of a page, and one with a whole page within.
        mapping.release(page, PAGE_SIZE);
        mapping.release(4 * page - PAGE_SIZE, 2 * PAGE_SIZE);
        assert!(all_are(base, 2 * MIB, 7), "no page lies whole in what was released");
        mapping.release(8 * page - PAGE_SIZE, page + 2 * PAGE_SIZE);
        assert!(all_are(base, 8 * page, 7));
        assert!(all_are(base.wrapping_add(8 * page), page, 0));
        assert!(all_are(base.wrapping_add(9 * page), 2 * MIB - 9 * page, 7));
    }
}

#[test]
fn collapsing_keeps_contents() {
    let region = Mmap.reserve(6 * MIB).unwrap();
    region.commit(0, 6 * MIB).unwrap();
    let base = region.base().as_ptr();
    fill(base, 6 * MIB, 3);
    region.collapse(2 * MIB);
    assert!(all_are(base, 6 * MIB, 3));
    region.release(2 * MIB, 2 * MIB);
    assert!(all_are(base.wrapping_add(2 * MIB), 2 * MIB, 0));
    region.collapse(2 * MIB);
    fill(base, 6 * MIB, 4);
    assert!(all_are(base, 6 * MIB, 4));
}

#[test]
fn populating_brings_memory_and_keeps_contents() {
    let region = Mmap.reserve(4 * MIB).unwrap();
    region.commit(0, 4 * MIB).unwrap();
    let base = region.base().as_ptr();
    fill(base, 4096, 9);
    region.populate(0, 64 * 1024);
    // Linux before 5.14 has no such call, and nothing happens.
    let resident = resident_in(base, 4 * MIB);
    assert!([4096, 64 * 1024].contains(&resident), "{resident} bytes are resident");
    assert!(all_are(base, 4096, 9));
    assert!(all_are(base.wrapping_add(4096), 60 * 1024, 0));
}

#[test]
fn no_huge_page_comes_uninvited() {
    let region = Mmap.reserve(4 * MIB).unwrap();
    region.commit(0, 4 * MIB).unwrap();
    let base = region.base().as_ptr();
    fill(base, 2 * MIB, 1);
    region.collapse(0);
    region.release(0, 2 * MIB);
    fill(base, 4096, 1);
    assert_eq!(resident_in(base, 2 * MIB), 4096, "one page was touched");
}

#[test]
fn dropping_unmaps() {
    let before = mapped_bytes();
    for _ in 0..2048 {
        let region = Mmap.reserve(1 << 34).unwrap();
        region.commit(0, 2 * MIB).unwrap();
    }
    assert!(mapped_bytes() < before + (1024 << 34), "regions stay mapped");
}

fn mapped_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<usize>().unwrap() * PAGE_SIZE
}

#[test]
fn too_much_is_an_error() {
    for bytes in [usize::MAX, usize::MAX - PAGEBLOCK_SIZE, 1 << 60] {
        assert_eq!(Mmap.reserve(bytes).err(), Some(NoMemory { bytes }));
    }
}

#[test]
fn a_terabyte_of_addresses_is_free() {
    let region = Mmap.reserve(1 << 40).unwrap();
    region.commit(0, 1 << 40).unwrap();
    let last = region.base().as_ptr().wrapping_add((1 << 40) - PAGE_SIZE);
    fill(last, PAGE_SIZE, 1);
    assert!(all_are(last, PAGE_SIZE, 1));
}

#[test]
fn a_limit_on_the_process_is_an_error() {
    const CHILD: &str = "RAMPACK_TEST_LIMITED";
    if std::env::var_os(CHILD).is_some() {
        let bytes = 1 << 33;
        assert_eq!(Mmap.reserve(bytes).err(), Some(NoMemory { bytes }), "beyond the limit");
        let region = Mmap.reserve(64 * MIB).expect("within the limit");
        region.commit(0, 64 * MIB).unwrap();
        fill(region.base().as_ptr(), 64 * MIB, 1);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tests::a_limit_on_the_process_is_an_error", "--test-threads=1"]);
    child.env(CHILD, "1");
    // SAFETY: setrlimit is a plain system call, allowed between fork and exec.
    unsafe {
        child.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 32, rlim_max: 1 << 32 };
            match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn lists_of_cpus() {
    for (text, highest) in
        [("0\n", Some(0)), ("0-3\n", Some(3)), ("0-3,8,10-11", Some(11)), ("", None), ("x", None)]
    {
        assert_eq!(cpu::highest_in_list(text), highest, "{text:?}");
    }
}

#[test]
fn a_pinned_thread_stays_on_its_cpu() {
    let cpus = allowed_cpus();
    assert_eq!(online_cpus(), cpus.len());
    assert!(cpus.iter().all(|n| *n < crate::cpus()), "{cpus:?} of {}", crate::cpus());
    for cpu in cpus {
        std::thread::spawn(move || {
            pin_to_cpu(cpu).unwrap();
            assert_eq!(crate::cpu(), units::Cpu(cpu as u32));
            assert_eq!((online_cpus(), allowed_cpus()), (1, vec![cpu]));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn pinning_to_no_cpu_says_which_exist() {
    for cpu in [60_000, usize::MAX] {
        let error = pin_to_cpu(cpu).unwrap_err().to_string();
        assert!(error.contains(&format!("CPU {cpu}")) && error.contains("allowed: ["), "{error}");
    }
}

#[test]
fn memory_is_counted() {
    assert!(total_memory() > 64 * MIB as u64 && total_memory() <= machine_memory());
    let region = Mmap.reserve(64 * MIB).unwrap();
    region.commit(0, 64 * MIB).unwrap();
    let before = resident_bytes();
    fill(region.base().as_ptr(), 64 * MIB, 1);
    let after = resident_bytes();
    // Other tests of this process come and go meanwhile, so this is no equality.
    assert!(before > 0 && after > 64 * MIB as u64, "{before} {after}");
    assert_eq!(memory::parse_field_in_kib("A: 1 kB\nRss:     12 kB\n", "Rss:"), Some(12 << 10));
    assert_eq!(memory::parse_field_in_kib("Rss: junk\n", "Rss:"), None);
}

#[test]
fn tasks_are_done_by_a_few_threads() {
    let waiters = Waiters::new("waiter", 3);
    assert_eq!(waiters.threads(), 0, "none before there is anything to do");
    let (done, results) = channel();
    let (go, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    for number in 0..20 {
        let (done, gate) = (done.clone(), gate.clone());
        let task = move || {
            // Whoever holds the gate waits for its turn.
            gate.lock().unwrap().recv().unwrap();
            done.send(number).unwrap();
            assert!(number != 7, "this is part of the test");
        };
        assert!(waiters.take(Box::new(task)).is_ok());
    }
    assert_eq!(waiters.threads(), 3);
    assert!(!waiters.close(Some(Duration::from_millis(1))), "they are waiting");
    assert!(waiters.take(Box::new(|| ())).is_err(), "it is closed");
    (0..20).for_each(|_| go.send(()).unwrap());
    assert!(waiters.close(None), "what it took is done");
    assert_eq!(waiters.threads(), 0);
    let mut numbers: Vec<i32> = results.try_iter().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_thread_takes_one_task_after_another() {
    let waiters = Waiters::new("waiter", 16);
    for number in 0..100 {
        let (done, result) = channel();
        assert!(waiters.take(Box::new(move || done.send(number).unwrap())).is_ok());
        assert_eq!(result.recv().unwrap(), number);
    }
    assert!(waiters.threads() <= 16);
    assert!(waiters.close(None));
}

/// Where a process locks its memory, all of a stack is there from the start.
#[test]
fn threads_for_tasks_have_small_stacks() {
    let name = "threads_for_tasks_have_small_stacks";
    // The C library gives a thread the larger stack of one that has ended.
    if std::env::var_os(ALONE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        testkit::run(command.args(["--exact", &format!("tests::{name}")]).env(ALONE, "1"));
        return;
    }
    let waiters = Waiters::new("waiter", 1);
    let (done, result) = channel();
    let task = move || done.send(crate::stack::own().unwrap().1).unwrap();
    assert!(waiters.take(Box::new(task)).is_ok());
    let bytes = result.recv().unwrap();
    assert!((256 << 10..1 << 20).contains(&bytes), "{bytes} bytes");
}

#[test]
fn locked_memory_goes_back_all_the_same() {
    let region = Mmap.reserve(2 * MIB).unwrap();
    region.commit(0, 2 * MIB).unwrap();
    let base = region.base().as_ptr();
    // SAFETY: the range is the region's; locking it changes no contents.
    let locked = unsafe { libc::mlock2(base.cast(), 2 * MIB, libc::MLOCK_ONFAULT) };
    assert_eq!(locked, 0, "2 MiB may be locked by anybody");
    fill(base, 2 * MIB, 7);
    region.release(0, MIB);
    assert!(all_are(base, MIB, 0), "it reads as zeroes");
    assert!(all_are(base.wrapping_add(MIB), MIB, 7));
}

#[test]
fn who_waits_for_pressure_is_told_of_the_end() {
    let (mut pressure, end) = Pressure::new().unwrap();
    // Whatever the machine does at this moment, it is not the end.
    assert_ne!(pressure.wait(Duration::from_millis(1)), Waited::Ended);
    let waiting =
        thread::spawn(move || while pressure.wait(Duration::from_secs(60)) != Waited::Ended {});
    end.end();
    waiting.join().unwrap();
    let (mut pressure, end) = Pressure::new().unwrap();
    drop(end);
    assert_eq!(pressure.wait(Duration::from_secs(60)), Waited::Ended);
}

#[test]
fn swapping_to_what_is_none_fails() {
    let path = std::path::Path::new("/nonexistent/swap");
    assert!(swap_on(path, Some(1), true).is_err());
    assert!(swap_off(path).is_err());
    assert!((-1000..=1000).contains(&oom_score().unwrap()));
}

#[test]
fn faults_are_read_behind_any_name() {
    let stat = "17 (a) (b c) S 1 2 3 4 5 6 70 80 90 100 11 12";
    assert_eq!(crate::resident::parse_faults(stat), Some(Faults { minor: 70, major: 90 }));
    assert_eq!(crate::resident::parse_faults("17 (a"), None);
    assert_eq!(crate::resident::parse_faults("17 (a) S 1 2"), None);
}

#[test]
fn a_thread_that_touches_new_memory_is_found_out() {
    // Memory of the heap may have its pages from whoever had it before.
    let region = Mmap.reserve(8 * MIB).unwrap();
    region.commit(0, 8 * MIB).unwrap();
    let before = thread_faults(thread_id()).unwrap();
    fill(region.base().as_ptr(), 8 * MIB, 1);
    let after = thread_faults(thread_id()).unwrap();
    assert!(after.minor > before.minor, "{before:?} {after:?}");
    assert_eq!(thread_faults(-1), None);
}

#[test]
fn code_data_heap_and_stack_are_made_resident_and_regions_are_not() {
    let line = |text: &str| crate::resident::Mapped::parse(text).unwrap().advice();
    let (read, write) = (Some(22), Some(23));
    assert_eq!(line("1000-9000 r-xp 0 fe:00 7 /usr/bin/x y"), read);
    assert_eq!(line("1000-9000 rw-p 0 fe:00 7 /usr/lib/x.so"), write);
    assert_eq!(line("1000-9000 rw-p 0 00:00 0 [heap]"), write);
    assert_eq!(line("1000-9000 rw-p 0 00:00 0 [stack]"), write);
    assert_eq!(line("1000-9000 rw-p 0 00:00 0"), write);
    assert_eq!(line("1000-9000000 rw-p 0 00:00 0"), None, "a large one");
    assert_eq!(line("1000-9000 ---p 0 00:00 0"), None);
    // The heap of a thread: its part in use begins with 64 MiB that are reserved.
    let is_arena = |texts: [&str; 2]| {
        let [part, rest] = texts.map(|text| crate::resident::Mapped::parse(text).unwrap());
        (part.is_arena(Some(&rest)), part.is_arena(None))
    };
    let part = "7f0000000000-7f0000300000 rw-p 0 00:00 0";
    assert_eq!(is_arena([part, "7f0000300000-7f0004000000 ---p 0 00:00 0"]), (true, false));
    for rest in ["7f0000300000-7f0008000000 ---p", "7f0000300000-7f0004000000 rw-p"] {
        assert_eq!(is_arena([part, &format!("{rest} 0 00:00 0")]), (false, false));
    }
    assert_eq!(line("1000-9000 rw-s 0 00:00 3 anon_inode:[io_uring]"), None);
    assert_eq!(line("1000-9000 r--p 0 00:00 0 [vvar]"), None);
    crate::make_resident().unwrap();
}

/// An arena keeps what it grew by, and all of it is made resident.
#[test]
fn what_settles_the_heap_leaves_little_in_it() {
    let arena = || {
        let piece = std::hint::black_box(vec![1_u8; 4096]);
        let at = piece.as_ptr() as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut all = maps.lines().filter_map(crate::resident::Mapped::parse);
        let here = all.find(|it| (it.start..it.end).contains(&at)).unwrap();
        here.end - here.start
    };
    let grown = thread::spawn(move || {
        let before = arena();
        crate::heap::settle();
        arena().saturating_sub(before)
    });
    let grown = grown.join().unwrap();
    assert!(grown <= MIB as u64, "{grown} bytes");
}

#[test]
fn regions_are_populated_where_it_is_asked_for() {
    let region = pagealloc::MemoryProvider::reserve(&MmapAhead, 4 << 20).unwrap();
    region.commit(0, 4 << 20).unwrap();
    let before = thread_faults(thread_id()).unwrap();
    assert!(region.populate(4096, 1 << 20));
    let between = thread_faults(thread_id()).unwrap();
    for page in 0..256 {
        // SAFETY: the page lies in the committed region, which is ours.
        unsafe { region.base().as_ptr().add(4096 + page * 4096).write_volatile(7) };
    }
    let after = thread_faults(thread_id()).unwrap();
    assert!(after.minor <= between.minor + 2, "{before:?} {between:?} {after:?}");
    // SAFETY: as above.
    let kept = unsafe { region.base().as_ptr().add(8192).read_volatile() };
    assert!(region.populate(0, 2 << 20) && kept == 7);
}

#[test]
fn watermarks_are_summed_over_zones_without_what_is_kept_for_others() {
    let text = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 3
  pages free     2812
        boost    0
        min      82
        low      102
        high     122
        spanned  4095
        protection: (0, 2448, 2448, 2448)
  pagesets
    cpu: 0
              count:    0
              high:     28
Node 0, zone    DMA32
  pages free     1000
        min      700
        low      900
        high     1100
        protection: (0, 0, 0, 0)
";
    let above = crate::watermarks::parse(text).unwrap();
    let pages = |mark| above.bytes(mark) / page_bytes();
    assert_eq!(pages(Watermark::Min), (2812 - 82 - 2448) + 300);
    assert_eq!(pages(Watermark::Low), (2812 - 102 - 2448) + 100);
    assert_eq!(pages(Watermark::High), 2812 - 122 - 2448);
    assert_eq!(crate::watermarks::parse("nothing"), None);
    let here = Watermarks::new().look().unwrap();
    assert!(here.bytes(Watermark::High) <= here.bytes(Watermark::Min));
}

/// Set in the process that locks its memory.
const LOCKS: &str = "RAMPACK_TEST_LOCKS";
/// And one with only one test.
const ALONE: &str = "RAMPACK_TEST_ALONE";

#[test]
fn the_beginning_of_a_large_piece_has_its_pages_in_a_process_that_locks_its_memory() {
    use std::alloc::{GlobalAlloc, Layout};
    let name = "the_beginning_of_a_large_piece_has_its_pages_in_a_process_that_locks_its_memory";
    if std::env::var_os(LOCKS).is_none() {
        if testkit::met(name, &[testkit::Need::Root]) {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            testkit::run(command.args(["--exact", &format!("tests::{name}")]).env(LOCKS, "1"));
        }
        return;
    }
    let layout = Layout::from_size_align(16 * MIB, 16).unwrap();
    lock_memory().unwrap();
    // SAFETY: the piece is given up once, with its layout.
    unsafe {
        let piece = Heap.alloc_zeroed(layout);
        // A request of FUSE, and not the rest of what a library asks for.
        assert_eq!(resident_in(piece, MIB + 4096), MIB + 4096);
        assert_eq!(resident_in(piece.add(2 * MIB), 14 * MIB), 0);
        Heap.dealloc(piece, layout);
    }
}

#[test]
fn large_pieces_of_the_heap_have_their_pages_when_they_are_touched() {
    use std::alloc::{GlobalAlloc, Layout};
    let (small, large) = (4096, 64 << 20);
    let layout = |bytes| Layout::from_size_align(bytes, 16).unwrap();
    // SAFETY: each piece is used within its size and given up once, with its layout.
    unsafe {
        let piece = Heap.alloc_zeroed(layout(large));
        assert!((0..large).step_by(1 << 20).all(|at| piece.add(at).read() == 0));
        piece.add(small - 1).write(7);
        let less = Heap.realloc(piece, layout(large), small);
        assert_eq!(less.add(small - 1).read(), 7);
        let before = thread_faults(thread_id()).unwrap();
        let more = Heap.realloc(less, layout(small), large);
        let after = thread_faults(thread_id()).unwrap();
        assert_eq!(more.add(small - 1).read(), 7);
        assert!(after.minor - before.minor < 64, "not all of it is in memory");
        Heap.dealloc(more, layout(large));
        assert!(Heap.alloc(layout(1 << 50)).is_null());
    }
}

/// Page faults that using most of a serving thread's stack costs after `prepare`.
fn faults_of_a_deep_call(prepare: fn()) -> u64 {
    let faults = || {
        // Not on the heap, whose pages come one by one.
        let mut stat = [0; 1024];
        let mut file = std::fs::File::open("/proc/thread-self/stat").unwrap();
        let length = std::io::Read::read(&mut file, &mut stat).unwrap();
        crate::resident::parse_faults(std::str::from_utf8(&stat[..length]).unwrap()).unwrap().minor
    };
    let run = move || {
        prepare();
        // The first time costs what it costs.
        faults();
        let before = faults();
        crate::stack::fill();
        faults() - before
    };
    thread::Builder::new().stack_size(SERVING_STACK).spawn(run).unwrap().join().unwrap()
}

#[test]
fn a_stack_that_was_touched_is_there() {
    let name = "a_stack_that_was_touched_is_there";
    // A fork of another test makes pages that are there fault once more.
    if std::env::var_os(ALONE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        testkit::run(command.args(["--exact", &format!("tests::{name}")]).env(ALONE, "1"));
        return;
    }
    // The code is there then.
    crate::stack::fill();
    assert_eq!(faults_of_a_deep_call(touch_stack), 0);
    assert_eq!(faults_of_a_deep_call(crate::stack::fill), 0, "as before Linux 5.14");
    let page = page_bytes() as usize;
    let pages = (SERVING_STACK / 2 / page) as u64;
    assert!(faults_of_a_deep_call(|| {}) >= pages, "an untouched one is not");
}

#[test]
fn waiting_for_memory_is_read_from_what_the_kernel_tells() {
    let text = "some avg10=0.00 avg60=1.20 avg300=0.63 total=2606194\n\
                full avg10=0.00 avg60=0.00 avg300=0.23 total=1155622\n";
    assert_eq!(crate::pressure::parse_stall(text), Some(Duration::from_micros(2_606_194)));
    for text in ["", "full avg10=0.00 total=1\n", "some total=\n", "some total=x\n"] {
        assert_eq!(crate::pressure::parse_stall(text), None, "{text:?}");
    }
}
