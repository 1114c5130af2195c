//! A snapshot is taken while the store is used.
//!
//! It goes through the index bucket by bucket, as a walk over the keys does: a key that is there
//! all the time is met once. A value is in the file as it was when its bucket came by. So the
//! snapshot is not that of one instant, and nobody's work waits for it: what is replaced meanwhile
//! is freed at once, within the limit that the store has. Objects are copied as they are.
//!
//! A group is in the file when the first of its members is met, with all that words name at that
//! moment. Its other members are not met again, but those that were not named yet. In a group with
//! lives that end, the seconds of the ends are compressed with the values: its members are in the
//! file one by one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sync::{Reader, lock_one};
use zsmalloc::Handle;

use super::Values;
use crate::head::{Form, HEAD_BYTES, Head, Unit, chunks, each_unit, member, split, words_of};
use crate::index::END;
use crate::saved::{Entry, Live, Part, is_live, put_entry, record, take_entry};
use crate::word::{Place, Word};
use crate::{At, GetError};

/// The bytes after which a record of values ends.
const ENOUGH: usize = 256 << 10;

/// A snapshot that is being taken. While it is, it takes as much memory as a bucket of values, and
/// 40 bytes for each group.
pub struct Saving<'a> {
    values: &'a Values,
    /// Seconds since 1970.
    time: u64,
    step: Step,
    /// The next bucket.
    place: u64,
    words: Vec<Word>,
    /// The members that are in the file, by the tag of their group.
    groups: BTreeMap<u64, Live>,
    /// Entries, of which those before `from` are in records.
    entries: Vec<u8>,
    from: usize,
    saved: u64,
    /// Entries of groups.
    whole: u64,
}

#[derive(Clone, Copy)]
enum Step {
    Begin,
    Codec(usize),
    Values,
    Done,
}

impl Values {
    /// Begins a snapshot. `time` is what it says of the present, in seconds since 1970.
    #[must_use]
    pub fn saving(&self, time: u64) -> Saving<'_> {
        Saving {
            values: self,
            time,
            step: Step::Begin,
            place: 0,
            words: Vec::new(),
            groups: BTreeMap::new(),
            entries: Vec::new(),
            from: 0,
            saved: 0,
            whole: 0,
        }
    }
}

impl Saving<'_> {
    /// The kind and the contents of the next record; `None` after the last.
    ///
    /// # Errors
    /// [`GetError::Corrupt`] for a group that is damaged. What was returned so far is no snapshot.
    pub fn next_record(&mut self, at: At) -> Result<Option<(u32, &[u8])>, GetError> {
        if self.from == self.entries.len() {
            self.entries.clear();
            self.from = 0;
        }
        match self.step {
            Step::Begin => {
                self.entries.extend((self.values.unit as u32).to_le_bytes());
                self.entries.extend(self.time.to_le_bytes());
                self.step = Step::Codec(0);
                Ok(Some(self.whole_record(record::BEGIN)))
            }
            Step::Codec(number) => {
                let second = self.values.cold.as_ref().map(|cold| &cold.codec);
                let mut codecs = [&self.values.codec].into_iter().chain(second);
                let name = codecs.nth(number).map_or("", |codec| codec.name());
                self.step = match codecs.next() {
                    Some(_) => Step::Codec(number + 1),
                    None => Step::Values,
                };
                self.entries.extend(name.as_bytes());
                Ok(Some(self.whole_record(record::CODEC)))
            }
            Step::Values => {
                while self.entries.len() - self.from < ENOUGH && self.place < END {
                    self.pass_bucket(at)?;
                }
                let mut rest = &self.entries[self.from..];
                let before = rest.len();
                if before == 0 {
                    self.step = Step::Done;
                    self.entries.extend(self.saved.to_le_bytes());
                    self.entries.extend(self.whole.to_le_bytes());
                    return Ok(Some(self.whole_record(record::END)));
                }
                while before - rest.len() < ENOUGH && take_entry(&mut rest).is_some() {}
                let (from, to) = (self.from, self.entries.len() - rest.len());
                self.from = to;
                Ok(Some((record::VALUES, &self.entries[from..to])))
            }
            Step::Done => Ok(None),
        }
    }

    /// Values so far.
    #[must_use]
    pub fn saved(&self) -> u64 {
        self.saved
    }

    fn whole_record(&mut self, kind: u32) -> (u32, &[u8]) {
        self.from = self.entries.len();
        (kind, &self.entries)
    }

    fn pass_bucket(&mut self, at: At) -> Result<(), GetError> {
        let values = self.values;
        let reader = values.retired.read(at.cpu);
        let mut words = core::mem::take(&mut self.words);
        words.clear();
        self.place = values.own.index.scan(self.place, &mut words);
        let passed = words.iter().try_for_each(|word| match word.place() {
            Place::Head(handle) => {
                self.put_value(&reader, handle, at.now);
                Ok(())
            }
            Place::Member(group, number) => self.put_member(&reader, at, group, number),
        });
        self.words = words;
        passed
    }

    /// Appends the entry of a value.
    fn begin_value(&mut self, head: &Head, key: &[u8], now: u32) {
        let life = if head.expires == 0 { 0 } else { head.expires - now };
        let codec = u8::from(head.cold);
        put_entry(&mut self.entries, Entry::Value { codec, length: head.value, life, key });
        self.saved += 1;
    }

    /// Appends a value with a head of its own.
    fn put_value(&mut self, reader: &Reader<'_>, handle: Handle, now: u32) {
        let values = self.values;
        let head = values.head_of(reader, handle);
        if head.is_over(now) {
            return;
        }
        values.object(reader, handle, HEAD_BYTES + head.key, |bytes| {
            self.begin_value(&head, &bytes[HEAD_BYTES..], now);
        });
        self.put_parts(reader, handle, &head);
    }

    /// Appends the units of a value, or the members of a group.
    fn put_parts(&mut self, reader: &Reader<'_>, handle: Handle, head: &Head) {
        let (values, entries) = (self.values, &mut self.entries);
        let mut put = |part: Part<'_>| put_entry(entries, Entry::Part(part));
        let mut list: Vec<u32> = Vec::new();
        values.object(reader, handle, head.object_bytes(), |bytes| {
            let kept = &bytes[HEAD_BYTES + head.key..];
            match (head.form, kept.first_chunk()) {
                (Form::Raw, _) if kept.is_empty() => {}
                (Form::Raw, _) => put(Part::Raw(kept)),
                (Form::Packed(_), _) => put(Part::Packed(kept)),
                (Form::Filled, Some(pattern)) => put(Part::All(*pattern)),
                (Form::Listed(_), _) => list.extend(words_of(kept)),
                _ => {}
            }
        });
        if let Form::Long(_) = head.form {
            values.each_list(reader, handle, *head, &mut |object, bytes| {
                values.object(reader, object, bytes, |bytes| list.extend(words_of(bytes)));
            });
        }
        let mut whole = Vec::new();
        each_unit(&list, |unit, words| {
            whole.clear();
            for (chunk, bytes) in chunks(unit, words) {
                values.object(reader, chunk, bytes, |bytes| whole.extend(bytes));
            }
            match (unit, words) {
                (Unit::Packed(_), _) => put(Part::Packed(&whole)),
                (Unit::Raw(_), _) => put(Part::Raw(&whole)),
                (Unit::Filled, [low, high]) => {
                    let pattern = u64::from(*low) | u64::from(*high) << 32;
                    put(Part::Filled(pattern.to_ne_bytes()));
                }
                (Unit::Filled, _) => {}
            }
            true
        });
    }

    /// Appends the group of a member, or the member alone, unless it is in the file.
    fn put_member(
        &mut self,
        reader: &Reader<'_>,
        at: At,
        group: u32,
        number: usize,
    ) -> Result<(), GetError> {
        let values = self.values;
        let found = values.groups.get(group).ok_or(GetError::Corrupt)?;
        if self.groups.get(&found.tag).is_some_and(|live| is_live(live, number)) {
            return Ok(());
        }
        let members = {
            let mut reading = lock_one(&values.reading, at.cpu);
            values.group(reader, &mut reading, group)?.to_vec()
        };
        let is_whole = found.earliest == 0 && !self.groups.contains_key(&found.tag);
        let mut live = self.groups.get(&found.tag).copied().unwrap_or_default();
        let mut add = |number: usize, member: &[u8]| {
            let bit = 1 << (number % 64);
            if live[number / 64] & bit != 0 {
                return;
            }
            let Some((head, key, value)) = split(member) else { return };
            // In a group without lives, one that has one is over and went just now.
            if head.is_over(at.now) || is_whole && head.expires != 0 {
                return;
            }
            live[number / 64] |= bit;
            if is_whole {
                self.saved += 1;
                return;
            }
            self.begin_value(&head, key, at.now);
            if !value.is_empty() {
                put_entry(&mut self.entries, Entry::Part(Part::Raw(value)));
            }
        };
        // This one was met, whatever its slot has by now: the walk does not come back to it.
        add(number, member(&members, number).ok_or(GetError::Corrupt)?.1);
        values.each_member(&values.alone(), group, &members, |_, _, number, range| {
            add(number, &members[range]);
        });
        if is_whole {
            let head = values.head_of(reader, found.head);
            let (codec, length) = (u8::from(head.cold), members.len());
            put_entry(&mut self.entries, Entry::Group { codec, length, live });
            self.put_parts(reader, found.head, &head);
            self.whole += 1;
        }
        self.groups.insert(found.tag, live);
        Ok(())
    }
}
