//! The times for which locks are held: measured, or given.

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use serde::Serialize;
use units::{FRAMES_PER_PAGEBLOCK, PAGE_SIZE};

use super::load::{Demand, Visit};
use super::published::{self, BATCH, SOCKET};
use crate::args::ZoneSimArgs;
use crate::zone::designs::{self, DESIGNS, Design};
use crate::zone::plan::Plan;
use crate::zone::run::{Run, Visits};
use crate::zone::{Mode, Start, Workload};

/// Frees of the seed's designs, where times are given and not measured: the designs that share the
/// lock, and the heads of lists in a batch. The other designs take the lock alone.
const BESIDE: [(&str, f64); 3] = [("rwlock-range", BATCH), ("splice", 4.0), ("premerge", 4.0)];
/// The time of a list head where it is not measured: a transfer of its line.
const HEAD_NS: f64 = SOCKET;

/// The source of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured in this run.
    Measured,
    /// Given on the command line.
    Given,
}

/// The known data of a design.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Its name.
    pub design: String,
    /// The source of its times under the lock.
    pub source: Source,
    /// Number of threads in the measurement.
    pub threads: Option<usize>,
    /// The demand of a page on the zone.
    #[serde(skip)]
    pub demand: Demand,
    /// A thread's own time for a page, allocating and freeing, in nanoseconds.
    pub own_ns: (f64, f64),
    /// Measured under page-fault1: the part of free memory in blocks of order 0 at rest.
    pub order0_share: Option<f64>,
    /// Measured under page-fault1: free buddies that were not merged.
    pub unmerged_buddies: Option<u64>,
    /// Measured under cross-free: the demand of a page on the zone, and pages a second.
    #[serde(skip)]
    pub measured: Vec<Measured>,
}

/// A measured point on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Threads.
    pub threads: usize,
    /// The demand of a page on the zone.
    pub demand: Demand,
    /// Pages a second.
    pub pages_per_s: f64,
}

/// Parses `--held`: names with nanoseconds of a page under the lock, allocating and freeing.
///
/// # Errors
/// The text has another form, or the design is unknown.
pub fn given(texts: &[String]) -> Result<Vec<(String, f64, f64)>> {
    let mut all: Vec<(String, f64, f64)> = Vec::new();
    for text in texts {
        let number = |text: &str| {
            let ns: Option<f64> = text.trim().parse().ok();
            ns.filter(|ns| ns.is_finite() && (0.0..=1e6).contains(ns))
        };
        let parsed = text.split_once('=').and_then(|(name, times)| {
            let (alloc, free) = match times.split_once('/') {
                Some((alloc, free)) => (number(alloc)?, number(free)?),
                None => (number(times)? / 2.0, number(times)? / 2.0),
            };
            Some((name.to_owned(), alloc, free))
        });
        let Some(given) = parsed else {
            bail!(
                "--held {text}: write NAME=NS or NAME=ALLOC/FREE, in nanoseconds from 0 to 1000000"
            );
        };
        if !names().contains(&given.0.as_str()) {
            bail!(
                "--held {text}: there is no design {}; there are {}",
                given.0,
                names().join(", ")
            );
        }
        if all.iter().any(|other| other.0 == given.0) {
            bail!("--held {text}: {} has a time already", given.0);
        }
        all.push(given);
    }
    Ok(all)
}

/// The designs of the lab, and those of the seed.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = DESIGNS.iter().map(|design| design.name).collect();
    for row in published::seed() {
        if !names.contains(&row.design) {
            names.push(row.design);
        }
    }
    names
}

fn shape(name: &str, alloc: f64, free: f64) -> Demand {
    let beside = BESIDE.iter().find(|(beside, _)| *beside == name);
    let free = match beside {
        Some((_, heads)) => Visit::beside(BATCH, free, *heads, HEAD_NS),
        None => Visit::alone(BATCH, free),
    };
    Demand { alloc: Visit::alone(BATCH, alloc), free }
}

fn visit(visits: Option<Visits>) -> Visit {
    let Some(visits) = visits else { return Visit::NONE };
    let Some(pages) = visits.pages else { return Visit::NONE };
    Visit {
        pages,
        lockless: f64::from(u8::from(visits.lockless)),
        reads: visits.reads,
        read_ns: visits.read_ns,
        write_ns: visits.write_ns,
        heads: visits.heads,
        head_ns: visits.head_ns,
    }
}

fn demand_of(run: &Run) -> Demand {
    Demand { alloc: visit(run.alloc_visits), free: visit(run.free_visits) }
}

/// The designs to measure.
pub struct Wanted {
    plan: Plan,
    given: Vec<(String, f64, f64)>,
    /// Requested designs that do not exist here: only their given times are known.
    absent: Vec<String>,
}

impl Wanted {
    /// The designs that the arguments ask for.
    ///
    /// # Errors
    /// A design is unknown, or has no known times.
    pub fn new(
        args: &ZoneSimArgs,
        given: Vec<(String, f64, f64)>,
        cpus: Vec<usize>,
    ) -> Result<Wanted> {
        let is_given = |name: &str| given.iter().any(|given| given.0 == name);
        let is_there = |name: &str| DESIGNS.iter().any(|design| design.name == name);
        let all = args.design.iter().any(|name| name == "all");
        let there: Vec<String> =
            args.design.iter().filter(|name| is_there(name) || !is_given(name)).cloned().collect();
        let mut designs = if there.is_empty() { Vec::new() } else { designs::named(&there)? };
        // Without a probe and without `--held` a design is unknown: an error if named, else left
        // out.
        let unknown = |design: &&&Design| design.probed.is_none() && !is_given(design.name);
        if let Some(design) = designs.iter().find(unknown)
            && !all
        {
            bail!(
                "--design {}: it says nothing of its lock; give its times by --held",
                design.name
            );
        }
        designs.retain(|design| !unknown(&design));
        let absent = given
            .iter()
            .map(|given| given.0.clone())
            .filter(|name| !designs.iter().any(|design| design.name == *name))
            .collect();
        let frames = args.size / PAGE_SIZE as u64;
        let frames = u32::try_from(frames).unwrap_or(u32::MAX).clamp(FRAMES_PER_PAGEBLOCK, 1 << 28);
        let plan = Plan {
            designs,
            threads: (1..=cpus.len().clamp(1, 2)).collect(),
            workloads: vec![Workload::CrossFree, Workload::PageFault1],
            mode: Mode::Raw,
            start: Start::Stagger,
            frames: Some(frames / FRAMES_PER_PAGEBLOCK * FRAMES_PER_PAGEBLOCK),
            repeat: args.repeat as usize,
            cycles: 4,
            batch: None,
            pcp: None,
            give_back: false,
            seed: args.seed,
            cpus,
        };
        plan.check()?;
        Ok(Wanted { plan, given, absent })
    }

    /// Number of turns.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.plan.turns()
    }

    /// Measures the designs without given times, on up to two threads that free each other's
    /// frames. So the zone's own memory is as far from the lock's holder as on a large machine.
    ///
    /// # Errors
    /// Memory is out, or a zone allocates wrong frames.
    pub fn find_out(&self, bar: &ProgressBar) -> Result<Vec<Held>> {
        let runs = self.plan.measure(bar)?;
        let most = self.plan.threads.last().copied().unwrap_or(1);
        let mut all: Vec<Held> = Vec::new();
        for design in &self.plan.designs {
            let run = |workload: Workload, threads: usize| {
                runs.iter().find(|run: &&Run| {
                    (run.design, run.workload, run.threads) == (design.name, workload, threads)
                })
            };
            let cross = run(Workload::CrossFree, most);
            let given = self.given.iter().find(|given| given.0 == design.name);
            let (source, demand) = match (given, cross) {
                (Some((name, alloc, free)), _) => (Source::Given, shape(name, *alloc, *free)),
                (None, Some(run)) => (Source::Measured, demand_of(run)),
                (None, None) => continue,
            };
            let own_ns = run(Workload::CrossFree, 1).map_or_else(published::own_ns, own);
            let rest = run(Workload::PageFault1, most);
            let points = self.plan.threads.iter().filter_map(|&threads| {
                let run = run(Workload::CrossFree, threads)?;
                Some(Measured { threads, demand: demand_of(run), pages_per_s: run.pages_per_s })
            });
            all.push(Held {
                design: design.name.to_owned(),
                source,
                threads: given.is_none().then_some(most),
                demand,
                own_ns,
                order0_share: rest.and_then(|run| run.order0_share),
                unmerged_buddies: rest.and_then(|run| run.unmerged_buddies),
                measured: points.collect(),
            });
        }
        for (name, alloc, free) in self.given.iter().filter(|given| self.absent.contains(&given.0))
        {
            all.push(Held {
                demand: shape(name, *alloc, *free),
                ..nothing_known(name, Source::Given)
            });
        }
        Ok(all)
    }
}

/// A design without measurements.
fn nothing_known(name: &str, source: Source) -> Held {
    Held {
        design: name.to_owned(),
        source,
        threads: None,
        demand: Demand { alloc: Visit::NONE, free: Visit::NONE },
        own_ns: published::own_ns(),
        order0_share: None,
        unmerged_buddies: None,
        measured: Vec::new(),
    }
}

/// A page's time on one thread, less the time under the lock.
fn own(run: &Run) -> (f64, f64) {
    let held = |visits: Option<Visits>| {
        let visits = visits?;
        let each = visits.reads * visits.read_ns + (1.0 - visits.reads) * visits.write_ns;
        Some((each + visits.heads * visits.head_ns) / visits.pages?)
    };
    let rest = |ns: f64, visits| (ns - held(visits).unwrap_or(0.0)).max(0.5);
    (rest(run.alloc_ns, run.alloc_visits), rest(run.free_ns, run.free_visits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn times_are_given_by_name() {
        let all = given(&list(&["spin=217", "rwlock-range=150/60.5"])).expect("times");
        assert_eq!(all[0], ("spin".to_owned(), 108.5, 108.5));
        assert_eq!(all[1], ("rwlock-range".to_owned(), 150.0, 60.5));
        for wrong in ["spin", "spin=", "spin=-1", "spin=1/", "spin=nan", "spin=1e9", "hope=3"] {
            assert!(given(&list(&[wrong])).is_err(), "{wrong}");
        }
        assert!(given(&list(&["spin=1", "spin=2"])).is_err());
        let error = given(&list(&["hope=3"])).expect_err("no design").to_string();
        assert!(error.contains("no-merge-cluster"), "{error}");
    }

    #[test]
    fn designs_of_the_seed_free_as_they_do() {
        let demand = shape("rwlock-range", 10.0, 4.0);
        assert_eq!((demand.free.reads, demand.free.heads), (1.0, BATCH));
        assert_eq!((demand.alloc.reads, demand.alloc.write_ns), (0.0, 10.0 * BATCH));
        // Who is beside others keeps nobody out.
        assert_eq!(demand.per_page(0.0), 10.0);
        assert_eq!(shape("spin", 10.0, 4.0).per_page(63.0), 16.0);
    }
}
