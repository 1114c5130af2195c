//! Keys get the values that were loaded.

use sync::lock_one;
use units::Cpu;
use zsmalloc::Handle;

use super::Values;
use crate::MAX_KEY;
use crate::head::{Form, HEAD_BYTES, member, split};
use crate::saved::{Live, is_live};
use crate::word::Word;

impl Values {
    /// Has the key of a head name it. Returns whether there was room.
    pub(super) fn publish_head(&self, cpu: Cpu, handle: Handle) -> bool {
        let mut bytes = [0; HEAD_BYTES + MAX_KEY];
        let (head, key) = self.head_with_key(cpu, handle, &mut bytes);
        let word = Word::head(self.fingerprint(key), handle, head.expires != 0);
        if self.publish(cpu, key, word, head.value).is_err() {
            self.free_head(cpu, handle);
            return false;
        }
        if head.form == Form::Raw && self.groups_with(head.value) {
            self.wait_for_group(cpu, word, head.data());
        }
        true
    }

    /// Has the keys of the members that are live name them. Returns whether there was room.
    pub(super) fn publish_group(&self, cpu: Cpu, group: u32, live: &Live) -> bool {
        let bytes = {
            let reader = self.retired.read(cpu);
            let mut reading = lock_one(&self.reading, cpu);
            self.group(&reader, &mut reading, group).map(<[u8]>::to_vec)
        };
        let (bytes, mut all) = (bytes.unwrap_or_default(), true);
        let members = self.groups.get(group).map_or(0, |group| group.members as usize);
        for number in 0..members {
            let found = member(&bytes, number).and_then(|(_, bytes)| split(bytes));
            let named = found.filter(|_| is_live(live, number)).map(|(_, key, value)| {
                let word = Word::member(self.fingerprint(key), group, number, false);
                self.publish(cpu, key, word, value.len())
            });
            if !matches!(named, Some(Ok(()))) {
                self.leave_group(cpu, group);
                all &= !is_live(live, number);
            }
        }
        // For its maker.
        self.leave_group(cpu, group);
        all
    }
}
