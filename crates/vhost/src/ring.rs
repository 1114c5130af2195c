//! A ring: the requests that its driver has made available, and those that are used, which is done.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use sync::atomic::Ordering::Acquire;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

use crate::inflight::UnderWay;
use crate::memory::{Memory, invalid};

/// The most entries of a ring.
pub(crate) const MOST: u16 = 1024;

/// The machine has written nonsense to its ring: it is not served any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// A descriptor of the front end that can be signalled; None while it wants no signal.
pub(crate) type Signal = Arc<Mutex<Option<File>>>;

/// Signals it. Not at all if that would wait: then it is signalled.
pub(crate) fn signal(to: &Signal) {
    if let Some(mut file) = to.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        let _ = file.write(&1u64.to_ne_bytes());
    }
}

/// What a ring is made of.
pub(crate) struct Parts {
    pub(crate) memory: Arc<Memory>,
    /// Descriptors, available ring and used ring, where the front end has them.
    pub(crate) places: [u64; 3],
    pub(crate) size: u16,
    pub(crate) event_idx: bool,
    /// Available requests that were taken; None where [`UnderWay`] tells.
    pub(crate) taken: u16,
    pub(crate) under_way: Option<UnderWay>,
    pub(crate) call: Signal,
}

pub(crate) struct Ring {
    pub(crate) memory: Arc<Memory>,
    queue: Queue,
    under_way: Option<UnderWay>,
    /// Requests that a process before took, the last one first.
    again: Vec<u16>,
    call: Signal,
}

impl Ring {
    /// Begins with a ring, or goes on with it.
    ///
    /// # Errors
    /// `InvalidInput` for a ring that is not in the machine's memory.
    pub(crate) fn new(parts: Parts) -> io::Result<Ring> {
        let Parts { memory, places, size, event_idx, taken, mut under_way, call } = parts;
        let wrong = |error: virtio_queue::Error| invalid(format!("a ring is refused: {error}"));
        let mut queue = Queue::new(size).map_err(wrong)?;
        let outside = || invalid("a ring is outside of the memory");
        let [table, available, used] =
            places.map(|at| memory.guest_address(at).ok_or_else(outside));
        queue.try_set_desc_table_address(table?).map_err(wrong)?;
        queue.try_set_avail_ring_address(available?).map_err(wrong)?;
        queue.try_set_used_ring_address(used?).map_err(wrong)?;
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&memory.guest) {
            return Err(outside());
        }
        // pairs with: the `Release` store of a process before, when it put a request there.
        let used = queue.used_idx(&memory.guest, Acquire).map_err(wrong)?.0;
        let again = under_way.as_mut().map(|it| it.take_over(used));
        let taken = again.as_ref().map_or(taken, |again| used.wrapping_add(again.len() as u16));
        queue.set_next_avail(taken);
        queue.set_next_used(used);
        Ok(Ring { memory, queue, under_way, again: again.unwrap_or_default(), call })
    }

    /// The table of descriptors, and its length.
    pub(crate) fn table(&self) -> (GuestAddress, u16) {
        (GuestAddress(self.queue.desc_table()), self.queue.size())
    }

    /// Are there requests of a process before?
    pub(crate) fn has_older(&self) -> bool {
        !self.again.is_empty()
    }

    /// Takes the next request: the number of its first descriptor.
    ///
    /// # Errors
    /// For a ring that is broken.
    pub(crate) fn take(&mut self) -> Result<Option<u16>, Broken> {
        if let Some(head) = self.again.pop() {
            return Ok(Some(head));
        }
        let mut available = self.queue.iter(&self.memory.guest).map_err(|_| Broken)?;
        let Some(head) = available.next().map(|chain| chain.head_index()) else { return Ok(None) };
        if head >= self.queue.size() {
            return Err(Broken);
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.begin(head);
        }
        Ok(Some(head))
    }

    /// Puts a request into the used ring, with the number of bytes that were written, and tells its
    /// driver if it wants to know.
    ///
    /// # Errors
    /// For a ring that is broken.
    pub(crate) fn put(&mut self, head: u16, written: u32) -> Result<(), Broken> {
        let memory = &self.memory.guest;
        if let Some(under_way) = &self.under_way {
            under_way.ends(head);
        }
        self.queue.add_used(memory, head, written).map_err(|_| Broken)?;
        if let Some(under_way) = &self.under_way {
            under_way.ended(head, self.queue.next_used());
        }
        if self.queue.needs_notification(memory).map_err(|_| Broken)? {
            signal(&self.call);
        }
        Ok(())
    }

    /// Has the driver signal no request for now.
    ///
    /// # Errors
    /// For a ring that is broken.
    pub(crate) fn stay_awake(&mut self) -> Result<(), Broken> {
        self.queue.disable_notification(&self.memory.guest).map_err(|_| Broken)
    }

    /// Has the driver signal the next request. True if there is one already.
    ///
    /// # Errors
    /// For a ring that is broken.
    pub(crate) fn may_sleep(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&self.memory.guest).map_err(|_| Broken)
    }

    /// The available requests that were taken, by the count of the ring.
    pub(crate) fn taken(&self) -> u16 {
        self.queue.next_avail()
    }
}
