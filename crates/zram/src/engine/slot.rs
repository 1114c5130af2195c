//! A slot: the state of one page of the disk, in one word.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | the object's handle, the fill pattern, the block of the backing device, or an entry |
//! | 32–44 | the object's length in bytes, 1 to 4096; 4096 is an uncompressed page |
//! | 45–49 | the codec: 0–30 by number, or 31 for an object that is an 8-byte fill pattern |
//! | 50–51 | kind: 0 empty, 1 same-filled, 2 stored, 3 written back |
//! | 52 | claimed: a thread prepares a replacement from the present contents |
//! | 53 | marked: chosen to be written back |
//! | 54 | idle: not used since it was marked idle |
//! | 55 | incompressible: no codec of the device makes it smaller |
//! | 56 | huge: a written-back page that did not shrink |
//! | 57 | lost: with kind 3, the contents could not be recovered; bits 0 to 49 mean nothing |
//! | 58 | shared: with kind 3, a part of a shared object, which has an entry in their table |
//! | 59–61 | free |
//! | 62–63 | reserved for the slot table: the lock and its waiters |
//!
//! Of a shared object, bits 32 and 33 are the number of the page in the extent, bit 34 says that it
//! is one, and bit 56 that the page did not shrink.
//!
//! Bits 0 to 49 of a stored page are [`Object::word`], and those of a written-back one
//! [`Backed::word`]. A store clears 52 to 55. Transitions are functions on the word; the table only
//! swaps words.

use objects::Object;
use pagelog::Backed;
use units::PAGE_SIZE;

const PART_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = Object::BITS;
const _: () = assert!(Object::BITS == Backed::BITS);
const KIND_MASK: u64 = 3;
const CLAIMED: u64 = 1 << 52;
const MARKED: u64 = 1 << 53;
const IDLE: u64 = 1 << 54;
const INCOMPRESSIBLE: u64 = 1 << 55;
const HUGE: u64 = 1 << 56;
const LOST: u64 = 1 << 57;
const SHARED: u64 = 1 << 58;
const FREE_BITS: u64 = 7 << 59;
const PART_MASK: u64 = 3;
const PACKED: u64 = 1 << 34;
const FILLED: u64 = 1;
const STORED: u64 = 2;
const BACKED: u64 = 3;
/// Bits of a word that the slot uses.
pub(crate) const SLOT_BITS: u32 = 62;

/// The word of a slot. The default is an empty slot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slot(u64);

/// The contents of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Never written, or discarded: reads as zeroes.
    Empty,
    /// One eight-byte pattern repeated, which is in the slot.
    SameFilled(u64),
    /// An object.
    Stored(Object),
    /// Written back, not in memory.
    WrittenBack(Backed),
    /// A part of an object that other slots may name, too.
    Shared(Part),
    /// What another process left here could not be right: reads fail until the page is replaced.
    Lost,
}

/// The part of a shared object that a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The entry in the table of shared objects; never 0.
    pub entry: u32,
    /// The number of the page in an extent; 0 otherwise.
    pub part: u8,
    /// The object is an extent: neighbouring pages compressed as one.
    pub packed: bool,
    /// The page did not shrink, and is stored uncompressed.
    pub huge: bool,
}

impl Part {
    /// The only page of an object that shrank.
    pub(crate) const fn whole(entry: u32) -> Part {
        Part { entry, part: 0, packed: false, huge: false }
    }
}

impl Slot {
    /// An empty slot.
    pub const EMPTY: Slot = Slot(0);

    /// A slot whose contents could not be recovered.
    pub const LOST: Slot = Slot(BACKED << KIND_SHIFT | LOST);

    /// A slot for a page filled with `pattern`; `None` unless both halves of the pattern are equal.
    #[inline]
    #[must_use]
    pub const fn same_filled(pattern: u64) -> Option<Slot> {
        let low = pattern as u32;
        if low == (pattern >> 32) as u32 {
            Some(Slot(low as u64 | FILLED << KIND_SHIFT))
        } else {
            None
        }
    }

    /// A slot for a page stored as an object.
    #[inline]
    #[must_use]
    pub const fn stored(object: Object) -> Slot {
        Slot(object.word() | STORED << KIND_SHIFT)
    }

    /// A slot for a page that was written back.
    #[must_use]
    pub const fn written_back(place: Backed) -> Slot {
        debug_assert!(place.form.length > 0);
        let word = place.word() | BACKED << KIND_SHIFT;
        Slot(if place.form.huge { word | HUGE } else { word })
    }

    /// A slot for a page that is a part of a shared object.
    #[must_use]
    pub const fn shared(part: Part) -> Slot {
        debug_assert!(part.entry != 0 && part.part as u64 <= PART_MASK);
        let word = part.entry as u64
            | (part.part as u64) << PART_SHIFT
            | BACKED << KIND_SHIFT
            | SHARED
            | if part.packed { PACKED } else { 0 };
        Slot(if part.huge { word | HUGE } else { word })
    }

    /// Does it name an object or a place, which is given up when the slot is displaced?
    #[inline]
    #[must_use]
    pub(crate) const fn names_something(self) -> bool {
        matches!(self.kind(), Kind::Stored(_) | Kind::WrittenBack(_) | Kind::Shared(_))
    }

    /// The contents of the slot.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT & KIND_MASK {
            STORED => Kind::Stored(Object::from_word(self.0)),
            FILLED => {
                let half = self.0 as u32 as u64;
                Kind::SameFilled(half << 32 | half)
            }
            BACKED if self.0 & LOST != 0 => Kind::Lost,
            BACKED if self.0 & SHARED != 0 => Kind::Shared(Part {
                entry: self.0 as u32,
                part: (self.0 >> PART_SHIFT & PART_MASK) as u8,
                packed: self.0 & PACKED != 0,
                huge: self.0 & HUGE != 0,
            }),
            BACKED => {
                let mut place = Backed::from_word(self.0);
                place.form.huge = self.0 & HUGE != 0;
                Kind::WrittenBack(place)
            }
            _ => Kind::Empty,
        }
    }

    /// The object of the slot, if it has one.
    #[inline]
    #[must_use]
    pub const fn object(self) -> Option<Object> {
        match self.kind() {
            Kind::Stored(object) => Some(object),
            _ => None,
        }
    }

    /// The codec that its contents need, as a bit. A shared object has it in its entry.
    pub(crate) const fn codec(self) -> u32 {
        match self.kind() {
            Kind::Stored(Object::Compressed { codec, .. }) => 1 << codec,
            Kind::WrittenBack(place) if place.form.is_compressed() => 1 << place.form.codec,
            _ => 0,
        }
    }

    /// The slot after its object was moved: it names `object`, the same object at its new place.
    /// All flags stay.
    #[inline]
    #[must_use]
    pub const fn moved_to(self, object: Object) -> Slot {
        Slot(self.0 & !((1 << Object::BITS) - 1) | object.word())
    }

    /// Whether the page is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 & !CLAIMED == 0
    }

    /// Whether a thread prepares a replacement from the present contents. Any store clears the
    /// claim, and the replacement is not installed then.
    #[inline]
    #[must_use]
    pub const fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    /// The same slot, claimed.
    #[inline]
    #[must_use]
    pub const fn claimed(self) -> Slot {
        Slot(self.0 | CLAIMED)
    }

    /// The same slot, not claimed.
    #[inline]
    #[must_use]
    pub const fn unclaimed(self) -> Slot {
        Slot(self.0 & !CLAIMED)
    }

    /// Whether the page is on the backing device.
    #[must_use]
    pub const fn is_backed(self) -> bool {
        self.0 & (KIND_MASK << KIND_SHIFT | LOST | SHARED) == BACKED << KIND_SHIFT
    }

    /// Whether the contents of the page could not be recovered.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self.kind(), Kind::Lost)
    }

    /// The slot that a dead process left, without what it had under way there: nobody prepares a
    /// replacement, and nobody writes the page back.
    #[must_use]
    pub const fn settled(self) -> Slot {
        Slot(self.0 & !(CLAIMED | MARKED))
    }

    /// Whether a settled slot can be right, by what it says itself.
    #[must_use]
    pub const fn is_well_formed(self) -> bool {
        const FLAGS: u64 = IDLE | INCOMPRESSIBLE;
        const CONTENTS: u64 = (1 << Object::BITS) - 1;
        if self.0 & FREE_BITS != 0 {
            return false;
        }
        let known = match self.0 >> KIND_SHIFT & KIND_MASK {
            FILLED => u32::MAX as u64 | KIND_MASK << KIND_SHIFT,
            STORED => CONTENTS | KIND_MASK << KIND_SHIFT | FLAGS,
            BACKED if self.0 & LOST != 0 => return self.0 == Slot::LOST.0,
            BACKED if self.0 & SHARED != 0 => {
                const PARTS: u64 = PART_MASK << PART_SHIFT | PACKED;
                u32::MAX as u64 | PARTS | KIND_MASK << KIND_SHIFT | SHARED | HUGE | FLAGS
            }
            BACKED => CONTENTS | KIND_MASK << KIND_SHIFT | HUGE,
            _ => 0,
        };
        if self.0 & !known != 0 {
            return false;
        }
        match self.kind() {
            Kind::Stored(_) => Object::checked_from_word(self.0).is_some(),
            Kind::WrittenBack(Backed { form, .. }) => {
                form.length > 0 && form.length as usize <= PAGE_SIZE
            }
            Kind::Shared(part) => match part.packed {
                true => part.entry != 0 && !part.huge,
                false => part.entry != 0 && part.part == 0,
            },
            _ => true,
        }
    }

    /// Whether the page is chosen to be written back, and unused since.
    #[must_use]
    pub const fn is_marked(self) -> bool {
        self.0 & MARKED != 0
    }

    /// The same slot, marked or not.
    #[must_use]
    pub const fn with_mark(self, on: bool) -> Slot {
        self.with(MARKED, on)
    }

    /// Whether the page is unused since it was marked idle.
    #[must_use]
    pub const fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// The same slot, idle or not.
    #[must_use]
    pub const fn with_idle(self, on: bool) -> Slot {
        self.with(IDLE, on)
    }

    /// Whether no codec of the device makes the page smaller.
    #[must_use]
    pub const fn is_incompressible(self) -> bool {
        self.0 & INCOMPRESSIBLE != 0
    }

    /// The same slot, marked incompressible.
    #[must_use]
    pub const fn incompressible(self) -> Slot {
        self.with(INCOMPRESSIBLE, true)
    }

    /// The same slot, not marked incompressible: the device has a new codec.
    #[must_use]
    pub const fn worth_a_try(self) -> Slot {
        self.with(INCOMPRESSIBLE, false)
    }

    /// Whether a read of the page changes its slot: the slot is idle or marked.
    #[inline]
    #[must_use]
    pub const fn notices_readers(self) -> bool {
        self.0 & (IDLE | MARKED) != 0
    }

    /// The same slot after a read of the page.
    #[must_use]
    pub const fn touched(self) -> Slot {
        Slot(self.0 & !(IDLE | MARKED))
    }

    /// The same contents with the flags of `old` that tell of a page in memory: idle and
    /// incompressible.
    #[must_use]
    pub(crate) const fn with_flags_of(self, old: Slot) -> Slot {
        if self.is_backed() { self } else { Slot(self.0 | old.0 & (IDLE | INCOMPRESSIBLE)) }
    }

    /// Whether both slots name the same contents; flags may differ.
    #[must_use]
    pub const fn same_contents(self, other: Slot) -> bool {
        const PASSING: u64 = CLAIMED | MARKED | IDLE | INCOMPRESSIBLE;
        self.0 & !PASSING == other.0 & !PASSING
    }

    const fn with(self, bit: u64, on: bool) -> Slot {
        if on { Slot(self.0 | bit) } else { Slot(self.0 & !bit) }
    }

    /// The word, for a table.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A slot from a table's word.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Slot {
        Slot(word)
    }
}
