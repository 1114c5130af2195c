//! What another process left that died is a store again.
//!
//! The words of the index say what lives, and all else follows: which objects are used, which
//! groups there are, the frames, the counts. This needs no log, because objects are write-once and
//! each change is the swap of one word. A word stays if its head, its key and all that the head
//! names can be right. What two of them name belongs to neither.

use alloc::collections::BTreeSet;
use alloc::{format, sync::Arc, vec, vec::Vec};

use pagealloc::{FrameSet, MemoryProvider, NoMemory};
use sync::Reader;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{BadObject, Census, Handle, Recovery};

use super::{Values, groups_of, keys_of, no_memory};
use crate::family::Count;
use crate::groups::Groups;
use crate::head::{Form, HEAD_BYTES, Head, Unit, WORDS, chunks, each_unit, split, words_of};
use crate::index::Index;
use crate::outcome::NoStore;
use crate::scratch::{GROUP, SMALL};
use crate::word::{MAX_MEMBERS, Place, Word};
use crate::{MAX_KEY, MAX_VALUE, Parts};

/// Recovery runs before anybody else uses the store.
const CPU: Cpu = Cpu(0);

/// A head and all that it names, each with its length.
struct Whole {
    head: Head,
    objects: Vec<(Handle, usize)>,
}

/// Judges what words name.
struct Judge<'a> {
    values: &'a Values,
    pool: &'a Recovery,
    /// Objects that two heads name.
    doubles: BTreeSet<u32>,
    data: u64,
    lost: u64,
    /// Small values with heads of their own, and their bytes.
    alone: Vec<(Word, usize)>,
    /// One more than the highest number of a group that a word names.
    groups: u32,
}

impl Values {
    /// Makes a store of what [`Values::kept`] left in the memory of `tables` and in the frames, in
    /// a process that ended at any instant. `parts` has the unit, the codec and the seed of then,
    /// and a pool whose frames can be read. `adopt` gets those that are in use: they are allocated
    /// from then on, and all others free. Tables for the time of the recovery are of `tables_now`.
    ///
    /// What is damaged costs the values that it belongs to: see [`crate::Stats::lost`].
    ///
    /// # Errors
    /// [`NoStore`]; another process may try again.
    pub fn recover(
        (tables, tables_now): (&dyn MemoryProvider, &dyn MemoryProvider),
        parts: Parts,
        adopt: impl FnOnce(&FrameSet) -> Result<(), NoMemory>,
    ) -> Result<Values, NoStore> {
        let frames = parts.frames.capacity();
        let all = u64::from(frames) * PAGE_SIZE as u64;
        let index = Index::left(tables, keys_of(all)).map_err(no_memory)?;
        let index = index.ok_or_else(|| NoStore::Left("its index is damaged".into()))?;
        let groups = Groups::new(tables, groups_of(all)).map_err(no_memory)?;
        let mut values = Values::build(tables, (index, groups), parts, true)?;
        let census = Arc::new(Census::new(tables_now, frames).map_err(no_memory)?);
        let live = FrameSet::new(tables_now, frames).map_err(no_memory)?;
        let pool = Recovery::survey(&values.pool, census, |_| ());
        let pool = pool.map_err(|error| NoStore::Left(format!("{error}")))?;
        let mut judge = Judge {
            values: &values,
            pool: &pool,
            doubles: BTreeSet::new(),
            data: 0,
            lost: 0,
            alone: Vec::new(),
            groups: 1,
        };
        judge.judge_all();
        let Judge { data, lost, alone, .. } = judge;
        pool.settle(&values.pool, &live);
        adopt(&live).map_err(no_memory)?;
        pool.finish(&values.pool);
        values.lost = lost;
        values.count(CPU, Count::Data, data as i64);
        values.settle();
        // They waited for a group in the memory of the other process.
        alone.into_iter().for_each(|(word, data)| values.wait_for_group(CPU, word, data));
        Ok(values)
    }
}

impl Judge<'_> {
    fn judge_all(&mut self) {
        let values = self.values;
        let reader = values.retired.read(CPU);
        values.own.index.mend(|word| match word.place() {
            Place::Head(handle) => self.judge_value(&reader, word, handle),
            Place::Member(group, _) => {
                let is_there = values.groups.has(group);
                if is_there {
                    self.groups = self.groups.max(group + 1);
                }
                self.lost += u64::from(!is_there);
                is_there
            }
        });
        // The members of each group that were found.
        let mut found = vec![[0u128; 2]; self.groups as usize];
        let mut groups = Vec::new();
        for number in 1..self.groups {
            match self.judge_group(&reader, number, &mut found[number as usize]) {
                Some(group) => groups.push((number, group)),
                None => values.groups.lose(number),
            }
        }
        // Objects with two names are known now.
        groups.retain(|(number, group)| {
            let stays = self.is_alone(&group.objects);
            if !stays {
                self.give_up(&group.objects);
                found[*number as usize] = [0; 2];
                values.groups.lose(*number);
            }
            stays
        });
        values.own.index.retain(|word| {
            let stays = match word.place() {
                Place::Head(_) if self.doubles.is_empty() => true,
                Place::Head(handle) => match self.look_at(&reader, handle, values.unit) {
                    Some(whole) if !self.is_alone(&whole.objects) => {
                        self.data -= whole.head.data() as u64;
                        self.give_up(&whole.objects);
                        false
                    }
                    whole => whole.is_some(),
                },
                Place::Member(group, number) => {
                    let (word, bit) = (number / 128, 1u128 << (number % 128));
                    let member = &mut found[group as usize][word];
                    let was_found = *member & bit != 0;
                    *member &= !bit;
                    was_found
                }
            };
            self.lost += u64::from(!stays);
            stays
        });
        for (number, group) in groups {
            let Group { head, live, members, earliest, .. } = group;
            self.data += group.data;
            values.groups.recover(number, head, live, members, earliest);
        }
        // The numbers of groups begin anew.
        values.reading.iter().for_each(|reading| reading.lock().tag = 0);
    }

    /// Whether a word names a value that can be right. Its objects are marked then.
    fn judge_value(&mut self, reader: &Reader<'_>, word: Word, handle: Handle) -> bool {
        let values = self.values;
        let whole = self.look_at(reader, handle, values.unit).filter(|whole| {
            let head = whole.head;
            let fingerprint = values.object(reader, handle, HEAD_BYTES + head.key, |bytes| {
                values.fingerprint(&bytes[HEAD_BYTES..])
            });
            fingerprint == word.fingerprint() && word.expires() == (head.expires != 0)
        });
        let Some(Whole { head, objects }) = whole else {
            self.lost += 1;
            return false;
        };
        self.mark(&objects);
        self.data += head.data() as u64;
        if head.form == Form::Raw && values.groups_with(head.value) {
            self.alone.push((word, head.data()));
        }
        true
    }

    /// The group of a number, if it can be right and has members that words name. Its objects are
    /// marked then, and the bits of those members set.
    fn judge_group(
        &mut self,
        reader: &Reader<'_>,
        number: u32,
        found: &mut [u128; 2],
    ) -> Option<Group> {
        let values = self.values;
        let head = values.groups.get(number)?.head;
        let whole = self.look_at(reader, head, GROUP)?;
        let is_group = matches!(whole.head.form, Form::Packed(_) | Form::Listed(_));
        if !is_group || whole.head.key != 0 || whole.head.value > GROUP {
            return None;
        }
        let mut reading = sync::lock_one(&values.reading, CPU);
        let members = values.group(reader, &mut reading, number).ok()?;
        let mut group =
            Group { head, objects: whole.objects, live: 0, members: 0, earliest: 0, data: 0 };
        let mut rest = members;
        while !rest.is_empty() {
            let (head, key, _) = split(rest)?;
            let is_member = head.form == Form::Raw && head.value <= SMALL && key.len() <= MAX_KEY;
            rest = rest.get(head.object_bytes()..).filter(|_| is_member)?;
            group.members += 1;
        }
        if group.members > MAX_MEMBERS as u64 {
            return None;
        }
        values.each_member(&values.stores(), number, members, |head, _, number, _| {
            found[number / 128] |= 1 << (number % 128);
            group.live += 1;
            group.data += head.data() as u64;
            if head.expires != 0 && (group.earliest == 0 || head.expires < group.earliest) {
                group.earliest = head.expires;
            }
        });
        if group.live == 0 {
            return None;
        }
        self.mark(&group.objects);
        Some(group)
    }

    /// A head and all that it names, if all of it can be right. Units have `unit` bytes.
    fn look_at(&self, reader: &Reader<'_>, handle: Handle, unit: usize) -> Option<Whole> {
        let values = self.values;
        let is_there =
            |handle: Handle, bytes: usize| self.pool.look(&values.pool, handle, bytes).is_ok();
        if !is_there(handle, HEAD_BYTES) {
            return None;
        }
        let head = values.head_of(reader, handle);
        let bytes = head.object_bytes();
        let is_head = head.key <= MAX_KEY && head.value <= MAX_VALUE && bytes <= PAGE_SIZE;
        if !is_head || !is_there(handle, bytes) {
            return None;
        }
        let mut whole = Whole { head, objects: [(handle, bytes)].into() };
        let mut list: Vec<u32> = Vec::new();
        match head.form {
            Form::Raw => return Some(whole),
            Form::Packed(packed) => {
                return (packed > 0 && (1..=unit).contains(&head.value)).then_some(whole);
            }
            Form::Filled => return (head.value >= 8).then_some(whole),
            Form::Listed(_) => values.object(reader, handle, bytes, |bytes| {
                list.extend(words_of(&bytes[HEAD_BYTES + head.key..]));
            }),
            Form::Long(objects) => {
                let mut all = objects > 0;
                values.each_list(reader, handle, head, &mut |part, bytes| {
                    all = all && is_there(part, bytes);
                    whole.objects.push((part, bytes));
                });
                let parts = &whole.objects[1..];
                let is_full = |(at, part): (usize, &(Handle, usize))| {
                    part.1 == WORDS * 4 || at + 1 == parts.len()
                };
                if !all || !parts.iter().enumerate().all(is_full) {
                    return None;
                }
                for (part, bytes) in parts {
                    values.object(reader, *part, *bytes, |bytes| list.extend(words_of(bytes)));
                }
            }
        }
        let (mut start, mut seen, mut all) = (0, 0, true);
        each_unit(&list, |kind, words| {
            let bytes = unit.min(head.value - start);
            let is_unit = bytes > 0
                && match kind {
                    Unit::Packed(packed) => (1..=unit).contains(&packed),
                    Unit::Raw(raw) => raw == bytes,
                    Unit::Filled => list[seen] == Unit::Filled.encode(),
                };
            if is_unit && kind != Unit::Filled {
                whole.objects.extend(chunks(kind, words));
            }
            (start, seen, all) = (start + bytes, seen + 1 + words.len(), is_unit);
            is_unit
        });
        let is_whole = all && seen == list.len() && start == head.value;
        let named = whole.objects.iter().all(|(part, bytes)| is_there(*part, *bytes));
        (is_whole && named).then_some(whole)
    }

    fn mark(&mut self, objects: &[(Handle, usize)]) {
        for (object, bytes) in objects {
            // All but another name is known to be right.
            let marked = self.pool.mark(&self.values.pool, *object, *bytes);
            if let Err(BadObject::Taken(_)) = marked {
                self.doubles.insert(object.get());
            }
        }
    }

    fn is_alone(&self, objects: &[(Handle, usize)]) -> bool {
        objects.iter().all(|(object, _)| !self.doubles.contains(&object.get()))
    }

    /// Frees the objects of a head that shares one with another head.
    fn give_up(&self, objects: &[(Handle, usize)]) {
        objects.iter().for_each(|(object, _)| self.pool.unmark(&self.values.pool, *object));
    }
}

/// A group that another process left.
struct Group {
    head: Handle,
    objects: Vec<(Handle, usize)>,
    /// Members that words name, and members in all.
    live: u64,
    members: u64,
    earliest: u32,
    /// Bytes of the members that words name.
    data: u64,
}
