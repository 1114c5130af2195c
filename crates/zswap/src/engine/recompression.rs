//! Recompression of a page: an object of a stronger codec takes the place of the object of its
//! entry.
//!
//! The page is copied out and compressed with nothing held but the codecs. The new object is made
//! and put in place as compaction does it. All that can fail comes before that commit.

use objects::{Compressed, Object, Recompressed};
use sync::Reader;
use sync::atomic::Ordering;
use tiers::WARM_PRIORITY;
use units::Cpu;

use super::Zswap;
use super::exchange::Exchanged;
use crate::Word;
use crate::entry::Content;
use crate::warming::Tool;

/// Frames that recompression leaves to stores.
const LEFT_TO_STORES: u64 = 32;

impl Zswap {
    /// Recompresses the page of an entry, if an index names the entry. The calling thread is no
    /// reader, and has no stream and no lock that a reader may want.
    pub(super) fn recompress(&self, cpu: Cpu, number: u32, tool: &mut Tool) -> Recompressed {
        if !self.may_recompress() {
            return Recompressed::Skipped;
        }
        // It keeps the codec, whose number is in no object yet.
        let reader = self.readers.enter(cpu);
        let codecs = self.objects.codecs();
        let Some((codec, warm)) = codecs.current(&reader, WARM_PRIORITY) else {
            return Recompressed::Skipped;
        };
        let Some((word, object)) = self.copy_out(&reader, cpu, number, tool) else {
            return Recompressed::Skipped;
        };
        let is_warm = |object| match object {
            Object::Compressed { codec, .. } => {
                codecs.get(&reader, codec).is_some_and(|it| it.chosen.is(&warm.chosen))
            }
            _ => false,
        };
        let bytes = if is_warm(object) { None } else { tool.stream.compress(&tool.page) };
        let gains = |bytes: &&[u8]| self.objects.gain(object.bytes(), bytes.len()).is_some();
        let Some(bytes) = bytes.filter(gains) else {
            return self.no_smaller(cpu, word, object);
        };
        let store = |now| {
            let Content::Stored(now) = now else { return None };
            let stored = self.store_again(cpu, Compressed { bytes, codec }, Some(now));
            stored.ok().map(Content::Stored)
        };
        let exchanged = self.put_in_place(&reader, cpu, word, store);
        let Some(Exchanged { old, new }) = exchanged else {
            return Recompressed::InUse;
        };
        drop(reader);
        self.retire_old(cpu, old);
        Recompressed::Done { from: old.bytes(), to: new.bytes() }
    }

    /// Whether memory is so plentiful that recompression may take a frame before it frees one. A
    /// pool that may not grow takes none.
    pub(super) fn may_recompress(&self) -> bool {
        let low = self.provision.low_frames.load(Ordering::Relaxed);
        self.free_frames() >= low.max(LEFT_TO_STORES.min(self.room_frames()))
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

    /// Marks that the page of an entry would not become smaller by itself. With others it may.
    fn no_smaller(&self, cpu: Cpu, word: Word, object: Object) -> Recompressed {
        let _reading = self.retired.read(cpu);
        // A mark on another life of the entry would keep a page as it is, which harms nothing.
        if self.entries.word(word.number()) == Some(word) {
            match object {
                Object::Compressed { .. } => self.entries.set_no_smaller(word.number()),
                _ => self.entries.set_tried(word.number()),
            }
        }
        Recompressed::NoSmaller
    }

    /// Lets an entry name what `store` makes, in this life of it.
    pub(super) fn put_in_place(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        word: Word,
        store: impl FnOnce(Content) -> Option<Content>,
    ) -> Option<Exchanged> {
        let _reading = self.retired.read(cpu);
        let number = word.number();
        // A memcg with pages is not removed; this one may be on its way out with its last page.
        let memcg = self.memcg_of(reader, number)?;
        let make = |now, old| if now == word { store(old) } else { None };
        let exchanged = self.exchange(reader, cpu, number, make)?;
        self.account_replaced(cpu, memcg, exchanged.old, exchanged.new);
        self.entries.set_recompressed(number, matches!(exchanged.new, Content::Part(_)));
        Some(exchanged)
    }
}
