//! The objects of values: stored, read and freed.
//!
//! # Why unsafe
//! A handle is a number. The index, the table of groups and the waits for readers promise that its
//! object is there.

use sync::Reader;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pass};

use super::Values;
use crate::MAX_KEY;
use crate::head::{Form, HEAD_BYTES, Head, chunks, each_unit, words_of};

impl Values {
    /// Passes the first `length` bytes of an object to `see`. The object was found by the reader,
    /// or by nobody: the calling thread has taken it out of the index and not retired it yet.
    #[inline]
    pub(super) fn object<R>(
        &self,
        _: &Reader<'_>,
        handle: Handle,
        length: usize,
        see: impl FnOnce(&[u8]) -> R,
    ) -> R {
        // SAFETY: the object was stored here with at least so many bytes, as its head or the list
        // that names it says. While a word names it, it is there; after that it is freed when all
        // readers of before have left.
        unsafe { self.pool.read(handle, length, |object| object.joined(see)) }
    }

    /// Copies the first bytes of an object to `into`. As [`Values::object`].
    #[inline]
    pub(super) fn copy_object(&self, _: &Reader<'_>, handle: Handle, into: &mut [u8]) {
        // SAFETY: as in `object`.
        unsafe {
            self.pool.read(handle, into.len(), |object| {
                object.copy_to(into);
            });
        }
    }

    /// The head at the beginning of an object. As [`Values::object`].
    #[inline]
    pub(super) fn head_of(&self, reader: &Reader<'_>, handle: Handle) -> Head {
        let mut bytes = [0; HEAD_BYTES];
        self.copy_object(reader, handle, &mut bytes);
        Head::decode(&bytes)
    }

    /// The head of a value, and its key, which is copied to `into`. The calling thread alone may
    /// free the object, and is no reader.
    pub(super) fn head_with_key<'a>(
        &self,
        cpu: Cpu,
        handle: Handle,
        into: &'a mut [u8; HEAD_BYTES + MAX_KEY],
    ) -> (Head, &'a [u8]) {
        let reader = self.retired.read(cpu);
        let head = self.head_of(&reader, handle);
        self.copy_object(&reader, handle, &mut into[..HEAD_BYTES + head.key]);
        (head, &into[HEAD_BYTES..HEAD_BYTES + head.key])
    }

    /// Copies an object to the place that `pass` took for it. The calling thread found the object
    /// as a reader; nothing names the place yet.
    pub(super) fn copy_to_place(&self, _: &Reader<'_>, pass: &Pass<'_>, from: Handle, to: Handle) {
        // SAFETY: the object is kept as in `object`. Only the calling thread knows the place.
        unsafe { pass.copy(from, to) }
    }

    /// Frees an object that no thread can find.
    pub(super) fn free_object(&self, cpu: Cpu, handle: Handle) {
        // SAFETY: the object was stored here, or its place was taken here. Nothing names it, and
        // no reader can hold it: it was never published, or was retired, once.
        unsafe { self.pool.free(cpu, handle) }
    }

    /// Frees a head that no thread can find, with all that it names.
    pub(super) fn free_head(&self, cpu: Cpu, head: Handle) {
        // The objects are the calling thread's: the reader is for the functions that want one.
        let free = {
            let reader = self.retired.read(cpu);
            self.each_part(&reader, head, &mut |part, _| self.free_object(cpu, part));
            head
        };
        self.free_object(cpu, free);
    }

    /// Passes each object that a head names to `see`, with its length: the chunks, and the objects
    /// of a long list. `see` may free them. As [`Values::object`].
    pub(super) fn each_part(
        &self,
        reader: &Reader<'_>,
        handle: Handle,
        see: &mut dyn FnMut(Handle, usize),
    ) {
        let head = self.head_of(reader, handle);
        match head.form {
            Form::Raw | Form::Packed(_) | Form::Filled => {}
            Form::Listed(_) => {
                let mut parser = Parser::default();
                self.object(reader, handle, head.object_bytes(), |bytes| {
                    words_of(&bytes[HEAD_BYTES + head.key..]).for_each(|it| parser.see(it, see));
                });
            }
            Form::Long(_) => {
                let mut parser = Parser::default();
                self.each_list(reader, handle, head, &mut |list, bytes| {
                    self.object(reader, list, bytes, |bytes| {
                        words_of(bytes).for_each(|word| parser.see(word, see));
                    });
                    see(list, bytes);
                });
            }
        }
    }

    /// Passes each object of the list of a head, and its length, to `see`.
    pub(super) fn each_list(
        &self,
        reader: &Reader<'_>,
        handle: Handle,
        head: Head,
        see: &mut dyn FnMut(Handle, usize),
    ) {
        self.object(reader, handle, head.object_bytes(), |bytes| {
            let mut words = words_of(&bytes[HEAD_BYTES + head.key..]);
            let mut left = words.next().unwrap_or(0) as usize * 4;
            for list in words {
                let bytes = left.min(PAGE_SIZE);
                see(Handle::from_raw(list), bytes);
                left -= bytes;
            }
        });
    }

    /// Frees the chunks of a list that was never published.
    pub(super) fn free_chunks(&self, cpu: Cpu, list: &[u32]) {
        each_unit(list, |unit, words| {
            chunks(unit, words).for_each(|(chunk, _)| self.free_object(cpu, chunk));
            true
        });
    }
}

/// Finds the chunks in a list that comes word by word.
#[derive(Default)]
struct Parser {
    /// Bytes of the unit that are not seen yet.
    left: usize,
    /// Words of the unit that are not seen yet.
    words: usize,
    is_filled: bool,
}

impl Parser {
    fn see(&mut self, word: u32, see: &mut dyn FnMut(Handle, usize)) {
        use crate::head::Unit;
        if self.words > 0 {
            self.words -= 1;
            if !self.is_filled {
                let bytes = self.left.min(PAGE_SIZE);
                self.left -= bytes;
                see(Handle::from_raw(word), bytes);
            }
            return;
        }
        let unit = Unit::decode(word);
        self.words = unit.words();
        (self.left, self.is_filled) = match unit {
            Unit::Packed(bytes) | Unit::Raw(bytes) => (bytes, false),
            Unit::Filled => (0, true),
        };
    }
}
