//! The objects of a value are made.

use alloc::vec::Vec;

use sync::lock_one;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, RAW_THRESHOLD, Room};

use super::Values;
use crate::head::{Form, HEAD_BYTES, Head, Unit, WORDS, pattern_of};
use crate::scratch::Making;

/// The most words of a list that is kept in the head itself.
const fn words_in_head(key: usize) -> usize {
    (PAGE_SIZE - HEAD_BYTES - key) / 4
}

/// There was no room for a value that takes about so many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) bytes: usize,
}

/// Puts an object together.
pub(super) struct Object {
    bytes: [u8; PAGE_SIZE],
    length: usize,
}

impl Object {
    pub(super) fn new(head: &Head, key: &[u8]) -> Object {
        let mut object = Object { bytes: [0; PAGE_SIZE], length: 0 };
        object.push(&head.encode());
        object.push(key);
        object
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Values {
    /// Makes the objects of a value, and returns its head, which nothing names yet.
    pub(super) fn make(
        &self,
        cpu: Cpu,
        room: Room,
        key: &[u8],
        value: &[u8],
        expires: u32,
    ) -> Result<Handle, Short> {
        let head = Head::new(value.len(), key.len(), expires);
        if self.groups_with(value.len()) || value.len() < 8 {
            return self.store_head(cpu, room, head, key, value);
        }
        if let Some(pattern) = pattern_of(value) {
            return self.store_head(cpu, room, Head { form: Form::Filled, ..head }, key, &pattern);
        }
        self.make_units(cpu, room, &mut lock_one(&self.making, cpu), head, key, value)
    }

    /// Makes the objects of a value of eight bytes at least by the codec of `making`, of which
    /// `head` tells.
    pub(super) fn make_units(
        &self,
        cpu: Cpu,
        room: Room,
        making: &mut Making,
        head: Head,
        key: &[u8],
        value: &[u8],
    ) -> Result<Handle, Short> {
        let Making { block, packed, list } = making;
        list.clear();
        if value.len() <= self.unit {
            let length = block.compress(value, &mut packed[..most(value.len())]);
            return self.store_one(cpu, room, head, key, unit_of(length, value, packed), list);
        }
        let mut done = 0;
        for unit in value.chunks(self.unit) {
            let stored = match pattern_of(unit) {
                Some(pattern) => {
                    list.extend(filled(pattern));
                    Ok(())
                }
                None => {
                    let length = block.compress(unit, &mut packed[..most(unit.len())]);
                    self.store_unit(cpu, room, unit_of(length, unit, packed), list)
                }
            };
            if let Err(Short { bytes }) = stored {
                // The rest may need as much as what was there so far.
                let part = (list.len() * PAGE_SIZE).max(bytes);
                let bytes = part.saturating_mul(value.len() / (done + unit.len()) + 1);
                return Err(Short { bytes: bytes.min(value.len()) });
            }
            done += unit.len();
        }
        self.store_list(cpu, room, head, key, list)
    }

    /// Makes the object of a group; `None` if the members do not get smaller by a quarter together.
    pub(super) fn make_group(&self, cpu: Cpu, members: &[u8]) -> Option<Handle> {
        let mut making = lock_one(&self.making, cpu);
        let Making { block, packed, list } = &mut *making;
        let length = block.compress(members, &mut packed[..members.len() / 4 * 3])?;
        self.store_group(cpu, Room::All, members.len(), false, &packed[..length], list).ok()
    }

    /// Stores a group whose members have so many bytes, and are compressed.
    pub(super) fn store_group(
        &self,
        cpu: Cpu,
        room: Room,
        members: usize,
        cold: bool,
        packed: &[u8],
        list: &mut Vec<u32>,
    ) -> Result<Handle, Short> {
        let head = Head { cold, ..Head::new(members, 0, 0) };
        self.store_one(cpu, room, head, &[], (Unit::Packed(packed.len()), packed), list)
    }

    /// Stores a head, its key, and what follows the key.
    pub(super) fn store_head(
        &self,
        cpu: Cpu,
        room: Room,
        head: Head,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<Handle, Short> {
        let mut object = Object::new(&head, key);
        object.push(bytes);
        self.store(cpu, room, object.bytes())
    }

    /// Stores a value of one unit, in its head if it fits there. A list is made in `list`.
    pub(super) fn store_one(
        &self,
        cpu: Cpu,
        room: Room,
        head: Head,
        key: &[u8],
        (unit, bytes): (Unit, &[u8]),
        list: &mut Vec<u32>,
    ) -> Result<Handle, Short> {
        let length = HEAD_BYTES + key.len() + bytes.len();
        let form = match unit {
            Unit::Packed(packed) if length <= RAW_THRESHOLD => Form::Packed(packed),
            Unit::Raw(_) if length <= PAGE_SIZE => Form::Raw,
            _ => {
                list.clear();
                self.store_unit(cpu, room, (unit, bytes), list)?;
                return self.store_list(cpu, room, head, key, list);
            }
        };
        self.store_head(cpu, room, Head { form, ..head }, key, bytes)
    }

    /// Stores the chunks of a unit, and adds it to a list. If there is no room, all chunks of the
    /// list are freed.
    pub(super) fn store_unit(
        &self,
        cpu: Cpu,
        room: Room,
        (unit, bytes): (Unit, &[u8]),
        list: &mut Vec<u32>,
    ) -> Result<(), Short> {
        let before = list.len();
        list.push(unit.encode());
        for chunk in bytes.chunks(PAGE_SIZE) {
            match self.store(cpu, room, chunk) {
                Ok(handle) => list.push(handle.get()),
                Err(_) => {
                    let (whole, part) = list.split_at(before);
                    self.free_chunks(cpu, whole);
                    for handle in part.iter().skip(1) {
                        self.free_object(cpu, Handle::from_raw(*handle));
                    }
                    return Err(Short { bytes: bytes.len() });
                }
            }
        }
        Ok(())
    }

    /// Stores the head of a value that has a list, and the list. If there is no room, all chunks of
    /// the list are freed.
    pub(super) fn store_list(
        &self,
        cpu: Cpu,
        room: Room,
        head: Head,
        key: &[u8],
        list: &[u32],
    ) -> Result<Handle, Short> {
        self.store_names(cpu, room, head, key, list).inspect_err(|_| self.free_chunks(cpu, list))
    }

    /// As [`Values::store_list`]; the chunks stay.
    pub(super) fn store_names(
        &self,
        cpu: Cpu,
        room: Room,
        head: Head,
        key: &[u8],
        list: &[u32],
    ) -> Result<Handle, Short> {
        if list.len() <= words_in_head(key.len()) {
            let mut object = Object::new(&Head { form: Form::Listed(list.len()), ..head }, key);
            list.iter().for_each(|word| object.push(&word.to_ne_bytes()));
            return self.store(cpu, room, object.bytes());
        }
        let objects = list.len().div_ceil(WORDS);
        let mut object = Object::new(&Head { form: Form::Long(objects), ..head }, key);
        object.push(&(list.len() as u32).to_ne_bytes());
        let stored = list.chunks(WORDS).try_for_each(|words| {
            let mut bytes = [0; PAGE_SIZE];
            for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *place = word.to_ne_bytes();
            }
            let handle = self.store(cpu, room, &bytes[..words.len() * 4])?;
            object.push(&handle.get().to_ne_bytes());
            Ok(())
        });
        stored.and_then(|()| self.store(cpu, room, object.bytes())).inspect_err(|_| {
            let lists = &object.bytes()[HEAD_BYTES + key.len() + 4..];
            crate::head::words_of(lists)
                .for_each(|handle| self.free_object(cpu, Handle::from_raw(handle)));
        })
    }

    pub(super) fn store(&self, cpu: Cpu, room: Room, bytes: &[u8]) -> Result<Handle, Short> {
        let stored = self.pool.store(cpu, room, bytes, None);
        stored.map_err(|_| Short { bytes: bytes.len() })
    }
}

/// The words of a unit that a pattern fills.
pub(super) fn filled(pattern: [u8; 8]) -> [u32; 3] {
    let pattern = u64::from_ne_bytes(pattern);
    [Unit::Filled.encode(), pattern as u32, (pattern >> 32) as u32]
}

/// The most bytes of a unit that is kept compressed: a sixteenth less than it has.
const fn most(bytes: usize) -> usize {
    bytes - bytes / 16
}

/// How a unit is kept, and its bytes.
fn unit_of<'a>(length: Option<usize>, bytes: &'a [u8], packed: &'a [u8]) -> (Unit, &'a [u8]) {
    match length {
        Some(length) => (Unit::Packed(length), &packed[..length]),
        None => (Unit::Raw(bytes.len()), bytes),
    }
}
