//! `cargo xtask test`: runs every test, lists the skipped ones, and prints a last line of totals.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;

use crate::cargo::{cargo, printed, workspace_of};
use crate::checkers;
use crate::count::{Count, Suites};
use crate::dist;
use crate::guest;
use crate::mutants;
use crate::python;
use crate::seed;

/// The choice of tests, and the mode of the run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// A skipped test counts as failed.
    pub strict: bool,
    /// Also runs all tests in a guest, all mutants, a thousand kills, and the soak.
    pub long: bool,
    /// Runs only the tests in a guest.
    pub guest: bool,
}

/// The number of daemons that each test of the users of `rampack keep` kills in a long run.
const KILLS: &str = "200";

/// Set in a long run. Tests read it whose tools take minutes to build.
const LONG: &str = "RAMPACK_LONG";

/// The program of somebody else.
const OUTSIDE: &str = "testing/outside/Cargo.toml";

/// The exit code of a check that lacks a program.
const LACKS: i32 = 77;

/// The number of test programs whose times are shown at the end.
const SLOWEST: usize = 10;

/// Builds and runs the tests of the checkout at `root`. True if none failed and, in strict mode,
/// none was skipped.
pub fn run(root: &Path, Extent { strict, long, guest }: Extent) -> Result<bool> {
    let begun = Instant::now();
    let target = target_directory(root);
    fs::create_dir_all(&target)?;
    let skips_file = target.join(format!("rampack-skips-{}", process::id()));
    fs::write(&skips_file, "")?;

    let seed = seed::draw()?;
    println!("{}={seed}", seed::VARIABLE);
    let mut runs =
        Runs { skips_file, strict, long, seed, count: Count::default(), ..Runs::default() };

    if !guest {
        runs.workspace(root, &target, long)?;
    }
    let guests = in_guests(root, &target, long, &runs.seed);
    if !guest {
        runs.others(root, &target, long)?;
    }
    runs.guests(guests)?;
    if long && !guest {
        runs.dist(root, &target)?;
        runs.python(root, &target)?;
        let mut kills = cargo(root);
        kills.args(["test", "--package", "rampack-cli", "--test", "it", "keep_users"]);
        runs.add(kills.env("RAMPACK_KILLS", KILLS))?;
        runs.soak(root)?;
    }

    let Runs { skips_file, count, broken, again, times, suites, .. } = runs;
    let text = fs::read_to_string(&skips_file)?;
    let _ = fs::remove_file(&skips_file);
    let skips: BTreeSet<&str> = text.lines().collect();
    println!();
    for (what, time) in times {
        println!("{:>6.0} s  {what}", time.as_secs_f64());
    }
    let all = begun.elapsed().as_secs_f64();
    println!("{all:>6.0} s  in all, and {:.0} s of CPU", cpu_of_children());
    if !again.is_empty() {
        println!("\nThe tests that failed, each once more with the same random events:");
    }
    for line in again {
        println!("{line}");
    }
    println!("\nthe slowest test programs, without building them:");
    for (name, seconds) in suites.slowest(SLOWEST) {
        println!("{seconds:>6.0} s  {name}");
    }
    Ok(report(count, &broken, &skips, strict))
}

/// What came of the cases in a guest, and their time.
type Guests = JoinHandle<(Result<(Count, Vec<String>)>, Duration)>;

/// Runs the cases in a guest on a thread: a guest keeps one CPU busy, and many tests wait for
/// something else than a CPU.
fn in_guests(root: &Path, target: &Path, long: bool, seed: &str) -> Guests {
    let (root, target, seed) = (root.to_owned(), target.to_owned(), seed.to_owned());
    thread::spawn(move || {
        let begun = Instant::now();
        (guest::cases::run(&root, &target, long, &seed), begun.elapsed())
    })
}

/// What is built for the runs after the first one.
fn later_builds(root: &Path, target: &Path, long: bool) -> Result<Vec<Command>> {
    let mut builds = checkers::models(root, target, long)?;
    builds.extend(checkers::sanitized(root, target, long)?.into_iter().flatten());
    // It is built where the first run is, which has looked at its files by then.
    let mut research = cargo(root);
    research.arg("test").args(workspace_of("research")).arg("--workspace");
    builds.push(research);
    builds.iter_mut().for_each(|build| _ = build.arg("--no-run"));
    builds.push(guest::Build::of_cases(long).command(root));
    Ok(builds)
}

/// Runs builds on a thread, with the lowest priority: many tests wait for other processes, and the
/// CPUs are idle meanwhile.
fn build_ahead(builds: Vec<Command>) -> JoinHandle<()> {
    thread::spawn(move || {
        for build in builds {
            let mut niced = Command::new("nice");
            niced.args(["-n", "19"]).arg(build.get_program()).args(build.get_args());
            niced.envs(build.get_envs().filter_map(|(name, value)| Some((name, value?))));
            niced.current_dir(build.get_current_dir().unwrap_or(Path::new(".")));
            let quiet = niced.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = quiet.status();
        }
    })
}

/// Prints the end of the run. True if the run counts as a success.
fn report(count: Count, broken: &[String], skips: &BTreeSet<&str>, strict: bool) -> bool {
    println!();
    for skip in skips {
        println!("{skip}");
    }
    for name in &count.failures {
        println!("FAILED {name}");
    }
    for what in broken {
        println!("FAILED {what}");
    }
    if count.ignored > 0 {
        println!("{} tests are marked #[ignore] and did not run", count.ignored);
    }
    // A skipped test returns early, and its test program counts it as passed.
    let skipped = skips.len() as u64;
    let passed = count.passed.saturating_sub(skipped);
    let failed = count.failed + broken.len() as u64;
    let skipped = skipped + count.ignored;
    if strict && skipped > 0 {
        println!("--strict allows no skips");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    failed == 0 && !(strict && skipped > 0)
}

/// The runs so far.
#[derive(Default)]
struct Runs {
    /// Each skipped test adds a line to this file.
    skips_file: PathBuf,
    strict: bool,
    long: bool,
    /// The seed of the random events of all runs.
    seed: String,
    count: Count,
    /// Runs that failed without a failed test.
    broken: Vec<String>,
    /// The command lines that run each failed test again.
    again: Vec<String>,
    /// The time of each run, including its build.
    times: Vec<(String, Duration)>,
    suites: Suites,
}

impl Runs {
    /// The product's own tests. What others need is built beside them.
    fn workspace(&mut self, root: &Path, target: &Path, long: bool) -> Result<()> {
        let workspace = || {
            let mut workspace = cargo(root);
            workspace.args(["test", "--workspace", "--no-fail-fast"]);
            workspace
        };
        // A failure of this build, and of those ahead, is told where their tests run.
        let _ = workspace().arg("--no-run").stdin(Stdio::null()).status();
        let ahead = build_ahead(later_builds(root, target, long)?);
        let mut tests = workspace();
        // Those of the program wait for other processes most of the time.
        if env::var_os(seed::THREADS).is_none() {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            tests.env(seed::THREADS, (2 * cpus).to_string());
        }
        self.add(&mut tests)?;
        let _ = ahead.join();
        Ok(())
    }

    /// Research, benchmarks, models, the sanitizer and mutants.
    fn others(&mut self, root: &Path, target: &Path, long: bool) -> Result<()> {
        let mut research = cargo(root);
        research.arg("test").args(workspace_of("research"));
        self.add(research.args(["--workspace", "--no-fail-fast"]))?;
        // What a program has that takes the library alone: without a C compiler, then served.
        let mut outside = cargo(root);
        outside.args(["test", "--manifest-path", OUTSIDE, "--no-fail-fast"]).env("CC", "false");
        self.add(&mut outside)?;
        let mut served = cargo(root);
        served.args(["test", "--manifest-path", OUTSIDE, "--features", "serve"]);
        self.add(served.args(["--bin", "serve_nbd"]))?;
        let mut codecs = cargo(root);
        codecs.args(["test", "--package", "rampack-zcomp", "--lib", "--no-default-features"]);
        self.add(codecs.args(["--features", "lz4-rust", "lz4_rust"]))?;
        // Runs each benchmark once. Each must build and run.
        let mut benchmarks = cargo(root);
        benchmarks.args(["test", "--workspace", "--no-fail-fast", "--bench", "*"]);
        self.add(&mut benchmarks)?;
        for mut checker in checkers::models(root, target, long)? {
            self.add(&mut checker)?;
        }
        match checkers::sanitized(root, target, long)? {
            Ok(suites) => {
                for mut suite in suites {
                    self.add(&mut suite)?;
                }
            }
            Err(reason) => self.skip(&reason)?,
        }
        self.mutants(root, target, long);
        Ok(())
    }

    /// Waits for the cases in a guest.
    fn guests(&mut self, guests: Guests) -> Result<()> {
        let Ok((result, time)) = guests.join() else {
            self.broken.push("the tests in a guest panicked".to_string());
            return Ok(());
        };
        match result {
            Ok((own, skipped)) => {
                self.count.add(own);
                for reason in skipped {
                    self.skip(&reason)?;
                }
            }
            Err(error) => self.broken.push(format!("the tests in a guest: {error:#}")),
        }
        self.times.push(("the cases in a guest".to_string(), time));
        Ok(())
    }

    /// Runs one `cargo test`; shows and counts its output. If a run fails without a failed test,
    /// the build failed or a test program died. Such a run counts as one more failure.
    fn add(&mut self, command: &mut Command) -> Result<()> {
        command.env("RAMPACK_SKIPS", &self.skips_file).env("RAMPACK_THOROUGH", "1");
        command.env(seed::VARIABLE, &self.seed);
        if self.strict {
            command.env("RAMPACK_STRICT", "1");
        } else {
            command.env_remove("RAMPACK_STRICT");
        }
        if self.long {
            command.env(LONG, "1");
        }
        let words: Vec<String> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let shown = format!("cargo {}", words.join(" "));
        println!("$ {shown}");
        let begun = Instant::now();
        let mut own = Count::default();
        let (status, left) = printed(command, |line| {
            own.line(line);
            self.suites.line(line);
            Ok(writeln!(io::stdout(), "{line}")?)
        })?;
        if !left.is_empty() {
            let left = left.join(", ");
            self.broken.push(format!("{shown}: what a test started is still there: {left}"));
        }
        if !status.success() && own.failed == 0 {
            self.broken.push(format!("{shown}: {status}, though no test says it failed"));
        }
        self.again.extend(own.failures.iter().map(|name| seed::again(command, name)));
        self.count.add(own);
        self.times.push((shown, begun.elapsed()));
        Ok(())
    }

    /// Tries the mutants of the last change, or all. Each counts as a test of its suite.
    fn mutants(&mut self, root: &Path, target: &Path, all: bool) {
        let begun = Instant::now();
        match mutants::of_change(root, target, all, &self.seed) {
            Ok(outcomes) => {
                let complaints: Vec<String> =
                    outcomes.iter().filter_map(mutants::Outcome::complaint).collect();
                self.count.passed += (outcomes.len() - complaints.len()) as u64;
                self.broken.extend(complaints);
            }
            Err(error) => self.broken.push(format!("the mutants: {error:#}")),
        }
        self.times.push(("the mutants".to_string(), begun.elapsed()));
    }

    /// Builds the program and the library that are given to users, and tries the program as a user
    /// without rights. Each counts as a test.
    fn dist(&mut self, root: &Path, target: &Path) -> Result<()> {
        match dist::run(root, target, &["--library"]) {
            Ok(_) => self.count.passed += 1,
            Err(error) => self.broken.push(format!("cargo xtask dist --library: {error:#}")),
        }
        if let Err(error) = dist::run(root, target, &[]) {
            self.broken.push(format!("cargo xtask dist: {error:#}"));
            return Ok(());
        }
        self.count.passed += 1;
        let script = root.join("dist/check-unprivileged");
        let status = Command::new(&script).arg(target.join("dist/rampack")).status();
        match status.with_context(|| script.display().to_string())?.code() {
            Some(0) => self.count.passed += 1,
            Some(LACKS) => self.skip("dist/check-unprivileged: it has said what it needs")?,
            _ => self.broken.push(script.display().to_string()),
        }
        Ok(())
    }

    /// Tests the wheel for Python. It counts as a test.
    fn python(&mut self, root: &Path, target: &Path) -> Result<()> {
        if let Some(missing) = python::missing() {
            return self.skip(&format!("the wheel for Python: needs {missing}"));
        }
        let begun = Instant::now();
        match python::run(root, target) {
            Ok(true) => self.count.passed += 1,
            Ok(false) => self.broken.push("cargo xtask python".to_string()),
            Err(error) => self.broken.push(format!("cargo xtask python: {error:#}")),
        }
        self.times.push(("the wheel for Python".to_string(), begun.elapsed()));
        Ok(())
    }

    /// Runs the soak. It counts as a test.
    fn soak(&mut self, root: &Path) -> Result<()> {
        let words = ["run", "--release", "--package", "rampack-soak", "--", "run"];
        let shown = format!("cargo {}", words.join(" "));
        println!("$ {shown}");
        let begun = Instant::now();
        let status = cargo(root).args(words).stdin(Stdio::null()).status();
        match status.with_context(|| shown.clone())?.success() {
            true => self.count.passed += 1,
            false => self.broken.push(shown.clone()),
        }
        self.times.push((shown, begun.elapsed()));
        Ok(())
    }

    /// Adds a line to the file of skipped tests. A skipped test itself reports that it passed.
    fn skip(&mut self, reason: &str) -> Result<()> {
        let path = &self.skips_file;
        let mut file = fs::OpenOptions::new().append(true).open(path)?;
        writeln!(file, "SKIPPED {reason}")?;
        self.count.passed += 1;
        Ok(())
    }
}

/// Seconds of CPU of all children that have ended, and of theirs.
fn cpu_of_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, in brackets, stand fields 3 to 52; 16 and 17 are these times (proc(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let times = fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    times.sum::<f64>() / 100.0
}

/// The target directory of cargo.
pub fn target_directory(root: &Path) -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root.join(directory),
        None => root.join("target"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::report;
    use crate::count::Count;

    #[test]
    fn strictness_and_failures_decide() {
        let count = || Count { passed: 3, ..Count::default() };
        let none = BTreeSet::new();
        let skips = BTreeSet::from(["SKIPPED a: needs fio (package fio)"]);
        assert!(report(count(), &[], &none, true));
        assert!(report(count(), &[], &skips, false));
        assert!(!report(count(), &[], &skips, true));
        assert!(!report(count(), &["cargo test: killed".to_string()], &none, false));
        assert!(!report(Count { failed: 1, ..count() }, &[], &none, false));
        assert!(!report(Count { ignored: 1, ..count() }, &[], &none, true));
    }
}
