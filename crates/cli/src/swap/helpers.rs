//! The threads beside the swap devices of a daemon: one does what the engine has to do, one
//! watches memory.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use control::Fault;
use host::{Pressure, PressureEnd, Reserve, Waited};
use sync::Mutex;
use zswap::Zswap;

use super::cache;
use crate::failure::failed;

/// How often available memory is looked at when nobody tells of pressure.
const LOOK: Duration = Duration::from_secs(1);
/// With less than this available the reserve is given to the zone, with twice as much it is set
/// aside again: in bytes, and as a part of all memory.
const CRITICAL: u64 = 64 << 20;
const CRITICAL_PART: u64 = 64;

/// The threads; dropping this ends them and waits for them.
pub struct Helpers {
    zswap: Arc<Zswap>,
    working: Option<Sender<()>>,
    end: PressureEnd,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    /// Starts them.
    ///
    /// # Errors
    /// What the system reports; none is left then.
    pub fn start(zswap: &Arc<Zswap>, reserve: Arc<Mutex<Reserve>>) -> Result<Helpers, Fault> {
        let what = |error: io::Error| failed("cannot start the threads of swap devices", &error);
        let (pressure, end) = Pressure::new().map_err(what)?;
        let (working, ended) = channel();
        // Dropped on failure, it ends those that were started.
        let mut helpers =
            Helpers { zswap: zswap.clone(), working: Some(working), end, threads: Vec::new() };
        let own = zswap.clone();
        helpers.spawn("swap-worker", move || cache::work(&own, &ended)).map_err(what)?;
        let own = zswap.clone();
        let watch = move || watch(&own, pressure, &reserve);
        helpers.spawn("swap-pressure", watch).map_err(what)?;
        Ok(helpers)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.working = None;
        self.zswap.bell().ring_all();
        self.end.end();
        for thread in self.threads.drain(..) {
            // What a thread panicked with was told by the panic hook.
            let _ = thread.join();
        }
    }
}

fn watch(zswap: &Zswap, mut pressure: Pressure, reserve: &Mutex<Reserve>) {
    let critical = CRITICAL.max(host::total_memory() / CRITICAL_PART);
    loop {
        let waited = pressure.wait(LOOK);
        if waited == Waited::Ended {
            return;
        }
        let available = host::available_memory();
        let mut reserve = reserve.lock();
        if available < critical && !reserve.is_given() {
            reserve.give();
            tracing::warn!("memory is out: what was set aside is used now");
        } else if available > 2 * critical && reserve.held_bytes() < reserve.wanted_bytes() {
            reserve.refill();
        }
        drop(reserve);
        if waited == Waited::Short {
            cache::shrink(zswap);
        }
    }
}
