//! Rounds of a contest: each target does the work, and the bare codec does it directly after; then
//! comes the next target. A disturbance hits both; medians of the rounds leave out disturbed
//! rounds.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use designs::Variants;
use indicatif::ProgressBar;

use super::codec::{self, Codec};
use super::device::Device;
use super::engine::Engine;
use super::kernel;
use super::swap::Swap;
use super::target::{Figures, Target};
use super::work::{Speed, Work};
use crate::interrupt;

/// A kind of target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Our engine in process, with this slot scheme.
    Engine(&'static str),
    /// Our engine in process, with the default slot scheme and this page allocator.
    Zone(&'static str),
    /// Our engine in process, with the default designs in this kind of memory.
    Memory(&'static str),
    /// Our cache in front of swap devices, in process, with this index.
    Swap(&'static str),
    /// The block device or file at this path.
    Device(PathBuf),
}

impl Kind {
    /// Its name in results.
    pub fn name(&self) -> String {
        match self {
            Kind::Engine(slots) if *slots == designs::SLOT_SCHEMES[0] => "engine".to_owned(),
            Kind::Engine(slots) => format!("engine:{slots}"),
            Kind::Zone(zone) => format!("zone:{zone}"),
            Kind::Memory(memory) => format!("memory:{memory}"),
            Kind::Swap(index) if *index == designs::INDEXES[0] => "swap".to_owned(),
            Kind::Swap(index) => format!("swap:{index}"),
            Kind::Device(path) => path.display().to_string(),
        }
    }

    /// Its path, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Kind::Engine(_) | Kind::Zone(_) | Kind::Memory(_) | Kind::Swap(_) => None,
            Kind::Device(path) => Some(path),
        }
    }
}

/// A target in the contest, and its results so far.
pub struct Contestant {
    /// The kind of target.
    pub kind: Kind,
    /// Its codec.
    pub algorithm: String,
    /// That codec alone. `None` if it is not one of ours.
    codec: Option<Rc<Codec>>,
    /// Bytes of the corpus compressed by that codec.
    pub codec_bytes: Option<u64>,
    level: Option<i32>,
    /// The results of each round.
    pub rounds: Vec<Round>,
}

/// The results of a target in one round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Round {
    /// The first store of every page.
    pub store: Speed,
    /// Storing every page again.
    pub overwrite: Speed,
    /// Loading every page; each is verified while the clock stands still.
    pub load: Speed,
    /// Loading every page without verifying.
    pub reload: Speed,
    /// Compressing with the bare codec.
    pub compress: Option<Speed>,
    /// Decompressing with the bare codec.
    pub decompress: Option<Speed>,
    /// Number of pages verified.
    pub verified: u64,
    /// The figures of the target after all pages were stored again.
    pub figures: Figures,
    /// The figures of the target after the first store.
    pub first_figures: Figures,
    /// Growth of this process from before the target was made until all pages were stored again.
    pub growth: Option<u64>,
}

/// A contest on some work.
pub struct Contest<'a> {
    work: &'a Work<'a>,
    contestants: Vec<Contestant>,
}

impl<'a> Contest<'a> {
    /// Makes contestants for `work`. The engine uses `algorithm` or lz4. A device uses the
    /// algorithm that it reports, else `algorithm` or lz4.
    ///
    /// # Errors
    /// The engine does not know the algorithm, the level is out of range, or memory is out.
    pub fn new(
        work: &'a Work<'a>,
        kinds: &[Kind],
        algorithm: Option<&str>,
        level: Option<i32>,
    ) -> Result<Contest<'a>> {
        let mut contestants: Vec<Contestant> = Vec::new();
        for kind in kinds {
            let said = kind.path().and_then(kernel::algorithm);
            let algorithm = said.as_deref().or(algorithm).unwrap_or(zcomp::LZ4).to_owned();
            let shared = contestants.iter().find(|other| other.algorithm == algorithm);
            let codec = match shared {
                Some(other) => other.codec.clone(),
                None => codec::by_name(&algorithm, level)?
                    .map(|codec| Codec::new(&*codec, work).map(Rc::new))
                    .transpose()?,
            };
            let (kind, codec_bytes, rounds) = (kind.clone(), None, Vec::new());
            contestants.push(Contestant { kind, algorithm, codec, codec_bytes, level, rounds });
        }
        Ok(Contest { work, contestants })
    }

    /// Number of steps of `rounds` rounds.
    pub fn steps(&self, rounds: u32) -> u64 {
        u64::from(rounds) * self.contestants.len() as u64 * STEPS
    }

    /// Runs `rounds` rounds. Returns the contestants with their results.
    ///
    /// # Errors
    /// A target fails, a page comes back changed, or the run is interrupted.
    pub fn run(mut self, rounds: u32, bar: &ProgressBar) -> Result<Vec<Contestant>> {
        for _ in 0..rounds {
            for contestant in &mut self.contestants {
                let round = contestant.round(self.work, bar)?;
                contestant.rounds.push(round);
            }
        }
        Ok(self.contestants)
    }
}

/// Steps of a round.
const STEPS: u64 = 6;

impl Contestant {
    fn round(&mut self, work: &Work<'_>, bar: &ProgressBar) -> Result<Round> {
        bar.set_message(format!("{} {}", self.kind.name(), self.algorithm));
        let step = || {
            bar.inc(1);
            interrupt::check()
        };
        if let (Some(codec), None) = (&self.codec, self.codec_bytes) {
            codec.compress(work)?;
            self.codec_bytes = Some(codec.verify(work)?);
        }
        let codec = self.codec.as_deref();

        let before = host::resident_bytes();
        let target: Box<dyn Target> = match &self.kind {
            Kind::Engine(slots) => {
                let variants = Variants { slots: (*slots).to_owned(), ..Variants::default() };
                Box::new(Engine::new(work.pages(), &self.algorithm, self.level, variants)?)
            }
            Kind::Zone(zone) => {
                let variants = Variants { zone: (*zone).to_owned(), ..Variants::default() };
                Box::new(Engine::new(work.pages(), &self.algorithm, self.level, variants)?)
            }
            Kind::Memory(memory) => {
                let variants = Variants { memory: (*memory).to_owned(), ..Variants::default() };
                Box::new(Engine::new(work.pages(), &self.algorithm, self.level, variants)?)
            }
            Kind::Swap(index) => {
                Box::new(Swap::new(work.pages(), &self.algorithm, self.level, index)?)
            }
            Kind::Device(path) => Box::new(Device::open(path, work.pages())?),
        };
        let target = &*target;
        let store = work.store_first(target)?;
        let first_figures = target.figures();
        target.rest();
        step()?;
        let overwrite = work.store(target)?;
        let growth =
            self.kind.path().is_none().then(|| host::resident_bytes().saturating_sub(before));
        let figures = target.figures();
        step()?;
        let compress = codec.map(|codec| codec.compress(work)).transpose()?;
        step()?;
        let (load, verified) = work.load_verified(target)?;
        step()?;
        let reload = work.load(target)?;
        step()?;
        let decompress = codec.map(|codec| codec.decompress(work)).transpose()?;
        step()?;
        Ok(Round {
            store,
            overwrite,
            load,
            reload,
            compress,
            decompress,
            verified,
            figures,
            first_figures,
            growth,
        })
    }
}
