//! A copy of the policy `multi` with room for flaws. Streams are only counted.

use std::sync::Arc;

use sync::{EventCount, Mutex};

use crate::{Codec, Manner};

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Flaw {
    None,
    /// Whoever brings a stream back tells nobody.
    NeverRings,
    /// Looks first and takes the ticket then.
    LateTicket,
    /// Frees a stream because another one is being made.
    CountsReservations,
    /// Makes a stream without saying so first.
    ReservesNothing,
}

pub(crate) struct Copy {
    flaw: Flaw,
    codec: Arc<Codec>,
    list: Mutex<List>,
    event: EventCount,
}

struct List {
    idle: usize,
    made: usize,
    reserved: usize,
    limit: usize,
}

impl Copy {
    /// With one stream, and memory for as many more as `codec` says.
    pub(crate) fn new(flaw: Flaw, limit: usize, codec: Arc<Codec>) -> Copy {
        let list = Mutex::new(List { idle: 1, made: 1, reserved: 0, limit });
        Copy { flaw, codec, list, event: EventCount::default() }
    }

    fn find(&self) {
        let mut may_grow = true;
        loop {
            let early = self.event.ticket();
            let mut list = self.list.lock();
            if list.idle > 0 {
                list.idle -= 1;
                return;
            }
            if may_grow && list.made + list.reserved < list.limit {
                list.reserved += usize::from(self.flaw != Flaw::ReservesNothing);
                drop(list);
                if self.grow() {
                    return;
                }
                may_grow = false;
            } else {
                drop(list);
                let late = self.flaw == Flaw::LateTicket;
                self.event.wait(if late { self.event.ticket() } else { early });
                may_grow = true;
            }
        }
    }

    fn grow(&self) -> bool {
        let made = self.codec.take_memory();
        let mut list = self.list.lock();
        let careless = self.flaw == Flaw::ReservesNothing;
        list.reserved -= usize::from(!careless);
        let wanted = made && (careless || list.made < list.limit);
        list.made += usize::from(wanted);
        wanted
    }

    fn bring_back(&self) {
        let mut list = self.list.lock();
        let reserved = if self.flaw == Flaw::CountsReservations { list.reserved } else { 0 };
        if list.made + reserved > list.limit {
            list.made -= 1;
            return;
        }
        list.idle += 1;
        drop(list);
        if self.flaw != Flaw::NeverRings {
            self.event.notify_one();
        }
    }
}

impl Manner for Copy {
    fn with(&self, work: impl FnOnce()) {
        self.find();
        work();
        self.bring_back();
    }

    fn limit(&self, count: usize) {
        let mut list = self.list.lock();
        let raised = count > list.limit;
        list.limit = count;
        while list.made > list.limit && list.idle > 0 {
            list.made -= 1;
            list.idle -= 1;
        }
        drop(list);
        if raised {
            self.event.notify_all();
        }
    }

    fn count(&self) -> usize {
        let list = self.list.lock();
        list.made.min(list.limit)
    }
}
