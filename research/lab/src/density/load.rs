//! Which pages are used in each second.

use clap::ValueEnum;
use serde::Serialize;

/// How pages age.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ages {
    /// Few pages are used most of the time, many seldom
    Zipf,
    /// All pages are read one after the other in a minute, every five minutes
    Sweeps,
    /// An eighth of the pages is in use for two minutes, then another
    Phases,
}

/// Which pages are used.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// This share of the pages, in percent, is not used. All others are, every four seconds.
    Rest(u32),
    /// Pages come into use and leave it.
    Ages(Ages),
}

/// How long pages age, in seconds.
const LONG: u32 = 600;

/// All pages in a random order: what is near in time is not near in memory.
pub fn order(pages: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pages).collect();
    random.shuffle(&mut order);
    order
}

impl Load {
    pub fn name(self) -> String {
        match self {
            Load::Rest(idle) => format!("{idle}% idle"),
            Load::Ages(ages) => format!("{ages:?}").to_lowercase(),
        }
    }

    /// The share of idle pages, if it is fixed.
    pub fn idle(self) -> Option<u32> {
        match self {
            Load::Rest(idle) => Some(idle),
            Load::Ages(_) => None,
        }
    }

    /// How pages age, if they do.
    pub fn ages(self) -> Option<Ages> {
        match self {
            Load::Rest(_) => None,
            Load::Ages(ages) => Some(ages),
        }
    }

    /// How long it lasts; `None` if it lasts until no more pages move.
    pub fn seconds(self) -> Option<u32> {
        self.ages().map(|_| LONG)
    }

    /// Adds the pages that are used in a second to `used`.
    pub fn used(
        self,
        second: u32,
        order: &[usize],
        random: &mut fastrand::Rng,
        used: &mut Vec<usize>,
    ) {
        let pages = order.len();
        match self {
            Load::Rest(idle) => {
                let in_use = pages - pages * idle as usize / 100;
                if second.is_multiple_of(4) {
                    used.extend(&order[..in_use]);
                }
            }
            Load::Ages(Ages::Zipf) => {
                let rank = |random: &mut fastrand::Rng| (pages as f64).powf(random.f64()) - 1.0;
                used.extend((0..pages / 64).map(|_| order[rank(random) as usize]));
            }
            Load::Ages(Ages::Sweeps) => {
                let at = (second % 300) as usize;
                if at < 60 {
                    used.extend(at * pages / 60..(at + 1) * pages / 60);
                }
                let few = pages / 16;
                used.extend((0..few / 8).map(|_| order[random.usize(..few.max(1))]));
            }
            Load::Ages(Ages::Phases) => {
                let set = (pages / 8).max(1);
                let first = (second / 120) as usize * set;
                let one = |random: &mut fastrand::Rng| (first + random.usize(..set)) % pages;
                used.extend((0..set / 8).map(|_| order[one(random)]));
            }
        }
    }
}
