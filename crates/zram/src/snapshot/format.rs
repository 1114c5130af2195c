//! Records and entries of a snapshot, from and to bytes.

use alloc::string::String;
use alloc::vec::Vec;

use twox_hash::XxHash3_64;
use units::{PAGE_SIZE, Page};
use zcomp::Params;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// What a file is a snapshot of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// A disk.
    Disk,
    /// A store of values by keys: the crate `values` says what its records have.
    Store,
}

impl Of {
    /// What a file begins with.
    pub(super) const fn letters(self) -> &'static [u8; 12] {
        match self {
            Of::Disk => b"rampack-snap",
            Of::Store => b"rampack-vals",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Of::Disk => "a disk",
            Of::Store => "a store of values",
        }
    }
}

/// Appends what a file begins with.
pub fn put_beginning(out: &mut Vec<u8>, of: Of) {
    out.extend(of.letters());
    out.extend(VERSION.to_le_bytes());
}

/// The bytes before the contents of a record.
pub(super) const HEAD: usize = 16;
/// The most bytes of the contents of a record.
pub const MOST: usize = 2 << 20;

pub(super) mod record {
    pub(in super::super) const BEGIN: u32 = 1;
    pub(in super::super) const CODEC: u32 = 2;
    pub(in super::super) const PAGES: u32 = 3;
    pub(in super::super) const END: u32 = 4;
}

pub(super) mod entry {
    pub(in super::super) const FILLED: u8 = 1;
    pub(in super::super) const COMPRESSED: u8 = 2;
    pub(in super::super) const HUGE: u8 = 3;
    pub(in super::super) const PLAIN: u8 = 4;
    pub(in super::super) const LOST: u8 = 5;
    pub(in super::super) const OBJECT: u8 = 6;
    pub(in super::super) const HUGE_OBJECT: u8 = 7;
    pub(in super::super) const PART: u8 = 8;
}

/// What a snapshot has, one after the other.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// The first.
    Begin {
        /// The bytes of the device.
        bytes: u64,
        /// When it was taken, in seconds since 1970.
        time: u64,
        /// The name of the device.
        name: &'a str,
    },
    /// A codec; its number is the number of codecs before it.
    Codec(Codec<'a>),
    /// What several pages share; its number is the number of objects before it.
    Object {
        /// Its pages.
        pages: usize,
        /// Compressed, or huge.
        form: Form<'a>,
    },
    /// A page.
    Page {
        /// Its number.
        index: usize,
        /// Its contents.
        form: Form<'a>,
    },
    /// The last: all was there.
    End {
        /// The pages with contents.
        pages: u64,
        /// What pages share.
        objects: u64,
    },
}

/// A codec of a snapshot.
#[derive(Clone, Debug)]
pub struct Codec<'a> {
    /// Its priority.
    pub priority: u8,
    /// Whether the device stored with it when the snapshot was taken.
    pub is_current: bool,
    /// Its name.
    pub name: &'a str,
    /// Its parameters.
    pub params: Params,
}

/// The contents of a page, or of what pages share.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// Eight bytes that fill a page.
    Filled([u8; 8]),
    /// Compressed with a codec of this number.
    Compressed {
        /// The number.
        codec: u8,
        /// Fewer bytes than a page has.
        bytes: &'a [u8],
    },
    /// A page that did not shrink.
    Huge(&'a Page),
    /// A page that may shrink.
    Plain(&'a Page),
    /// It was lost.
    Lost,
    /// A part of an object.
    Part {
        /// The number of the object.
        object: u32,
        /// Which of its pages.
        part: u8,
    },
}

/// The sum of the contents of record `number`.
pub(super) fn sum(number: u64, kind: u32, contents: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(number.wrapping_mul(256).wrapping_add(u64::from(kind)), contents)
}

/// Appends record `number`, as the file has it.
pub fn put_record(out: &mut Vec<u8>, number: u64, kind: u32, contents: &[u8]) {
    out.extend(kind.to_le_bytes());
    out.extend((contents.len() as u32).to_le_bytes());
    out.extend(sum(number, kind, contents).to_le_bytes());
    out.extend(contents);
}

/// Appends the eight bytes of an entry.
pub(super) fn put_entry(out: &mut Vec<u8>, number: u32, kind: u8, codec: u8, length: usize) {
    out.extend(number.to_le_bytes());
    out.extend([kind, codec]);
    out.extend((length as u16).to_le_bytes());
}

const LEVEL: u8 = 1;
const WINDOW: u8 = 2;

impl Codec<'_> {
    /// The contents of its record.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Params { level, window_bits, dictionary } = &self.params;
        let given = if level.is_some() { LEVEL } else { 0 };
        let given = given | if window_bits.is_some() { WINDOW } else { 0 };
        let mut bytes = Vec::new();
        bytes.extend([self.priority, u8::from(self.is_current), given]);
        bytes.extend(level.unwrap_or(0).to_le_bytes());
        bytes.extend(window_bits.unwrap_or(0).to_le_bytes());
        bytes.push(self.name.len() as u8);
        bytes.extend(self.name.as_bytes());
        bytes.extend(dictionary.iter().flat_map(|it| it.iter()));
        bytes
    }

    /// What the contents of its record say; `None` if they are none of a codec.
    pub(super) fn from_bytes(mut bytes: &[u8]) -> Option<Codec<'_>> {
        let [priority, is_current, given] = *take(&mut bytes)?;
        let level = i32::from_le_bytes(*take(&mut bytes)?);
        let window_bits = i32::from_le_bytes(*take(&mut bytes)?);
        let [length] = *take(&mut bytes)?;
        let (name, dictionary) = bytes.split_at_checked(usize::from(length))?;
        let is_right = usize::from(priority) < zcomp::PRIORITIES
            && is_current <= 1
            && given & !(LEVEL | WINDOW) == 0;
        let params = Params {
            level: (given & LEVEL != 0).then_some(level),
            window_bits: (given & WINDOW != 0).then_some(window_bits),
            dictionary: (!dictionary.is_empty()).then(|| dictionary.into()),
        };
        let name = core::str::from_utf8(name).ok()?;
        is_right.then_some(Codec { priority, is_current: is_current == 1, name, params })
    }
}

/// Takes the first bytes of what is left.
pub(super) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

/// Takes an entry off what is left: its number, its kind, its codec and what belongs to it.
pub(super) fn take_entry<'a>(bytes: &mut &'a [u8]) -> Option<(u32, u8, u8, &'a [u8])> {
    let number = u32::from_le_bytes(*take(bytes)?);
    let [kind, codec] = *take(bytes)?;
    let length = usize::from(u16::from_le_bytes(*take(bytes)?));
    let (own, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((number, kind, codec, own))
}

/// The contents that an entry has; `None` if they cannot be.
pub(super) fn form(kind: u8, codec: u8, own: &[u8]) -> Option<Form<'_>> {
    match kind {
        entry::FILLED => Some(Form::Filled(own.try_into().ok()?)),
        entry::COMPRESSED | entry::OBJECT => {
            let fits = !own.is_empty() && own.len() < PAGE_SIZE;
            fits.then_some(Form::Compressed { codec, bytes: own })
        }
        entry::HUGE | entry::HUGE_OBJECT => Some(Form::Huge(own.try_into().ok()?)),
        entry::PLAIN => Some(Form::Plain(own.try_into().ok()?)),
        entry::LOST => own.is_empty().then_some(Form::Lost),
        entry::PART => {
            let object = u32::from_le_bytes(own.try_into().ok()?);
            Some(Form::Part { object, part: codec })
        }
        _ => None,
    }
}

/// The contents of the first record.
pub(super) fn begin(bytes: u64, time: u64, name: &str) -> Vec<u8> {
    let mut contents = Vec::new();
    contents.extend(bytes.to_le_bytes());
    contents.extend(time.to_le_bytes());
    contents.extend(name.as_bytes());
    contents
}

/// How damage is told.
pub(super) type Wrong = String;
