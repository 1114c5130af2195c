//! Cache lines: whose they are, and what it costs to get them.
//!
//! As in MESI, a line is one CPU's alone, or several have it to read. Who wants a line that another
//! CPU has alone waits until the transfers asked for before are over, and then for its own: the
//! transfers of one line queue up one behind the other. Reading a line that others only read waits
//! for nobody. A transfer begins with a request that is under way for half of the time: so long
//! the CPU that has the line still uses it.
//!
//! Many processors hand a line that was changed over whole to who only reads it, because it will be
//! changed there next. Whether this one does is measured, and then it is simulated so; who reads a
//! line that came in this way, and was not changed since, shares it.

/// What things cost, in nanoseconds. Measured, but for what a test makes up.
#[derive(Clone, Debug)]
pub struct Costs {
    /// An atomic read-modify-write of a line one has.
    pub local: f64,
    /// The same when another CPU has changed the line last.
    pub take: f64,
    /// The same when this CPU has the line, and so have others.
    pub upgrade: f64,
    /// Whether a line that was changed moves to who reads it, and leaves who changed it.
    pub reading_moves: bool,
    /// Reading a line that another CPU has changed last.
    pub read: f64,
    /// Reading one of many lines in a row that another CPU has changed last.
    pub read_in_row: f64,
    /// Writing one of many lines in a row that another CPU has changed last.
    pub write_in_row: f64,
    /// A turn of a spinning loop.
    pub pause: f64,
    /// Turns before a waiter sleeps.
    pub spins: u32,
    /// Asking the system for nothing much.
    pub system_call: f64,
    /// What waking a sleeper takes, by how long it has slept.
    pub wakes: Vec<Wake>,
}

/// What waking a sleeper takes.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Wake {
    /// When it has slept for so long, in nanoseconds.
    pub asleep_ns: f64,
    /// Who wakes it is busy with it, besides the system call.
    pub waker_ns: f64,
    /// From then until the sleeper runs.
    pub latency_ns: f64,
}

impl Costs {
    /// Spins before sleeping, as `SPINS` in crates/sync/src/park.rs.
    pub const SPINS: u32 = 40;

    /// What waking a sleeper takes that has slept for so long: on a line between what was measured.
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

    /// The same, with every transfer of a line `factor` times as dear.
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
    /// Who have it, a bit for each CPU: at most 128. Alone, it may be written.
    sharers: u128,
    alone: bool,
    /// When the transfers asked for so far are over.
    free_at: f64,
    /// Time spent on transfers.
    busy: f64,
    /// It came by being read, and was not changed since.
    clean: bool,
    /// Who had it, whether alone, and until when they still use it.
    leaving: Vec<(u128, bool, f64)>,
    /// The last to have it alone, and how many operations that CPU had done by then.
    last: (u8, u64),
}

impl Line {
    /// Whether a CPU that is about to lose it still has it at `now`.
    fn still_has(&self, cpu: usize, alone: bool, now: f64) -> bool {
        let may = |leaving: &&(u128, bool, f64)| leaving.2 > now && (leaving.1 || !alone);
        self.leaving.iter().filter(may).any(|leaving| leaving.0 & 1 << cpu != 0)
    }

    /// Those who have it will not, from time `until` on.
    fn leave(&mut self, until: f64, now: f64) {
        self.leaving.retain(|leaving| leaving.2 > now);
        self.leaving.push((self.sharers, self.alone, until));
    }
}

/// All the lines.
pub struct Lines {
    lines: Vec<Line>,
    /// Operations each CPU has done.
    pub(super) done: Vec<u64>,
    /// Operations after which a CPU has no longer what it touched then.
    reach: u64,
    /// A flaw, for tests: transfers of a line do not wait for each other.
    pub(super) no_queue: bool,
}

impl Lines {
    /// No lines, of `cpus` CPUs whose caches forget after `reach` operations.
    pub fn new(cpus: usize, reach: u64) -> Lines {
        Lines { lines: Vec::new(), done: vec![0; cpus], reach, no_queue: false }
    }

    /// A new line, which CPU `owner` has; `width` lines in a row are moved together.
    pub fn add(&mut self, what: &'static str, width: u32, owner: usize) -> LineId {
        let last = (owner as u8, 0);
        let (sharers, alone) = (1 << owner, true);
        let (free_at, busy, clean, leaving) = (0.0, 0.0, false, Vec::new());
        self.lines.push(Line { what, width, sharers, alone, free_at, busy, clean, leaving, last });
        self.lines.len() - 1
    }

    /// Lets every CPU have a line to read.
    pub fn share(&mut self, line: LineId) {
        let cpus = self.done.len();
        let line = &mut self.lines[line];
        (line.sharers, line.alone) = (u128::MAX >> (128 - cpus), cpus == 1);
    }

    /// CPU `cpu` wants a line alone, from time `now` on. Returns when it has it, with a
    /// read-modify-write done.
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
        // What is transferred has the local instruction in it.
        begin + if taken > 0.0 { taken } else { costs.local }
    }

    /// CPU `cpu` reads a line. Returns when it can.
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

    /// Whether CPU `cpu` has a line, to read at least.
    pub fn has(&self, line: LineId, cpu: usize) -> bool {
        self.lines[line].sharers & 1 << cpu != 0
    }

    /// Whether its last owner has long lost it from its caches: getting it costs what it costs one
    /// thread alone, which was measured as part of its work.
    fn is_gone(&self, line: LineId) -> bool {
        let (owner, then) = self.lines[line].last;
        self.done[usize::from(owner)].saturating_sub(then) > self.reach
    }

    /// The line that was longest in transfer since the beginning, and how long.
    pub fn busiest(&self) -> (&'static str, f64) {
        let busy = self.lines.iter().map(|line| (line.what, line.busy));
        busy.fold(("", 0.0), |most, next| if next.1 > most.1 { next } else { most })
    }

    /// Begins to count anew how long lines are in transfer.
    pub fn begin(&mut self) {
        for line in &mut self.lines {
            line.busy = 0.0;
        }
    }
}
