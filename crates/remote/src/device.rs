//! The device.

use std::sync::Arc;
use std::thread::JoinHandle;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation,
    RemoteStats, Visit,
};
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;

use crate::chunks::{Change, Copy, Found};
use crate::exchange::BLOCK;
use crate::shared::{Fetch, Shared};

/// A device whose cold chunks are at stores. [`block::Checked`] is above it.
pub(crate) struct Remote {
    pub(crate) shared: Arc<Shared>,
    /// The thread ends when this is notified.
    pub(crate) end: Arc<tokio::sync::Notify>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A part of an operation that lies in one chunk.
#[derive(Clone, Copy)]
struct Piece {
    chunk: usize,
    offset: u64,
    length: u64,
    /// Where it begins in the operation.
    within: usize,
}

impl Remote {
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
        let (size, end) = (self.shared.chunk_bytes, offset + length);
        let mut at = offset;
        std::iter::from_fn(move || {
            let next = (at / size + 1).saturating_mul(size).min(end);
            let (chunk, within) = ((at / size) as usize, (at - offset) as usize);
            let piece = Piece { chunk, offset: at, length: next - at, within };
            at = next;
            (piece.length > 0).then_some(piece)
        })
    }

    /// Asks for blocks of a piece that is away.
    fn fetch(&self, piece: Piece, copy: Copy) -> Fetch {
        let start = (piece.offset - self.shared.bytes_of(piece.chunk).start) as usize / BLOCK;
        self.shared.fetch(copy, start..start + piece.length as usize / BLOCK)
    }

    fn read(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let shared = &self.shared;
        for piece in self.pieces(offset, into.len() as u64) {
            let into = &mut into[piece.within..piece.within + piece.length as usize];
            let found = shared.table.lock().read(piece.chunk, shared.now());
            match found {
                Found::Here => {
                    let read = Operation::Read { offset: piece.offset, into };
                    let read = shared.below.perform(context, read);
                    shared.table.lock().end(piece.chunk);
                    read?;
                }
                Found::Away(copy) => into.copy_from_slice(&self.fetch(piece, copy).wait()?),
            }
        }
        Ok(())
    }

    /// Lets a change of a chunk begin, after it has come back. True if the change is to be made on
    /// the device below.
    fn begin(&self, cpu: Cpu, chunk: usize, change: impl Fn() -> Change) -> Result<bool, IoError> {
        let shared = &self.shared;
        loop {
            let ticket = shared.moved.ticket();
            match change() {
                Change::Here => return Ok(true),
                Change::Done => return Ok(false),
                Change::Wait => shared.moved.wait(ticket),
                Change::Bring(copy) => {
                    let brought = shared.bring(cpu, chunk, copy);
                    shared.table.lock().brought(chunk, brought.is_ok());
                    shared.moved.notify_all();
                    brought?;
                }
            }
        }
    }

    fn change(&self, context: Context, operation: &Operation<'_>) -> Result<(), IoError> {
        let shared = &self.shared;
        let (offset, length) = operation.range();
        for piece in self.pieces(offset, length) {
            let Piece { chunk, offset, length, within } = piece;
            let (part, begun) = match *operation {
                Operation::Write { from, .. } => {
                    let from = &from[within..within + length as usize];
                    let begin = || shared.table.lock().change(chunk, shared.now());
                    let begun = self.begin(context.cpu, chunk, begin)?;
                    (Operation::Write { offset, from }, begun)
                }
                Operation::WriteZeroes { mode, .. } => {
                    let begin = || shared.table.lock().change(chunk, shared.now());
                    let begun = self.begin(context.cpu, chunk, begin)?;
                    (Operation::WriteZeroes { offset, length, mode }, begun)
                }
                _ => {
                    let bytes = shared.bytes_of(chunk);
                    let all = (bytes.start, bytes.end) == (offset, offset + length);
                    let start = (offset - bytes.start) as usize / BLOCK;
                    let blocks = start..start + length as usize / BLOCK;
                    let begin = || shared.table.lock().discard(chunk, blocks.clone(), all);
                    let begun = self.begin(context.cpu, chunk, begin)?;
                    (Operation::Discard { offset, length }, begun)
                }
            };
            if begun {
                let done = shared.below.perform(context, part);
                shared.table.lock().end(chunk);
                done?;
            }
        }
        Ok(())
    }
}

impl Remote {
    /// What it has at the stores, and what it has asked of them.
    pub(crate) fn stats(&self) -> RemoteStats {
        let shared = &self.shared;
        let (exchange, amounts) = (&shared.exchange, shared.table.lock().amounts());
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let lost = exchange.stores().iter().filter(|store| store.is_lost()).count();
        RemoteStats {
            remote_bytes: amounts.away * shared.chunk_bytes,
            local_bytes: amounts.here * shared.chunk_bytes,
            uploaded_bytes: count(&exchange.counts.uploaded),
            downloaded_bytes: count(&exchange.counts.downloaded),
            requests: count(&exchange.counts.requests),
            failed_requests: count(&exchange.counts.failed),
            wrong_answers: count(&exchange.counts.wrong),
            stores: exchange.stores().len() as u64,
            lost_stores: lost as u64,
        }
    }
}

impl BlockDevice for Remote {
    fn geometry(&self) -> Geometry {
        let below = self.shared.below.geometry();
        Geometry { bytes: self.shared.bytes, ..below }
    }

    fn abilities(&self) -> Abilities {
        Abilities { quick_discard: false, ..self.shared.below.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        context.may_wait()?;
        match operation {
            Operation::Read { offset, into } => self.read(context, offset, into),
            // What is at the stores was acknowledged by them.
            Operation::Flush => self.shared.below.perform(context, Operation::Flush),
            change => self.change(context, &change),
        }
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let shared = &self.shared;
        let (mut below, mut chunks, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let mut fetches = Vec::new();
        for Job { operation, result } in jobs {
            let (offset, length) = operation.range();
            let mut pieces = self.pieces(offset, length);
            let piece = pieces.next().filter(|_| pieces.next().is_none());
            let read = matches!(operation, Operation::Read { .. });
            let Some(piece) = piece.filter(|_| read) else {
                *result = self.submit(cpu, operation.reborrow());
                continue;
            };
            let Operation::Read { into, .. } = operation else { continue };
            let found = shared.table.lock().read(piece.chunk, shared.now());
            match found {
                Found::Here => {
                    below.push(Job::new(Operation::Read { offset, into }));
                    chunks.push(piece.chunk);
                    results.push(result);
                }
                Found::Away(copy) => fetches.push((self.fetch(piece, copy), into, result)),
            }
        }
        shared.below.submit_all(cpu, &mut below);
        for ((job, chunk), result) in below.iter().zip(chunks).zip(results) {
            shared.table.lock().end(chunk);
            *result = job.result;
        }
        for (fetch, into, result) in fetches {
            *result = fetch.wait().map(|bytes| into.copy_from_slice(&bytes));
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        for Piece { chunk, offset, length, .. } in self.pieces(offset, length) {
            let mut stopped = false;
            if self.shared.table.lock().is_away(chunk) {
                stopped = visit(Extent { length, kind: ExtentKind::Data }).is_break();
            } else {
                self.shared.below.extents(cpu, offset, length, &mut |extent| {
                    let next = visit(extent);
                    stopped = next.is_break();
                    next
                })?;
            }
            if stopped {
                break;
            }
        }
        Ok(())
    }
}
