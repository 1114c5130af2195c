//! The suite of roads by vhost-user: a machine with two queues.

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, ZeroMode};
use common::*;
use host::{For, wait_until};
use sim::roads::{self, Client, Lack};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use vhost::Options;

/// Requests at once, by both queues, and the most bytes of one.
const SLOTS: u16 = 16;
const MOST: usize = 32 * PAGE_SIZE;

struct State {
    machine: Machine,
    free: Vec<u16>,
    /// The statuses of requests that are done, by their slots.
    done: HashMap<u16, u8>,
}

/// A machine whose threads ask at once.
struct Driven {
    state: Mutex<State>,
    served: Served,
}

impl Driven {
    fn new(device: Arc<dyn BlockDevice>) -> Arc<Driven> {
        let served = serve(device, Options::default());
        let state = State {
            machine: served.connect(),
            free: (0..2 * SLOTS).collect(),
            done: HashMap::new(),
        };
        Arc::new(Driven { state: Mutex::new(state), served })
    }

    /// Does it until there is a result. Others do theirs between.
    fn until<T>(&self, mut attempt: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(result) = attempt(&mut state) {
                return result;
            }
            drop(state);
            thread::yield_now();
        }
    }

    /// Carries out one request.
    fn ask(&self, what: (u32, u64), out: &[u8], into: &mut [u8]) -> Result<(), IoError> {
        let slot = self.until(|state| state.free.pop());
        let place = (usize::from(slot / SLOTS), slot % SLOTS);
        self.until(|state| {
            state.machine.begin(place, what, out, into.len() as u32);
            Some(())
        });
        self.until(|state| {
            let status = state.answer(slot, place.0)?;
            let at = state.machine.buffers(place.0, place.1) + 0x1000;
            into.copy_from_slice(&state.machine.read(at, into.len()));
            if status.is_some() {
                state.free.push(slot);
            }
            Some(match status {
                Some(0) => Ok(()),
                Some(2) => Err(IoError::Unsupported),
                _ => Err(IoError::Failed),
            })
        })
    }
}

impl State {
    /// The status of a request, if it is over. There is none if the server is gone.
    fn answer(&mut self, slot: u16, queue: usize) -> Option<Option<u8>> {
        while let Some((head, _)) = self.machine.used(queue, Duration::ZERO) {
            let place = head as u16 / 4;
            let status = self.machine.buffers(queue, place) + 0x4_4000;
            let status = self.machine.read(status, 1)[0];
            self.done.insert(queue as u16 * SLOTS + place, status);
        }
        let done = self.done.remove(&slot).map(Some);
        done.or_else(|| self.is_alone().then_some(None))
    }

    /// Nothing was asked for on the connection: what comes there is its end.
    fn is_alone(&mut self) -> bool {
        let fd = self.machine.front().as_raw_fd();
        // SAFETY: the front end has it open, and lives on.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        wait_until(fd, For::Reading, Instant::now()).unwrap()
    }
}

struct Driver(Arc<Driven>);

impl BlockDevice for Driver {
    fn geometry(&self) -> Geometry {
        let config = self.0.until(|state| Some(state.machine.config()));
        let number = |at: usize, bytes: usize| {
            config[at..at + bytes].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
        };
        let (bytes, minimum_block) = (number(0, 8) * SECTOR, number(20, 4) as u32);
        Geometry { bytes, minimum_block, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        let features = self.0.until(|state| Some(state.machine.features));
        let has = |bit: u32| features & 1 << bit != 0;
        Abilities { flush: has(9), discard: has(13), fast_zero: has(14), ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let sector = |n: usize| (offset + (n * MOST) as u64) / SECTOR;
        let free = |kind, flags| {
            let range = range(offset / SECTOR, (length / SECTOR) as u32, flags);
            self.0.ask((kind, 0), &range, &mut [])
        };
        match operation {
            Operation::Flush => self.0.ask((FLUSH, 0), &[], &mut []),
            Operation::Read { into, .. } => {
                let mut parts = into.chunks_mut(MOST).enumerate();
                parts.try_for_each(|(n, part)| self.0.ask((IN, sector(n)), &[], part))
            }
            Operation::Write { from, .. } => {
                let mut parts = from.chunks(MOST).enumerate();
                parts.try_for_each(|(n, part)| self.0.ask((OUT, sector(n)), part, &mut []))
            }
            Operation::Discard { .. } => free(DISCARD, 0),
            Operation::WriteZeroes { mode, .. } => {
                free(WRITE_ZEROES, u32::from(mode == ZeroMode::MayPunch))
            }
        }
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}

impl Client for Driver {
    fn another(&self) -> Arc<dyn Client> {
        Arc::new(Driver(self.0.clone()))
    }

    fn lose_server(&self) {
        self.0.served.server.stop();
    }

    /// There is one front end: others are refused, whatever they say.
    fn stranger(&self, rng: &mut Rng) {
        let mut message = vec![0; rng.below(100) as usize];
        rng.fill(&mut message);
        let stream = UnixStream::connect(self.0.served.socket());
        let _ = stream.unwrap().write_all(&message);
    }
}

#[test]
fn vhost_user_is_a_road() {
    roads::pass("vhost-user", &[Lack::FullError], |subject| {
        Arc::new(Driver(Driven::new(subject.device())))
    });
}
