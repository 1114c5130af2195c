//! Rounds of a contest: each target does the work, and the bare codec does it directly after; then
//! comes the next target. A disturbance hits both; medians of the rounds leave out disturbed
//! rounds.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Result, bail};
use designs::{INDEXES, MEMORIES, SLOT_SCHEMES, Variants, ZONES};
use zcomp::Params;

use super::codec::Codec;
use super::device::Device;
use super::engine::Engine;
use super::kernel;
use super::swap::Swap;
use super::target::{Figures, Target};
use super::work::{Speed, Work};
use crate::report;

/// The seams of our engine whose designs can take part: how the command line names each, what a
/// design of it is, and the designs.
const SEAMS: [(&str, &str, &[&str]); 4] = [
    ("engine", "slot scheme", SLOT_SCHEMES),
    ("zone", "zone", ZONES),
    ("memory", "memory", MEMORIES),
    // The cache in front of swap devices.
    ("swap", "index", INDEXES),
];

/// A kind of target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ours, with this design of a seam.
    Ours(&'static str, &'static str),
    /// The block device or file at this path.
    Device(PathBuf),
}

impl Kind {
    /// The kind of this name: `SEAM`, `SEAM:DESIGN` or a path.
    pub fn parse(text: &str) -> Result<Kind> {
        let (seam, name) = text.split_once(':').unwrap_or((text, ""));
        let Some((seam, what, designs)) = SEAMS.iter().find(|(known, ..)| *known == seam) else {
            return Ok(Kind::Device(text.into()));
        };
        match designs.iter().find(|design| name.is_empty() || **design == name) {
            Some(design) => Ok(Kind::Ours(seam, design)),
            None => bail!("no {what} {name:?}; there are: {}", designs.join(" ")),
        }
    }

    /// Its name in results.
    pub fn name(&self) -> String {
        match self {
            Kind::Ours("engine", slots) if *slots == SLOT_SCHEMES[0] => "engine".to_owned(),
            Kind::Ours("swap", index) if *index == INDEXES[0] => "swap".to_owned(),
            Kind::Ours(seam, design) => format!("{seam}:{design}"),
            Kind::Device(path) => path.display().to_string(),
        }
    }

    /// Whether its memory is this process's.
    fn is_in_process(&self) -> bool {
        matches!(self, Kind::Ours(..))
    }

    /// Its path, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Kind::Ours(..) => None,
            Kind::Device(path) => Some(path),
        }
    }

    fn open(&self, pages: usize, algorithm: &str) -> Result<Box<dyn Target>> {
        let (seam, design) = match self {
            Kind::Device(path) => return Ok(Box::new(Device::open(path, pages)?)),
            Kind::Ours(seam, design) => (*seam, (*design).to_owned()),
        };
        let usual = Variants::default();
        let variants = match seam {
            "swap" => {
                let variants = Variants { index: design, ..usual };
                return Ok(Box::new(Swap::new(pages, algorithm, variants)?));
            }
            "zone" => Variants { zone: design, ..usual },
            "memory" => Variants { memory: design, ..usual },
            _ => Variants { slots: design, ..usual },
        };
        Ok(Box::new(Engine::new(pages, algorithm, &variants)?))
    }
}

/// A target in the contest, and its results so far.
pub struct Contestant {
    /// The kind of target.
    pub kind: Kind,
    pub algorithm: String,
    /// That codec alone. `None` if it is not one of ours.
    codec: Option<Rc<Codec>>,
    /// Bytes of the corpus compressed by that codec.
    pub codec_bytes: Option<u64>,
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

/// Makes contestants for `work`. The engine uses `algorithm` or lz4. A device uses the algorithm
/// that it reports, else `algorithm` or lz4.
pub fn contestants(
    work: &Work<'_>,
    kinds: Vec<Kind>,
    algorithm: Option<&str>,
) -> Result<Vec<Contestant>> {
    let mut contestants: Vec<Contestant> = Vec::new();
    for kind in kinds {
        let said = kind.path().and_then(kernel::algorithm);
        let algorithm = said.as_deref().or(algorithm).unwrap_or(zcomp::LZ4).to_owned();
        let codec = match contestants.iter().find(|other| other.algorithm == algorithm) {
            Some(other) => other.codec.clone(),
            None if zcomp::ALGORITHMS.contains(&&*algorithm) => {
                let codec = zcomp::open(&algorithm, &Params::default())?;
                Some(Rc::new(Codec::new(work, || Ok(codec.context()?))?))
            }
            None => None,
        };
        let (codec_bytes, rounds) = (None, Vec::new());
        contestants.push(Contestant { kind, algorithm, codec, codec_bytes, rounds });
    }
    Ok(contestants)
}

impl Contestant {
    /// Does the work once.
    pub fn round(&mut self, work: &Work<'_>) -> Result<()> {
        report::step(format!("{} {}", self.kind.name(), self.algorithm))?;
        if let (Some(codec), None) = (&self.codec, self.codec_bytes) {
            codec.compress(work)?;
            codec.verify(work)?;
            self.codec_bytes = Some(codec.lengths(work)?.into_iter().map(u64::from).sum());
        }
        let codec = self.codec.as_deref();
        let before = host::resident_bytes();
        let target = &*self.kind.open(work.pages(), &self.algorithm)?;
        let store = work.store_first(target)?;
        let first_figures = target.figures();
        target.rest();
        let overwrite = work.store(target)?;
        let growth =
            self.kind.is_in_process().then(|| host::resident_bytes().saturating_sub(before));
        let figures = target.figures();
        let compress = codec.map(|codec| codec.compress(work)).transpose()?;
        let (load, verified) = work.load_verified(target)?;
        let reload = work.load(target)?;
        let decompress = codec.map(|codec| codec.decompress(work)).transpose()?;
        self.rounds.push(Round {
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
        });
        Ok(())
    }
}
