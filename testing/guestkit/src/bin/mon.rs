//! `mon`: prints the state of the machine's memory and the page faults of a daemon's threads every
//! few seconds. Its memory is locked, the OOM killer spares it, and it allocates nothing. It keeps
//! files of `/proc` open, because an open takes kernel memory. When the kernel needs memory for
//! `mon`, it does not wait for swap.
//!
//! ```text
//! mon SECONDS [PID]
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str;
use std::thread;
use std::time::{Duration, Instant};

use guestkit::proc::{Text, group, numbers, stat, value};
use guestkit::process::protect;

/// The most groups of threads.
const GROUPS: usize = 16;
/// The most threads that `mon` reads.
const THREADS: usize = 256;

/// The faults of the threads of one name.
#[derive(Clone, Copy, Default)]
struct Group {
    name: [u8; 16],
    length: usize,
    minor: u64,
    major: u64,
}

impl Group {
    fn name(&self) -> &str {
        str::from_utf8(&self.name[..self.length]).unwrap_or_default()
    }
}

/// The watched daemon.
struct Daemon {
    pid: u64,
    tasks: File,
    status: File,
    /// The `stat` files of the threads at the last change of their number.
    threads: Vec<File>,
    number: u64,
    groups: [Group; GROUPS],
    entries: Box<[u64]>,
}

impl Daemon {
    fn open(pid: u64) -> io::Result<Daemon> {
        let tasks = File::open(format!("/proc/{pid}/task"))?;
        let status = File::open(format!("/proc/{pid}/status"))?;
        let threads = Vec::with_capacity(THREADS);
        let entries = vec![0; 1024].into_boxed_slice();
        let groups = [Group::default(); GROUPS];
        Ok(Daemon { pid, tasks, status, threads, number: 0, groups, entries })
    }

    /// Opens the files of all threads.
    fn look(&mut self) {
        let Daemon { pid, tasks, threads, entries, .. } = self;
        threads.clear();
        numbers(tasks, entries, |thread| {
            let mut path = [0; 64];
            let mut rest = &mut path[..];
            if threads.len() == THREADS || write!(rest, "/proc/{pid}/task/{thread}/stat").is_err() {
                return;
            }
            let length = 64 - rest.len();
            let path = str::from_utf8(&path[..length]).unwrap_or_default();
            threads.extend(File::open(path));
        });
    }

    /// Adds up the faults of all threads by name.
    fn count(&mut self, text: &mut Text) {
        self.groups.fill(Group::default());
        for file in &mut self.threads {
            let Some(found) = stat(text.read(file)) else { continue };
            let name = group(found.name);
            let place = self.groups.iter().position(|it| it.length == 0 || it.name() == name);
            // Threads beyond the last group count for the last group.
            let it = &mut self.groups[place.unwrap_or(GROUPS - 1)];
            if it.length == 0 {
                it.length = name.len().min(it.name.len());
                it.name[..it.length].copy_from_slice(&name.as_bytes()[..it.length]);
            }
            it.minor += found.minor;
            it.major += found.major;
        }
    }

    fn write(&mut self, line: &mut impl Write, text: &mut Text) -> io::Result<()> {
        let status = text.read(&mut self.status);
        if status.is_empty() {
            return write!(line, " daemon GONE");
        }
        write!(line, " daemon rss={}M", value(status, "VmRSS") >> 10)?;
        let number = value(status, "Threads");
        if number != self.number {
            self.number = number;
            self.look();
        }
        self.count(text);
        write!(line, " faults")?;
        for it in self.groups.iter().filter(|it| it.length > 0) {
            write!(line, " {}={}+{}", it.name(), it.minor, it.major)?;
        }
        Ok(())
    }
}

/// The files of the machine.
struct Machine {
    uptime: File,
    meminfo: File,
    vmstat: File,
}

impl Machine {
    fn open() -> io::Result<Machine> {
        Ok(Machine {
            uptime: File::open("/proc/uptime")?,
            meminfo: File::open("/proc/meminfo")?,
            vmstat: File::open("/proc/vmstat")?,
        })
    }

    fn write(&mut self, line: &mut impl Write, text: &mut Text, late: bool) -> io::Result<()> {
        let up = text.read(&mut self.uptime);
        let seconds = up.split('.').next().unwrap_or_default();
        write!(line, "[mon {seconds}{}]", if late { " LATE" } else { "" })?;
        let memory = text.read(&mut self.meminfo);
        let mib = |name| value(memory, name) >> 10;
        write!(
            line,
            " free={}M avail={}M swap={}/{}M",
            mib("MemFree"),
            mib("MemAvailable"),
            mib("SwapTotal").saturating_sub(mib("SwapFree")),
            mib("SwapTotal")
        )?;
        let events = text.read(&mut self.vmstat);
        let stalls = ["allocstall_dma32", "allocstall_normal", "allocstall_movable"];
        let stalls: u64 = stalls.into_iter().map(|name| value(events, name)).sum();
        write!(
            line,
            " out={} in={} stall={stalls} oomkill={}",
            value(events, "pswpout"),
            value(events, "pswpin"),
            value(events, "oom_kill")
        )
    }
}

fn main() -> ExitCode {
    let words: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let Some(seconds @ 1..) = words.first().copied() else {
        eprintln!("usage: mon SECONDS [PID]");
        return ExitCode::from(2);
    };
    match watch(Duration::from_secs(seconds), words.get(1).copied()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch(interval: Duration, pid: Option<u64>) -> io::Result<()> {
    let mut machine = Machine::open()?;
    let mut daemon = pid.map(Daemon::open).transpose()?;
    let mut text = Text::new();
    let mut line = vec![0; 2048].into_boxed_slice();
    let mut output = io::stdout().lock();
    // Outside the guest `mon` works without protection, too.
    if !protect() {
        eprintln!("mon: not allowed all of its protections");
    }
    let mut last = Instant::now();
    loop {
        let late = last.elapsed() > interval * 3;
        last = Instant::now();
        let mut rest = &mut line[..];
        let room = rest.len();
        // A line that is too long for the buffer is cut.
        let _ = machine.write(&mut rest, &mut text, late);
        if let Some(daemon) = &mut daemon {
            let _ = daemon.write(&mut rest, &mut text);
        }
        let length = room - rest.len();
        let end = length.min(room - 1);
        line[end] = b'\n';
        output.write_all(&line[..=end])?;
        output.flush()?;
        thread::sleep(interval);
    }
}
