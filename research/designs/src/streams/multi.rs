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
    /// The stream that came last is at the end. It has room for all that were made, so that lending
    /// allocates nothing.
    idle: Vec<Stream>,
    /// Streams that exist, idle or taken. At least one.
    made: usize,
    /// Places of streams that are being made.
    reserved: usize,
    limit: usize,
}

impl MultiStreams {
    /// Makes one stream for `compressor`. Later calls make more, up to `limit` (at least one).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &Arc<dyn Compressor>, limit: usize) -> Result<MultiStreams, CodecError> {
        let idle = vec![Stream::new(&**compressor)?];
        let list = List { idle, made: 1, reserved: 0, limit: limit.max(1) };
        Ok(MultiStreams {
            compressor: compressor.clone(),
            list: CachePadded::new(Mutex::new(list)),
            event: CachePadded::default(),
        })
    }

    #[cold]
    fn grow_or_wait(&self) -> Stream {
        let mut may_grow = true;
        loop {
            let ticket = self.event.ticket();
            let mut list = self.list.lock();
            if let Some(stream) = list.idle.pop() {
                return stream;
            }
            let has_room = list.made + list.reserved < list.limit;
            if has_room && may_grow {
                list.reserved += 1;
                drop(list);
                match self.grow() {
                    Some(stream) => return stream,
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
    fn grow(&self) -> Option<Stream> {
        let made = Stream::new(&*self.compressor).ok();
        let mut list = self.list.lock();
        list.reserved -= 1;
        let more = list.made + 1 - list.idle.len();
        let has_room = list.idle.try_reserve(more).is_ok();
        let wanted = made.is_some() && has_room && list.made < list.limit;
        list.made += usize::from(wanted);
        drop(list);
        made.filter(|_| wanted)
    }

    fn take_back(&self, stream: Stream) {
        let mut list = self.list.lock();
        if list.made <= list.limit {
            list.idle.push(stream);
            drop(list);
            self.event.notify_one();
        } else {
            list.made -= 1;
            // The lock is released first, because freeing the stream is slow.
            drop(list);
            drop(stream);
        }
    }
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
        LentStream { owner: self, stream: Some(idle.unwrap_or_else(|| self.grow_or_wait())) }
    }

    fn count(&self) -> usize {
        let list = self.list.lock();
        list.made.min(list.limit)
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        let mut list = self.list.lock();
        let raised = count > list.limit;
        list.limit = count.max(1);
        let most = (list.made.saturating_sub(list.limit)).min(list.idle.len());
        let kept = list.idle.len() - most;
        let spare = list.idle.split_off(kept);
        list.made -= most;
        // The lock is released first, because freeing streams is slow.
        drop(list);
        drop(spare);
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
    stream: Option<Stream>,
}

const LENT: &str = "a stream is taken until its guard is dropped";

impl Deref for LentStream<'_> {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        self.stream.as_ref().expect(LENT)
    }
}

impl DerefMut for LentStream<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        self.stream.as_mut().expect(LENT)
    }
}

impl Drop for LentStream<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.owner.take_back(stream);
        }
    }
}
