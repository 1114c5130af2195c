//! The threads beside the swap devices of a daemon: one provides memory ahead of its use, one does
//! the background work of the engine, one watches memory and drops freed pages, one writes the log
//! of that.
//!
//! The one that watches writes nothing itself. The log may be a file in memory that is swapped out
//! to a device that does not answer; a write to it waits then.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use control::ControlError;
use host::{Pressure, PressureEnd, Role, Waited, Watermarks};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zswap::{Headroom, Zswap};

use super::stuck::Watcher;
use super::trouble::Trouble;
use super::{cache, protections};
use crate::failure::failed;

/// How often available memory is checked when no pressure is reported.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two sweeps while pages are freed.
const SWEEP: Duration = Duration::from_millis(50);

/// The size of a stack in bytes. The whole stack is in memory, so it is as small as possible.
const STACK: usize = 256 << 10;

/// The threads. A drop ends them and waits for them.
pub struct Helpers {
    zswap: Arc<Zswap>,
    working: Vec<Sender<()>>,
    end: PressureEnd,
    threads: Vec<JoinHandle<()>>,
    silent: Arc<AtomicU64>,
}

impl Helpers {
    /// How long a backing device has not answered although pages wait for it, in seconds; 0 below
    /// ten.
    #[must_use]
    pub fn silent_seconds(&self) -> u64 {
        self.silent.load(Ordering::Relaxed)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system call; no thread is left then.
    pub fn start(
        zswap: &Arc<Zswap>,
        headroom: Headroom,
        watcher: Option<Watcher>,
    ) -> Result<Helpers, ControlError> {
        let what = |error: io::Error| failed("cannot start the threads of swap devices", &error);
        let (mut pressure, end) = Pressure::new().map_err(what)?;
        // On failure its drop ends the threads that were started.
        let mut helpers = Helpers {
            zswap: zswap.clone(),
            working: Vec::new(),
            end,
            threads: Vec::new(),
            silent: Arc::default(),
        };
        let ended = helpers.tell_of_the_end();
        let own = zswap.clone();
        // Opened here: the thread opens nothing.
        let watermarks = Watermarks::new();
        let provide = move || cache::provide(&own, headroom, watermarks, &ended);
        helpers.spawn(Role::SwapMemory, protections::begin_to_serve, provide).map_err(what)?;
        let ended = helpers.tell_of_the_end();
        let own = zswap.clone();
        let short = Arc::new(AtomicBool::new(false));
        let is_short = short.clone();
        let work = move || machine::work_of_swap(&own, &ended, || shrink_if(&own, &is_short));
        helpers.spawn(Role::SwapWorker, || {}, work).map_err(what)?;
        let own = zswap.clone();
        let silent = helpers.silent.clone();
        let (log, lines) = channel::<String>();
        let write = move || lines.iter().for_each(|line| tracing::error!("{line}"));
        helpers.spawn(Role::SwapLog, || {}, write).map_err(what)?;
        let wait = move |time| pressure.wait(time);
        let watch = move || watch(&own, wait, watcher, (&silent, &short, &log));
        helpers.spawn(Role::SwapPressure, || {}, watch).map_err(what)?;
        Ok(helpers)
    }

    fn tell_of_the_end(&mut self) -> Receiver<()> {
        let (working, ended) = channel();
        self.working.push(working);
        ended
    }

    /// Starts the thread of a role, and waits until it has given up what the role does not need.
    fn spawn(
        &mut self,
        role: Role,
        begin: fn(),
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (ready, is_ready) = channel();
        let run = move || {
            begin();
            let entered = host::enter(role);
            let may_work = entered.is_ok();
            // The receiver waits for this.
            let _ = ready.send(entered);
            if may_work {
                work();
            }
        };
        let thread = thread::Builder::new().name(role.name().into()).stack_size(STACK);
        self.threads.push(thread.spawn(run)?);
        is_ready.recv().map_err(io::Error::other)?
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.working.clear();
        self.zswap.event().notify_all();
        self.zswap.memory_event().notify_all();
        self.end.end();
        for thread in self.threads.drain(..) {
            // The panic hook has reported the panic of a thread.
            let _ = thread.join();
        }
    }
}

/// Has pages written back if memory `is_short`.
fn shrink_if(zswap: &Zswap, is_short: &AtomicBool) {
    if is_short.swap(false, Ordering::Relaxed) {
        cache::shrink(zswap);
    }
}

/// Looks after memory and the devices. It waits for no device: another thread shrinks the cache.
fn watch(
    zswap: &Zswap,
    mut wait: impl FnMut(Duration) -> Waited,
    mut watcher: Option<Watcher>,
    (silent, short, log): (&AtomicU64, &AtomicBool, &Sender<String>),
) {
    let (begun, mut trouble) = (Instant::now(), Trouble::default());
    let (mut pause, mut looked) = (LOOK, begun);
    loop {
        let waited = wait(pause);
        if waited == Waited::Ended {
            return;
        }
        pause = match zswap.sweep(host::cpu()) {
            0 => LOOK.min(pause * 2),
            _ => SWEEP,
        };
        if waited == Waited::Quiet && looked.elapsed() + SWEEP < LOOK {
            continue;
        }
        looked = Instant::now();
        let stuck = watcher.as_mut().and_then(|watcher| watcher.look(zswap));
        let said = trouble.look(begun.elapsed(), zswap.device_answers(), &zswap.answers());
        for line in stuck.into_iter().chain(said) {
            // The other thread ends after this one.
            let _ = log.send(line);
        }
        silent.store(trouble.silent_seconds(), Ordering::Relaxed);
        // The pool may have shrunk since, or the headroom may be smaller than it could be.
        zswap.memory_event().notify_all();
        if waited == Waited::Short {
            short.store(true, Ordering::Relaxed);
            zswap.event().notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
    use sync::Mutex;
    use units::{Cpu, PAGE_SIZE};

    use super::super::cache::tests::filled;
    use super::*;

    /// A device whose writes wait until the other end of the channel is gone.
    struct Hangs(Plain, Mutex<Receiver<()>>);

    impl BlockDevice for Hangs {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn abilities(&self) -> Abilities {
            self.0.abilities()
        }
        fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
            let _ = self.1.lock().recv_timeout(Duration::from_secs(60));
            self.0.perform(context, operation)
        }
        fn extents(&self, cpu: Cpu, at: u64, bytes: u64, visit: Visit<'_>) -> Result<(), IoError> {
            self.0.extents(cpu, at, bytes, visit)
        }
    }

    #[test]
    fn the_thread_that_watches_does_not_wait_for_a_device() {
        const PAGES: u64 = 200;
        let (answers, hangs) = channel();
        let device = Hangs(Plain::new(PAGES as usize * PAGE_SIZE), Mutex::new(hangs));
        let noise = |number| {
            let mut page = [0; PAGE_SIZE];
            testkit::Rng::new(number).fill(&mut page);
            page
        };
        let zswap = filled(true, Arc::new(device), PAGES, noise);
        let (silent, short, (log, _lines)) = (AtomicU64::new(0), AtomicBool::new(false), channel());
        let mut waits = [Waited::Short, Waited::Short, Waited::Ended].into_iter();
        let wait = move |_| waits.next().unwrap_or(Waited::Ended);
        let is_over = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&zswap, wait, None, (&silent, &short, &log)));
            let end = Instant::now() + Duration::from_secs(30);
            while !watching.is_finished() && Instant::now() < end {
                thread::yield_now();
            }
            let is_over = watching.is_finished();
            drop(answers);
            is_over
        });
        assert!(is_over, "it waited for the device");
        assert_eq!(zswap.stats().asked, 0);
        for _ in 0..2 {
            shrink_if(&zswap, &short);
            let stats = zswap.stats();
            assert!(stats.written_back_pages > 0 && stats.written_back_pages < PAGES, "{stats:?}");
        }
        assert!(!short.load(Ordering::Relaxed));
    }
}
