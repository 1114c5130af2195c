//! Objects move together, and what names them names their new places.
//!
//! A head is never changed. If a chunk moves, the value gets a new head, which the word names then;
//! the other chunks stay.

use alloc::vec::Vec;

use sync::Reader;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pass, Room};

use super::Values;
use crate::MAX_KEY;
use crate::head::{Form, HEAD_BYTES, Head, Unit, words_of};
use crate::index::END;
use crate::word::{Left, Place, Word};

/// The new places of the objects of a value, and the old ones.
#[derive(Default)]
struct Moves {
    list: Vec<u32>,
    new: Vec<Handle>,
    old: Vec<Handle>,
}

impl Values {
    /// Moves objects together until no frame can be gained. Returns the number of frames that the
    /// pool needs less. Readers and writers go on meanwhile.
    pub fn compact(&self, cpu: Cpu) -> u64 {
        self.quiesce(cpu);
        let mut moves = Moves::default();
        self.pool.compact(cpu, |pass| {
            for own in self.stores().iter() {
                let (mut place, mut words) = (0, Vec::new());
                while place < END {
                    place = {
                        let _reader = self.retired.read(cpu);
                        own.index.scan(place, &mut words)
                    };
                    for word in words.drain(..) {
                        self.move_value(cpu, word, pass, &mut moves);
                    }
                }
            }
            for number in 1..self.groups.end() {
                self.move_group(cpu, number, pass, &mut moves);
            }
            // The old places are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Compacts the pool if that gives back what `bytes` need, and a part of all frames.
    pub(super) fn compacts_for(&self, cpu: Cpu, bytes: usize) -> bool {
        let wanted = (bytes.div_ceil(PAGE_SIZE) as u64).max(self.pool.frames() / 64).max(1);
        let unmovable = self.unmovable.load(Ordering::Relaxed);
        if self.pool.compactable().saturating_sub(unmovable) < wanted {
            return false;
        }
        let gained = self.compact(cpu);
        self.unmovable.store(self.pool.compactable(), Ordering::Relaxed);
        gained > 0
    }

    fn move_value(&self, cpu: Cpu, word: Word, pass: &mut Pass<'_>, moves: &mut Moves) {
        let Place::Head(handle) = word.place() else { return };
        let moved = {
            let writer = self.write(cpu);
            if writer.stores().find(word).is_none() {
                return;
            }
            let Some(head) = self.move_head(&writer, cpu, handle, pass, moves) else { return };
            let next = Word::head(word.fingerprint(), head, word.expires());
            writer.stores().rename(word, next) > 0
        };
        self.settle_moves(cpu, moved, moves);
    }

    fn move_group(&self, cpu: Cpu, number: u32, pass: &mut Pass<'_>, moves: &mut Moves) {
        let moved = {
            let reader = self.retired.read(cpu);
            let Some(group) = self.groups.get(number).filter(|group| group.live > 0) else {
                return;
            };
            let Some(head) = self.move_head(&reader, cpu, group.head, pass, moves) else { return };
            self.groups.move_to(number, group.head, head)
        };
        self.settle_moves(cpu, moved, moves);
    }

    /// Retires the old places if the new ones are named, and frees the new ones if not.
    fn settle_moves(&self, cpu: Cpu, moved: bool, moves: &mut Moves) {
        if moved {
            moves.old.drain(..).for_each(|place| self.retire(cpu, Left::Object(place)));
        } else {
            moves.new.drain(..).for_each(|place| self.free_object(cpu, place));
        }
        moves.old.clear();
        moves.new.clear();
    }

    /// Moves what a head names, and the head, as far as the pass wants it. Returns the new head, if
    /// there is one. The calling thread found the head as a reader.
    fn move_head(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        handle: Handle,
        pass: &mut Pass<'_>,
        moves: &mut Moves,
    ) -> Option<Handle> {
        let head = self.head_of(reader, handle);
        moves.list.clear();
        moves.new.clear();
        moves.old.clear();
        let mut lists_leave = false;
        match head.form {
            Form::Raw | Form::Packed(_) | Form::Filled => {}
            Form::Listed(_) => self.object(reader, handle, head.object_bytes(), |bytes| {
                moves.list.extend(words_of(&bytes[HEAD_BYTES + head.key..]));
            }),
            Form::Long(_) => self.each_list(reader, handle, head, &mut |list, bytes| {
                lists_leave |= pass.is_leaving(list);
                self.object(reader, list, bytes, |bytes| moves.list.extend(words_of(bytes)));
            }),
        }
        let any = self.move_chunks(reader, pass, moves);
        if any || lists_leave {
            return self.name_again(reader, cpu, handle, head, moves).or_else(|| {
                self.settle_moves(cpu, false, moves);
                None
            });
        }
        if !pass.is_leaving(handle) {
            return None;
        }
        let to = pass.place_for(handle)?;
        self.copy_to_place(reader, pass, handle, to);
        moves.new.push(to);
        moves.old.push(handle);
        Some(to)
    }

    /// Moves the chunks of a list that have to leave. Returns whether there were any.
    fn move_chunks(&self, reader: &Reader<'_>, pass: &mut Pass<'_>, moves: &mut Moves) -> bool {
        let mut at = 0;
        while at < moves.list.len() {
            let unit = Unit::decode(moves.list[at]);
            let end = (at + 1 + unit.words()).min(moves.list.len());
            for word in &mut moves.list[at + 1..end] {
                let chunk = Handle::from_raw(*word);
                if unit != Unit::Filled
                    && pass.is_leaving(chunk)
                    && let Some(to) = pass.place_for(chunk)
                {
                    self.copy_to_place(reader, pass, chunk, to);
                    moves.new.push(to);
                    moves.old.push(chunk);
                    *word = to.get();
                }
            }
            at = end;
        }
        !moves.new.is_empty()
    }

    /// Makes a head, and what it needs for a list, of a list that was changed.
    fn name_again(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        handle: Handle,
        head: Head,
        moves: &mut Moves,
    ) -> Option<Handle> {
        let mut bytes = [0; HEAD_BYTES + MAX_KEY];
        self.copy_object(reader, handle, &mut bytes[..HEAD_BYTES + head.key]);
        let key = &bytes[HEAD_BYTES..HEAD_BYTES + head.key];
        let made = self.store_names(cpu, Room::All, head, key, &moves.list).ok()?;
        if let Form::Long(_) = head.form {
            self.each_list(reader, handle, head, &mut |list, _| moves.old.push(list));
            let again = self.head_of(reader, made);
            self.each_list(reader, made, again, &mut |list, _| moves.new.push(list));
        }
        moves.old.push(handle);
        moves.new.push(made);
        Some(made)
    }
}
