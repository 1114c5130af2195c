//! Threads that work at once, each on a CPU.

use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, anyhow, bail};
use sync::atomic::{AtomicBool, Ordering};

use crate::meeting::Meeting;

/// Runs a job on each CPU of `cpus` at once, on threads that stay there. Each thread has its number
/// and prepares its work. If all can do that, all begin to work together. Returns the results in
/// the order of `cpus`, or the first error, when all threads have ended.
pub fn on_each<S, T: Send>(
    cpus: &[usize],
    prepare: impl Fn(usize) -> Result<S> + Sync,
    work: impl Fn(S) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (meeting, failed) = (&Meeting::new(cpus.len()), &AtomicBool::new(false));
    let run = |number: usize| -> Result<Option<T>> {
        let _part = meeting.take_part();
        let pinned = host::pin_to_cpu(cpus[number]).map_err(|error| anyhow!("{error}"));
        let prepared = pinned.and_then(|()| prepare(number));
        // Relaxed: the meeting orders it.
        failed.fetch_or(prepared.is_err(), Ordering::Relaxed);
        meeting.wait();
        let prepared = prepared?;
        if failed.load(Ordering::Relaxed) { Ok(None) } else { work(prepared).map(Some) }
    };
    let results: Vec<Result<Option<T>>> = thread::scope(|scope| {
        let run = &run;
        let start = |number| scope.spawn(move || run(number));
        let running: Vec<_> = (0..cpus.len()).map(start).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<Option<T>>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        };
        running.into_iter().map(join).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<Option<T>>>>()?;
    Ok(results.into_iter().flatten().collect())
}

/// The CPUs of this many threads: those of this process, in turn.
pub fn cpus(threads: usize) -> Result<Vec<usize>> {
    let allowed = host::allowed_cpus();
    if allowed.is_empty() {
        bail!("the system does not tell which CPUs there are");
    }
    Ok((0..threads).map(|thread| allowed[thread % allowed.len()]).collect())
}

/// The first two CPUs of this process.
pub fn two_cpus() -> Result<[usize; 2]> {
    match host::allowed_cpus()[..] {
        [first, second, ..] => Ok([first, second]),
        _ => bail!("contention is measured between two CPUs, and there is one"),
    }
}
