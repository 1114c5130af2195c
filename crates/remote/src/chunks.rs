//! Where each chunk of the device is: on the device below, at the stores, or at both.
//!
//! A chunk goes to the stores in four steps. It is read; it is written to the stores; if nothing
//! has changed it meanwhile, the table gets its copy; and when nobody uses the chunk below, that is
//! discarded. It comes back before it is changed. Nothing here does I/O: each step says what is to
//! be done, and the next one says that it was done.
//!
//! An object at a store is never changed. It is deleted when no chunk has it and no reader asks for
//! it, which the count of its references tells.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// An object at stores. Its name is made of both numbers.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Object {
    pub(crate) chunk: usize,
    /// No two objects of a device have the same.
    pub(crate) version: u64,
    /// The stores that have it, one bit each.
    pub(crate) stores: u32,
}

/// What a block of a copy must be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Zeroes. Nothing is read.
    Zero,
    /// A block with this checksum.
    Sum(u64),
}

/// A chunk at the stores.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// `None` if all blocks are zeroes.
    pub(crate) object: Option<Arc<Object>>,
    /// One for each block.
    pub(crate) checks: Arc<[Check]>,
}

/// Milliseconds since the device was made.
pub(crate) type Millis = u64;

#[derive(Clone, Default, Debug)]
struct Chunk {
    copy: Option<Copy>,
    /// The device below does not have it.
    is_away: bool,
    /// It was changed since all of it was discarded.
    holds: bool,
    /// One thread moves it. Changes wait, reads go on.
    is_moving: bool,
    /// Reads and changes of it on the device below that are under way.
    users: u32,
    /// Counts changes, so that one is seen that came while the chunk was read for the stores.
    changes: u64,
    /// When it was last used.
    used: Millis,
}

/// Where a reader finds a chunk.
#[derive(Debug)]
pub(crate) enum Found {
    /// On the device below. [`Table::end`] follows.
    Here,
    /// At the stores.
    Away(Copy),
}

/// How a change of a chunk begins.
#[derive(Debug)]
pub(crate) enum Change {
    /// On the device below. [`Table::end`] follows.
    Here,
    /// Another thread moves the chunk. Wait for it, and ask again.
    Wait,
    /// The chunk comes back first. [`Table::brought`] follows, and then ask again.
    Bring(Copy),
    /// There is nothing to do on the device below.
    Done,
}

/// A chunk that is to be written to the stores.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) chunk: usize,
    pub(crate) version: u64,
    changes: u64,
}

/// How many chunks are where.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amounts {
    /// Chunks that hold something on the device below.
    pub(crate) here: u64,
    /// Chunks that only the stores have.
    pub(crate) away: u64,
}

/// All chunks. One thread at a time.
#[derive(Debug)]
pub(crate) struct Table {
    chunks: Vec<Chunk>,
    /// Objects that no chunk has any more.
    given_up: VecDeque<Arc<Object>>,
    /// What is being written to the stores or deleted there. The device may end meanwhile.
    under_way: Option<Arc<Object>>,
    versions: u64,
}

impl Table {
    /// `count` chunks, all on the device below, and empty.
    pub(crate) fn new(count: usize) -> Table {
        let chunks = vec![Chunk::default(); count];
        Table { chunks, given_up: VecDeque::new(), under_way: None, versions: 0 }
    }

    /// A read begins.
    pub(crate) fn read(&mut self, chunk: usize, now: Millis) -> Found {
        let chunk = &mut self.chunks[chunk];
        chunk.used = now;
        match &chunk.copy {
            Some(copy) if chunk.is_away => Found::Away(copy.clone()),
            _ => {
                chunk.users += 1;
                Found::Here
            }
        }
    }

    /// Whether the device below does not have it.
    pub(crate) fn is_away(&self, chunk: usize) -> bool {
        self.chunks[chunk].is_away
    }

    /// A read or a change on the device below has ended.
    pub(crate) fn end(&mut self, chunk: usize) {
        self.chunks[chunk].users -= 1;
    }

    /// A change begins.
    pub(crate) fn change(&mut self, number: usize, now: Millis) -> Change {
        let chunk = &mut self.chunks[number];
        if chunk.is_moving {
            return Change::Wait;
        }
        if let (true, Some(copy)) = (chunk.is_away, &chunk.copy) {
            chunk.is_moving = true;
            return Change::Bring(copy.clone());
        }
        chunk.used = now;
        chunk.holds = true;
        self.changed(number);
        Change::Here
    }

    /// The discard of some blocks of a chunk begins; `all` of them, perhaps.
    pub(crate) fn discard(&mut self, number: usize, blocks: Range<usize>, all: bool) -> Change {
        let chunk = &mut self.chunks[number];
        if chunk.is_moving {
            return Change::Wait;
        }
        if let (true, Some(copy)) = (chunk.is_away, &mut chunk.copy) {
            let mut checks = copy.checks.to_vec();
            checks[blocks].fill(Check::Zero);
            if checks.iter().all(|check| *check == Check::Zero) {
                chunk.holds = false;
                self.given_up.extend(copy.object.take());
            }
            copy.checks = checks.into();
            return Change::Done;
        }
        chunk.holds &= !all;
        self.changed(number);
        Change::Here
    }

    /// A change on the device below: a copy of the chunk is old from now on.
    fn changed(&mut self, number: usize) {
        self.give_up_copy(number);
        let chunk = &mut self.chunks[number];
        chunk.users += 1;
        chunk.changes += 1;
    }

    fn give_up_copy(&mut self, number: usize) {
        let copy = self.chunks[number].copy.take();
        self.given_up.extend(copy.and_then(|copy| copy.object));
    }

    /// A chunk that was to come back is on the device below; or it `is_here` no more than before.
    pub(crate) fn brought(&mut self, chunk: usize, is_here: bool) {
        let chunk = &mut self.chunks[chunk];
        chunk.is_moving = false;
        chunk.is_away &= !is_here;
    }

    /// The chunk to write to the stores next: the one that was not used for the longest time, at
    /// least since `before`. `None` if there is none.
    pub(crate) fn next_upload(&mut self, before: Millis) -> Option<Upload> {
        let wants = |(_, chunk): &(usize, &Chunk)| {
            let idle = chunk.users == 0 && !chunk.is_moving && chunk.used <= before;
            idle && chunk.holds && !chunk.is_away && chunk.copy.is_none()
        };
        let all = self.chunks.iter().enumerate();
        let (number, chunk) = all.filter(wants).min_by_key(|(_, chunk)| chunk.used)?;
        self.versions += 1;
        let (version, changes) = (self.versions, chunk.changes);
        self.under_way = Some(Arc::new(Object { chunk: number, version, stores: u32::MAX }));
        Some(Upload { chunk: number, version, changes })
    }

    /// A chunk was written to stores. Returns whether it was the chunk as it is now; otherwise the
    /// object is given up.
    pub(crate) fn uploaded(&mut self, upload: &Upload, copy: Copy) -> bool {
        self.under_way = None;
        let has_changed = self.chunks[upload.chunk].changes != upload.changes;
        if has_changed {
            self.given_up.extend(copy.object);
            return false;
        }
        self.chunks[upload.chunk].copy = Some(copy);
        true
    }

    /// A chunk could not be read. Others go to the stores first.
    pub(crate) fn unreadable(&mut self, upload: &Upload, now: Millis) {
        self.under_way = None;
        self.chunks[upload.chunk].used = now;
    }

    /// A chunk was written to fewer stores than are wanted.
    pub(crate) fn give_up(&mut self, object: Object) {
        self.under_way = None;
        self.given_up.push_back(Arc::new(object));
    }

    /// The chunk to discard on the device below, which the stores have, too, if more than `keep`
    /// chunks are there. [`Table::released`] follows.
    pub(crate) fn next_release(&mut self, keep: u64) -> Option<usize> {
        if self.amounts().here <= keep {
            return None;
        }
        let wants = |(_, chunk): &(usize, &Chunk)| {
            let idle = chunk.users == 0 && !chunk.is_moving;
            idle && !chunk.is_away && chunk.copy.is_some()
        };
        let all = self.chunks.iter().enumerate();
        let (number, _) = all.filter(wants).min_by_key(|(_, chunk)| chunk.used)?;
        let chunk = &mut self.chunks[number];
        (chunk.is_away, chunk.is_moving) = (true, true);
        Some(number)
    }

    /// A chunk was discarded on the device below.
    pub(crate) fn released(&mut self, chunk: usize) {
        self.chunks[chunk].is_moving = false;
    }

    /// An object to delete that nobody reads any more.
    pub(crate) fn next_deletion(&mut self) -> Option<Arc<Object>> {
        let unused = |object: &Arc<Object>| Arc::strong_count(object) == 1;
        let at = self.given_up.iter().position(unused)?;
        self.under_way = self.given_up.remove(at);
        self.under_way.clone()
    }

    /// A deletion has ended. If the object is not `gone`, it is deleted later.
    pub(crate) fn deleted(&mut self, gone: bool) {
        let object = self.under_way.take();
        self.given_up.extend(object.filter(|_| !gone));
    }

    /// All objects there are: the device ends.
    pub(crate) fn take_objects(&mut self) -> Vec<Arc<Object>> {
        let copies = self.chunks.iter_mut().filter_map(|chunk| chunk.copy.take());
        let objects = copies.filter_map(|copy| copy.object);
        objects.chain(self.given_up.drain(..)).chain(self.under_way.take()).collect()
    }

    /// How many chunks are where.
    pub(crate) fn amounts(&self) -> Amounts {
        let mut amounts = Amounts::default();
        for chunk in self.chunks.iter().filter(|chunk| chunk.holds) {
            match chunk.is_away {
                true => amounts.away += 1,
                false => amounts.here += 1,
            }
        }
        amounts
    }
}

#[cfg(test)]
mod tests;
