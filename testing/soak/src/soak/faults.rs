//! The devices below the soak's disks and swap areas: files that fail now and then, by the shipped
//! fault layer. And a device that lies, which the soak must find out.

use std::path::Path;
use std::sync::Arc;

use block::layer::{Fault, FaultPlan};
use block::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};
use control::ControlError;
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE, Page};
use zram::HostFiles;

/// So many reads, and so many writes, of a million fail.
const PER_MILLION: u32 = 20_000;

/// The failures of all files.
pub type Failures = Arc<AtomicU64>;

/// Counts the operations that fail in the device below.
struct Counted<D> {
    next: D,
    failures: Failures,
}

impl<D> Counted<D> {
    fn count(&self, result: Result<(), IoError>) {
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let done = self.next.perform(context, operation);
        if done != Err(IoError::WouldBlock) {
            self.count(done);
        }
        done
    }
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        self.next.submit_all(cpu, jobs);
        jobs.iter().for_each(|job| self.count(job.result));
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

/// The files of the system, with faults.
pub struct FaultyFiles {
    pub seed: u64,
    pub failures: Failures,
}

impl FaultyFiles {
    /// Opens a file or block device that fails now and then.
    ///
    /// # Errors
    /// Those of [`backing::open`].
    pub fn open(&self, path: &Path) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let plan = FaultPlan {
            seed: self.seed,
            reads_per_million: PER_MILLION,
            changes_per_million: PER_MILLION,
            flushes_per_million: PER_MILLION,
        };
        let next = Fault::new(backing::open(path, backing::Options::default())?, plan);
        Ok(Arc::new(Counted { next, failures: self.failures.clone() }))
    }
}

impl HostFiles for FaultyFiles {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let device = self.open(Path::new(path))?;
        match seal {
            Some(_) => store::sealed(device, &host::Mmap, u64::MAX, path),
            None => Ok(device),
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

/// A device that now and then answers a page as it was before it was written last.
pub struct Stale {
    next: Arc<dyn BlockDevice>,
    old: Mutex<(fastrand::Rng, Option<(u64, Page)>)>,
}

impl Stale {
    pub fn new(next: Arc<dyn BlockDevice>) -> Stale {
        Stale { next, old: Mutex::new((fastrand::Rng::with_seed(1), None)) }
    }

    /// Remembers the contents of a page that is about to be written.
    fn remember(&self, context: Context, offset: u64) {
        let mut old = self.old.lock();
        if old.0.u32(..200) == 0 {
            let mut page = [0; PAGE_SIZE];
            let read = Operation::Read { offset, into: &mut page };
            if self.next.perform(context, read).is_ok() {
                old.1 = Some((offset, page));
            }
        }
    }
}

impl BlockDevice for Stale {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => {
                let end = offset + into.len() as u64;
                self.next.perform(context, Operation::Read { offset, into })?;
                if let Some((at, page)) = &self.old.lock().1
                    && (offset..end).contains(at)
                {
                    into[(at - offset) as usize..][..PAGE_SIZE].copy_from_slice(page);
                }
                Ok(())
            }
            Operation::Write { offset, from } => {
                self.remember(context, offset);
                self.next.perform(context, Operation::Write { offset, from })
            }
            other => self.next.perform(context, other),
        }
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}
