//! `hog`: fills memory with pages. In every pass it checks each page and gives it new contents. It
//! counts a page that swap cannot read back as lost.
//!
//! ```text
//! hog [--mib N] [--passes N] [--seconds N] [--seed N] [--name NAME] [--fill-rate MIB] [--random]
//!     [--progress SECONDS] [--refill] [--wait FILE] [--until FILE]
//! ```
//!
//! With `--refill` a lost page gets contents again and may be lost again; otherwise the program
//! touches it no more. The passes begin once the file of `--wait` is there, and end when the one of
//! `--until` is there.
//!
//! The exit status is 0 if all pages were right, 3 if one was wrong, 4 if one was lost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use guestkit::lossy::{Lossy, lost};
use guestkit::options::Options;
use guestkit::order::Order;
use guestkit::pattern::{Page, WORDS, fill};
use guestkit::process::stay;

/// The seconds between two lines of progress, if the command line does not say.
const PROGRESS: f64 = 10.0;
/// The time between two looks for a file, and the pages between two such looks.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_PAGES: usize = 256;
/// The time limit of the last check.
const LAST_CHECK: Duration = Duration::from_secs(90);

/// The task from the command line.
struct Task {
    mib: usize,
    passes: u64,
    limit: Duration,
    seed: u64,
    name: String,
    /// The most MiB to fill in a second; 0 for no limit.
    fill_rate: f64,
    scattered: bool,
    progress: Duration,
    refill: bool,
    wait: Option<PathBuf>,
    until: Option<PathBuf>,
}

/// A path after an option; an empty text is none.
fn file(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

impl Task {
    fn parse(words: impl IntoIterator<Item = String>) -> Result<Task, String> {
        let mut options = Options::new(words);
        let task = Task {
            mib: options.value("--mib", 64)?,
            passes: options.value("--passes", 3)?,
            limit: Duration::from_secs(options.value("--seconds", 300)?),
            seed: options.value("--seed", 1)?,
            name: options.value("--name", "hog".to_string())?,
            fill_rate: options.value("--fill-rate", 0.0)?,
            scattered: options.flag("--random"),
            progress: Duration::from_secs_f64(options.value("--progress", PROGRESS)?.max(0.1)),
            refill: options.flag("--refill"),
            wait: file(options.value("--wait", String::new())?),
            until: file(options.value("--until", String::new())?),
        };
        options.done()?;
        Ok(task)
    }
}

/// A run.
struct Hog {
    task: Task,
    memory: Lossy,
    order: Order,
    begun: Instant,
    said: Instant,
    /// Lost pages. Their contents are unknown.
    gone: Vec<bool>,
    good: u64,
    wrong: u64,
}

impl Hog {
    fn new(task: Task) -> Result<Hog, String> {
        let pages = task.mib << 20 >> 12;
        let gone = vec![false; pages];
        // Only pages that are counted can be lost. Without the permission the program works, too.
        let _ = stay();
        let memory = Lossy::new(pages).map_err(|error| format!("{} MiB: {error}", task.mib))?;
        let order = Order::new(pages, task.scattered);
        let now = Instant::now();
        Ok(Hog { task, memory, order, begun: now, said: now, gone, good: 0, wrong: 0 })
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        println!("{}: t={:.1} {what}", self.task.name, self.begun.elapsed().as_secs_f64());
    }

    /// Prints the progress, unless it did so a short time ago.
    fn progress(&mut self, what: &str, pass: u64, done: usize) {
        if self.said.elapsed() < self.task.progress {
            return;
        }
        self.said = Instant::now();
        let (pages, good, wrong) = (self.memory.pages(), self.good, self.wrong);
        let lost = lost();
        self.say(format_args!(
            "{what} {pass}: {done} of {pages} ok={good} wrong={wrong} lost={lost}"
        ));
    }

    fn lose(&mut self, number: usize) {
        self.gone[number] = !self.task.refill;
        if lost() <= 3 {
            self.say(format_args!("page {number} is LOST"));
        }
    }

    fn fill(&mut self) {
        let mut page = [0; WORDS];
        for (done, number) in self.order.pass().enumerate() {
            fill(&mut page, self.task.seed, number as u64, 0);
            while !self.memory.write(number, &page) {
                self.lose(number);
                if !self.task.refill {
                    break;
                }
            }
            if self.task.fill_rate > 0.0 && done % 64 == 0 {
                let due = Duration::from_secs_f64(done as f64 / 256.0 / self.task.fill_rate);
                thread::sleep(due.saturating_sub(self.begun.elapsed()));
            }
            self.progress("filling", 0, done);
        }
        self.say(format_args!("filled {} MiB", self.task.mib));
    }

    /// Compares a page with its contents after each of `passes`.
    fn check(&mut self, number: usize, passes: &[u64], found: &mut Page, wanted: &mut Page) {
        if !self.memory.read(number, found) {
            return self.lose(number);
        }
        for pass in passes {
            fill(wanted, self.task.seed, number as u64, *pass);
            if found == wanted {
                self.good += 1;
                return;
            }
        }
        self.wrong += 1;
        if self.wrong <= 3 {
            let (first, second) = (found[0], found[1]);
            self.say(format_args!("page {number} is WRONG: it begins {first:x} {second:x}"));
        }
    }

    /// Checks every page and writes the contents of `pass` to it. False if the time is up.
    fn pass(&mut self, pass: u64) -> bool {
        let (mut found, mut wanted) = ([0; WORDS], [0; WORDS]);
        let begun = Instant::now();
        let mut worst = Duration::ZERO;
        let mut in_time = true;
        for (done, number) in self.order.pass().enumerate() {
            let before = Instant::now();
            if !self.gone[number] {
                self.check(number, &[pass - 1], &mut found, &mut wanted);
            }
            if !self.gone[number] {
                fill(&mut wanted, self.task.seed, number as u64, pass);
                // A page may be lost between its check and its end: it is written whole then.
                while !self.memory.write(number, &wanted) {
                    self.lose(number);
                    if !self.task.refill {
                        break;
                    }
                }
            }
            worst = worst.max(before.elapsed());
            self.progress("pass", pass, done);
            if self.is_over(done) {
                in_time = false;
                break;
            }
        }
        let (good, wrong, lost) = (self.good, self.wrong, lost());
        self.say(format_args!(
            "pass {pass} {} in {:.1} s: ok={good} wrong={wrong} lost={lost} worst access {:.2} s",
            if in_time { "done" } else { "broken off" },
            begun.elapsed().as_secs_f64(),
            worst.as_secs_f64()
        ));
        in_time
    }

    /// Is the time up, or is the file of `--until` there?
    fn is_over(&self, done: usize) -> bool {
        let is_there = || self.task.until.as_ref().is_some_and(|file| file.exists());
        self.begun.elapsed() > self.task.limit || (done.is_multiple_of(LOOK_PAGES) && is_there())
    }

    /// Checks every page after an interrupted pass: a page is of this pass or of the previous one.
    fn last_check(&mut self, pass: u64) {
        let (mut found, mut wanted) = ([0; WORDS], [0; WORDS]);
        let begun = Instant::now();
        for number in 0..self.memory.pages() {
            if !self.gone[number] {
                self.check(number, &[pass, pass - 1], &mut found, &mut wanted);
            }
            self.progress("last check", pass, number);
            if begun.elapsed() > LAST_CHECK {
                self.say(format_args!("gave up the last check at page {number}"));
                return;
            }
        }
    }

    fn run(mut self) -> ExitCode {
        self.fill();
        while self.task.wait.as_ref().is_some_and(|file| !file.exists()) {
            thread::sleep(LOOK);
        }
        for pass in 1..=self.task.passes {
            if !self.pass(pass) {
                self.last_check(pass);
                break;
            }
        }
        let (verdict, code) = match (self.wrong, lost()) {
            (0, 0) => ("GOOD", 0),
            (0, _) => ("LOST", 4),
            _ => ("WRONG", 3),
        };
        let (good, wrong, lost) = (self.good, self.wrong, lost());
        self.say(format_args!("END {verdict} ok={good} wrong={wrong} lost={lost}"));
        ExitCode::from(code)
    }
}

fn main() -> ExitCode {
    match Task::parse(std::env::args().skip(1)).and_then(Hog::new) {
        Ok(hog) => hog.run(),
        Err(error) => {
            eprintln!("hog: {error}");
            ExitCode::from(2)
        }
    }
}
