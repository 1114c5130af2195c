//! The recovery of what another process left in a zone, from the survey on.

use std::ops::Range;
use std::thread;

use control::ControlError;
use pagealloc::{FrameSet, Frames, MemoryProvider, Zone};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use units::Cpu;
use zram::Persist;

use crate::left::no_memory;

/// Pages that a thread judges at a time, a multiple of 64.
const CHUNK: usize = 1 << 18;

/// How far a recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The number of the disk or of the swap area.
    pub id: u32,
    /// Pages that were judged.
    pub done: u64,
    /// Pages of the disk or area.
    pub all: u64,
}

/// Called with the progress, by any thread.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Recovers all that was surveyed of a zone, on `cpus` threads. `holds` adds the frames that live
/// besides. Returns what became of each.
///
/// # Errors
/// `ENOMEM`, or the error of `holds`. What was left is as it was.
pub(crate) fn recover<P: Persist>(
    surveyed: Vec<P>,
    zone: &Zone,
    (provider, cpus): (&dyn MemoryProvider, usize),
    tell: Tell<'_>,
    holds: impl FnOnce(&FrameSet) -> Result<(), ControlError>,
) -> Result<Vec<Result<P::Recovered, ControlError>>, ControlError> {
    for it in &surveyed {
        for (span, (id, pages)) in it.spans().into_iter().enumerate() {
            walk((id, pages), cpus, tell, &|cpu, range| it.walk(cpu, span, range));
        }
    }
    let live = FrameSet::new(provider, zone.capacity()).map_err(no_memory)?;
    surveyed.iter().for_each(|it| it.settle(&live));
    holds(&live)?;
    zone.adopt(&live).map_err(no_memory)?;
    Ok(surveyed.into_iter().map(P::finish).collect())
}

/// Judges all `pages` pages of disk or area `id`, by calls of `judge`.
fn walk(
    (id, pages): (u32, u64),
    cpus: usize,
    tell: Tell<'_>,
    judge: &(dyn Fn(Cpu, Range<u64>) + Sync),
) {
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let take = || -> Option<Range<u64>> {
        let start = next.fetch_add(CHUNK, Ordering::Relaxed) as u64;
        (start < pages).then(|| start..(start + CHUNK as u64).min(pages))
    };
    let work = |cpu: Cpu| {
        while let Some(range) = take() {
            let length = range.end - range.start;
            judge(cpu, range);
            let done = done.fetch_add(length, Ordering::Relaxed) + length;
            tell(Progress { id, done, all: pages });
        }
    };
    let threads = (cpus as u64).min(pages.div_ceil(CHUNK as u64)).max(1) as u32;
    thread::scope(|scope| {
        for cpu in (1..threads).map(Cpu) {
            // Where no thread can be made, the others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, move || work(cpu));
        }
        work(Cpu(0));
    });
}
