//! What the device and its thread share.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use block::{BlockDevice, Context, IoError, Operation, ZeroMode};
use sync::{EventCount, Mutex};
use tokio::runtime::Handle;
use units::Cpu;

use crate::chunks::{Check, Copy, Millis, Table};
use crate::exchange::{BLOCK, Exchange};

pub(crate) struct Shared {
    /// The device below.
    pub(crate) below: Arc<dyn BlockDevice>,
    pub(crate) bytes: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) table: Mutex<Table>,
    /// Notified when a chunk was moved.
    pub(crate) moved: EventCount,
    pub(crate) exchange: Exchange,
    runtime: Handle,
    start: Instant,
}

/// Blocks that are on their way from a store.
pub(crate) struct Fetch {
    answer: mpsc::Receiver<Result<Vec<u8>, IoError>>,
}

impl Fetch {
    /// Waits for them. It takes no longer than the deadlines of all stores.
    pub(crate) fn wait(self) -> Result<Vec<u8>, IoError> {
        // The runtime has ended if nobody will send anything.
        self.answer.recv().unwrap_or(Err(IoError::Failed))
    }
}

impl Shared {
    pub(crate) fn new(
        below: Arc<dyn BlockDevice>,
        chunk_bytes: u64,
        exchange: Exchange,
        runtime: Handle,
    ) -> Shared {
        let bytes = below.geometry().bytes;
        let table = Mutex::new(Table::new(bytes.div_ceil(chunk_bytes) as usize));
        let (moved, start) = (EventCount::default(), Instant::now());
        Shared { below, bytes, chunk_bytes, table, moved, exchange, runtime, start }
    }

    pub(crate) fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    /// The bytes of a chunk. The last one may be shorter.
    pub(crate) fn bytes_of(&self, chunk: usize) -> Range<u64> {
        let start = chunk as u64 * self.chunk_bytes;
        start..(start + self.chunk_bytes).min(self.bytes)
    }

    /// Asks the stores for blocks of a copy.
    pub(crate) fn fetch(self: &Arc<Shared>, copy: Copy, blocks: Range<usize>) -> Fetch {
        let (send, answer) = mpsc::sync_channel(1);
        let shared = self.clone();
        self.runtime.spawn(async move {
            let read = shared.exchange.read(&copy, blocks).await;
            // Nobody may wait any more.
            let _ = send.send(read);
        });
        Fetch { answer }
    }

    /// Reads a chunk of the device below.
    pub(crate) fn read_chunk(&self, cpu: Cpu, chunk: usize) -> Result<Vec<u8>, IoError> {
        let range = self.bytes_of(chunk);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = Operation::Read { offset: range.start, into: &mut bytes };
        self.below.perform(Context::waiting(cpu), read)?;
        Ok(bytes)
    }

    /// Writes a chunk that is away back to the device below.
    pub(crate) fn bring(
        self: &Arc<Shared>,
        cpu: Cpu,
        chunk: usize,
        copy: Copy,
    ) -> Result<(), IoError> {
        let range = self.bytes_of(chunk);
        let context = Context::waiting(cpu);
        let length = range.end - range.start;
        let zeroes =
            Operation::WriteZeroes { offset: range.start, length, mode: ZeroMode::MayPunch };
        let checks = copy.checks.clone();
        let bytes = self.fetch(copy, 0..checks.len()).wait()?;
        self.below.perform(context, zeroes)?;
        let mut block = 0;
        for run in checks.chunk_by(|a, b| (*a == Check::Zero) == (*b == Check::Zero)) {
            let at = block * BLOCK..(block + run.len()) * BLOCK;
            block += run.len();
            if run[0] != Check::Zero {
                let offset = range.start + at.start as u64;
                let write = Operation::Write { offset, from: &bytes[at] };
                self.below.perform(context, write)?;
            }
        }
        Ok(())
    }
}
