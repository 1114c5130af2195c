//! The threads' calls to an index, alone or within the engine, and their times.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::Serialize;
use units::Cpu;
use zswap::Word;

use super::subject::Subject;
use crate::statistics::mean;
use crate::threads;

/// Rounds of calls between two clock readings.
const AT_ONCE: usize = 32;

/// A mix of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// By turns, stores to an empty place and invalidations of another.
    StoreHeavy,
    /// Twenty calls: eighteen loads, a store and an invalidation.
    LoadHeavy,
    /// A load, the invalidation of the same page, and a store to an empty place.
    LoadThenInvalidate,
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Looks up a page that is there.
    Load,
    /// Stores a page in an empty place.
    Store,
    /// Removes a page: the one of the call before, if that was a load.
    Invalidate,
}

impl Mix {
    pub const ALL: [Mix; 3] = [Mix::StoreHeavy, Mix::LoadHeavy, Mix::LoadThenInvalidate];

    /// The calls of a round.
    pub fn calls(self) -> &'static [Call] {
        use Call::{Invalidate, Load, Store};
        match self {
            Mix::StoreHeavy => &[Store, Invalidate],
            Mix::LoadHeavy => &[
                Load, Load, Load, Load, Load, Load, Load, Load, Load, Store, Load, Load, Load,
                Load, Load, Load, Load, Load, Load, Invalidate,
            ],
            Mix::LoadThenInvalidate => &[Load, Invalidate, Store],
        }
    }
}

pub struct Workers {
    pub index: &'static str,
    /// The mix of calls.
    pub mix: Mix,
    pub threads: usize,
    /// The size of the area, in pages.
    pub pages: u32,
    /// Whether the threads call the whole engine, with compression, instead of the index alone.
    pub whole: bool,
}

/// The measurements of a situation.
#[derive(Serialize)]
pub struct Measured {
    pub variant: &'static str,
    /// The mix of calls.
    pub mix: Mix,
    pub threads: usize,
    /// A thread's nanoseconds for a call: the median of the rounds.
    pub ns: f64,
    /// The same in each round.
    pub samples: Vec<f64>,
}

/// A thread's pages: stored ones, empty places, and numbers of entries.
struct CpuState {
    present: Vec<(u64, Word)>,
    absent: Vec<u64>,
    spare: Vec<u32>,
    life: u32,
    random: fastrand::Rng,
    last: usize,
}

impl CpuState {
    /// The pages of thread `n` are interleaved with those of the other threads.
    fn new(workers: &Workers, n: usize, index: &Subject) -> Result<CpuState> {
        let offsets = (n as u64..u64::from(workers.pages)).step_by(workers.threads);
        let mut random = fastrand::Rng::with_seed(n as u64);
        let mut absent: Vec<u64> = offsets.collect();
        random.shuffle(&mut absent);
        let spare = absent.iter().map(|offset| *offset as u32 + 1).collect();
        let mut own = CpuState { present: Vec::new(), absent, spare, life: 0, random, last: 0 };
        while own.present.len() < own.absent.len() {
            own.store(index, Cpu(n as u32))?;
        }
        Ok(own)
    }

    fn pick(&mut self, from: usize) -> usize {
        self.random.usize(..from)
    }

    fn load(&mut self, index: &Subject, cpu: Cpu) -> Result<()> {
        self.last = self.pick(self.present.len());
        let (offset, word) = self.present[self.last];
        index.load(cpu, offset, word)
    }

    fn store(&mut self, index: &Subject, cpu: Cpu) -> Result<()> {
        let which = self.pick(self.absent.len());
        let offset = self.absent.swap_remove(which);
        self.life = self.life.wrapping_add(1);
        let word = self.spare.pop().and_then(|number| Word::new(number, self.life));
        let word = word.ok_or_else(|| anyhow!("there are no more entries"))?;
        index.store(cpu, offset, word)?;
        self.present.push((offset, word));
        Ok(())
    }

    fn invalidate(&mut self, index: &Subject, cpu: Cpu, which: usize) -> Result<()> {
        let (offset, word) = self.present.swap_remove(which);
        index.invalidate(cpu, offset, word)?;
        self.absent.push(offset);
        self.spare.push(word.number());
        Ok(())
    }

    /// Makes one round of calls.
    fn round(&mut self, index: &Subject, cpu: Cpu, calls: &[Call]) -> Result<()> {
        for (n, call) in calls.iter().enumerate() {
            match call {
                Call::Load => self.load(index, cpu)?,
                Call::Store => self.store(index, cpu)?,
                Call::Invalidate => {
                    let loaded = n == 1 && calls[0] == Call::Load && calls.len() == 3;
                    let which = if loaded { self.last } else { self.pick(self.present.len()) };
                    self.invalidate(index, cpu, which)?;
                }
            }
        }
        Ok(())
    }
}

impl Workers {
    /// Lets the threads work for `seconds`. Returns a thread's nanoseconds for a call.
    pub fn run(&self, cpus: &[usize], seconds: f64) -> Result<f64> {
        let index = &if self.whole {
            Subject::whole(self.index, self.pages)?
        } else {
            Subject::alone(self.index, self.pages, self.threads)?
        };
        let (calls, time) = (self.mix.calls(), Duration::from_secs_f64(seconds));
        let prepare = |n: usize| Ok((Cpu(n as u32), CpuState::new(self, n, index)?));
        let work = |(cpu, mut own): (Cpu, CpuState)| {
            let (begun, mut rounds) = (Instant::now(), 0usize);
            // One round at least, however short the time is.
            while rounds == 0 || begun.elapsed() < time {
                for _ in 0..AT_ONCE {
                    own.round(index, cpu, calls)?;
                }
                rounds += AT_ONCE;
            }
            Ok(begun.elapsed().as_nanos() as f64 / (rounds * calls.len()) as f64)
        };
        let times = threads::on_each(&cpus[..self.threads], prepare, work)?;
        index.validate();
        Ok(mean(&times))
    }
}
