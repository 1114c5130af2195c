//! The steps of the threads in each mode: the order of blocks, reads and writes, and the contents
//! written. All steps are fixed before the clock starts.

use clap::ValueEnum;

use super::content::Source;

/// The record of iozone's modes, as in `iozone -r 16K`.
pub const RECORD: usize = 16 << 10;
/// Distance in records between two steps of the mode "stride read", from iozone.
const STRIDE: usize = 17;
/// The block of fio's jobs, and the size of their device.
const FIO_BLOCK: usize = 32 << 10;
const FIO_DEVICE: usize = 10 << 20;
/// Number of slots that all threads share.
const EIGHT: usize = 8;
/// Steps fixed for the small device. They are repeated.
const SMALL: u32 = 4096;
/// The most loops of a fio job that are fixed. They are repeated.
const LOOPS: u32 = 8;
/// The seed of every order.
const SEED: u64 = 0x6d6f_6465_7300;

/// Which modes there are.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Eleven modes of iozone, 16 KiB records, each thread on a part of the device of its own
    Modes,
    /// Four jobs of fio, 32 KiB blocks, all threads on the same 10 MiB
    Fio,
    /// Single pages, all threads on the same eight
    Eight,
}

/// The amount of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amount {
    /// Bytes of each thread, in the modes of iozone; a multiple of [`RECORD`].
    pub bytes: usize,
    /// Loops over the device, in the jobs of fio.
    pub loops: u32,
    /// Pages of each thread, on the small device.
    pub operations: u32,
}

/// A workload. Its modes run in order, each on the device as the one before left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The kind of workload.
    pub kind: Kind,
    /// The amount of work.
    pub amount: Amount,
}

/// One step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The block of the device.
    pub place: u32,
    /// The block of the contents to write there, or [`Step::READ`].
    pub source: u32,
}

impl Step {
    /// The value of `source` in a step that reads.
    pub const READ: u32 = u32::MAX;
}

/// The work of one thread in a mode: its steps, repeated `laps` times.
pub struct Part {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The number of repetitions.
    pub laps: u32,
}

/// The order in which a thread goes through its blocks.
#[derive(Clone, Copy)]
enum Order {
    Forward,
    Reverse,
    Stride,
    Random,
}

/// The action of a thread at each step. The numbers count changes of contents: each change writes
/// other blocks of the contents to the same places.
#[derive(Clone, Copy)]
enum Act {
    Write(usize),
    Read,
    /// Even threads read, odd threads write, as in iozone: half of them each.
    Mixed(usize),
    /// Each step reads or writes, at random.
    Coin(usize),
}

type Mode = (&'static str, Order, Act);

const MODES: &[Mode] = &[
    ("Initial write", Order::Forward, Act::Write(0)),
    ("Rewrite", Order::Forward, Act::Write(1)),
    ("Read", Order::Forward, Act::Read),
    ("Re-read", Order::Forward, Act::Read),
    ("Reverse read", Order::Reverse, Act::Read),
    ("Stride read", Order::Stride, Act::Read),
    ("Random read", Order::Random, Act::Read),
    ("Mixed workload", Order::Random, Act::Mixed(2)),
    ("Random write", Order::Random, Act::Write(3)),
    ("Pwrite", Order::Forward, Act::Write(4)),
    ("Pread", Order::Forward, Act::Read),
];

const JOBS: &[Mode] = &[
    ("seq-write", Order::Forward, Act::Write(0)),
    ("seq-read", Order::Forward, Act::Read),
    ("seq-rw", Order::Forward, Act::Coin(1)),
    ("rand-rw", Order::Random, Act::Coin(2)),
];

const SINGLE: &[Mode] = &[
    ("store", Order::Random, Act::Write(0)),
    ("load", Order::Random, Act::Read),
    ("half of each", Order::Random, Act::Coin(1)),
];

/// Number of possible changes of contents.
const CHANGES: usize = 5;

/// Whether `bytes` can be the size of a thread's part.
pub fn check_size(bytes: u64) -> Result<(), String> {
    const MOST: u64 = 1 << 40;
    let record = RECORD as u64;
    if bytes < record || bytes > MOST || !bytes.is_multiple_of(record) {
        return Err(format!("{bytes} bytes: it must be a multiple of 16K, 16K to 1T"));
    }
    Ok(())
}

impl Workload {
    /// The names of its modes, in order.
    pub fn modes(&self) -> Vec<&'static str> {
        self.list().iter().map(|mode| mode.0).collect()
    }

    fn list(&self) -> &'static [Mode] {
        match self.kind {
            Kind::Modes => MODES,
            Kind::Fio => JOBS,
            Kind::Eight => SINGLE,
        }
    }

    /// Bytes of one step.
    pub fn block(&self) -> usize {
        match self.kind {
            Kind::Modes => RECORD,
            Kind::Fio => FIO_BLOCK,
            Kind::Eight => units::PAGE_SIZE,
        }
    }

    /// Number of blocks a thread works on, and whether all threads work on the same ones.
    fn area(&self) -> (usize, bool) {
        match self.kind {
            Kind::Modes => (self.amount.bytes / RECORD, false),
            Kind::Fio => (FIO_DEVICE / FIO_BLOCK, true),
            Kind::Eight => (EIGHT, true),
        }
    }

    /// The number of loops or pages, where the command line can set it.
    pub fn repeats(&self) -> Option<u32> {
        match self.kind {
            Kind::Modes => None,
            Kind::Fio => Some(self.amount.loops),
            Kind::Eight => Some(self.amount.operations),
        }
    }

    /// Whether threads write to the same places.
    pub fn shared(&self) -> bool {
        self.area().1
    }

    /// Number of blocks of the device for this many threads.
    pub fn places(&self, threads: usize) -> usize {
        let (blocks, shared) = self.area();
        if shared { blocks } else { blocks * threads }
    }

    /// Bytes of the device for this many threads.
    pub fn device_bytes(&self, threads: usize) -> usize {
        self.places(threads) * self.block()
    }

    /// The part of each thread in mode number `mode`, with contents from `source`.
    pub fn parts(&self, mode: usize, threads: usize, source: &Source) -> Vec<Part> {
        let (_, order, act) = self.list()[mode];
        let (blocks, shared) = self.area();
        let part = |thread: usize| {
            let mut random = fastrand::Rng::with_seed(SEED + (mode * 4096 + thread) as u64);
            let first = if shared { 0 } else { thread * blocks };
            let (places, laps) = match self.kind {
                Kind::Modes => (self::order(order, blocks, &mut random), 1),
                Kind::Fio => {
                    let loops = self.amount.loops;
                    let laid = (1..=LOOPS).rev().find(|laid| loops.is_multiple_of(*laid));
                    let laid = laid.unwrap_or(1);
                    let lay = |_| self::order(order, blocks, &mut random);
                    ((0..laid).flat_map(lay).collect(), loops / laid)
                }
                Kind::Eight => {
                    let laid = self.amount.operations.min(SMALL);
                    let places = (0..laid).map(|_| random.usize(..blocks));
                    (places.collect::<Vec<usize>>(), self.amount.operations.div_ceil(laid))
                }
            };
            let mut written = 0;
            let steps = places.into_iter().map(|place| {
                let source = change(act, thread, &mut random).map(|change| {
                    // Each thread, and each change, begins at another block of the contents.
                    let begin = source.blocks() * thread / threads
                        + source.blocks() * change / (CHANGES * threads);
                    let along = if shared { written } else { place };
                    written += 1;
                    ((begin + along) % source.blocks()) as u32
                });
                Step { place: (first + place) as u32, source: source.unwrap_or(Step::READ) }
            });
            Part { steps: steps.collect(), laps }
        };
        (0..threads).map(part).collect()
    }
}

/// The change of contents that a step writes. `None` if it reads.
fn change(act: Act, thread: usize, random: &mut fastrand::Rng) -> Option<usize> {
    match act {
        Act::Write(change) => Some(change),
        Act::Read => None,
        Act::Mixed(change) => (thread % 2 == 1).then_some(change),
        Act::Coin(change) => (random.bool()).then_some(change),
    }
}

/// The numbers below `blocks`, each once, in this order.
fn order(order: Order, blocks: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    match order {
        Order::Forward => (0..blocks).collect(),
        Order::Reverse => (0..blocks).rev().collect(),
        Order::Stride => (0..STRIDE).flat_map(|at| (at..blocks).step_by(STRIDE)).collect(),
        Order::Random => {
            let mut order: Vec<usize> = (0..blocks).collect();
            random.shuffle(&mut order);
            order
        }
    }
}

#[cfg(test)]
mod tests;
