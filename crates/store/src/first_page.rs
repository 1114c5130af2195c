//! Lets the first page of a swap device lie on the backing device as it is. It is the header of the
//! swap space: its label says whose the device is, to the next daemon too. Encrypted, it would be
//! taken for the data of somebody else after a crash.

use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};
use units::{Cpu, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;

/// A sealed device whose first page is that of the device below. Operations are of whole pages.
pub(crate) struct FirstPage {
    sealed: Arc<dyn BlockDevice>,
    below: Arc<dyn BlockDevice>,
}

impl FirstPage {
    /// `sealed` is a layer above `below`, of which it leaves the first page alone.
    pub(crate) fn new(sealed: Arc<dyn BlockDevice>, below: Arc<dyn BlockDevice>) -> FirstPage {
        FirstPage { sealed, below }
    }

    fn has_first(operation: &Operation<'_>) -> bool {
        let (offset, length) = operation.range();
        offset < PAGE && length > 0
    }

    /// Carries out an operation that begins with the first page.
    fn split(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        if offset != 0 || length < PAGE {
            return Err(IoError::Unaligned);
        }
        let (first, rest) = match operation {
            Operation::Read { into, .. } => {
                let (first, rest) = into.split_at_mut(PAGE_SIZE);
                let rest = Operation::Read { offset: PAGE, into: rest };
                (Operation::Read { offset: 0, into: first }, rest)
            }
            Operation::Write { from, .. } => {
                let (first, rest) = from.split_at(PAGE_SIZE);
                let rest = Operation::Write { offset: PAGE, from: rest };
                (Operation::Write { offset: 0, from: first }, rest)
            }
            Operation::Discard { length, .. } => {
                let rest = Operation::Discard { offset: PAGE, length: length - PAGE };
                (Operation::Discard { offset: 0, length: PAGE }, rest)
            }
            Operation::WriteZeroes { length, mode, .. } => {
                let rest = Operation::WriteZeroes { offset: PAGE, length: length - PAGE, mode };
                (Operation::WriteZeroes { offset: 0, length: PAGE, mode }, rest)
            }
            Operation::Flush => return self.sealed.perform(context, Operation::Flush),
        };
        self.below.perform(context, first)?;
        match length > PAGE {
            true => self.sealed.perform(context, rest),
            false => Ok(()),
        }
    }
}

impl BlockDevice for FirstPage {
    fn geometry(&self) -> Geometry {
        self.sealed.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.sealed.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match FirstPage::has_first(&operation) {
            true => self.split(context, operation),
            false => self.sealed.perform(context, operation),
        }
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let mut rest = jobs;
        while let Some(at) = rest.iter().position(|job| FirstPage::has_first(&job.operation)) {
            let (before, from) = rest.split_at_mut(at);
            self.sealed.submit_all(cpu, before);
            let (job, behind) = from.split_at_mut(1);
            let operation = job[0].operation.reborrow();
            job[0].result = self.split(Context::waiting(cpu), operation);
            rest = behind;
        }
        self.sealed.submit_all(cpu, rest);
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.sealed.extents(cpu, offset, length, visit)
    }
}

#[cfg(test)]
mod tests {
    use block::Plain;
    use host::Mmap;

    use super::*;

    const CPU: Cpu = Cpu(0);

    #[test]
    fn only_the_first_page_can_be_read_below() {
        let below = Arc::new(Plain::new(16 * PAGE_SIZE));
        let sealed = crate::sealed(below.clone(), &Mmap, 16 * PAGE, "below").unwrap();
        let device = FirstPage::new(sealed, below.clone());
        let of = |number: u8| [number; PAGE_SIZE];
        let pages = |first: u8, count: u8| (first..first + count).flat_map(of).collect::<Vec<u8>>();
        let (three, two, one) = (pages(1, 3), pages(8, 2), pages(14, 1));
        let write = |offset, from| Job::new(Operation::Write { offset, from });
        let mut jobs = [write(7 * PAGE, &two[..]), write(0, &three), write(13 * PAGE, &one)];
        device.submit_all(CPU, &mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
        let read = |device: &dyn BlockDevice, first: u64, count: u64| {
            let mut into = vec![0; (count * PAGE) as usize];
            let read = Operation::Read { offset: first * PAGE, into: &mut into };
            device.submit(CPU, read).map(|()| into)
        };
        assert_eq!(read(&device, 0, 3), Ok(three));
        assert_eq!(read(&device, 0, 1), Ok(pages(1, 1)));
        assert_eq!((read(&device, 7, 2), read(&device, 13, 1)), (Ok(two), Ok(one)));
        assert_eq!(read(&*below, 0, 1), Ok(pages(1, 1)));
        for number in [1, 2, 7, 8, 13] {
            assert_ne!(read(&*below, number, 1), read(&device, number, 1), "page {number}");
        }
        device.submit(CPU, Operation::Discard { offset: 0, length: 2 * PAGE }).unwrap();
        let write = Operation::Write { offset: 512, from: &[0; 512] };
        assert_eq!(device.submit(CPU, write), Err(IoError::Unaligned));
    }
}
