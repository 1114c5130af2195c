//! Recompression of a page: an object of a stronger codec takes the place of the object of its
//! entry.
//!
//! The contents of an entry never change while it lives, so any object with these contents may
//! stand in it. The page is copied out and compressed with nothing held but the codecs. The new
//! object is made and put in place as a reader of `retired`, as compaction does it. All that can
//! fail comes before that commit. Afterwards the old object is retired.

use objects::Object;
use sync::Reader;
use units::Cpu;

use super::Zswap;
use super::frees::leaving;
use crate::Word;
use crate::entry::Content;
use crate::index::Index;
use crate::record::WARM_PRIORITY;
use crate::warming::Tool;

/// What became of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recompressed {
    /// Its slot is smaller by this number of bytes.
    Smaller(u64),
    /// It would not be smaller.
    Vain,
    /// It is as it was, or was given up: another thread used it, or there was no room.
    Left,
}

/// Frames that recompression leaves to stores.
const LEFT_TO_STORES: u64 = 32;

impl<I: Index> Zswap<I> {
    /// Recompresses the page of an entry, if an index names the entry. The calling thread is no
    /// reader, and has no stream and no lock that a reader may want.
    pub(super) fn recompress(&self, cpu: Cpu, number: u32, tool: &mut Tool) -> Recompressed {
        if !self.may_recompress() {
            return Recompressed::Left;
        }
        // It keeps the codec, whose number is in no object yet.
        let reader = self.readers.enter(cpu);
        let codecs = self.objects.codecs();
        let Some((codec, warm)) = codecs.current(&reader, WARM_PRIORITY) else {
            return Recompressed::Left;
        };
        let Some((word, object)) = self.copy_out(&reader, cpu, number, tool) else {
            return Recompressed::Left;
        };
        if let Object::Compressed { codec, .. } = object
            && codecs.get(&reader, codec).is_some_and(|it| it.chosen.is(&warm.chosen))
        {
            return self.tried_in_vain(cpu, (number, word));
        }
        let (most, slot) = (object.bytes(), self.pool().slot_bytes(object.bytes()));
        let is_smaller =
            |bytes: &[u8]| bytes.len() < most && self.pool().slot_bytes(bytes.len()) < slot;
        let bytes = match tool.stream.compress(&tool.page) {
            Some(bytes) if is_smaller(bytes) => bytes,
            _ => return self.tried_in_vain(cpu, (number, word)),
        };
        let Some(old) = self.put_in_place(&reader, cpu, (number, word), (bytes, codec)) else {
            return Recompressed::Left;
        };
        drop(reader);
        self.retired.retire(cpu, leaving(old.handle()), |word| self.release(cpu, word));
        Recompressed::Smaller((slot - self.pool().slot_bytes(bytes.len())) as u64)
    }

    /// Whether memory is so plentiful that recompression may take a frame before it frees one. A
    /// pool that may not grow takes none.
    fn may_recompress(&self) -> bool {
        let provision = &self.provision;
        let low = provision.low_frames.load(sync::atomic::Ordering::Relaxed);
        self.free_frames() >= low.max(LEFT_TO_STORES.min(self.room_frames()))
    }

    /// The word of an entry, if an index names it now. The calling thread reads `retired`, which
    /// keeps such an entry.
    pub(super) fn named(&self, reader: &Reader<'_>, cpu: Cpu, number: u32) -> Option<Word> {
        let (word, key) = (self.entries.word(number)?, self.entries.key(number));
        let area = self.area_of(reader, key)?;
        (area.index.get(cpu, key.offset) == Some(word)).then_some(word)
    }

    /// Copies the page of an entry.
    fn copy_out(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u32,
        tool: &mut Tool,
    ) -> Option<(Word, Object)> {
        let _reading = self.retired.read(cpu);
        let word = self.named(reader, cpu, number)?;
        let Content::Stored(object) = self.entries.content(number) else { return None };
        self.expand(reader, cpu, word, &mut tool.page).ok()?;
        Some((word, object))
    }

    /// Marks that the page of an entry would not become smaller.
    fn tried_in_vain(&self, cpu: Cpu, (number, word): (u32, Word)) -> Recompressed {
        let _reading = self.retired.read(cpu);
        // A mark on another life of the entry would keep a page as it is, which harms nothing.
        if self.entries.word(number) == Some(word) {
            self.entries.set_recompressed(number, false);
        }
        Recompressed::Vain
    }

    /// Lets an entry name a new object. Returns the old one, which no thread can find any more.
    fn put_in_place(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (number, word): (u32, Word),
        (bytes, codec): (&[u8], u8),
    ) -> Option<Object> {
        let _reading = self.retired.read(cpu);
        if self.named(reader, cpu, number) != Some(word) {
            return None;
        }
        let Content::Stored(old) = self.entries.content(number) else { return None };
        // A memcg with pages is not removed; this one may be on its way out with its last page.
        let memcg = self.memcg_of(reader, number)?;
        let new = self.store_again(cpu, bytes, codec, old).ok()?;
        // This is the commit.
        if !self.entries.replace_object(number, old, new) {
            self.free(cpu, Content::Stored(new));
            return None;
        }
        self.account_replaced(cpu, memcg, old, new);
        self.entries.set_recompressed(number, true);
        Some(old)
    }
}
