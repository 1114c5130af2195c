//! The runs in a guest that count as tests: each has a name, a command line and an expected status.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

use super::kernel::Flavour;
use super::{Build, DIED, Guest, HANG, Options, tools};
use crate::count::Count;

/// The text that the guest prints after its start.
const BEGUN: &str = "=== GUEST ";

/// A run.
struct Case {
    name: Cow<'static, str>,
    /// Runs only with `cargo xtask test --long`.
    long: bool,
    /// The words after `cargo xtask guest`.
    words: Cow<'static, str>,
    /// The expected exit status.
    status: u8,
    /// The texts that the run must print.
    says: &'static [&'static str],
}

const fn case(long: bool, name: &'static str, words: &'static str) -> Case {
    let (name, words) = (Cow::Borrowed(name), Cow::Borrowed(words));
    Case { name, long, words, status: 0, says: &[" rc=0"] }
}

const fn short(name: &'static str, words: &'static str) -> Case {
    case(false, name, words)
}

const fn long(name: &'static str, words: &'static str) -> Case {
    case(true, name, words)
}

/// A case in which the kernel must kill the program. The daemon and all other programs go on.
const fn ended(name: &'static str, words: &'static str) -> Case {
    let (name, words) = (Cow::Borrowed(name), Cow::Borrowed(words));
    let says = &["a hog ended with status 137", "Killed process"];
    Case { name, long: true, words, status: 5, says }
}

/// How many of the short cases an ordinary run takes: its seed says which.
const ORDINARY: usize = 2;

/// All cases except the matrix. The short ones take some eight minutes in total.
const CASES: &[Case] = &[
    short("a_700MB_program_in_512MB", "--time 480 -- pressure rampack --size 1G -- 700 1 1 240"),
    // Nearly every page comes back from the device, which the guest emulates slowly.
    short(
        "a_500MB_program_in_512MB_with_a_backing_device",
        "--time 480 -- \
         pressure rampack --backing /dev/vdd --size 1G --memory 60M -- 500 1 1 240",
    ),
    // Every freed page is heard of: the cache has what the kernel has in use.
    Case {
        name: Cow::Borrowed("freed_pages_are_dropped"),
        long: false,
        words: Cow::Borrowed("--time 600 -- frees rampack --size 1G -- 600 2"),
        status: 0,
        says: &["heard of by swap_entry_range_free", "FREES kind=rampack", " rc=0"],
    },
    // The log is smaller than what is swapped out, and is cleaned.
    short(
        "a_400MB_program_in_512MB_with_a_log",
        "--time 480 -- pressure rampack --backing /dev/vdd --backing-layout log --size 1G \
         --memory 40M -- 400 1 1 240",
    ),
    long(
        "a_700MB_program_in_512MB_with_a_backing_file",
        "--time 400 -- \
         pressure rampack --backing /data/back --size 1G --memory 60M -- 700 1 1 300",
    ),
    // Without memory in reserve no page fits: the kernel must kill the program.
    ended(
        "without_a_headroom_nothing_is_swapped",
        "--time 300 -- pressure rampack --size 1G --headroom 0 -- 700 1 1 120",
    ),
    // The program needs more than memory and swap space hold: the kernel kills it, and all others
    // go on.
    ended("more_than_there_is", "--time 400 -- pressure rampack --size 512M -- 1200 1 1 200"),
    // The swap device has room and the pool is full: the kernel does not see the full pool.
    ended(
        "more_than_the_pool_takes",
        "--time 400 -- pressure rampack --size 1G --memory 20% -- 700 1 1 200",
    ),
    ended(
        "more_than_there_is_with_a_backing_device",
        "--time 400 -- \
         pressure rampack --backing /dev/vdd --size 512M --memory 60M -- 1200 1 1 200",
    ),
    long(
        "meddling_under_pressure",
        "--time 600 -- pressure --meddle rampack --size 1G -- 700 1 2 300",
    ),
    Case {
        name: Cow::Borrowed("top_draws_while_memory_is_out"),
        long: true,
        words: Cow::Borrowed("--time 480 -- pressure --top rampack --size 1G -- 700 1 2 240"),
        status: 0,
        says: &["top drew", " rc=0"],
    },
    // The control of all other cases: a run that cannot go on must count as a hang.
    Case {
        name: Cow::Borrowed("a_stopped_daemon_is_a_hang"),
        long: false,
        words: Cow::Borrowed(
            "--time 240 --hang 20 -- pressure --stop rampack --size 1G -- 700 1 1 90",
        ),
        status: HANG,
        says: &["the daemon is stopped", "=== HOST HANG", "sysrq: Show Blocked State", "task:"],
    },
    Case {
        name: Cow::Borrowed("a_block_device_of_ublk"),
        long: false,
        words: Cow::Borrowed("--time 900 -- ublk"),
        status: 0,
        says: &["RESULT kind=ublk failures=0"],
    },
    short("servers_of_ublk_are_killed", "--time 300 -- ublk-kills 10"),
    long("servers_of_ublk_are_killed_often", "--time 900 -- ublk-kills 100"),
    Case {
        name: Cow::Borrowed("the_kernels_nbd_client_connects_again"),
        long: false,
        words: Cow::Borrowed("--time 600 -- nbd 6"),
        status: 0,
        says: &["6 daemons were killed", "RESULT kind=nbd", " rc=0"],
    },
    Case {
        name: Cow::Borrowed("a_kept_daemon_is_killed_under_pressure"),
        long: false,
        words: Cow::Borrowed(
            "--time 600 -- pressure --kills 4 rampack --size 1G -- 700 1 100 60 --random",
        ),
        status: 0,
        says: &["4 daemons were killed", "0 pages are lost", " rc=0"],
    },
    long(
        "a_kept_daemon_is_killed_often_under_pressure",
        "--time 1800 -- pressure --kills 100 rampack --size 1G -- 700 2 1000 600 --random",
    ),
    long(
        "a_kept_daemon_with_an_encrypted_device_is_killed_under_pressure",
        "--time 900 -- pressure --kills 8 \
         rampack --backing /dev/vdd --size 1G --memory 60M -- 700 1 100 45 --random",
    ),
    long(
        "a_kept_daemon_with_a_log_is_killed_under_pressure",
        "--time 900 -- pressure --kills 8 rampack --backing /dev/vdd --backing-layout log \
         --size 1G --memory 40M -- 400 1 100 45 --random",
    ),
    Case {
        name: Cow::Borrowed("a_disk_of_the_host_whose_daemon_is_killed"),
        long: true,
        words: Cow::Borrowed("--time 900 --served 7 -- vhost check"),
        status: 0,
        says: &["RESULT kind=vhost errors=0", "the daemon was killed"],
    },
    long("a_backing_device_goes_bad", "--memory 256M --time 900 -- backing-stress device"),
    long("a_backing_file_goes_bad", "--memory 256M --time 600 -- backing-stress file"),
    long("the_same_with_the_kernels_zram", "--time 240 -- pressure zram -- 700 1 1 60"),
    long("the_same_with_the_kernels_zswap", "--time 240 -- pressure zswap -- 700 1 1 60"),
    long(
        "three_passes_in_random_order",
        "--time 900 -- pressure rampack --size 1G -- 700 1 3 400 --random",
    ),
    long(
        "three_passes_in_random_order_with_a_backing_file",
        "--time 900 -- \
         pressure rampack --backing /data/back --size 1G --memory 60M -- 700 1 3 400 --random",
    ),
    long("zstd", "--time 600 -- pressure rampack --algorithm zstd --size 1G -- 700 1 2 300"),
    long("two_programs", "--time 900 -- pressure rampack --size 1G -- 700 2 3 400"),
    long("eight_programs", "--time 900 -- pressure rampack --size 1G -- 700 8 3 400 --random"),
    long("four_programs", "--time 900 -- pressure rampack --size 1G -- 800 4 2 300"),
    long(
        "twice_the_memory_with_a_backing_file",
        "--time 900 -- \
         pressure rampack --backing /data/back --size 2G --memory 60M -- 1000 2 2 400",
    ),
    long("new_processes_beside", "--time 900 -- pressure --forks rampack --size 1G -- 700 1 2 300"),
    long("files_beside", "--time 900 -- pressure --files rampack --size 1G -- 700 1 2 300"),
    long(
        "new_processes_and_files_beside_with_a_backing_file",
        "--time 900 -- pressure --forks --files \
         rampack --backing /data/back --size 1G --memory 60M -- 700 1 2 300",
    ),
    long(
        "ten_minutes_of_stress_ng",
        "--time 1500 -- pressure --stress 450 rampack --size 1G -- 200 1 100000 600 --random",
    ),
    long(
        "ten_minutes_of_stress_ng_with_a_backing_device",
        "--time 1500 -- pressure --stress 600 \
         rampack --backing /dev/vdd --size 1G --memory 60M -- 200 1 100000 600 --random",
    ),
    long(
        "an_hour_of_all",
        "--time 5400 --hang 120 -- pressure --forks --files --stress 300 --swappiness 100 \
         rampack --backing /dev/vdd --size 1500M -- 500 2 100000 3600 --random",
    ),
    long("without_mglru", "--time 900 -- pressure --mglru off rampack --size 1G -- 700 1 2 300"),
    long(
        "swappiness_200",
        "--time 900 -- pressure --swappiness 200 --files rampack --size 1G -- 700 1 2 300",
    ),
    long("one_cpu", "--cpus 1 --time 900 -- pressure rampack --size 1G -- 700 1 2 300"),
    long("four_cpus", "--cpus 4 --time 900 -- pressure rampack --size 1G -- 800 4 2 300"),
    long(
        "a_256MB_machine",
        "--memory 256M --time 900 -- pressure rampack --size 512M -- 350 1 2 300",
    ),
    long("a_1GB_machine", "--memory 1G --time 900 -- pressure rampack --size 2G -- 1400 2 2 400"),
    long(
        "the_generic_kernel",
        "--kernel generic --time 900 -- pressure rampack --size 1G -- 700 1 2 300",
    ),
    long(
        "the_kernels_zram_with_all_beside",
        "--time 900 -- pressure --forks --files zram -- 700 1 2 300 --random",
    ),
    long(
        "the_kernels_zswap_with_all_beside",
        "--time 900 -- pressure --forks --files zswap -- 700 1 2 300 --random",
    ),
    long(
        "the_disk_with_all_beside",
        "--time 900 -- pressure --forks --files disk -- 700 1 2 300 --random",
    ),
];

/// A machine and its swap settings. A program fits if it needs at most the memory plus the contents
/// of the pool, or 1.4 times the memory if a backing device exists.
struct Setting {
    memory: &'static str,
    compressor: &'static str,
    pool: &'static str,
    backing: bool,
    swappiness: &'static str,
    mglru: &'static str,
    order: &'static str,
    mib: u32,
    /// The swap space. Without a backing device it is at most twice the contents of the pool,
    /// because the kernel keeps the slots of pages it has read back until half of the space is
    /// used.
    size: &'static str,
}

#[rustfmt::skip]
const fn setting(
    (memory, compressor, pool): (&'static str, &'static str, &'static str),
    backing: bool,
    (swappiness, mglru, order): (&'static str, &'static str, &'static str),
    (mib, size): (u32, &'static str),
) -> Setting {
    Setting { memory, compressor, pool, backing, swappiness, mglru, order, mib, size }
}

/// Some row has every pair of values of any two columns.
const MATRIX: &[Setting] = &[
    setting(("512M", "lz4", "10%"), false, ("200", "on", ""), (700, "2G")),
    setting(("512M", "zstd", "10%"), true, ("100", "off", "--random"), (700, "2G")),
    setting(("512M", "lz4", "20%"), false, ("200", "off", ""), (700, "2G")),
    setting(("512M", "zstd", "50%"), false, ("60", "off", "--random"), (480, "512M")),
    setting(("1G", "lz4", "10%"), true, ("60", "on", ""), (1400, "2G")),
    setting(("1G", "lz4", "20%"), true, ("100", "on", "--random"), (1400, "2G")),
    setting(("1G", "zstd", "20%"), true, ("60", "off", ""), (1400, "2G")),
    setting(("1G", "lz4", "50%"), false, ("100", "off", ""), (1050, "2G")),
    setting(("1G", "zstd", "50%"), true, ("200", "on", "--random"), (1400, "2G")),
];

/// The matrix: each setting as a case.
fn matrix() -> Vec<Case> {
    let case = |it: &Setting| {
        let Setting { memory, compressor, pool, swappiness, mglru, order, mib, size, .. } = it;
        let (below, device) =
            if it.backing { ("_backed", "--backing /dev/vdd ") } else { ("", "") };
        let how = if order.is_empty() { "in_order" } else { "random" };
        let percent = pool.trim_end_matches('%');
        let name = format!(
            "matrix_{memory}_{compressor}_{percent}{below}_{swappiness}_mglru_{mglru}_{how}"
        );
        let words = format!(
            "--memory {memory} --time 900 -- pressure --swappiness {swappiness} --mglru {mglru} \
             rampack {device}--size {size} --algorithm {compressor} --memory {pool} \
             -- {mib} 1 1 500 {order}"
        );
        // The program needs more than a small pool takes without a backing device.
        let expected = match (it.backing, *pool) {
            (false, "10%" | "20%") => ended("", ""),
            _ => long("", ""),
        };
        Case { name: name.into(), words: words.into(), ..expected }
    };
    MATRIX.iter().map(case).collect()
}

/// Runs some of the short cases, as `seed` has it, or `all`; prints each result as a test program
/// does. The second value has a line for each skipped case.
pub fn run(root: &Path, target: &Path, all: bool, seed: &str) -> Result<(Count, Vec<String>)> {
    let matrix = matrix();
    let cases: Vec<&Case> = match all {
        true => CASES.iter().chain(&matrix).collect(),
        false => {
            let short = || CASES.iter().filter(|case| !case.long);
            let first = seed.bytes().map(usize::from).sum::<usize>() % short().count();
            short().cycle().skip(first).take(ORDINARY).collect()
        }
    };
    let skipped = |reason: &str| {
        let line = |case: &&Case| format!("guest::{}: needs {reason}", case.name);
        Ok((Count::default(), cases.iter().map(line).collect()))
    };
    if let Some(missing) = tools::missing() {
        return skipped(&missing);
    }
    let guest = Guest::new(root, target, Build::of_cases(all))?;
    if let Err(error) = guest.kernel(&Flavour::Cloud) {
        let reason = error.to_string();
        return skipped(&format!("a kernel: {}", reason.lines().next().unwrap_or_default()));
    }
    let mut count = Count::default();
    println!("running {} tests in a guest", cases.len());
    for case in cases {
        if one(&guest, case)? {
            println!("test guest::{} ... ok", case.name);
            count.passed += 1;
        } else {
            println!("test guest::{} ... FAILED", case.name);
            count.failed += 1;
            count.failures.push(format!("guest::{}", case.name));
        }
    }
    Ok((count, Vec::new()))
}

/// Runs one case. Shows its output if it failed, otherwise its result.
fn one(guest: &Guest, case: &Case) -> Result<bool> {
    println!("$ cargo xtask guest {}", case.words);
    let options = Options::parse(case.words.split_whitespace())?;
    let mut said = Vec::new();
    let mut status = guest.run(&options, &mut said)?;
    if status == DIED && fault_of_the_emulator(&String::from_utf8_lossy(&said)) {
        println!("guest::{}: the emulator ended the machine; once more", case.name);
        said.clear();
        status = guest.run(&options, &mut said)?;
    }
    let said = String::from_utf8_lossy(&said);
    let good = status == case.status && case.says.iter().all(|text| said.contains(text));
    if good {
        for line in
            said.lines().filter(|it| it.starts_with("RESULT ") || it.starts_with("=== HOST"))
        {
            println!("{line}");
        }
    } else {
        io::stdout().write_all(said.as_bytes())?;
        println!(
            "\nguest::{}: status {status}; wanted {} and {:?}",
            case.name, case.status, case.says
        );
    }
    Ok(good)
}

/// Whether it was the emulator that ended a machine, which is no result of the case: a kernel may
/// crash during its start, or where it changes its own code: it puts a breakpoint (int3) there
/// first, and an emulated CPU may still run that when the kernel no longer knows of it.
fn fault_of_the_emulator(said: &str) -> bool {
    !said.contains(BEGUN) || said.contains("Oops: int3:")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CASES, Case, MATRIX, Options, fault_of_the_emulator, matrix};

    #[test]
    fn crashes_of_the_emulator_are_told_from_those_of_a_case() {
        assert!(fault_of_the_emulator("[    0.1] Kernel panic"));
        let begun = "=== GUEST Linux 6.12\n[    4.1] Oops: ";
        assert!(fault_of_the_emulator(&format!("{begun}int3: 0000 [#1] PREEMPT SMP NOPTI")));
        assert!(!fault_of_the_emulator(&format!("{begun}general protection fault")));
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_command() {
        let matrix = matrix();
        let all: Vec<&Case> = CASES.iter().chain(&matrix).collect();
        let names: BTreeSet<&str> = all.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), all.len());
        for case in all {
            let options = Options::parse(case.words.split_whitespace()).expect(&case.name);
            assert!(!options.time.is_zero() && !options.hang.is_zero(), "{}", case.name);
        }
    }

    #[test]
    fn the_matrix_has_every_pair() {
        let columns = |it: &super::Setting| {
            let backing = if it.backing { "backed" } else { "" };
            [it.memory, it.compressor, it.pool, backing, it.swappiness, it.mglru, it.order]
        };
        let rows: Vec<[&str; 7]> = MATRIX.iter().map(columns).collect();
        let values = |column: usize| rows.iter().map(|row| row[column]).collect::<BTreeSet<_>>();
        for first in 0..7 {
            for second in first + 1..7 {
                for one in values(first) {
                    for other in values(second) {
                        assert!(
                            rows.iter().any(|row| row[first] == one && row[second] == other),
                            "no row has both {one:?} and {other:?}"
                        );
                    }
                }
            }
        }
    }
}
