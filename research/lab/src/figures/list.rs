//! The list of all measurements.

use std::fs;
use std::path::Path;

use super::tables::*;
use crate::programs;

/// Programs whose dumps the measurements store and load.
pub const DUMPED: [&str; 4] = ["python", "java", "node", "redis"];
/// The content whose pages are half noise: no program's pages.
const HALF: &str = "half";

/// A measurement.
pub struct Measurement {
    /// Its name on the command line and in files.
    pub name: &'static str,
    /// The heading over its tables.
    pub title: &'static str,
    /// Its approximate time at full size, in seconds.
    pub seconds: u32,
    /// Whether it runs only when the command line names it.
    pub long: bool,
    /// Whether it needs dumps of programs.
    pub dumps: bool,
    /// What it needs of the machine.
    pub needs: &'static [Need],
    /// Its runs of this program: a label and the arguments, without `--json`.
    pub runs: fn(&Sizes) -> Vec<(String, String)>,
    /// The tables of the results.
    pub tables: &'static [Table],
}

/// A measurement that needs nothing special.
const fn measurement(
    name: &'static str,
    title: &'static str,
    seconds: u32,
    runs: fn(&Sizes) -> Vec<(String, String)>,
    tables: &'static [Table],
) -> Measurement {
    Measurement { name, title, seconds, long: false, dumps: false, needs: &[], runs, tables }
}

/// A need that a machine may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Root.
    Root,
    /// The kernel's zram at /dev/zram0, and root to set it up.
    Zram,
    /// A program.
    Program(&'static str),
}

impl Need {
    /// Whether this machine meets the need.
    pub fn met(&self) -> bool {
        match self {
            Need::Root => host::effective_user() == 0,
            Need::Zram => Need::Root.met() && Path::new("/dev/zram0").exists(),
            Need::Program(name) => programs::find(name).is_some(),
        }
    }

    /// The name of the need.
    pub fn name(&self) -> String {
        match self {
            Need::Root => "right of root".to_owned(),
            Need::Zram => "/dev/zram0".to_owned(),
            Need::Program(name) => format!("program {name}"),
        }
    }
}

/// The size of the measurements, and what takes part.
pub struct Sizes {
    /// Whether sizes are small.
    pub quick: bool,
    /// The programs that have a dump.
    dumped: Vec<&'static str>,
    /// Whether the kernel's zram takes part.
    zram: bool,
}

impl Sizes {
    /// The sizes of a run with the dumps in this directory.
    pub fn new(quick: bool, dumps: &Path, zram: bool) -> Sizes {
        let is_there =
            |name: &&str| fs::exists(dumps.join(format!("{name}.pages"))).unwrap_or(false);
        let dumped = DUMPED.into_iter().filter(is_there).collect();
        Sizes { quick, dumped, zram }
    }

    /// The first for full size, the second for a quick run.
    fn either<'a>(&self, full: &'a str, quick: &'a str) -> &'a str {
        if self.quick { quick } else { full }
    }

    /// The option, if the kernel's zram takes part; else nothing.
    fn kernel<'a>(&self, option: &'a str) -> &'a str {
        if self.zram { option } else { "" }
    }

    /// The first existing dump, as an example of pages of programs.
    fn typical(&self) -> Option<String> {
        self.dumped.first().map(|name| file(name))
    }
}

fn file(name: &str) -> String {
    format!("dumps/{name}.pages")
}

fn one(label: &str, line: String) -> Vec<(String, String)> {
    vec![(label.to_owned(), line)]
}

/// All measurements, in the order of runs and tables.
pub const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        dumps: true,
        ..measurement("pages", "Pages of programs, stored and loaded", 330, pages, PAGES)
    },
    Measurement { dumps: true, ..measurement("codecs", "Codecs", 60, codecs, CODECS) },
    Measurement {
        dumps: true,
        ..measurement("locks", "Slot schemes: the experiment of 2014", 300, locks, TURNS)
    },
    Measurement {
        dumps: true,
        ..measurement("locks-sim", "Slot schemes on more CPUs, simulated", 240, locks_sim, SLOTS)
    },
    Measurement {
        dumps: true,
        ..measurement("streams", "Streams: the other experiment of 2014", 120, streams, TURNS)
    },
    Measurement {
        needs: &[Need::Program("fio"), Need::Program("nbdkit")],
        ..measurement("nbd", "NBD", 80, nbd, NBD)
    },
    measurement("backing", "Reading and writing a backing file", 45, backing, BACKING),
    measurement("index", "Indexes of swap", 75, index, INDEX),
    measurement("zone", "Page allocators", 150, zone, ZONE),
    measurement("zone-sim", "Page allocators on more CPUs, simulated", 120, zone_sim, ZONE_SIM),
    measurement("churn", "A pool that is churned", 15, churn, CHURN),
    Measurement {
        long: true,
        needs: &[Need::Root],
        ..measurement(
            "kernel-build",
            "A kernel built with too little memory",
            2700,
            kernel_build,
            KERNEL_BUILD,
        )
    },
];

fn locks_sim(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes
        .either("--operations 10000", "--repeat 3 --milliseconds 3 --operations 300 --threads 4");
    let line = |dump| one("", format!("locks-sim --corpus {dump} {size}"));
    sizes.typical().map_or(Vec::new(), line)
}

fn nbd(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either(
        "--size 256M --milliseconds 3000 --repeat 3",
        "--size 8M --milliseconds 100 --repeat 2",
    );
    one("", format!("nbd {size}"))
}

fn backing(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("", "--size 4M --milliseconds 10 --repeat 2");
    one("", format!("backing {size}"))
}

fn index(sizes: &Sizes) -> Vec<(String, String)> {
    let alone =
        sizes.either("--repeat 5 --milliseconds 1000", "--repeat 2 --milliseconds 10 --pages 4096");
    let whole = sizes.either(
        "--repeat 5 --milliseconds 600 --pages 65536",
        "--repeat 2 --milliseconds 10 --pages 2048",
    );
    vec![
        ("alone".to_owned(), format!("index {alone}")),
        ("whole".to_owned(), format!("index --whole {whole}")),
    ]
}

fn zone(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("--repeat 5", "--repeat 2 --cycles 1 --frames 8192");
    let workloads = "bulk,repeat,cross-free,page-fault1";
    one("", format!("zone --workload {workloads} {size}"))
}

fn zone_sim(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either(
        "--threads 2,16,112",
        "--frames 8192 --repeat 1 --pages 256 --cycles 1 --threads 2,112",
    );
    one("", format!("zone-sim {size}"))
}

fn churn(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("--size 128M --rounds 10", "--size 8M --rounds 2");
    one("", format!("churn {size}"))
}

fn kernel_build(sizes: &Sizes) -> Vec<(String, String)> {
    let swap = "file,kernel-zswap:lzo,rampack:lz4,kernel-zram:lz4";
    let repeat = sizes.either("3", "1");
    let size = format!("--jobs 8 --limit 256M --timeout 300 --repeat {repeat}");
    one("", format!("kernel-build --swap {swap} {size}"))
}

/// One thread and two on each content. Each run contains the engine and the kernel.
fn pages(sizes: &Sizes) -> Vec<(String, String)> {
    let mut runs = Vec::new();
    let repeat = sizes.either("9", "1");
    let kernel = sizes.kernel("--compare /dev/zram0 --setup-kernel-zram lz4");
    for name in sizes.dumped.iter().copied().chain([HALF]) {
        for threads in [1, 2] {
            let with = format!("--threads {threads} --repeat {repeat} --compare engine:epoch");
            let line = format!("pages --corpus {} {with} {kernel}", file(name));
            runs.push((name.to_owned(), line));
        }
        let line = format!("pages --churn --corpus {} --repeat {repeat}", file(name));
        runs.push((format!("{name}, churned"), line));
    }
    runs
}

fn codecs(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("--pages 3000 --repeat 5", "--pages 200 --repeat 2");
    let line = |name: &&str| format!("codecs --corpus {} {size}", file(name));
    sizes.dumped.iter().map(|name| ((*name).to_owned(), line(name))).collect()
}

fn locks(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("--size 48M --repeat 5", "--size 320K --repeat 2");
    let few = sizes.either("--operations 200000 --repeat 5", "--operations 4096 --repeat 2");
    let kernel = sizes.kernel("--kernel");
    let mut contents = vec![("iozone's pages".to_owned(), "--content iozone".to_owned())];
    if let Some(dump) = sizes.typical() {
        contents.push(("pages of a program".to_owned(), format!("--content {dump} --shuffle")));
    }
    contents.push(("half-compressible pages".to_owned(), "--content half".to_owned()));
    contents.push(("same-filled pages".to_owned(), "--content filled".to_owned()));
    let mut runs: Vec<(String, String)> = contents
        .into_iter()
        .map(|(label, content)| (label, format!("locks --threads 1,2 {content} {size} {kernel}")))
        .collect();
    let eight = format!("locks --threads 1,2 --workload eight --content filled {few} {kernel}");
    runs.push(("eight slots, same-filled".to_owned(), eight));
    runs
}

fn streams(sizes: &Sizes) -> Vec<(String, String)> {
    let size = sizes.either("--size 32M --repeat 5", "--size 320K --repeat 2");
    let kernel = sizes.kernel("--kernel");
    let mut runs = one("iozone's pages", format!("streams {size} {kernel}"));
    if let Some(dump) = sizes.typical() {
        let line = format!("streams --content {dump} --shuffle {size} {kernel}");
        runs.push(("pages of a program".to_owned(), line));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn every_line_is_one_that_this_program_takes() {
        for quick in [false, true] {
            for zram in [false, true] {
                let sizes = Sizes { quick, dumped: DUMPED.to_vec(), zram };
                for measurement in MEASUREMENTS {
                    let runs = (measurement.runs)(&sizes);
                    assert!(!runs.is_empty(), "{}", measurement.name);
                    for (_, line) in runs {
                        let line = format!("rampack-lab {line} --json");
                        let words = line.split_ascii_whitespace();
                        let parsed = crate::args::Arguments::try_parse_from(words);
                        assert!(parsed.is_ok(), "{line}: {}", parsed.err().expect("an error"));
                    }
                }
            }
        }
    }

    #[test]
    fn all_together_take_less_than_35_minutes() {
        let short = MEASUREMENTS.iter().filter(|measurement| !measurement.long);
        assert!(short.map(|measurement| measurement.seconds).sum::<u32>() < 35 * 60);
        let mut names: Vec<&str> = MEASUREMENTS.iter().map(|m| m.name).collect();
        names.dedup();
        assert_eq!(names.len(), MEASUREMENTS.len());
    }
}
