//! A snapshot is loaded into a store that is used.
//!
//! The objects are made as the records come. Nothing names them until the last record was there;
//! then each key gets its word, in the order of the file. Values whose codec or unit is not that of
//! the store are decompressed and made anew, and so are small ones that were in no group.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use units::Cpu;
use zcomp::{Block, Params};
use zsmalloc::{Handle, Room};

use super::Values;
use super::making::{Short, filled};
use crate::head::{Form, Head, Unit, fill, member, split};
use crate::outcome::LoadError;
use crate::saved::{Entry, Live, Part, is_live, record, take, take_entry};
use crate::scratch::{GROUP, SMALL, block, judge_unit};
use crate::word::{Left, MAX_MEMBERS};
use crate::{At, MAX_KEY, MAX_VALUE};

/// A snapshot that is being loaded. If it is dropped before [`Loading::publish`], the store is as
/// it was.
pub struct Loading<'a> {
    values: &'a Values,
    cpu: Cpu,
    /// Bytes of a unit of the snapshot; 0 before the first record.
    unit: usize,
    codecs: Vec<Codec>,
    current: Option<Current>,
    /// The units of the current value that are stored, if it is kept as it is.
    list: Vec<u32>,
    /// The bytes of the current value so far, if it is made anew; the members of a group.
    bytes: Vec<u8>,
    /// Heads and groups that nothing names yet.
    staged: Vec<Left>,
    /// For each group of them, the members that are to be named.
    lives: Vec<Live>,
    loaded: u64,
    whole: u64,
}

/// A codec of the snapshot.
struct Codec {
    /// If the store has it, whether it is its second one.
    own: Option<bool>,
    block: Box<dyn Block>,
}

/// What the next part belongs to.
enum Current {
    Value(Value),
    Group { codec: u8, length: usize, live: Live },
}

struct Value {
    codec: u8,
    /// Its objects stay as they are.
    keeps: bool,
    key: Vec<u8>,
    /// Without its form.
    head: Head,
    /// Bytes that its parts had so far.
    done: usize,
}

fn wrong(message: impl Into<String>) -> LoadError {
    LoadError::Wrong(message.into())
}

impl From<Short> for LoadError {
    fn from(_: Short) -> LoadError {
        LoadError::Full
    }
}

impl Values {
    /// Begins to load a snapshot, which the calling thread does on this CPU.
    #[must_use]
    pub fn loading(&self, cpu: Cpu) -> Loading<'_> {
        self.quiesce(cpu);
        Loading {
            values: self,
            cpu,
            unit: 0,
            codecs: Vec::new(),
            current: None,
            list: Vec::new(),
            bytes: Vec::new(),
            staged: Vec::new(),
            lives: Vec::new(),
            loaded: 0,
            whole: 0,
        }
    }
}

impl Loading<'_> {
    /// Takes the next record: see [`Saving`](crate::Saving). Returns whether it was the last. Lives
    /// go on from `at`.
    ///
    /// # Errors
    /// [`LoadError`]; the snapshot is to be dropped then.
    pub fn take(&mut self, at: At, kind: u32, mut contents: &[u8]) -> Result<bool, LoadError> {
        let short = || wrong("it is too short");
        if (self.unit == 0) != (kind == record::BEGIN) {
            return Err(wrong(format!("it has kind {kind}, which is not the one that comes here")));
        }
        match kind {
            record::BEGIN => {
                let unit = u32::from_le_bytes(*take(&mut contents).ok_or_else(short)?) as usize;
                let _time: &[u8; 8] = take(&mut contents).ok_or_else(short)?;
                judge_unit(unit).map_err(|error| wrong(error.to_string()))?;
                self.unit = unit;
                Ok(false)
            }
            record::CODEC => self.codec(contents).map(|()| false),
            record::VALUES => {
                while !contents.is_empty() {
                    let entry = take_entry(&mut contents);
                    self.entry(at, entry.ok_or_else(|| wrong("it has what is no entry"))?)?;
                }
                Ok(false)
            }
            record::END => {
                let values = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let groups = u64::from_le_bytes(*take(&mut contents).ok_or_else(short)?);
                let seen = (self.loaded, self.whole);
                if (values, groups) != seen || !contents.is_empty() || self.current.is_some() {
                    let (loaded, whole) = seen;
                    return Err(wrong(format!(
                        "there were {values} values and {groups} groups; {loaded} and {whole} came"
                    )));
                }
                Ok(true)
            }
            kind => Err(wrong(format!("no record has kind {kind}"))),
        }
    }

    fn codec(&mut self, name: &[u8]) -> Result<(), LoadError> {
        let name = core::str::from_utf8(name).map_err(|_| wrong("it names no codec"))?;
        if self.codecs.len() > usize::from(u8::MAX) {
            return Err(wrong("it has too many codecs"));
        }
        let params = Params::default();
        let codec = zcomp::open(name, &params).map_err(|error| LoadError::Codec(error.0))?;
        let block = block(&*codec, self.unit.max(GROUP));
        let block = block.map_err(|error| LoadError::Codec(error.to_string()))?;
        let (first, second) = (&self.values.codec, self.values.cold.as_ref().map(|it| &it.codec));
        let own = match self.unit == self.values.unit {
            true if first.name() == name => Some(false),
            true if second.is_some_and(|codec| codec.name() == name) => Some(true),
            _ => None,
        };
        self.codecs.push(Codec { own, block });
        Ok(())
    }

    fn entry(&mut self, at: At, entry: Entry<'_>) -> Result<(), LoadError> {
        let codec = match entry {
            Entry::Value { codec, .. } | Entry::Group { codec, .. } => {
                if self.current.is_some() {
                    return Err(wrong("the value before this one is not whole"));
                }
                let seen = self.codecs.len();
                let found = self.codecs.get(usize::from(codec));
                found.ok_or_else(|| wrong(format!("it names codec {codec}, and {seen} came")))?
            }
            Entry::Part(part) => return self.part(part),
        };
        match entry {
            Entry::Value { codec: number, length, life, key } => {
                if key.len() > MAX_KEY || length > MAX_VALUE {
                    let key = key.len();
                    return Err(wrong(format!("a key of {key} bytes, a value of {length}")));
                }
                let keeps = codec.own.is_some() && !self.values.groups_with(length);
                let cold = codec.own == Some(true);
                let expires = if life == 0 { 0 } else { at.now.saturating_add(life).max(1) };
                let head = Head { cold, ..Head::new(length, key.len(), expires) };
                let value = Value { codec: number, keeps, key: key.to_vec(), head, done: 0 };
                self.bytes.clear();
                if length == 0 {
                    return self.make(&value);
                }
                self.current = Some(Current::Value(value));
            }
            Entry::Group { codec, length, live } => {
                if !(1..=GROUP).contains(&length) {
                    return Err(wrong(format!("a group of {length} bytes")));
                }
                self.current = Some(Current::Group { codec, length, live });
            }
            Entry::Part(_) => {}
        }
        Ok(())
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), LoadError> {
        let mut value = match (self.current.take(), part) {
            (Some(Current::Value(value)), _) => value,
            (Some(Current::Group { codec, length, live }), Part::Packed(packed)) => {
                return self.group(codec, length, live, packed);
            }
            _ => return Err(wrong("it has a part of nothing")),
        };
        let length = value.head.value;
        let unit = self.unit.min(length - value.done);
        let fits = match part {
            Part::Packed(bytes) => (1..=unit).contains(&bytes.len()),
            Part::Raw(bytes) => bytes.len() == unit,
            Part::Filled(_) => true,
            Part::All(_) => value.done == 0 && length >= 8,
        };
        if !fits {
            return Err(wrong(format!("a part does not fit a value of {length} bytes")));
        }
        let covers = if let Part::All(_) = part { length } else { unit };
        let stored = match value.keeps {
            true => self.keep(&value, part, covers)?,
            false => self.unpack(&value, part, covers)?,
        };
        value.done += covers;
        match stored {
            Some(head) => self.stage(head),
            None if value.done < length => self.current = Some(Current::Value(value)),
            None if value.keeps => {
                let list = core::mem::take(&mut self.list);
                let Value { key, head, .. } = &value;
                let head = self.values.store_list(self.cpu, Room::Open, *head, key, &list)?;
                self.stage(head);
            }
            None => return self.make(&value),
        }
        Ok(())
    }

    /// Stores a part of a value as it is. Returns the head if that was all.
    fn keep(
        &mut self,
        value: &Value,
        part: Part<'_>,
        covers: usize,
    ) -> Result<Option<Handle>, LoadError> {
        let (values, cpu, room, head) = (self.values, self.cpu, Room::Open, value.head);
        let is_all = covers == head.value;
        let unit = match part {
            Part::Packed(bytes) => (Unit::Packed(bytes.len()), bytes),
            Part::Raw(bytes) => (Unit::Raw(bytes.len()), bytes),
            Part::Filled(pattern) | Part::All(pattern) if is_all => {
                if head.value < 8 {
                    return Err(wrong("a value of less than 8 bytes that is filled"));
                }
                let head = Head { form: Form::Filled, ..head };
                return Ok(Some(values.store_head(cpu, room, head, &value.key, &pattern)?));
            }
            Part::Filled(pattern) | Part::All(pattern) => {
                self.list.extend(filled(pattern));
                return Ok(None);
            }
        };
        if is_all {
            let mut list = Vec::new();
            return Ok(Some(values.store_one(cpu, room, head, &value.key, unit, &mut list)?));
        }
        let stored = values.store_unit(cpu, room, unit, &mut self.list);
        if stored.is_err() {
            // They are freed.
            self.list.clear();
        }
        stored?;
        Ok(None)
    }

    /// Adds a part of a value to its bytes.
    fn unpack(
        &mut self,
        value: &Value,
        part: Part<'_>,
        covers: usize,
    ) -> Result<Option<Handle>, LoadError> {
        let from = self.bytes.len();
        if self.bytes.try_reserve(covers).is_err() {
            return Err(LoadError::Full);
        }
        self.bytes.resize(from + covers, 0);
        let into = &mut self.bytes[from..];
        match part {
            Part::Packed(packed) => {
                let block = &mut self.codecs[usize::from(value.codec)].block;
                let unpacked = block.decompress(packed, into);
                unpacked.map_err(|_| wrong("a unit does not decompress"))?;
            }
            Part::Raw(bytes) => into.copy_from_slice(bytes),
            Part::Filled(pattern) | Part::All(pattern) => fill(into, pattern, 0),
        }
        Ok(None)
    }

    /// Makes a value of its bytes.
    fn make(&mut self, value: &Value) -> Result<(), LoadError> {
        let Value { key, head, .. } = value;
        let made = self.values.make(self.cpu, Room::Open, key, &self.bytes, head.expires)?;
        self.stage(made);
        Ok(())
    }

    fn stage(&mut self, head: Handle) {
        self.staged.push(Left::Head(head));
        self.loaded += 1;
    }

    fn group(
        &mut self,
        codec: u8,
        length: usize,
        live: Live,
        packed: &[u8],
    ) -> Result<(), LoadError> {
        let (values, cpu) = (self.values, self.cpu);
        let Codec { own, block } = &mut self.codecs[usize::from(codec)];
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.resize(length, 0);
        let is_small = packed.len() <= GROUP;
        if !is_small || block.decompress(packed, &mut bytes).is_err() {
            return Err(wrong("a group does not decompress"));
        }
        let (mut rest, mut members) = (&bytes[..], 0);
        while !rest.is_empty() {
            let member = split(rest).and_then(|(head, key, _)| {
                let Head { value, form, cold, expires, .. } = head;
                let lives = members < MAX_MEMBERS && is_live(&live, members);
                let is_member = form == Form::Raw && !cold && (expires == 0 || !lives);
                let fits = value <= SMALL && key.len() <= MAX_KEY && members < MAX_MEMBERS;
                rest.get(head.object_bytes()..).filter(|_| is_member && fits)
            });
            rest = member.ok_or_else(|| wrong("a group has what is no value"))?;
            members += 1;
        }
        if (members..MAX_MEMBERS).any(|number| is_live(&live, number)) {
            return Err(wrong(format!("a group has {members} values, and names more")));
        }
        self.whole += 1;
        if let (Some(cold), true) = (*own, values.group) {
            let head =
                values.store_group(cpu, Room::Open, length, cold, packed, &mut Vec::new())?;
            let Some(number) = values.groups.add(head, (members, 1), 0) else {
                values.free_head(cpu, head);
                return Err(LoadError::Full);
            };
            values.settle();
            self.staged.push(Left::Group(number));
            self.lives.push(live);
            self.loaded += live.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        } else {
            for number in (0..members).filter(|number| is_live(&live, *number)) {
                let found = member(&bytes, number).and_then(|(_, bytes)| split(bytes));
                let (_, key, value) = found.ok_or_else(|| wrong("a group is cut off"))?;
                let made = values.make(cpu, Room::Open, key, value, 0)?;
                self.stage(made);
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Has the keys name what was loaded, in place of what they had, and returns the number of
    /// values. To be called when the last record was there, and what came behind it is known. The
    /// calling thread is no reader.
    ///
    /// # Errors
    /// [`LoadError::Full`] if the index had no room for some of them.
    pub fn publish(mut self, cpu: Cpu) -> Result<u64, LoadError> {
        let values = self.values;
        let (staged, lives) = (core::mem::take(&mut self.staged), core::mem::take(&mut self.lives));
        let (mut lives, mut all) = (lives.into_iter(), true);
        for left in staged {
            all &= match left {
                Left::Group(number) => {
                    values.publish_group(cpu, number, &lives.next().unwrap_or_default())
                }
                Left::Head(head) => values.publish_head(cpu, head),
                _ => true,
            };
        }
        if all { Ok(self.loaded) } else { Err(LoadError::Full) }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let (values, cpu) = (self.values, self.cpu);
        values.free_chunks(cpu, &self.list);
        for left in self.staged.drain(..) {
            match left {
                Left::Head(head) => values.free_head(cpu, head),
                Left::Group(number) => {
                    let members = values.groups.get(number).map_or(0, |group| group.members);
                    (0..=members).for_each(|_| values.leave_group(cpu, number));
                }
                _ => {}
            }
        }
        values.quiesce(cpu);
        values.settle();
    }
}
