//! Entries: the state of one page in the cache. 40 bytes each, in lazily backed memory.
//!
//! The thread that stores a page writes its entry before the index names it. The entry does not
//! change again until it is reused, with these exceptions: the lock of its list guards its place
//! there, readers set the marks that it was read, the pass that recompresses keeps its age, and
//! compaction and recompression replace its object.
//!
//! The word of the object is in one place only. Compaction and recompression swap it while the
//! entry is kept for readers. The thread that gives the entry up closes the word: it counts what is
//! there then, and nobody replaces the object any more. The thread that frees the entry takes the
//! word out. So each place of an object is freed once, and counted as what it was.
//!
//! Each CPU keeps a few freed entries, and passes more of them to a list that all CPUs share. So
//! entries that one CPU takes and another gives back are reused, and the table grows only when
//! there are more pages than ever before.
//!
//! The table may be in memory that outlives the process: see [`recovery`].

mod recovery;

use objects::Object;
use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Mutex, PerCpu};
use units::Cpu;
use zcomp::EXTENT_PAGES;
use zsmalloc::Handle;

use crate::{Key, Word, object_word};

/// The contents of an entry's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// One eight-byte pattern repeated.
    SameFilled(u64),
    /// An object.
    Stored(Object),
    /// A part of an object that several pages share.
    Part(Part),
}

/// A page's part of a *pack*: neighbours that were compressed as one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The number of the pack in the table of shared objects. The entry is a reference to it.
    pub(crate) pack: u32,
    /// Which page of the pack it is.
    pub(crate) part: u8,
    /// The page's share of the object, in bytes: [`objects::Shared::share`].
    pub(crate) share: usize,
    /// The number of the codec of the object.
    pub(crate) codec: u8,
}

impl Part {
    /// As the word of an object that has the number of the pack for a handle, with marks above it.
    fn word(self) -> u64 {
        let handle = Handle::from_raw(self.pack);
        let share = Object::Compressed { handle, length: self.share, codec: self.codec };
        share.word() | PART | u64::from(self.part) << PART_SHIFT
    }

    /// The part from a word that may be damaged.
    fn checked_from_word(word: u64) -> Option<Part> {
        let share = Object::checked_from_word(word)?;
        let Object::Compressed { handle, length: share, codec } = share else { return None };
        let part = word >> PART_SHIFT;
        let right = part < EXTENT_PAGES as u64 && word & PART != 0;
        right.then_some(Part { pack: handle.get(), part: part as u8, share, codec })
    }
}

impl Content {
    /// The bytes of the object, or of the page's share of it.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Content::SameFilled(_) => 0,
            Content::Stored(object) => object.bytes(),
            Content::Part(part) => part.share,
        }
    }

    /// The words `OBJECT` and `PATTERN`.
    fn words(self) -> (u64, u64) {
        match self {
            Content::SameFilled(pattern) => (SAME_FILLED, pattern),
            Content::Stored(object) => (object.word(), 0),
            Content::Part(part) => (part.word(), 0),
        }
    }

    #[inline]
    fn from_words(object: u64, pattern: u64) -> Content {
        if object & (SAME_FILLED | PART) == 0 {
            return Content::Stored(Object::from_word(object));
        }
        match Part::checked_from_word(object) {
            Some(part) => Content::Part(part),
            None => Content::SameFilled(pattern),
        }
    }
}

/// What a pass has to do with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// To pack it with its neighbours, or to make it smaller alone if that cannot be.
    First,
    /// To pack it with its neighbours after all.
    Last,
}

/// Stands in place of the word of an object.
const SAME_FILLED: u64 = 1 << Object::BITS;
/// Beside the word of an object whose entry was given up.
const CLOSED: u64 = 1 << (Object::BITS + 1);
/// The word names a part of a pack: see [`Part`].
const PART: u64 = 1 << (Object::BITS + 2);
const PART_SHIFT: u32 = Object::BITS + 3;

/// The indices of an entry's words.
const KEY: usize = 0;
const OBJECT: usize = 1;
const LINKS: usize = 2;
const STATE: usize = 3;
const PATTERN: usize = 4;

/// The parts of the word `STATE`: the life in the upper half, then the memcg, the list, and marks.
const LIFE_SHIFT: u32 = 32;
const MEMCG_SHIFT: u32 = 24;
const LIST_SHIFT: u32 = 16;
const REFERENCED: u64 = 1;
const LINKED: u64 = 2;
/// Only of use while a cache is recovered: an index names the entry.
const NAMED: u64 = 4;
/// The page was read since a pass came by. An eviction does not take this mark away.
const READ: u64 = 8;
/// A pass has nothing more to do with the page.
const TRIED: u64 = 16;
/// The page was recompressed, alone or in a pack.
const WARM: u64 = 32;
/// The page would be no smaller alone: it is due once more, with others.
const NO_SMALLER: u64 = 64;
/// Passes that came by since the page was stored, read or recompressed; 255 stays.
const PASSES_SHIFT: u32 = 8;
const PASSES: u64 = 0xff << PASSES_SHIFT;

/// The age is kept above the key.
const AGE_BITS: u32 = 64 - Key::BITS;
/// The ages that an entry can have: as many lower bits as are kept.
pub(crate) const AGES: u64 = 1 << AGE_BITS;

/// All entries of an engine. Any number of threads may call every method at once. The thread that
/// writes an entry owns it.
pub(crate) struct Entries {
    table: LazyTable<[AtomicU64; 5]>,
    /// One word: the highest number that was ever used. It is counted up before the number is used.
    used: LazyTable<AtomicU64>,
    /// Freed entries of each CPU, at most [`KEPT`]. A CPU's lock is taken before that of `common`.
    unused: PerCpu<Mutex<Unused>>,
    /// Freed entries for all CPUs.
    common: Mutex<Unused>,
    /// Whether `common` has entries: a hint, so that a growing cache takes no common lock.
    has_common: AtomicBool,
    capacity: u32,
}

/// The most freed entries that a CPU keeps: 2.5 KiB.
const KEPT: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// Numbers of freed entries, linked by their words `LINKS`.
#[derive(Default)]
struct Unused {
    first: u32,
    count: u32,
}

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = 40;

impl Entries {
    /// Makes room for `capacity` entries. If another process left its entries in the memory of the
    /// provider, they have to be recovered.
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        capacity: u32,
        cpus: usize,
    ) -> Result<Entries, NoMemory> {
        Ok(Entries {
            table: LazyTable::new(provider, capacity as usize + 1)?,
            used: LazyTable::provided(provider, 1)?,
            unused: PerCpu::new(cpus, |_| Mutex::new(Unused::default())),
            common: Mutex::new(Unused::default()),
            has_common: AtomicBool::new(false),
            capacity,
        })
    }

    /// The highest number of entries.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// If memory is provided ahead: provides `more` entries beyond those ever used. Returns how
    /// many entries may be used in all then.
    pub(crate) fn provide(&self, more: u32) -> u32 {
        let fresh = self.touched() as usize + 1;
        self.table.provide(fresh.saturating_add(more as usize));
        self.ready()
    }

    /// Entries that may be used: all, unless memory is provided ahead.
    fn ready(&self) -> u32 {
        self.table.ready().saturating_sub(1) as u32
    }

    /// Entries that may be used and were never used.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.ready().saturating_sub(self.touched() as u32)
    }

    /// The approximate most entries ever used at once: their memory stays.
    pub(crate) fn touched(&self) -> u64 {
        self.used.get(0).load(Ordering::Relaxed)
    }

    /// The count of freed numbers. Call it only while no thread takes or gives back an entry.
    pub(crate) fn unused(&self) -> u64 {
        let kept: u64 = self.unused.iter().map(|list| u64::from(list.lock().count)).sum();
        kept + u64::from(self.common.lock().count)
    }

    /// Takes an entry for the caller alone; `None` if all are used.
    pub(crate) fn take(&self, cpu: Cpu) -> Option<Word> {
        // The lock of each CPU is released before the next one is taken.
        let number = self
            .take_freed(cpu)
            .or_else(|| self.take_fresh())
            .or_else(|| self.pop(&mut self.common.lock()))
            .or_else(|| self.unused.iter().find_map(|list| self.pop(&mut list.lock())))?;
        let state = &self.table.get(number as usize)[STATE];
        let life = ((state.load(Ordering::Relaxed) >> LIFE_SHIFT) as u32).wrapping_add(1);
        state.store(u64::from(life) << LIFE_SHIFT, Ordering::Relaxed);
        Word::new(number, life)
    }

    /// Takes a freed entry of the CPU, or of those for all CPUs.
    fn take_freed(&self, cpu: Cpu) -> Option<u32> {
        let mut list = self.unused.get(cpu).lock();
        if list.count == 0 && self.has_common.load(Ordering::Relaxed) {
            let mut common = self.common.lock();
            self.pass(&mut common, &mut list, KEPT / 2);
            self.has_common.store(common.count > 0, Ordering::Relaxed);
        }
        self.pop(&mut list)
    }

    fn pop(&self, list: &mut Unused) -> Option<u32> {
        let number = list.first;
        if number == 0 {
            return None;
        }
        list.first = self.table.get(number as usize)[LINKS].load(Ordering::Relaxed) as u32;
        list.count -= 1;
        Some(number)
    }

    fn push(&self, list: &mut Unused, number: u32) {
        self.table.get(number as usize)[LINKS].store(u64::from(list.first), Ordering::Relaxed);
        list.first = number;
        list.count += 1;
    }

    /// Passes up to `most` entries from one list to another.
    #[cold]
    fn pass(&self, from: &mut Unused, to: &mut Unused, most: u32) {
        for _ in 0..most {
            let Some(number) = self.pop(from) else { return };
            self.push(to, number);
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let ready = u64::from(self.ready());
        let next = |used| (used < ready).then_some(used + 1);
        let before = self.used.get(0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.ok().map(|used| used as u32 + 1)
    }

    /// Takes back an entry that no thread can find any more.
    pub(crate) fn give_back(&self, cpu: Cpu, number: u32) {
        let mut list = self.unused.get(cpu).lock();
        self.push(&mut list, number);
        if list.count > KEPT {
            let mut common = self.common.lock();
            self.pass(&mut list, &mut common, KEPT / 2);
            self.has_common.store(true, Ordering::Relaxed);
        }
    }

    /// Writes an entry that was just taken, with a content that only the caller knows.
    pub(crate) fn write(&self, word: Word, key: Key, memcg: u8, content: Content) {
        let entry = self.table.get(word.number() as usize);
        let (object, pattern) = content.words();
        entry[KEY].store(key.pack(), Ordering::Relaxed);
        entry[PATTERN].store(pattern, Ordering::Relaxed);
        object_word::set(&entry[OBJECT], object);
        let life = word.get() >> LIFE_SHIFT << LIFE_SHIFT;
        entry[STATE].store(life | u64::from(memcg) << MEMCG_SHIFT, Ordering::Relaxed);
    }

    pub(crate) fn key(&self, number: u32) -> Key {
        let word = self.table.get(number as usize)[KEY].load(Ordering::Relaxed);
        Key::unpack(word & ((1 << Key::BITS) - 1))
    }

    /// The content of an entry. The object may be moved meanwhile. Its old place stays for the
    /// readers of entries, as the entry does.
    #[inline]
    pub(crate) fn content(&self, number: u32) -> Content {
        let entry = self.table.get(number as usize);
        let object = object_word::get(&entry[OBJECT]) & !CLOSED;
        Content::from_words(object, entry[PATTERN].load(Ordering::Relaxed))
    }

    /// The last content of an entry that no index names any more: its object can still be read, and
    /// is not replaced any more.
    pub(crate) fn close(&self, number: u32) -> Content {
        let entry = self.table.get(number as usize);
        let object = object_word::close(&entry[OBJECT], CLOSED) & !CLOSED;
        Content::from_words(object, entry[PATTERN].load(Ordering::Relaxed))
    }

    /// Takes the content out of an entry that no thread can find or keeps any more.
    pub(crate) fn take_content(&self, number: u32) -> Content {
        let entry = self.table.get(number as usize);
        let object = object_word::take(&entry[OBJECT], SAME_FILLED) & !CLOSED;
        Content::from_words(object, entry[PATTERN].load(Ordering::Relaxed))
    }

    /// What an entry has now in the pool, if it has something. The entry may be unused. The object
    /// may be freed unless the caller keeps the entry.
    #[inline]
    pub(crate) fn in_pool(&self, number: u32) -> Option<Content> {
        match object_word::get(&self.table.get(number as usize)[OBJECT]) {
            0 | SAME_FILLED => None,
            word if word & CLOSED != 0 => None,
            word => Some(Content::from_words(word, 0)),
        }
    }

    /// Whether an entry has a part of a pack now.
    pub(crate) fn is_part(&self, number: u32) -> bool {
        matches!(self.in_pool(number), Some(Content::Part(_)))
    }

    /// Lets an entry have the same contents in another form, if it still has the old one and was
    /// not given up. Returns whether it did. The caller keeps the entry meanwhile.
    pub(crate) fn replace(&self, number: u32, from: Content, to: Content) -> bool {
        let place = &self.table.get(number as usize)[OBJECT];
        object_word::replace(place, from.words().0, to.words().0)
    }

    pub(crate) fn memcg(&self, number: u32) -> u8 {
        (self.state(number) >> MEMCG_SHIFT) as u8
    }

    /// The word that names an entry in its present life.
    pub(crate) fn word(&self, number: u32) -> Option<Word> {
        Word::new(number, (self.state(number) >> LIFE_SHIFT) as u32)
    }

    fn state(&self, number: u32) -> u64 {
        self.table.get(number as usize)[STATE].load(Ordering::Relaxed)
    }

    /// Marks that the page of the entry was read. If it was recompressed, returns how many passes
    /// came by since then, or since it was read the last time.
    #[inline]
    pub(crate) fn refer(&self, number: u32) -> Option<u8> {
        let state = &self.table.get(number as usize)[STATE];
        let before = state.load(Ordering::Relaxed);
        if before & (REFERENCED | READ) != REFERENCED | READ {
            state.fetch_or(REFERENCED | READ, Ordering::Relaxed);
        }
        match before & WARM {
            0 => None,
            _ if before & READ != 0 => Some(0),
            _ => Some((before >> PASSES_SHIFT) as u8),
        }
    }

    /// A pass comes by: the entry grows older, or is young again if it was read. Returns what is
    /// due if it has the age `wanted` in passes. The entry may be unused.
    pub(crate) fn pass_by(&self, number: u32, wanted: u8) -> Option<Due> {
        let state = &self.table.get(number as usize)[STATE];
        let before = state.load(Ordering::Relaxed);
        let passes = match before & READ {
            0 => ((before & PASSES) >> PASSES_SHIFT).saturating_add(1).min(0xff),
            _ => 0,
        };
        let after = before & !(READ | PASSES) | passes << PASSES_SHIFT;
        // Whoever changed the word meanwhile uses the entry.
        let is_aged = before == after
            || state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let is_due = is_aged && passes >= u64::from(wanted) && before & TRIED == 0;
        let is_first = before & (WARM | NO_SMALLER) == 0;
        is_due.then_some(if is_first { Due::First } else { Due::Last })
    }

    /// Whether the page was not read for this many passes. The present one may have come by or not.
    pub(crate) fn rests(&self, number: u32, wanted: u8) -> bool {
        let state = self.state(number);
        state & READ == 0 && ((state & PASSES) >> PASSES_SHIFT) + 1 >= u64::from(wanted)
    }

    /// Marks that the entry was recompressed. It is due once more, unless it was packed. The caller
    /// keeps the entry.
    pub(crate) fn set_recompressed(&self, number: u32, is_packed: bool) {
        let state = &self.table.get(number as usize)[STATE];
        self.rest_again(number);
        state.fetch_or(WARM, Ordering::Relaxed);
        match is_packed {
            true => state.fetch_or(TRIED, Ordering::Relaxed),
            false => state.fetch_and(!TRIED, Ordering::Relaxed),
        };
    }

    /// Marks that the page would be no smaller alone. It is due once more. The caller keeps the
    /// entry.
    pub(crate) fn set_no_smaller(&self, number: u32) {
        self.rest_again(number);
        self.table.get(number as usize)[STATE].fetch_or(NO_SMALLER, Ordering::Relaxed);
    }

    /// Lets the page be as young as one that was just read. The entry may be unused.
    pub(crate) fn rest_again(&self, number: u32) {
        self.table.get(number as usize)[STATE].fetch_and(!PASSES, Ordering::Relaxed);
    }

    /// Marks that a pass has nothing more to do with the entry. The caller keeps the entry.
    pub(crate) fn set_tried(&self, number: u32) {
        self.table.get(number as usize)[STATE].fetch_or(TRIED, Ordering::Relaxed);
    }

    /// Marks that a pass has nothing more to do with the entry if it was tried alone. The caller
    /// keeps the entry.
    pub(crate) fn set_settled(&self, number: u32) {
        if self.state(number) & (WARM | NO_SMALLER) != 0 {
            self.set_tried(number);
        }
    }

    /// Returns whether the page was read since the last call, and clears the mark.
    pub(crate) fn take_reference(&self, number: u32) -> bool {
        let state = &self.table.get(number as usize)[STATE];
        state.load(Ordering::Relaxed) & REFERENCED != 0
            && state.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    // The functions below are called under the lock of the entry's list.

    /// The list that the entry is in, or was in last.
    pub(crate) fn list(&self, number: u32) -> u8 {
        (self.state(number) >> LIST_SHIFT) as u8
    }

    pub(crate) fn is_linked(&self, number: u32) -> bool {
        self.state(number) & LINKED != 0
    }

    pub(crate) fn set_linked(&self, number: u32, list: u8) {
        // The list's byte is zero in an entry that was just written.
        let mark = LINKED | u64::from(list) << LIST_SHIFT;
        self.table.get(number as usize)[STATE].fetch_or(mark, Ordering::Relaxed);
    }

    pub(crate) fn set_unlinked(&self, number: u32) {
        self.table.get(number as usize)[STATE].fetch_and(!LINKED, Ordering::Relaxed);
    }

    /// The entries before and after this one; zero for none.
    pub(crate) fn links(&self, number: u32) -> (u32, u32) {
        let links = self.table.get(number as usize)[LINKS].load(Ordering::Relaxed);
        (links as u32, (links >> 32) as u32)
    }

    pub(crate) fn set_links(&self, number: u32, before: u32, after: u32) {
        let links = u64::from(after) << 32 | u64::from(before);
        self.table.get(number as usize)[LINKS].store(links, Ordering::Relaxed);
    }

    /// The age at which the entry came to the end of its list.
    pub(crate) fn age(&self, number: u32) -> u32 {
        (self.table.get(number as usize)[KEY].load(Ordering::Relaxed) >> Key::BITS) as u32
    }

    pub(crate) fn set_age(&self, number: u32, age: u32) {
        let word = &self.table.get(number as usize)[KEY];
        let key = word.load(Ordering::Relaxed) & ((1 << Key::BITS) - 1);
        word.store(key | u64::from(age) << Key::BITS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
