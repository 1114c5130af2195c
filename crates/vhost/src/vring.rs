//! A ring as the front end describes it, and the thread that serves it meanwhile.

use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use host::Waiters;

use crate::inflight::Inflight;
use crate::memory::{Memory, invalid};
use crate::queue::Queue;
use crate::request::Served;
use crate::ring::{MOST, Parts, Ring, Signal, signal};

/// Bytes of the stack of a ring's thread: all of it is memory where the process locks its memory.
const STACK: usize = 512 << 10;

/// A ring.
#[derive(Default)]
pub(crate) struct Vring {
    pub(crate) size: u16,
    /// Descriptors, available ring and used ring, where the front end has them.
    pub(crate) places: Option<[u64; 3]>,
    /// Available requests that were taken.
    pub(crate) taken: u16,
    pub(crate) kick: Option<File>,
    pub(crate) enabled: bool,
    call: Signal,
    error: Signal,
    running: Option<(Arc<Queue>, JoinHandle<()>)>,
}

/// What the rings of a connection have in common.
pub(crate) struct Common {
    pub(crate) served: Arc<Served>,
    pub(crate) waiters: Option<Arc<Waiters>>,
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) event_idx: bool,
    /// Rings wait until they are enabled.
    pub(crate) enables: bool,
}

impl Vring {
    /// # Errors
    /// `InvalidInput` if the size is no power of two, or too large.
    pub(crate) fn set_size(&mut self, size: u32) -> io::Result<()> {
        self.size = match u16::try_from(size) {
            Ok(size) if size.is_power_of_two() && size <= MOST => size,
            _ => {
                let text = format!("a ring of {size} entries; it has 1, 2, 4 or up to {MOST}");
                return Err(invalid(text));
            }
        };
        Ok(())
    }

    /// Sets what is signalled when a request is done. It is signalled once: the process before may
    /// have died before it did so.
    pub(crate) fn set_call(&self, file: Option<File>) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = file;
        signal(&self.call);
    }

    pub(crate) fn set_error(&self, file: Option<File>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Serves it from now on, if everything is there and it is not served yet.
    ///
    /// # Errors
    /// `InvalidInput` for a ring that cannot be; the error of the system.
    pub(crate) fn start(&mut self, number: usize, common: &Common) -> io::Result<()> {
        let (Some(memory), Some(places), Some(kick)) = (&common.memory, self.places, &self.kick)
        else {
            return Ok(());
        };
        let may = self.enabled || !common.enables;
        if !may || self.size == 0 || self.running.is_some() {
            return Ok(());
        }
        let under_way = common.inflight.as_ref().map(|it| it.queue(number, self.size));
        let ring = Ring::new(Parts {
            memory: memory.clone(),
            places,
            size: self.size,
            event_idx: common.event_idx,
            taken: self.taken,
            under_way: under_way.transpose()?,
            call: self.call.clone(),
        })?;
        let ends = (kick.try_clone()?, self.error.clone());
        let queue = Queue::new(ring, ends, common.served.clone(), common.waiters.clone())?;
        let queue = Arc::new(queue);
        let serving = queue.clone();
        let thread = thread::Builder::new().name(format!("vhost-{number}")).stack_size(STACK);
        let thread = thread.spawn(move || serving.serve())?;
        self.running = Some((queue, thread));
        Ok(())
    }

    /// Ends that, after what is under way.
    pub(crate) fn stop(&mut self) {
        let Some((queue, thread)) = self.running.take() else { return };
        queue.stop();
        // The panic hook has reported a panic of the thread.
        drop(thread.join());
        self.taken = queue.taken();
    }
}

impl Drop for Vring {
    fn drop(&mut self) {
        self.stop();
    }
}
