//! A road of no length, and what may be wrong with a road.

use std::sync::{Arc, Mutex};
use std::thread;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use sync::atomic::{AtomicBool, Ordering};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use super::Client;

/// What is wrong with a road.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoadFlaw {
    /// A flush is answered before it is done: the next request but one finds it so.
    FlushesLate,
    /// What passes the end is cut off, and succeeds.
    CutsOff,
    /// What comes after a failed request is answered, and not done.
    SpreadsFaults,
    /// After the device has panicked, everything fails.
    EndsAtPanics,
    /// One request at a time.
    HoldsUp,
    /// Without a server, requests wait for it.
    Hangs,
    /// Without a server, requests succeed.
    SaysDone,
    /// Strangers may write.
    LetsIn,
}

impl RoadFlaw {
    /// All of them.
    pub const ALL: [RoadFlaw; 8] = [
        RoadFlaw::FlushesLate,
        RoadFlaw::CutsOff,
        RoadFlaw::SpreadsFaults,
        RoadFlaw::EndsAtPanics,
        RoadFlaw::HoldsUp,
        RoadFlaw::Hangs,
        RoadFlaw::SaysDone,
        RoadFlaw::LetsIn,
    ];
}

/// A client that has the device itself, by a road with a flaw or without.
#[derive(Clone)]
pub struct Short {
    device: Arc<dyn BlockDevice>,
    flaw: Option<RoadFlaw>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    one: Mutex<()>,
    is_lost: AtomicBool,
    /// A flush is still to be done; the last request failed; the device has panicked.
    owes_flush: AtomicBool,
    has_failed: AtomicBool,
    has_panicked: AtomicBool,
    /// A read has begun.
    has_read: AtomicBool,
}

impl Short {
    /// A road to `device`.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, flaw: Option<RoadFlaw>) -> Short {
        Short { device, flaw, state: Arc::default() }
    }

    fn has(&self, flaw: RoadFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn carry_out(&self, operation: Operation<'_>) -> Result<(), IoError> {
        let ask = |operation| {
            let ask = || self.device.submit(Cpu(0), operation);
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
            asked.unwrap_or_else(|_| {
                self.state.has_panicked.store(true, Ordering::Relaxed);
                Err(IoError::Failed)
            })
        };
        if operation.changes() && self.state.owes_flush.swap(false, Ordering::Relaxed) {
            ask(Operation::Flush)?;
        }
        let bytes = self.device.geometry().bytes;
        match operation {
            Operation::Flush if self.has(RoadFlaw::FlushesLate) => {
                self.state.owes_flush.store(true, Ordering::Relaxed);
                Ok(())
            }
            Operation::Write { offset, from }
                if self.has(RoadFlaw::CutsOff) && offset + from.len() as u64 > bytes =>
            {
                let room = bytes.saturating_sub(offset) as usize;
                ask(Operation::Write { offset: offset.min(bytes), from: &from[..room] })
            }
            operation => ask(operation),
        }
    }
}

impl BlockDevice for Short {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.device.abilities()
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let _one = self.has(RoadFlaw::HoldsUp).then(|| self.state.one.lock());
        if self.state.is_lost.load(Ordering::Relaxed) {
            while self.has(RoadFlaw::Hangs) {
                thread::park();
            }
            return if self.has(RoadFlaw::SaysDone) { Ok(()) } else { Err(IoError::Failed) };
        }
        if self.has(RoadFlaw::EndsAtPanics) && self.state.has_panicked.load(Ordering::Relaxed) {
            return Err(IoError::Failed);
        }
        if matches!(operation, Operation::Read { .. }) {
            self.state.has_read.store(true, Ordering::Relaxed);
        }
        let spreads = self.has(RoadFlaw::SpreadsFaults) && operation.changes();
        if spreads && self.state.has_failed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let done = self.carry_out(operation);
        self.state.has_failed.store(done.is_err(), Ordering::Relaxed);
        done
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.device.extents(cpu, offset, length, visit)
    }
}

impl Client for Short {
    fn another(&self) -> Arc<dyn Client> {
        // It is held up by a read that waits, so that has to be there.
        while self.has(RoadFlaw::HoldsUp) && !self.state.has_read.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        Arc::new(self.clone())
    }

    fn lose_server(&self) {
        self.state.is_lost.store(true, Ordering::Relaxed);
    }

    fn stranger(&self, rng: &mut Rng) {
        if self.has(RoadFlaw::LetsIn) {
            let mut page = [0; PAGE_SIZE];
            rng.fill(&mut page);
            let _ = self.device.submit(Cpu(0), Operation::Write { offset: 0, from: &page });
        }
    }
}
