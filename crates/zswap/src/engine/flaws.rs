//! What an engine does wrongly on demand, so that tests of recovery must find it.

use sync::Reader;
use sync::atomic::killed::{Flaw, has};
use units::Cpu;

use super::Zswap;
use crate::area::Area;
use crate::entry::Content;
use crate::index::Index;
use crate::memcg::Memcg;
use crate::{Key, Word};

impl<I: Index> Zswap<I> {
    /// Puts a page in its place wrongly, if the engine has such a flaw.
    pub(super) fn commits_with_flaw(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        area: &Area<I>,
        (key, word): (Key, Word),
        memcg: &Memcg,
        content: Content,
    ) -> bool {
        let insert = |key: Key, word| area.index.insert(cpu, key.offset, word).ok().flatten();
        let write = || {
            self.entries.write(word, key, memcg.0.number, content);
            if area.device.is_some() {
                memcg.0.lru.join(&self.entries, &self.ages, cpu, word.number());
            }
            self.account(cpu, memcg, content, 1);
        };
        let mut displaced = None;
        if has(Flaw::CommitsFirst) {
            displaced = insert(key, word);
            write();
        } else if has(Flaw::FreesFirst) {
            if let Some(old) = area.index.get(cpu, key.offset) {
                self.dispose(reader, cpu, old);
                self.quiesce(cpu);
            }
            write();
            let _ = insert(key, word);
        } else if has(Flaw::AnswersFirst) {
            write();
            if let Some((key, word)) = self.late.lock().replace((key, word)) {
                displaced = insert(key, word);
            }
        } else {
            return false;
        }
        if let Some(old) = displaced {
            self.dispose(reader, cpu, old);
        }
        true
    }
}
