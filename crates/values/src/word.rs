//! The words of the index, and those that are retired.
//!
//! | bits | word of the index |
//! |---|---|
//! | 0..32 | the handle of a head; or 24 bits of a group above 8 bits of a member |
//! | 32 | whether it is a member of a group |
//! | 33 | referenced: it was read since the hand of the clock came by |
//! | 34 | whether its life ends |
//! | 35 | idle: it was not read since recompression came by |
//! | 36..64 | the fingerprint: the low 28 bits of the hash of the key |

use zsmalloc::Handle;

/// Bits of the hash that a word keeps. The low ones are those of the number of the bucket, so that
/// a bucket can be split without a look at the keys.
pub(crate) const FINGERPRINT_BITS: u32 = 28;

const FINGERPRINT_SHIFT: u32 = 64 - FINGERPRINT_BITS;
const MEMBER: u64 = 1 << 32;
/// The referenced bit.
pub(crate) const REFERENCED: u64 = 1 << 33;
const EXPIRES: u64 = 1 << 34;
/// The idle bit.
pub(crate) const IDLE: u64 = 1 << 35;

/// The most members of a group.
pub(crate) const MAX_MEMBERS: usize = 1 << 8;
/// One more than the highest number of a group.
pub(crate) const MAX_GROUPS: usize = 1 << 24;

/// What is known of a key for all places of the index: [`FINGERPRINT_BITS`] bits of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint(pub(crate) u32);

impl Fingerprint {
    pub(crate) const fn of(hash: u64) -> Fingerprint {
        Fingerprint((hash & ((1 << FINGERPRINT_BITS) - 1)) as u32)
    }
}

/// The word of a value. Never zero: there is no handle 0 and no group 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(u64);

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a head of its own.
    Head(Handle),
    /// A member of a group: the numbers of both.
    Member(u32, usize),
}

impl Word {
    pub(crate) fn head(fingerprint: Fingerprint, head: Handle, expires: bool) -> Word {
        Word::new(fingerprint, u64::from(head.get()), expires)
    }

    pub(crate) fn member(
        fingerprint: Fingerprint,
        group: u32,
        member: usize,
        expires: bool,
    ) -> Word {
        debug_assert!((group as usize) < MAX_GROUPS && member < MAX_MEMBERS);
        Word::new(fingerprint, u64::from(group) << 8 | member as u64 | MEMBER, expires)
    }

    fn new(fingerprint: Fingerprint, place: u64, expires: bool) -> Word {
        let expires = if expires { EXPIRES } else { 0 };
        Word(u64::from(fingerprint.0) << FINGERPRINT_SHIFT | place | expires)
    }

    /// The word of a slot; `None` if the slot is empty.
    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Option<Word> {
        (raw != 0).then_some(Word(raw))
    }

    #[inline]
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn fingerprint(self) -> Fingerprint {
        Fingerprint((self.0 >> FINGERPRINT_SHIFT) as u32)
    }

    #[inline]
    pub(crate) fn place(self) -> Place {
        let low = self.0 as u32;
        match self.0 & MEMBER {
            0 => Place::Head(Handle::from_raw(low)),
            _ => Place::Member(low >> 8, (low & 0xff) as usize),
        }
    }

    #[inline]
    pub(crate) fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    pub(crate) fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// As a read leaves it.
    #[inline]
    pub(crate) fn as_read(self) -> Word {
        Word(self.0 & !IDLE | REFERENCED)
    }

    pub(crate) fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    /// A word of two stores, of those that name the same thing: it was read if it was in one, and
    /// is idle if it is in both.
    pub(crate) fn of_both(self, other: Word) -> Word {
        Word(self.0 & !IDLE | other.0 & REFERENCED | self.0 & other.0 & IDLE)
    }

    /// Whether both name the same thing: the bits that tell of reads may differ.
    #[inline]
    pub(crate) fn is(self, other: Word) -> bool {
        (self.0 ^ other.0) & !(REFERENCED | IDLE) == 0
    }
}

/// What waits until no reader can hold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// A head, with all that it names.
    Head(Handle),
    /// An object, without what it names.
    Object(Handle),
    /// A bucket of the index.
    Bucket(u32),
    /// A group, with its number.
    Group(u32),
    /// The pages of the index that had no bucket any more when so many had been begun.
    Pages(u32),
}

impl Left {
    /// In 40 bits.
    pub(crate) fn get(self) -> u64 {
        match self {
            Left::Head(head) => u64::from(head.get()),
            Left::Object(object) => u64::from(object.get()) | 1 << 32,
            Left::Bucket(number) => u64::from(number) | 2 << 32,
            Left::Group(number) => u64::from(number) | 3 << 32,
            Left::Pages(begun) => u64::from(begun) | 4 << 32,
        }
    }

    pub(crate) fn from_raw(raw: u64) -> Left {
        let low = raw as u32;
        match raw >> 32 & 0xff {
            0 => Left::Head(Handle::from_raw(low)),
            1 => Left::Object(Handle::from_raw(low)),
            2 => Left::Bucket(low),
            3 => Left::Group(low),
            _ => Left::Pages(low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_they_were_made_of() {
        let fingerprint = Fingerprint::of(u64::MAX);
        for expires in [false, true] {
            let word = Word::head(fingerprint, Handle::from_raw(u32::MAX), expires);
            assert_eq!(word.place(), Place::Head(Handle::from_raw(u32::MAX)));
            assert_eq!((word.fingerprint(), word.expires()), (fingerprint, expires));
            assert!(!word.is_referenced());
            let word = Word::member(Fingerprint(5), 0xff_ffff, 255, expires);
            assert_eq!(word.place(), Place::Member(0xff_ffff, 255));
            assert_eq!((word.fingerprint(), word.expires()), (Fingerprint(5), expires));
            let read = Word::from_raw(word.get() | IDLE).map(Word::as_read);
            assert!(read.is_some_and(|read| read.is(word) && read.is_referenced()));
            assert!(!word.is_idle() && read.is_some_and(|read| !read.is_idle()));
        }
        let handle = Handle::from_raw(9);
        let numbered = [Left::Bucket(9), Left::Group(9), Left::Pages(9)];
        for left in [Left::Head(handle), Left::Object(handle)].into_iter().chain(numbered) {
            assert_eq!(Left::from_raw(left.get()), left);
        }
    }
}
