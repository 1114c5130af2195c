//! A walk over all keys.

use alloc::vec::Vec;

use super::Values;
use crate::At;
use crate::head::{HEAD_BYTES, split};
use crate::index::END;
use crate::outcome::Cursor;
use crate::word::{Place, Word};

impl Values {
    /// Passes some keys, and the lengths of their values, to `see`. Returns where to go on; `None`
    /// after the last. A walk begins with `Cursor::default()`. Values may come and go meanwhile: a
    /// key that is there all the time is seen once. `see` may call the store.
    pub fn keys(
        &self,
        at: At,
        cursor: Cursor,
        mut see: impl FnMut(&[u8], usize),
    ) -> Option<Cursor> {
        if cursor.0 >= END {
            return None;
        }
        let next;
        // The keys are copied: `see` is not called by a reader.
        let (mut bytes, mut keys) = (Vec::new(), Vec::new());
        {
            let reader = self.retired.read(at.cpu);
            let mut seen = |key: &[u8], value: usize| {
                bytes.extend_from_slice(key);
                keys.push((key.len(), value));
            };
            let mut words = Vec::new();
            next = self.own.index.scan(cursor.0, &mut words);
            words.sort_unstable_by_key(|word: &Word| word.get() as u32);
            for word in words {
                match word.place() {
                    Place::Head(handle) => {
                        let head = self.head_of(&reader, handle);
                        if !head.is_over(at.now) {
                            self.object(&reader, handle, HEAD_BYTES + head.key, |bytes| {
                                seen(&bytes[HEAD_BYTES..], head.value);
                            });
                        }
                    }
                    Place::Member(group, number) => {
                        let mut reading = sync::lock_one(&self.reading, at.cpu);
                        let member = self.member(&reader, &mut reading, group, number);
                        if let Ok((head, bytes)) = member
                            && !head.is_over(at.now)
                            && let Some((_, key, _)) = split(bytes)
                        {
                            seen(key, head.value);
                        }
                    }
                }
            }
        }
        let mut rest = &bytes[..];
        for (key, value) in keys {
            let (key, next) = rest.split_at(key);
            see(key, value);
            rest = next;
        }
        (next < END).then_some(Cursor(next))
    }
}
