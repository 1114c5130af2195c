//! Objects that several pages name.

use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec::Vec};

use objects::{Object, Shared};
use units::Cpu;

use super::Recovery;
use crate::counts::Count;
use crate::engine::{Kind, Part};

impl Recovery {
    /// Counts the reference to a shared object. The object itself is looked for when all are
    /// counted.
    pub(super) fn judge_part(&self, part: Part) -> Result<(), String> {
        let (table, entry) = (self.engine.shared(), part.entry);
        let Some(shared) = table.left_in(entry) else {
            return Err(format!("there is no shared object {entry} (K22)"));
        };
        let fits = usize::from(part.part) < shared.pages
            && part.packed == (shared.pages > 1)
            && part.huge == matches!(shared.object, Object::Huge(_));
        if !fits {
            return Err(format!("shared object {entry} has no such part (K22)"));
        }
        table.hold(entry);
        Ok(())
    }

    /// Looks for the shared objects that slots name. The pages of those that cannot be are lost.
    pub(super) fn judge_shared(&self) {
        let mut bad = BTreeMap::new();
        self.engine.shared().each(|entry, shared, _| {
            if let Err(why) = self.objects.mark(self.engine.objects(), shared.object) {
                bad.insert(entry, why);
            }
        });
        self.lose_parts(|part, _| bad.get(&part.entry).cloned());
    }

    /// Loses the pages whose shared object cannot be, as `why` tells.
    pub(super) fn lose_parts(&self, why: impl Fn(Part, Shared) -> Option<String>) {
        let table = self.engine.shared();
        let mut all = Vec::new();
        self.each(|index, slot| {
            if let Kind::Shared(part) = slot.kind()
                && let Some(shared) = table.left_in(part.entry)
                && let Some(why) = why(part, shared)
            {
                all.push((index, part.entry, why));
            }
        });
        for (index, entry, why) in all {
            self.tell(index, &why);
            self.engine.lose_page(Cpu(0), index);
            table.forget(entry);
        }
    }

    /// Counts the bytes of the shared objects that live.
    pub(super) fn count_shared(&self) {
        self.engine.shared().each(|_, shared, _| {
            let bytes = shared.object.bytes() as i64;
            self.disk.counts.add(Cpu(0), Count::ComprBytes, bytes);
        });
    }
}
