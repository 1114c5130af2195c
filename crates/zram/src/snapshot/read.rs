//! Reads a snapshot, and checks all that it says of itself.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use control::{ControlError, Errno};
use units::PAGE_SIZE;
use zcomp::EXTENT_PAGES;

use super::format::{
    Codec, Form, HEAD, Item, MOST, Of, VERSION, Wrong, entry, form, record, sum, take, take_entry,
};

/// Reads the bytes that come next, as many as there are and fit; 0 at the end.
pub type Source<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, ControlError>;

/// The most bytes of a device.
const MOST_BYTES: u64 = pagelog::MOST_PAGES * PAGE_SIZE as u64;

/// Reads a snapshot of a disk to its end, and passes what it has to `see`. When this returns, all
/// was there. Until then nothing that was passed counts.
///
/// # Errors
/// As of [`read_records`], and those of `see`.
pub fn read_snapshot(
    source: Source<'_>,
    see: &mut dyn FnMut(Item<'_>) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    let mut seen = Seen::default();
    read_records(source, Of::Disk, &mut |record, place| {
        seen.record(record, place, see)?;
        Ok(record.kind == record::END)
    })
}

/// A record of a file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The number of records before it.
    pub number: u64,
    /// What it has.
    pub kind: u32,
    /// What it says, as it was written.
    pub contents: &'a [u8],
}

/// Says where in the file something is wrong.
pub type Place<'a> = &'a dyn Fn(String) -> ControlError;

/// Reads a snapshot to its end, and passes its records to `see`, which says whether one is the
/// last. When this returns, all was there. Until then nothing that was passed counts.
///
/// # Errors
/// `EINVAL` for what is no snapshot of that kind, is damaged, or ends early: the message names the
/// record and the byte. Those of `source` and `see`.
pub fn read_records(
    source: Source<'_>,
    of: Of,
    see: &mut dyn FnMut(Record<'_>, Place<'_>) -> Result<bool, ControlError>,
) -> Result<(), ControlError> {
    let mut input = Input { source, at: 0 };
    let mut first = [0; 16];
    let got = input.fill(&mut first)?;
    let (letters, version) = first.split_at(of.letters().len());
    if got < first.len() || letters != of.letters() {
        let other = [Of::Disk, Of::Store].into_iter().find(|of| letters == of.letters());
        return Err(ControlError::invalid(match (got, other) {
            (0, _) => "there is nothing to restore: the input is empty".into(),
            (16, Some(other)) => {
                format!("this is a snapshot of {}, not of {}", other.name(), of.name())
            }
            _ => {
                let begins = of.letters().escape_ascii();
                format!("this is no snapshot: it does not begin with {begins}")
            }
        }));
    }
    if version != VERSION.to_le_bytes() {
        let version = u32::from_le_bytes(version.try_into().unwrap_or_default());
        let message =
            format!("it is a snapshot of version {version}; this program reads {VERSION}");
        return Err(ControlError::invalid(message));
    }
    let mut contents = Vec::new();
    for number in 0u64.. {
        let began = input.at;
        let place = |wrong: Wrong| {
            let message =
                format!("the snapshot is damaged: record {number} (byte {began}): {wrong}");
            ControlError::invalid(message)
        };
        let mut head = [0; HEAD];
        match input.fill(&mut head)? {
            HEAD => {}
            _ => return Err(place("the input ends there, without the last record".into())),
        }
        let [a, b, c, d, e, f, g, h, rest @ ..] = head;
        let (kind, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let length = length as usize;
        if length > MOST {
            return Err(place(format!("it would have {length} bytes; {MOST} are the most")));
        }
        contents.clear();
        let room = contents.try_reserve_exact(length);
        room.map_err(|_| {
            ControlError::new(Errno::ENOMEM, format!("no memory for {length} bytes"))
        })?;
        contents.resize(length, 0);
        if input.fill(&mut contents)? < length {
            return Err(place(format!("the input ends within its {length} bytes")));
        }
        if sum(number, kind, &contents) != u64::from_le_bytes(rest) {
            return Err(place("its bytes are not those that were written".into()));
        }
        if see(Record { number, kind, contents: &contents }, &place)? {
            break;
        }
    }
    match input.fill(&mut [0])? {
        0 => Ok(()),
        _ => {
            let at = input.at - 1;
            Err(ControlError::invalid(format!("there is more behind the snapshot (byte {at})")))
        }
    }
}

/// Where the bytes come from.
struct Input<'a> {
    source: Source<'a>,
    at: u64,
}

impl Input<'_> {
    /// Fills a buffer, or less of it at the end of the input. Returns the bytes.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, ControlError> {
        let mut got = 0;
        while got < into.len() {
            match (self.source)(&mut into[got..])? {
                0 => break,
                more => got += more,
            }
        }
        self.at += got as u64;
        Ok(got)
    }
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    pages_of_device: u64,
    /// The next page is at least this one.
    next: u64,
    codecs: usize,
    /// The pages of each object.
    objects: Vec<u8>,
    pages: u64,
}

type See<'a> = &'a mut dyn FnMut(Item<'_>) -> Result<(), ControlError>;

impl Seen {
    fn record(
        &mut self,
        Record { number, kind, mut contents }: Record<'_>,
        place: Place<'_>,
        see: See<'_>,
    ) -> Result<(), ControlError> {
        if (number == 0) != (kind == record::BEGIN) {
            return Err(place(format!("it has kind {kind}, which is not the one that comes here")));
        }
        let short = || place("it is too short".into());
        match kind {
            record::BEGIN => {
                let bytes = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let time = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let name = core::str::from_utf8(contents);
                let name = name.map_err(|_| place("the name in it is no text".into()))?;
                if bytes == 0 || bytes > MOST_BYTES || !bytes.is_multiple_of(PAGE_SIZE as u64) {
                    return Err(place(format!("no device has {bytes} bytes")));
                }
                self.pages_of_device = bytes / PAGE_SIZE as u64;
                see(Item::Begin { bytes, time, name })
            }
            record::CODEC => {
                let codec = Codec::from_bytes(contents);
                let codec = codec.ok_or_else(|| place("it says no codec".into()))?;
                self.codecs += 1;
                see(Item::Codec(codec))
            }
            record::PAGES => {
                while !contents.is_empty() {
                    let found = take_entry(&mut contents).ok_or_else(short)?;
                    let item = self.entry(found).map_err(place)?;
                    see(item)?;
                }
                Ok(())
            }
            record::END => {
                let pages = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let objects = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let all = (self.pages, self.objects.len() as u64);
                if (pages, objects) != all || !contents.is_empty() {
                    let (seen, shared) = all;
                    return Err(place(format!(
                        "there were {pages} pages and {objects} objects; {seen} and {shared} came"
                    )));
                }
                see(Item::End { pages, objects })
            }
            kind => Err(place(format!("no record has kind {kind}"))),
        }
    }

    fn entry<'a>(
        &mut self,
        (number, kind, codec, own): (u32, u8, u8, &'a [u8]),
    ) -> Result<Item<'a>, Wrong> {
        let form = form(kind, codec, own);
        let form = form.ok_or_else(|| {
            format!("no entry has kind {kind} and {} bytes (page {number})", own.len())
        })?;
        match form {
            Form::Compressed { codec, .. } if usize::from(codec) >= self.codecs => {
                return Err(format!("it names codec {codec}, and {} came", self.codecs));
            }
            Form::Part { object, part } => {
                let pages = self.objects.get(object as usize).copied();
                if pages.is_none_or(|pages| part >= pages) {
                    return Err(format!("it names part {part} of object {object}, which is none"));
                }
            }
            _ => {}
        }
        if matches!(kind, entry::OBJECT | entry::HUGE_OBJECT) {
            let most = if kind == entry::OBJECT { EXTENT_PAGES } else { 1 };
            let pages = number as usize;
            if !(1..=most).contains(&pages) {
                return Err(format!("it has an object of {pages} pages"));
            }
            if self.objects.len() >= u32::MAX as usize || self.objects.try_reserve(1).is_err() {
                return Err("it has more objects than there is memory for".into());
            }
            self.objects.push(pages as u8);
            return Ok(Item::Object { pages, form });
        }
        let page = u64::from(number);
        if page < self.next || page >= self.pages_of_device {
            return Err(format!("page {page} is not one that can come next"));
        }
        (self.next, self.pages) = (page + 1, self.pages + 1);
        Ok(Item::Page { index: number as usize, form })
    }
}
