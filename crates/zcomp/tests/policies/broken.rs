//! A policy like `multi`, written down in the simplest way, with room for flaws.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex};

use units::Cpu;
use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

use crate::watched::Watched;

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Flaw {
    None,
    /// Two streams are one in truth.
    LendsTwice,
    /// Makes one stream more than it may.
    GrowsOverTheLimit,
    /// Whoever brings a stream back tells nobody.
    LosesWaiters,
    /// A lowered limit holds for streams that are not there yet.
    IgnoresLoweredLimit,
    /// Those who wait are not told of a raised limit.
    RaisesQuietly,
    /// Gives up when there is no memory to grow.
    FailsWithoutMemory,
    /// Frees a stream because another one is being made.
    CountsReservations,
}

pub struct Broken {
    flaw: Flaw,
    codec: Arc<Watched>,
    list: Mutex<List>,
    changed: Condvar,
}

struct List {
    idle: Vec<Stream>,
    made: usize,
    reserved: usize,
    limit: usize,
}

impl Broken {
    pub fn new(codec: &Arc<Watched>, limit: usize, flaw: Flaw) -> Broken {
        let idle = vec![Stream::new(&**codec).unwrap()];
        let list = Mutex::new(List { idle, made: 1, reserved: 0, limit: limit.max(1) });
        Broken { flaw, codec: codec.clone(), list, changed: Condvar::new() }
    }

    fn find(&self) -> Stream {
        let mut list = self.list.lock().unwrap();
        let mut may_grow = true;
        loop {
            if let Some(stream) = list.idle.pop() {
                return stream;
            }
            let over = usize::from(self.flaw == Flaw::GrowsOverTheLimit);
            if may_grow && list.made + list.reserved < list.limit + over {
                list.reserved += 1;
                drop(list);
                let made = Stream::new(&*self.codec);
                list = self.list.lock().unwrap();
                list.reserved -= 1;
                match made {
                    Ok(mut stream) if list.made < list.limit + over => {
                        list.made += 1;
                        if self.flaw == Flaw::LendsTwice {
                            stream.context = self.codec.numbered(0).unwrap();
                        }
                        return stream;
                    }
                    Err(error) if self.flaw == Flaw::FailsWithoutMemory => panic!("{error}"),
                    _ => may_grow = false,
                }
            } else {
                list = self.changed.wait(list).unwrap();
                may_grow = true;
            }
        }
    }

    fn bring_back(&self, stream: Stream) {
        // A panic of the policy is what the suite is to see, not one after it.
        let Ok(mut list) = self.list.lock() else { return };
        let reserved = if self.flaw == Flaw::CountsReservations { list.reserved } else { 0 };
        if list.made + reserved > list.limit && self.flaw != Flaw::IgnoresLoweredLimit {
            list.made -= 1;
            return;
        }
        list.idle.push(stream);
        if self.flaw != Flaw::LosesWaiters {
            self.changed.notify_one();
        }
    }
}

impl Streams for Broken {
    const NAME: &'static str = "broken";

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(_: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        unreachable!("a test makes it with a flaw")
    }

    type Guard<'a> = Lent<'a>;

    fn get(&self, _: Cpu) -> Lent<'_> {
        Lent { owner: self, stream: Some(self.find()) }
    }

    fn count(&self) -> usize {
        let list = self.list.lock().unwrap();
        list.made.min(list.limit)
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        let mut list = self.list.lock().unwrap();
        let raised = count > list.limit;
        list.limit = count.max(1);
        while self.flaw != Flaw::IgnoresLoweredLimit && list.made > list.limit {
            if list.idle.pop().is_none() {
                break;
            }
            list.made -= 1;
        }
        if raised && self.flaw != Flaw::RaisesQuietly {
            self.changed.notify_all();
        }
        Ok(())
    }
}

pub struct Lent<'a> {
    owner: &'a Broken,
    stream: Option<Stream>,
}

impl Deref for Lent<'_> {
    type Target = Stream;
    fn deref(&self) -> &Stream {
        self.stream.as_ref().unwrap()
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Stream {
        self.stream.as_mut().unwrap()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.owner.bring_back(stream);
        }
    }
}
