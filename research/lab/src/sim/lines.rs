//! Cache lines: which CPUs hold each line, and the cost of getting it.
//!
//! As in MESI, one CPU holds a line alone, or several CPUs hold it to read. A CPU that wants a line
//! which another CPU holds alone waits until the earlier transfers of this line are over, and then
//! for its own transfer. Transfers of one line queue up. A CPU that reads a line which others only
//! read waits for no CPU. A transfer begins with a request that takes half of its time; until then
//! the CPU that holds the line still uses it.
//!
//! Many processors move a changed line entirely to a CPU that only reads it, because that CPU will
//! probably change it next. The lab measures whether this processor does so, and simulates the
//! same. A reader of a line that came in this way, and was not changed since, shares it.

use serde::Serialize;

/// Costs in nanoseconds. All are measured, except in tests.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Costs {
    /// An atomic read-modify-write of a line that this CPU holds alone.
    #[serde(rename = "rmw_local_ns")]
    pub local: f64,
    /// An atomic read-modify-write of a line that another CPU changed last.
    #[serde(rename = "rmw_remote_ns")]
    pub take: f64,
    /// An atomic read-modify-write of a line that this CPU and others hold.
    #[serde(rename = "rmw_shared_ns")]
    pub upgrade: f64,
    /// Whether a changed line moves to a reader and leaves the CPU that changed it.
    #[serde(rename = "reading_moves_lines")]
    pub reading_moves: bool,
    /// Reading a line that another CPU changed last.
    #[serde(rename = "read_remote_ns")]
    pub read: f64,
    /// Reading one of many lines in a row that another CPU changed last.
    #[serde(rename = "read_row_ns")]
    pub read_in_row: f64,
    /// Writing one of many lines in a row that another CPU changed last.
    #[serde(rename = "write_row_ns")]
    pub write_in_row: f64,
    /// One iteration of a spinning loop.
    #[serde(rename = "pause_ns")]
    pub pause: f64,
    /// Iterations before a waiter sleeps.
    pub spins: u32,
    /// A trivial system call.
    #[serde(rename = "system_call_ns")]
    pub system_call: f64,
    /// Costs of waking a sleeper, by the time it has slept.
    pub wakes: Vec<Wake>,
}

/// The cost of waking a sleeper.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Wake {
    /// Nanoseconds that the sleeper has slept.
    pub asleep_ns: f64,
    /// Nanoseconds that the waker is busy, besides the system call.
    pub waker_ns: f64,
    /// Nanoseconds from then until the sleeper runs.
    pub latency_ns: f64,
}

impl Costs {
    /// Spins before sleeping, as `SPINS` in crates/sync/src/park.rs.
    pub const SPINS: u32 = 40;

    /// The cost of waking a sleeper after `asleep` nanoseconds: linear between the measured points.
    pub fn wake(&self, asleep: f64) -> Wake {
        let Some(&last) = self.wakes.last() else { return Wake::default() };
        let mut before = self.wakes[0];
        for &wake in &self.wakes {
            if asleep <= wake.asleep_ns {
                let span = wake.asleep_ns - before.asleep_ns;
                let part =
                    if span > 0.0 { (asleep - before.asleep_ns).max(0.0) / span } else { 1.0 };
                let between = |from: f64, to: f64| from + (to - from) * part;
                return Wake {
                    asleep_ns: asleep,
                    waker_ns: between(before.waker_ns, wake.waker_ns),
                    latency_ns: between(before.latency_ns, wake.latency_ns),
                };
            }
            before = wake;
        }
        last
    }

    /// The same costs, with every transfer of a line multiplied by `factor`.
    pub fn with_transfers(&self, factor: f64) -> Costs {
        Costs {
            take: self.take * factor,
            upgrade: self.upgrade * factor,
            read: self.read * factor,
            read_in_row: self.read_in_row * factor,
            write_in_row: self.write_in_row * factor,
            ..self.clone()
        }
    }
}

/// A line's number.
pub type LineId = usize;

/// A line, or several in a row that are always used together.
struct Line {
    what: &'static str,
    width: u32,
    /// A bit for each CPU that holds the line: at most 128. A CPU that holds it alone may write.
    sharers: u128,
    alone: bool,
    /// The time when the transfers requested so far are over.
    free_at: f64,
    /// Time spent on transfers.
    busy: f64,
    /// A CPU got it by a read, and did not change it since.
    clean: bool,
    /// The CPUs that held it, whether alone, and the time until which they still use it.
    leaving: Vec<(u128, bool, f64)>,
    /// The last CPU to hold it alone, and that CPU's number of operations at that time.
    last: (u8, u64),
}

impl Line {
    /// Whether a CPU that is about to lose the line still holds it at `now`.
    fn still_has(&self, cpu: usize, alone: bool, now: f64) -> bool {
        let may = |leaving: &&(u128, bool, f64)| leaving.2 > now && (leaving.1 || !alone);
        self.leaving.iter().filter(may).any(|leaving| leaving.0 & 1 << cpu != 0)
    }

    /// The holders lose the line at time `until`.
    fn leave(&mut self, until: f64, now: f64) {
        self.leaving.retain(|leaving| leaving.2 > now);
        self.leaving.push((self.sharers, self.alone, until));
    }
}

/// All lines.
pub struct Lines {
    lines: Vec<Line>,
    /// Operations done by each CPU.
    pub(super) done: Vec<u64>,
    /// Operations after which a CPU's caches have lost a line.
    reach: u64,
    /// A flaw for tests: transfers of a line do not wait for each other.
    pub no_queue: bool,
}

impl Lines {
    /// No lines yet, for `cpus` CPUs whose caches lose a line after `reach` operations.
    pub fn new(cpus: usize, reach: u64) -> Lines {
        Lines { lines: Vec::new(), done: vec![0; cpus], reach, no_queue: false }
    }

    /// Adds a line that CPU `owner` holds. `width` lines in a row move together.
    pub fn add(&mut self, what: &'static str, width: u32, owner: usize) -> LineId {
        let last = (owner as u8, 0);
        let (sharers, alone) = (1 << owner, true);
        let (free_at, busy, clean, leaving) = (0.0, 0.0, false, Vec::new());
        self.lines.push(Line { what, width, sharers, alone, free_at, busy, clean, leaving, last });
        self.lines.len() - 1
    }

    /// Lets every CPU hold a line to read.
    pub fn share(&mut self, line: LineId) {
        let cpus = self.done.len();
        let line = &mut self.lines[line];
        (line.sharers, line.alone) = (u128::MAX >> (128 - cpus), cpus == 1);
    }

    /// CPU `cpu` wants a line alone, from time `now` on. Returns the time at which it holds the
    /// line and has done a read-modify-write.
    pub fn own(&mut self, costs: &Costs, line: LineId, cpu: usize, now: f64) -> f64 {
        let gone = self.is_gone(line);
        let done = self.done[cpu];
        let no_queue = self.no_queue;
        let line = &mut self.lines[line];
        let mine = line.sharers & 1 << cpu != 0;
        if !(mine && line.alone) && line.still_has(cpu, true, now) {
            return now + costs.local;
        }
        let begin = if no_queue { now } else { now.max(line.free_at) };
        let taken = match (mine, line.alone) {
            (true, true) => 0.0,
            _ if gone => 0.0,
            (true, false) => costs.upgrade,
            (false, _) if line.width > 1 => costs.write_in_row * f64::from(line.width),
            (false, _) => costs.take,
        };
        if taken > 0.0 {
            line.leave(begin + taken / 2.0, now);
            line.free_at = begin + taken;
            line.busy += taken;
        }
        line.clean = false;
        (line.sharers, line.alone, line.last) = (1 << cpu, true, (cpu as u8, done));
        // The time of a transfer includes the local instruction.
        begin + if taken > 0.0 { taken } else { costs.local }
    }

    /// CPU `cpu` reads a line. Returns the time at which it has read it.
    pub fn read(&mut self, costs: &Costs, line: LineId, cpu: usize, now: f64) -> f64 {
        let gone = self.is_gone(line);
        let no_queue = self.no_queue;
        let line = &mut self.lines[line];
        if line.sharers & 1 << cpu != 0 || line.still_has(cpu, false, now) {
            return now;
        }
        let begin = if no_queue { now } else { now.max(line.free_at) };
        let before = (line.sharers, line.alone);
        if gone {
            line.sharers |= 1 << cpu;
            line.alone = false;
            return begin;
        }
        let taken = match line.width {
            1 => costs.read,
            width => costs.read_in_row * f64::from(width),
        };
        if before.1 {
            line.leaving.retain(|leaving| leaving.2 > now);
            line.leaving.push((before.0, true, begin + taken / 2.0));
            if costs.reading_moves && !line.clean {
                (line.sharers, line.clean) = (0, true);
            } else {
                line.alone = false;
            }
            line.free_at = begin + taken;
            line.busy += taken;
        }
        line.sharers |= 1 << cpu;
        begin + taken
    }

    /// Whether CPU `cpu` holds a line, at least to read.
    pub fn has(&self, line: LineId, cpu: usize) -> bool {
        self.lines[line].sharers & 1 << cpu != 0
    }

    /// Whether the last owner's caches lost the line long ago. Getting it then costs the same as
    /// for one thread alone, and the measured work of one thread contains that cost.
    fn is_gone(&self, line: LineId) -> bool {
        let (owner, then) = self.lines[line].last;
        self.done[usize::from(owner)].saturating_sub(then) > self.reach
    }

    /// The line with the longest time in transfer since the beginning, and that time.
    pub fn busiest(&self) -> (&'static str, f64) {
        let busy = self.lines.iter().map(|line| (line.what, line.busy));
        busy.fold(("", 0.0), |most, next| if next.1 > most.1 { next } else { most })
    }

    /// Restarts the count of transfer times.
    pub fn begin(&mut self) {
        for line in &mut self.lines {
            line.busy = 0.0;
        }
    }
}
