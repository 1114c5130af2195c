//! `multi`: streams that are made on demand, up to a limit.
//!
//! Linux 3.15 did this with max_comp_streams above 1 (seed: "zram: add multi stream
//! functionality"). There is a list of idle streams, the one used last in front, and a wait queue.
//! The policy begins with one stream. A thread that finds no idle stream, while the limit is not
//! reached, reserves a place and makes a stream outside the lock. Without memory for it, the thread
//! gives the place back and waits like the others.
//!
//! Linux frees a returned stream when made *and* reserved streams together exceed the limit. If the
//! limit was lowered and the reservation then fails, no stream is left, and the thread that
//! reserved waits for ever. Here only made streams count, so one stream always exists.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sync::{CachePadded, EventCount, Mutex};
use units::Cpu;

use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

/// Streams that are made on demand, at most as many as the limit says.
pub struct MultiStreams {
    compressor: Arc<dyn Compressor>,
    list: CachePadded<Mutex<List>>,
    /// Rung when a stream comes back, and when the limit is raised.
    event: CachePadded<EventCount>,
}

struct List {
    idle: Stack,
    /// Streams that exist, idle or taken. At least one.
    made: usize,
    /// Places of streams that are being made.
    reserved: usize,
    limit: usize,
}

/// A stream on the heap, so that lending it moves one pointer. It is an array of one element,
/// because only a vector can be allocated without an abort when memory is out.
type Loan = Box<[Node; 1]>;

struct Node {
    stream: Stream,
    next: Option<Loan>,
}

impl MultiStreams {
    /// Makes one stream for `compressor`. Later calls make more, up to `limit` (at least one).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &Arc<dyn Compressor>, limit: usize) -> Result<MultiStreams, CodecError> {
        let mut idle = Stack::default();
        idle.push(make(&**compressor)?);
        let list = List { idle, made: 1, reserved: 0, limit: limit.max(1) };
        Ok(MultiStreams {
            compressor: compressor.clone(),
            list: CachePadded::new(Mutex::new(list)),
            event: CachePadded::default(),
        })
    }

    #[cold]
    fn grow_or_wait(&self) -> Loan {
        let mut may_grow = true;
        loop {
            let ticket = self.event.ticket();
            let mut list = self.list.lock();
            if let Some(loan) = list.idle.pop() {
                return loan;
            }
            let has_room = list.made + list.reserved < list.limit;
            if has_room && may_grow {
                list.reserved += 1;
                drop(list);
                match self.grow() {
                    Some(loan) => return loan,
                    None => may_grow = false,
                }
            } else {
                drop(list);
                self.event.wait(ticket);
                may_grow = true;
            }
        }
    }

    /// Makes the stream for a reserved place. `None` if memory is out or the limit was lowered
    /// meanwhile. Then another thread has a stream, and rings when it returns the stream.
    fn grow(&self) -> Option<Loan> {
        let made = make(&*self.compressor).ok();
        let mut list = self.list.lock();
        list.reserved -= 1;
        let wanted = made.is_some() && list.made < list.limit;
        list.made += usize::from(wanted);
        drop(list);
        made.filter(|_| wanted)
    }

    fn take_back(&self, loan: Loan) {
        let mut list = self.list.lock();
        if list.made <= list.limit {
            list.idle.push(loan);
            drop(list);
            self.event.notify_one();
        } else {
            list.made -= 1;
            // The lock is released first, because freeing the stream is slow.
            drop(list);
            drop(loan);
        }
    }
}

fn make(compressor: &dyn Compressor) -> Result<Loan, CodecError> {
    let stream = Stream::new(compressor)?;
    let mut nodes = Vec::new();
    if nodes.try_reserve_exact(1).is_ok() {
        nodes.push(Node { stream, next: None });
    }
    let no_memory = |_| CodecError(format!("{}: no memory for a stream", compressor.name()));
    nodes.into_boxed_slice().try_into().map_err(no_memory)
}

impl Streams for MultiStreams {
    const NAME: &'static str = "multi";
    type Guard<'a> = LentStream<'a>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        MultiStreams::new(codec, 1)
    }

    #[inline]
    fn get(&self, _: Cpu) -> LentStream<'_> {
        let idle = self.list.lock().idle.pop();
        LentStream { owner: self, loan: Some(idle.unwrap_or_else(|| self.grow_or_wait())) }
    }

    fn count(&self) -> usize {
        let list = self.list.lock();
        list.made.min(list.limit)
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        let mut spare = Stack::default();
        let mut list = self.list.lock();
        let raised = count > list.limit;
        list.limit = count.max(1);
        while list.made > list.limit
            && let Some(loan) = list.idle.pop()
        {
            list.made -= 1;
            spare.push(loan);
        }
        drop(list);
        if raised {
            self.event.notify_all();
        }
        Ok(())
    }
}

/// A stream of [`MultiStreams`], taken.
pub struct LentStream<'a> {
    owner: &'a MultiStreams,
    /// `Some` until this value is dropped.
    loan: Option<Loan>,
}

const LENT: &str = "a stream is taken until its guard is dropped";

impl Deref for LentStream<'_> {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        let [node] = &**self.loan.as_ref().expect(LENT);
        &node.stream
    }
}

impl DerefMut for LentStream<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        let [node] = &mut **self.loan.as_mut().expect(LENT);
        &mut node.stream
    }
}

impl Drop for LentStream<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            self.owner.take_back(loan);
        }
    }
}

/// Idle streams. The stream that came last is in front.
#[derive(Default)]
struct Stack(Option<Loan>);

impl Stack {
    #[inline]
    fn push(&mut self, mut loan: Loan) {
        loan[0].next = self.0.take();
        self.0 = Some(loan);
    }

    #[inline]
    fn pop(&mut self) -> Option<Loan> {
        let mut first = self.0.take()?;
        self.0 = first[0].next.take();
        Some(first)
    }
}

impl Drop for Stack {
    /// Drops the streams in a loop. A recursive drop takes a stack frame for each stream.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
