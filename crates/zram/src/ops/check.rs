//! The check of a device at rest: what its slots, its pool, its counters and its record say must
//! agree, and each page can be read. The invariants stand in `recovery`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, string::String, vec::Vec};

use block::IoError;
use objects::Object;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};

use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::engine::{Kind, Slot};

/// What was added up over all pages.
#[derive(Default)]
struct Sums {
    pages: u64,
    bytes: u64,
    objects: u64,
    same: u64,
    huge: u64,
    backed: u64,
    /// Bytes of them in a log.
    logged: u64,
    lost: u64,
    packed: u64,
    shared: u64,
}

impl Disk {
    /// Contradictions between the parts of the device; empty if there are none. Call it only while
    /// no thread reads or writes. Takes memory for each object.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        // What a clone has is looked at with its origin.
        let engine = self.engine().filter(|_| self.clone_of().is_none());
        let Some(engine) = engine else { return Vec::new() };
        let mut found = Vec::new();
        let mut sums = Sums::default();
        let (mut handles, mut places) = (BTreeSet::new(), BTreeSet::new());
        let mut references = BTreeMap::new();
        let codecs = engine.objects().codecs();
        let has_codec = |number| codecs.get(&self.readers.enter(Cpu(0)), number).is_some();
        // Beyond the end as well: a look at what was never written costs little.
        let end = self.pages().saturating_mul(2).max(self.reach());
        let is_ours = |index| index < self.pages() || engine.windows().has(index);
        engine.each(0..end, |index, slot| {
            let mut say = |what: String| found.push(format!("page {index}: {what}"));
            if !is_ours(index) {
                say("it has contents beyond the end (K20)".into());
            }
            if slot.settled() != slot || !slot.is_well_formed() {
                say(format!("its slot is {:#x} at rest", slot.word()));
            }
            sums.add(slot);
            match slot.kind() {
                Kind::Stored(object) => {
                    let held = engine.pool().look_for(object.handle(), object.bytes());
                    if let Err(error) = held {
                        say(format!("{error}"));
                    }
                    if !handles.insert(object.handle().get()) {
                        say("another page names its object".into());
                    }
                    if let Object::Compressed { codec, .. } = object
                        && !has_codec(codec)
                    {
                        say(format!("there is no codec {codec}"));
                    }
                }
                Kind::WrittenBack(place) if !places.insert(place.at) => {
                    say("another page names its block".into());
                }
                Kind::Shared(part) => {
                    *references.entry(part.entry).or_insert(0) += 1;
                    let pages = engine.shared().peek(part.entry).map_or(0, |shared| shared.pages);
                    if usize::from(part.part) >= pages {
                        say(format!("shared object {} has no such part", part.entry));
                    }
                }
                _ => {}
            }
        });
        engine.shared().each(|entry, shared, counted| {
            let mut say = |what: String| found.push(format!("shared object {entry}: {what}"));
            sums.objects += 1;
            sums.bytes += shared.object.bytes() as u64;
            let named = references.remove(&entry).unwrap_or(0);
            if named != counted {
                say(format!("{counted} references counted, {named} found"));
            }
            let object = shared.object;
            if let Err(error) = engine.pool().look_for(object.handle(), object.bytes()) {
                say(format!("{error}"));
            }
            if !handles.insert(object.handle().get()) {
                say("another object has its place".into());
            }
        });
        self.compare(&engine, &sums, &mut found);
        found
    }

    /// Reads every page with contents that is not lost, and passes those that cannot be read to
    /// `bad`.
    pub fn read_all(&self, mut bad: impl FnMut(u64, IoError)) {
        let Some(engine) = self.engine() else { return };
        let mut page = [0; PAGE_SIZE];
        let window = self.window();
        engine.each(window.clone(), |index, slot| {
            let index = (index - window.start) as u64;
            if !slot.is_lost()
                && let Err(error) = self.load_page(Cpu(0), index, &mut page)
            {
                bad(index, error);
            }
        });
    }

    fn compare(&self, engine: &Engine, sums: &Sums, found: &mut Vec<String>) {
        let counted = |which| {
            let mut sum = self.counts.sum(which);
            engine.windows().each(|counts| sum += counts.sum(which));
            sum
        };
        let pairs = [
            ("objects of the pool", engine.pool().stats().objects, sums.objects),
            ("pages stored", counted(Count::PagesStored), sums.pages),
            ("bytes of objects", counted(Count::ComprBytes), sums.bytes),
            ("same-filled pages", counted(Count::SamePages), sums.same),
            ("huge pages", counted(Count::HugePages), sums.huge),
            ("written-back pages", counted(Count::WrittenBackPages), sums.backed),
            ("lost pages", counted(Count::LostPages), sums.lost),
            ("pages in extents", counted(Count::PackedPages), sums.packed),
            ("pages that share", counted(Count::SharedPages), sums.shared),
        ];
        // Without a log they are the same.
        let logged = self.log_stats().map_or(sums.logged, |stats| stats.live_bytes);
        let in_log = ("bytes in the log", logged, sums.logged);
        for (what, counted, added) in pairs.into_iter().chain([in_log]) {
            if counted != added {
                found.push(format!("{what}: {counted} counted, {added} found"));
            }
        }
        if let Some(record) = engine.record() {
            let (bytes, slots) = (self.bytes.load(Ordering::Relaxed), engine.capacity() as u64);
            if record.bytes() != bytes || record.slots() != slots {
                found.push(format!(
                    "the record has {} bytes and {} slots, the device {bytes} and {slots}",
                    record.bytes(),
                    record.slots()
                ));
            }
        }
    }
}

impl Sums {
    fn add(&mut self, slot: Slot) {
        self.pages += 1;
        match slot.kind() {
            Kind::Empty => self.pages -= 1,
            Kind::SameFilled(_) => self.same += 1,
            Kind::Stored(object) => {
                self.objects += 1;
                self.bytes += object.bytes() as u64;
                self.same += u64::from(matches!(object, Object::SameFilled(_)));
                self.huge += u64::from(object.bytes() == PAGE_SIZE);
            }
            Kind::WrittenBack(place) => {
                self.backed += 1;
                self.logged += u64::from(place.log_bytes());
            }
            Kind::Lost => self.lost += 1,
            // The object counts with its entry.
            Kind::Shared(part) => {
                self.huge += u64::from(part.huge);
                self.packed += u64::from(part.packed);
                self.shared += u64::from(!part.packed);
            }
        }
    }
}
