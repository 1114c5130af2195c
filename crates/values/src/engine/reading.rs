//! Values are found and read.

use sync::{Reader, lock_one};
use units::{Cpu, PAGE_SIZE};
use zsmalloc::Handle;

use super::{Found, Values};
use crate::family::Count;
use crate::head::{Form, HEAD_BYTES, Head, Unit, chunks, each_unit, fill, member, split, words_of};
use crate::scratch::{GROUP, Reading};
use crate::word::{Place, Word};
use crate::{At, GetError};

/// A part of a value.
#[derive(Clone, Copy)]
struct Part {
    /// Bytes of the value, and of its units.
    value: usize,
    unit: usize,
    /// Where the part begins.
    from: usize,
}

impl Values {
    /// Finds the value of a key, and passes it to `use_it`; `None` if there is none.
    #[inline]
    pub(super) fn find<R>(
        &self,
        at: At,
        key: &[u8],
        use_it: impl FnOnce(&Values, &Found<'_>) -> Result<R, GetError>,
    ) -> Result<Option<R>, GetError> {
        let reader = self.retired.read(at.cpu);
        let mut head = None;
        let word = self.own.index.find(self.fingerprint(key), |word| {
            head = self.head_if_of(&reader, at.cpu, word, key);
            head.is_some()
        });
        match word.zip(head) {
            Some((word, head)) if !head.is_over(at.now) => {
                self.count(at.cpu, Count::Hits, 1);
                use_it(self, &Found { reader: &reader, cpu: at.cpu, word, head }).map(Some)
            }
            _ => {
                self.count(at.cpu, Count::Misses, 1);
                Ok(None)
            }
        }
    }

    /// The head that a word names, if it is that of `key`. The calling thread found the word as a
    /// reader. A group that is damaged has no members.
    pub(super) fn head_if_of(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        word: Word,
        key: &[u8],
    ) -> Option<Head> {
        match word.place() {
            Place::Head(handle) => {
                let head = self.head_of(reader, handle);
                if head.key != key.len() {
                    return None;
                }
                self.object(reader, handle, HEAD_BYTES + head.key, |bytes| {
                    (bytes[HEAD_BYTES..] == *key).then_some(head)
                })
            }
            Place::Member(group, number) => {
                let mut reading = lock_one(&self.reading, cpu);
                let (head, bytes) = self.member(reader, &mut reading, group, number).ok()?;
                let (_, of, _) = split(bytes)?;
                (of == key).then_some(head)
            }
        }
    }

    /// The head of a member of a group.
    pub(super) fn member_head(&self, reader: &Reader<'_>, cpu: Cpu, word: Word) -> Option<Head> {
        let Place::Member(group, number) = word.place() else { return None };
        let mut reading = lock_one(&self.reading, cpu);
        self.member(reader, &mut reading, group, number).map(|(head, _)| head).ok()
    }

    /// Reads bytes `from..` of a value that was found to all of `into`.
    pub(super) fn read(
        &self,
        found: &Found<'_>,
        from: usize,
        into: &mut [u8],
    ) -> Result<(), GetError> {
        let Found { reader, cpu, word, head } = *found;
        if into.is_empty() {
            // `from` may be behind the end.
            return Ok(());
        }
        match word.place() {
            Place::Head(handle) => self.read_head(reader, cpu, handle, head, from, into),
            Place::Member(group, number) => {
                let mut reading = lock_one(&self.reading, cpu);
                let (head, bytes) = self.member(reader, &mut reading, group, number)?;
                let value = &bytes[HEAD_BYTES + head.key..];
                into.copy_from_slice(value.get(from..from + into.len()).ok_or(GetError::Corrupt)?);
                Ok(())
            }
        }
    }

    pub(super) fn read_head(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        handle: Handle,
        head: Head,
        from: usize,
        into: &mut [u8],
    ) -> Result<(), GetError> {
        match head.form {
            Form::Raw | Form::Filled => {
                self.object(reader, handle, head.object_bytes(), |bytes| {
                    let kept = &bytes[HEAD_BYTES + head.key..];
                    match kept.first_chunk() {
                        Some(pattern) if head.form == Form::Filled => fill(into, *pattern, from),
                        _ => into.copy_from_slice(&kept[from..from + into.len()]),
                    }
                });
                Ok(())
            }
            Form::Packed(_) | Form::Listed(_) | Form::Long(_) => {
                let mut reading = lock_one(&self.reading, cpu);
                let part = Part { value: head.value, unit: self.unit, from };
                self.read_packed(reader, &mut reading, handle, head, part, into)
            }
        }
    }

    /// Reads a group to `reading`, unless it is there, and returns all its members.
    pub(super) fn group<'b>(
        &self,
        reader: &Reader<'_>,
        reading: &'b mut Reading,
        number: u32,
    ) -> Result<&'b [u8], GetError> {
        let group = self.groups.get(number).ok_or(GetError::Corrupt)?;
        if reading.tag != group.tag {
            reading.tag = 0;
            let head = self.head_of(reader, group.head);
            let mut into = core::mem::take(&mut reading.group);
            let part = Part { value: head.value, unit: GROUP, from: 0 };
            let read = match into.get_mut(..head.value) {
                Some(into) => self.read_packed(reader, reading, group.head, head, part, into),
                None => Err(GetError::Corrupt),
            };
            reading.group = into;
            read?;
            (reading.tag, reading.group_bytes) = (group.tag, head.value);
        }
        Ok(&reading.group[..reading.group_bytes])
    }

    /// A member of a group: its head, and its bytes from the head on.
    pub(super) fn member<'b>(
        &self,
        reader: &Reader<'_>,
        reading: &'b mut Reading,
        group: u32,
        number: usize,
    ) -> Result<(Head, &'b [u8]), GetError> {
        member(self.group(reader, reading, group)?, number).ok_or(GetError::Corrupt)
    }

    fn read_packed(
        &self,
        reader: &Reader<'_>,
        reading: &mut Reading,
        handle: Handle,
        head: Head,
        part: Part,
        into: &mut [u8],
    ) -> Result<(), GetError> {
        let Reading { block, cold, packed, unit, list, .. } = reading;
        let block = match (head.cold, cold) {
            (false, _) => block,
            (true, Some(cold)) => cold,
            // No head of this store says so.
            (true, None) => return Err(GetError::Corrupt),
        };
        list.clear();
        let only = self.object(reader, handle, head.object_bytes(), |bytes| {
            let kept = &bytes[HEAD_BYTES + head.key..];
            match head.form {
                Form::Packed(_) if into.len() == head.value => {
                    Some(block.decompress(kept, into).map_err(|_| GetError::Corrupt))
                }
                Form::Packed(_) => {
                    let unit = &mut unit[..head.value];
                    Some(block.decompress(kept, unit).map_err(|_| GetError::Corrupt).map(|()| {
                        into.copy_from_slice(&unit[part.from..part.from + into.len()]);
                    }))
                }
                Form::Listed(_) => {
                    list.extend(words_of(kept));
                    None
                }
                _ => None,
            }
        });
        if let Some(only) = only {
            return only;
        }
        if let Form::Long(_) = head.form {
            self.each_list(reader, handle, head, &mut |object, bytes| {
                self.object(reader, object, bytes, |bytes| list.extend(words_of(bytes)));
            });
        }
        self.read_units(reader, (&mut **block, packed, unit), list, part, into)
    }

    /// Reads the units of a list that a part of a value is in.
    fn read_units(
        &self,
        reader: &Reader<'_>,
        (block, packed, whole): (&mut dyn zcomp::Block, &mut [u8], &mut [u8]),
        list: &[u32],
        part: Part,
        into: &mut [u8],
    ) -> Result<(), GetError> {
        let (mut start, mut outcome) = (0, Ok(()));
        let end = part.from + into.len();
        each_unit(list, |unit, words| {
            let bytes = part.unit.min(part.value - start);
            let (first, last) = (start.max(part.from), (start + bytes).min(end));
            start += bytes;
            if first >= last {
                return start < end;
            }
            // The bytes of the unit that are wanted, and where they go.
            let within = first + bytes - start..last + bytes - start;
            let into = &mut into[first - part.from..last - part.from];
            match unit {
                Unit::Filled => {
                    if let [low, high] = words {
                        let pattern = u64::from(*low) | u64::from(*high) << 32;
                        fill(into, pattern.to_ne_bytes(), within.start);
                    }
                }
                Unit::Raw(_) => self.read_raw(reader, unit, words, within.start, into),
                Unit::Packed(length) => {
                    let is_whole = within.len() == bytes;
                    let mut unpack = |packed: &[u8]| {
                        if is_whole {
                            return block.decompress(packed, into);
                        }
                        block.decompress(packed, &mut whole[..bytes])?;
                        into.copy_from_slice(&whole[within.clone()]);
                        Ok(())
                    };
                    let unpacked = match words {
                        [chunk] => self.object(reader, Handle::from_raw(*chunk), length, unpack),
                        _ => {
                            let chunk = |word: &u32| Handle::from_raw(*word);
                            words.iter().for_each(|word| self.pool.prefetch(chunk(word)));
                            let mut at = 0;
                            for (chunk, bytes) in chunks(unit, words) {
                                self.copy_object(reader, chunk, &mut packed[at..at + bytes]);
                                at += bytes;
                            }
                            unpack(&packed[..length])
                        }
                    };
                    outcome = unpacked.map_err(|_| GetError::Corrupt);
                }
            }
            outcome.is_ok() && start < end
        });
        outcome
    }

    /// Copies bytes `from..` of a unit that is kept as it is.
    fn read_raw(
        &self,
        reader: &Reader<'_>,
        unit: Unit,
        words: &[u32],
        from: usize,
        into: &mut [u8],
    ) {
        let end = from + into.len();
        for (number, (chunk, bytes)) in chunks(unit, words).enumerate() {
            let start = number * PAGE_SIZE;
            let (first, last) = (start.max(from), (start + bytes).min(end));
            if first < last {
                self.object(reader, chunk, bytes, |bytes| {
                    into[first - from..last - from]
                        .copy_from_slice(&bytes[first - start..last - start]);
                });
            }
        }
    }
}
