//! The suite of roads, from the descriptions of requests to their results. In a guest the driver's
//! devices pass it too (guest/ublk.sh).

use std::sync::Arc;

use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, Wait, ZeroMode,
};
use sim::roads::{self, Client, Lack};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use super::{LARGEST, descriptor, served};
use crate::answer::Served;

/// What the driver does for a request, without it. Nobody is beside it.
#[derive(Clone)]
struct Direct {
    served: Arc<Served>,
    geometry: Geometry,
}

impl Direct {
    /// Asks for what moves no data.
    fn ask(&self, what: u32, offset: u64, length: u64) -> Result<(), IoError> {
        self.ask_with(what, offset, length, &mut []).map(drop)
    }

    fn ask_with(
        &self,
        what: u32,
        offset: u64,
        length: u64,
        buffer: &mut [u8],
    ) -> Result<usize, IoError> {
        let request = self.served.parse(&descriptor(what, offset / 512, (length / 512) as u32));
        let result = request.map_or_else(
            |errno| errno,
            |request| {
                let at_once = self.served.answer(request, buffer, Wait::No);
                // As its queue does, which hands what would wait to a waiter.
                let waited = || self.served.answer(request, buffer, Wait::Yes);
                at_once.or_else(waited).unwrap_or(-libc::EIO)
            },
        );
        match -result {
            libc::ENOSPC => Err(IoError::NoSpace),
            libc::EINVAL => Err(IoError::OutOfRange),
            _ => usize::try_from(result).map_err(|_| IoError::Failed),
        }
    }

    /// Splits data as the driver does: no request is longer than its buffer.
    fn move_data(&self, what: u32, mut offset: u64, data: &mut [u8]) -> Result<(), IoError> {
        for part in data.chunks_mut(LARGEST) {
            let length = part.len() as u64;
            let moved = self.ask_with(what, offset, length, part)?;
            assert_eq!(moved, part.len(), "the driver would ask for the rest");
            offset += length;
        }
        Ok(())
    }
}

impl BlockDevice for Direct {
    fn geometry(&self) -> Geometry {
        Geometry { minimum_block: PAGE_SIZE as u32, ..self.geometry }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, flush: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => self.move_data(0, offset, into),
            Operation::Write { offset, from } => self.move_data(1, offset, &mut from.to_vec()),
            Operation::Flush => self.ask(2, 0, 0),
            Operation::Discard { offset, length } => self.ask(3, offset, length),
            Operation::WriteZeroes { offset, length, mode } => {
                let stays = if mode == ZeroMode::KeepAllocated { 1 << 15 } else { 0 };
                self.ask(5 | stays, offset, length)
            }
        }
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}

impl Client for Direct {
    fn another(&self) -> Arc<dyn Client> {
        Arc::new(self.clone())
    }

    fn lose_server(&self) {}

    fn stranger(&self, _: &mut Rng) {}
}

#[test]
fn ublk_is_a_road() {
    roads::pass("ublk", &[Lack::Loss, Lack::Strangers], |subject| {
        let device = subject.device();
        let geometry = device.geometry();
        Arc::new(Direct { served: Arc::new(served(device)), geometry })
    });
}
