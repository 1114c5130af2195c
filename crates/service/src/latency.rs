//! How long requests to devices take, as frontends see it: from the call of the device to its end,
//! with the wait for a backing device in between. A request that has to go to another thread first
//! counts from there.
//!
//! It is off until somebody asks for it, and costs a look at a flag then. Afterwards one request of
//! [`EVERY`] is timed, with two looks at the clock: beside the way to a device that is less than a
//! hundredth. Each CPU counts on lines of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, PackedPages, Visit,
};
use serde::{Deserialize, Serialize};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Mutex, PerCpu};
use units::Cpu;

/// The bounds of the classes of times, in nanoseconds; a last class has what is longer.
pub const BOUNDS: [u64; 15] = [
    1_000,
    2_000,
    4_000,
    8_000,
    16_000,
    32_000,
    64_000,
    128_000,
    256_000,
    512_000,
    1_000_000,
    4_000_000,
    16_000_000,
    64_000_000,
    256_000_000,
];
const CLASSES: usize = BOUNDS.len() + 1;

/// One request of so many on a CPU is timed.
pub const EVERY: u64 = 8;

/// What is timed: the names of operations in reports.
const OPERATIONS: [&str; 2] = ["read", "write"];

/// Are requests to devices of this process timed?
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The CPUs that count. Threads that serve clients may not ask the system for it.
static CPUS: LazyLock<usize> = LazyLock::new(host::cpus);
/// The times of its devices, by their names.
static TIMES: LazyLock<Mutex<BTreeMap<String, Arc<Times>>>> =
    LazyLock::new(|| Mutex::new(BTreeMap::new()));

/// Readies this before a thread has given up its privileges.
pub fn begin() {
    LazyLock::force(&CPUS);
}

/// Are requests timed?
#[must_use]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Times requests from now on, or no more. What was counted stays.
pub fn set(on: bool) {
    IS_ON.store(on, Ordering::Relaxed);
}

/// The times of operations on a device. See [`Latency`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// The name of the device.
    pub device: String,
    /// `read` or `write`. Reads of a swap device are swap-ins.
    pub operation: String,
    /// How many of the timed requests took as long as each class has it.
    pub classes: Vec<u64>,
    /// What they took together, in nanoseconds.
    pub sum: u64,
}

impl Latency {
    /// The bound of the class, in nanoseconds, that so many of a hundred requests stay within;
    /// `None` before there are any, or for a class without a bound.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.classes.iter().sum();
        let mut seen = 0;
        let is_reached = |count: &u64| {
            seen += count;
            seen * 100 >= all * percent
        };
        let class = self.classes.iter().position(is_reached).filter(|_| all > 0)?;
        BOUNDS.get(class).copied()
    }
}

/// The times of the devices of `names` so far; nothing of those of which nothing was timed.
#[must_use]
pub fn of(names: &[&str]) -> Vec<Latency> {
    let devices = TIMES.lock();
    let of = |(name, times): (&String, &Arc<Times>)| {
        let (name, times) = (name.clone(), times.clone());
        (0..OPERATIONS.len()).map(move |operation| times.report(&name, operation))
    };
    let found = devices.iter().filter(|(name, _)| names.contains(&name.as_str())).flat_map(of);
    found.filter(|latency| latency.classes.iter().any(|count| *count > 0)).collect()
}

/// What one CPU counts.
struct OnCpu {
    requests: [AtomicU64; OPERATIONS.len()],
    classes: [[AtomicU64; CLASSES]; OPERATIONS.len()],
    sums: [AtomicU64; OPERATIONS.len()],
}

fn zeroes<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

struct Times(PerCpu<OnCpu>);

impl Times {
    fn new(cpus: usize) -> Times {
        let classes = || std::array::from_fn(|_| zeroes());
        let counts = |_| OnCpu { requests: zeroes(), classes: classes(), sums: zeroes() };
        Times(PerCpu::new(cpus, counts))
    }

    fn add(&self, cpu: Cpu, operation: usize, nanoseconds: u64) {
        let class = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        let counts = self.0.get(cpu);
        counts.classes[operation][class].fetch_add(1, Ordering::Relaxed);
        counts.sums[operation].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn report(&self, device: &str, operation: usize) -> Latency {
        let sum = |of: &dyn Fn(&OnCpu) -> &AtomicU64| -> u64 {
            self.0.iter().map(|cpu| of(cpu).load(Ordering::Relaxed)).sum()
        };
        let class = |class: usize| sum(&|cpu| &cpu.classes[operation][class]);
        Latency {
            device: device.into(),
            operation: OPERATIONS[operation].into(),
            classes: (0..CLASSES).map(class).collect(),
            sum: sum(&|cpu| &cpu.sums[operation]),
        }
    }
}

/// A layer that times the requests to a device, while this is on.
pub struct Timed<D> {
    device: D,
    times: Arc<Times>,
}

impl<D: BlockDevice> Timed<D> {
    /// The layer over the device of this name. Several layers over it, and over a later device of
    /// its name, count together.
    #[must_use]
    pub fn new(name: &str, device: D) -> Timed<D> {
        let new = || Arc::new(Times::new(*CPUS));
        let times = TIMES.lock().entry(name.into()).or_insert_with(new).clone();
        Timed { device, times }
    }

    fn timed(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let which = match operation {
            Operation::Read { .. } => 0,
            Operation::Write { .. } => 1,
            _ => return self.device.perform(context, operation),
        };
        let requests = &self.times.0.get(context.cpu).requests[which];
        let is_timed = requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY);
        let begin = is_timed.then(Instant::now);
        let result = self.device.perform(context, operation);
        if result == Err(IoError::WouldBlock) {
            // It comes again, on a thread that may wait, and counts there.
            requests.fetch_sub(1, Ordering::Relaxed);
        } else if let Some(begin) = begin {
            let taken = begin.elapsed().as_nanos();
            self.times.add(context.cpu, which, u64::try_from(taken).unwrap_or(u64::MAX));
        }
        result
    }
}

impl<D: BlockDevice> BlockDevice for Timed<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.device.abilities()
    }

    #[inline]
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match is_on() {
            false => self.device.perform(context, operation),
            true => self.timed(context, operation),
        }
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        self.device.submit_all(cpu, jobs);
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.device.extents(cpu, offset, length, visit)
    }

    fn packed(&self) -> Option<&dyn PackedPages> {
        self.device.packed()
    }
}

#[cfg(test)]
mod tests;
