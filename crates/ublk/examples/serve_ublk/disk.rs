//! RAM disks, some with faults.

use std::hint::black_box;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use units::{Cpu, PAGE_SIZE};

enum Kind {
    Plain,
    Failing,
    /// An operation in the second half takes this long.
    Slow(Duration),
    /// Operations in the second half wait until they are released.
    Held(Arc<Gate>),
    /// Every operation answers that it would have to wait, but never waits.
    Waiting,
    Panicking,
    Greedy,
    ReadOnly,
}

/// The operations of a held disk wait here.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        while !state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    /// The number of waiting operations.
    pub fn waiting(&self) -> u32 {
        self.state.lock().unwrap().1
    }

    /// Releases all operations; later ones do not wait.
    pub fn release(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }
}

pub struct Disk {
    inner: Plain,
    kind: Kind,
    bytes: u64,
}

impl Disk {
    /// Makes a disk and touches all its memory. `gate` is for the kind `held`.
    pub fn new(bytes: usize, kind: &str, gate: Arc<Gate>) -> Result<Disk, &'static str> {
        let kind = match kind {
            "plain" => Kind::Plain,
            "failing" => Kind::Failing,
            "slow" => Kind::Slow(Duration::from_millis(500)),
            "held" => Kind::Held(gate),
            "waiting" => Kind::Waiting,
            "panicking" => Kind::Panicking,
            "greedy" => Kind::Greedy,
            "readonly" => Kind::ReadOnly,
            _ => return Err("no such kind of disk"),
        };
        let inner = Plain::new(bytes);
        let whole = vec![1; bytes];
        let length = bytes as u64;
        inner
            .submit(Cpu(0), Operation::Write { offset: 0, from: &whole })
            .and_then(|()| inner.submit(Cpu(0), Operation::Discard { offset: 0, length }))
            .map_err(|_| "it cannot be filled")?;
        Ok(Disk { inner, kind, bytes: length })
    }

    fn is_slow(&self, offset: u64) -> bool {
        offset >= self.bytes / 2
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn abilities(&self) -> Abilities {
        let read_only = matches!(self.kind, Kind::ReadOnly);
        Abilities { flush: true, read_only, ..self.inner.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let offset = operation.range().0;
        let page = offset / PAGE_SIZE as u64;
        match &self.kind {
            Kind::Plain | Kind::ReadOnly => {}
            Kind::Waiting => context.may_wait()?,
            // The kernel reads the first pages to find partitions.
            Kind::Failing if page < 64 => {}
            Kind::Failing => return Err(IoError::Failed),
            Kind::Slow(time) if self.is_slow(offset) => {
                context.may_wait()?;
                sleep(*time);
            }
            Kind::Held(gate) if self.is_slow(offset) => {
                context.may_wait()?;
                gate.wait();
            }
            Kind::Slow(_) | Kind::Held(_) => {}
            Kind::Panicking => assert!(page != 77, "page 77 was asked for"),
            Kind::Greedy => drop(black_box(Box::new(offset))),
        }
        self.inner.perform(context, operation)
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(cpu, offset, length, visit)
    }
}
