//! The threads beside the swap devices of a daemon: one provides memory ahead of its use, one does
//! the background work of the engine, one watches memory.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rampack::control::ControlError;
use rampack::host::{Pressure, PressureEnd, Waited};
use rampack::zswap::{Headroom, Zswap};

use super::stuck::Watcher;
use super::{cache, protections};
use crate::failure::failed;

/// How often available memory is checked when no pressure is reported.
const LOOK: Duration = Duration::from_secs(1);

/// The size of a stack in bytes. The whole stack is in memory, so it is as small as possible.
const STACK: usize = 256 << 10;

/// The threads. A drop ends them and waits for them.
pub struct Helpers {
    zswap: Arc<Zswap>,
    working: Vec<Sender<()>>,
    end: PressureEnd,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
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
        let (pressure, end) = Pressure::new().map_err(what)?;
        // On failure its drop ends the threads that were started.
        let mut helpers =
            Helpers { zswap: zswap.clone(), working: Vec::new(), end, threads: Vec::new() };
        let ended = helpers.tell_of_the_end();
        let own = zswap.clone();
        let provide = move || {
            protections::begin_to_serve();
            cache::provide(&own, headroom, &ended);
        };
        helpers.spawn("swap-memory", provide).map_err(what)?;
        let ended = helpers.tell_of_the_end();
        let own = zswap.clone();
        helpers.spawn("swap-worker", move || cache::work(&own, &ended)).map_err(what)?;
        let own = zswap.clone();
        helpers.spawn("swap-pressure", move || watch(&own, pressure, watcher)).map_err(what)?;
        Ok(helpers)
    }

    fn tell_of_the_end(&mut self) -> Receiver<()> {
        let (working, ended) = channel();
        self.working.push(working);
        ended
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
        self.threads.push(thread.spawn(work)?);
        Ok(())
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

fn watch(zswap: &Zswap, mut pressure: Pressure, mut watcher: Option<Watcher>) {
    loop {
        let waited = pressure.wait(LOOK);
        if waited == Waited::Ended {
            return;
        }
        if let Some(watcher) = &mut watcher {
            watcher.look(zswap);
        }
        // The pool may have shrunk since, or the headroom may be smaller than it could be.
        zswap.memory_event().notify_all();
        if waited == Waited::Short {
            cache::shrink(zswap);
        }
    }
}
