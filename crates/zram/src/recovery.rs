//! Recovery of a device whose process died. The slots say what lives, and everything else follows.
//!
//! # Invariants
//! At each instant of a process whose devices outlive it:
//! * A word with contents lies in a part of the table that is marked as written.
//! * A word names an object of the pool as [`zsmalloc::Recovery`] expects it, a part of a shared
//!   object as the table in `shared` has it, a fill pattern, a block of the backing device with
//!   the whole page in it, or the place of an object in its log. It became the word of its page
//!   after the object or block was written, and before what was there was given up.
//! * What is kept of a segment of the log says at least that its life has begun, and that what a
//!   word names was appended.
//! * The number of the codec in a word is in the record, with the codec, before an object is made.
//! * The size in the record is that of the device, or the next one of a resize under way. Pages
//!   beyond it are empty.
//!
//! What breaks them is told with numbers, such as K14: docs/kept-state.md has the list.
//!
//! So the recovered device has each page as of its last store that had ended, or of one that had
//! begun. A word that cannot be right becomes [`Slot::LOST`]: reads of that page fail.
//!
//! # Operations
//! [`Disk::recover`] for each device, [`Recovery::walk`] through its pages, on any number of
//! threads, [`Recovery::settle`] for each, then the zone adopts the frames, then
//! [`Recovery::finish`]. A process that dies meanwhile leaves a state to recover from as well.

mod backed;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use control::{ControlError, Errno};
use objects::Object;
use pagealloc::FrameSet;
use pagelog::{Left, NotLeft};
use sync::Mutex;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE, pages_for};
use zcomp::Streams;
use zsmalloc::{BadObject, Census, Unfit};

use crate::backing::Backing;
use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::{Engine, EngineOptions};
use crate::record::Record;
use crate::resources::{Design, Product, Resources};
use crate::shared::Shared;
use crate::slot::{Kind, Part, Slot};
use crate::tables::Table;

/// Findings that are told; more are counted.
const TOLD: usize = 100;

/// What was recovered of a device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// The number of the device.
    pub id: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// Pages with contents, lost ones among them.
    pub pages: u64,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// Pages that are lost: reads of them fail.
    pub lost: u64,
    /// What could not be right, the first hundred; empty after a death at any instant.
    pub findings: Vec<String>,
    /// How many findings there were.
    pub all_findings: u64,
}

#[derive(Default)]
struct Findings {
    told: Vec<String>,
    all: u64,
    /// Objects and blocks that two pages name.
    objects: BTreeSet<u32>,
    blocks: BTreeSet<u32>,
}

impl Findings {
    fn add(&mut self, text: String) {
        self.all += 1;
        if self.told.len() < TOLD {
            self.told.push(text);
        }
    }
}

/// A device that is being recovered.
pub struct Recovery<D: Design = Product> {
    disk: Arc<Disk<D>>,
    engine: Engine<D>,
    pool: zsmalloc::Recovery,
    /// What was left of the log on the backing device.
    log: Option<Left>,
    bytes: u64,
    generation: u64,
    /// A bit for each number that is a codec's.
    codecs: u32,
    /// What was written back is encrypted.
    is_sealed: bool,
    findings: Mutex<Findings>,
}

impl<D: Design> Disk<D> {
    /// Begins to recover what another process left of the device, in its `generation`. The device
    /// is new, has its settings but no size, and nobody uses it. `None` if the device had no size
    /// there.
    ///
    /// # Errors
    /// `EINVAL` for what is not a device or damaged, or if the device has a size; `ENOTSUP` if this
    /// program does not have a codec of its pages; `ENOMEM` when memory is out. What was left is as
    /// it was.
    pub fn recover(
        self: &Arc<Self>,
        generation: u64,
        census: &Arc<Census>,
    ) -> Result<Option<Recovery<D>>, ControlError> {
        self.begin_recovery(generation, census).map_err(|error| {
            let message = format!("{} cannot be recovered: {}", self.name(), error.message);
            ControlError::new(error.errno, message)
        })
    }

    fn begin_recovery(
        self: &Arc<Self>,
        generation: u64,
        census: &Arc<Census>,
    ) -> Result<Option<Recovery<D>>, ControlError> {
        if self.bytes() != 0 {
            return Err(ControlError::invalid("it has a size already"));
        }
        let resources = &*self.resources;
        let name = Resources::kept_name(self.id(), generation);
        let record = Record::open(&*resources.memory_of(&name, Table::Record));
        let record = Arc::new(record.map_err(ControlError::invalid)?);
        let (bytes, slots) = (record.bytes(), record.slots());
        if bytes == 0 {
            return Ok(None);
        }
        if bytes % PAGE_SIZE as u64 != 0 || bytes / PAGE_SIZE as u64 > slots {
            let message = format!("its size of {bytes} bytes is none of {slots} pages (K6)");
            return Err(ControlError::invalid(message));
        }
        let mut settings = self.settings.lock();
        settings.track_access = record.times();
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        let options = EngineOptions {
            pages: slots,
            room: slots,
            codecs: &[],
            limit_frames: pages_for(settings.mem_limit),
            streams: settings.max_streams.unwrap_or(D::Streams::usual(resources.cpus)),
            readers: self.readers.clone(),
            clock: settings.track_access.then(|| resources.clock.clone()),
            counts: self.counts.clone(),
            backing: settings.backing.clone(),
            name: &name,
            record: Some(record.clone()),
        };
        let engine = Engine::new(resources, options)?;
        engine.shared().forget_references().map_err(|used| {
            let room = engine.shared().room();
            ControlError::invalid(format!(
                "{used} entries of shared objects were used, and there is room for {room} (K23)"
            ))
        })?;
        let mut findings = Findings::default();
        let codecs = engine.restore_codecs(resources, &record, |text| findings.add(text))?;
        for (place, chosen) in codecs.current.into_iter().enumerate() {
            settings.algorithms[place] = chosen.as_ref().map(|chosen| chosen.compressor.name());
            settings.params[place] = chosen.map(|chosen| chosen.params).unwrap_or_default();
        }
        let is_sealed = settings.sealed_backing;
        let mut log = None;
        if let Some(Backing::Log(on)) = settings.backing.as_deref() {
            let bad = |segment| {
                let what = format!("what was kept of segment {segment} of its log");
                findings.add(format!("{what} cannot be (K24)"));
            };
            let left = on.left(&*resources.memory_of(&name, Table::Log), bad);
            log = Some(left.map_err(|error| not_left(on.path(), error))?);
        }
        drop(settings);
        let census = census.clone();
        let pool = zsmalloc::Recovery::survey(engine.pool(), census, |text| findings.add(text));
        let pool = pool.map_err(|error| {
            let errno = match error {
                Unfit::SizeClasses => Errno::ENOTSUP,
                Unfit::NoMemory(_) => Errno::ENOMEM,
            };
            ControlError::new(errno, format!("{error}"))
        })?;
        let findings = Mutex::new(findings);
        let (disk, codecs) = (self.clone(), codecs.numbers);
        let recovery =
            Recovery { disk, engine, pool, log, bytes, generation, codecs, is_sealed, findings };
        Ok(Some(recovery))
    }
}

impl<D: Design> Recovery<D> {
    /// The device.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk<D>> {
        &self.disk
    }

    /// The pages of the device.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.bytes / PAGE_SIZE as u64) as usize
    }

    /// Judges each page of a range. Any number of threads may call it at once, each page being in
    /// one range; `cpu` is the CPU that it runs on.
    pub fn walk(&self, cpu: Cpu, pages: Range<usize>) {
        let end = pages.end.min(self.pages());
        let mut index = self.engine.next_touched(pages.start, end);
        while index < end {
            self.engine.recover_page(cpu, index, |slot| {
                let slot = slot.settled();
                match self.judge(slot) {
                    Ok(()) => slot,
                    Err(why) => {
                        let name = self.disk.name();
                        self.findings.lock().add(format!("page {index} of {name}: {why}"));
                        Slot::LOST
                    }
                }
            });
            index = self.engine.next_touched(index + 1, end);
        }
    }

    /// Says what is wrong with a slot. Marks what it names.
    fn judge(&self, slot: Slot) -> Result<(), String> {
        if !slot.is_well_formed() {
            return Err(format!("its slot {:#x} says nothing that can be (K14)", slot.word()));
        }
        match slot.kind() {
            Kind::Empty | Kind::SameFilled(_) | Kind::Lost => Ok(()),
            Kind::Stored(object) => {
                if let Object::Compressed { codec, .. } = object {
                    self.judge_codec(codec)?;
                }
                let marked = self.pool.mark(self.engine.pool(), object.handle(), object.bytes());
                if let Err(BadObject::Taken(_)) = marked {
                    self.findings.lock().objects.insert(object.handle().get());
                }
                marked.map_err(|error| format!("{error}"))
            }
            Kind::WrittenBack(place) => self.judge_backed(place),
            Kind::Shared(part) => self.judge_part(part),
        }
    }

    /// Counts the reference to a shared object. The object itself is looked for when all are
    /// counted.
    fn judge_part(&self, part: Part) -> Result<(), String> {
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

    fn judge_codec(&self, codec: u8) -> Result<(), String> {
        match self.codecs & 1 << codec {
            0 => Err(format!("nothing was kept of its codec {codec} (K15)")),
            _ => Ok(()),
        }
    }

    /// Decides what lives, after all pages were walked through, and adds its frames to `live`.
    pub fn settle(&self, live: &FrameSet) {
        self.judge_shared();
        self.lose_what_two_pages_name();
        self.count_shared();
        self.pool.settle(self.engine.pool(), live);
    }

    /// Looks for the shared objects that slots name. The pages of those that cannot be are lost.
    fn judge_shared(&self) {
        let mut bad = BTreeMap::new();
        self.engine.shared().each(|entry, shared, _| {
            let (object, pool) = (shared.object, self.engine.pool());
            let codec = match object {
                Object::Compressed { codec, .. } => self.judge_codec(codec),
                _ => Ok(()),
            };
            let judged = codec.and_then(|()| {
                let marked = self.pool.mark(pool, object.handle(), object.bytes());
                if let Err(BadObject::Taken(_)) = marked {
                    self.findings.lock().objects.insert(object.handle().get());
                }
                marked.map_err(|error| format!("{error}"))
            });
            if let Err(why) = judged {
                bad.insert(entry, why);
            }
        });
        self.lose_parts(|part, _| bad.get(&part.entry).cloned());
    }

    /// Loses the pages whose shared object cannot be, as `why` tells.
    fn lose_parts(&self, why: impl Fn(Part, Shared) -> Option<String>) {
        let table = self.engine.shared();
        let mut all = Vec::new();
        self.engine.each(0..self.pages(), |index, slot| {
            if let Kind::Shared(part) = slot.kind()
                && let Some(shared) = table.left_in(part.entry)
                && let Some(why) = why(part, shared)
            {
                all.push((index, part.entry, why));
            }
        });
        for (index, entry, why) in all {
            let name = self.disk.name();
            self.findings.lock().add(format!("page {index} of {name}: {why}"));
            self.engine.lose_page(Cpu(0), index);
            table.forget(entry);
        }
    }

    /// Counts the bytes of the shared objects that live.
    fn count_shared(&self) {
        self.engine.shared().each(|_, shared, _| {
            let bytes = shared.object.bytes() as i64;
            self.disk.counts.add(Cpu(0), Count::ComprBytes, bytes);
        });
    }

    /// Of two pages with one object or block, nobody can say whose it is.
    fn lose_what_two_pages_name(&self) {
        let twice = self.findings.lock().objects.clone();
        if !twice.is_empty() {
            self.lose_parts(|_, shared| {
                let handle = shared.object.handle();
                twice.contains(&handle.get()).then(|| {
                    self.pool.unmark(self.engine.pool(), handle);
                    "another page has the same object (K17)".into()
                })
            });
        }
        let mut findings = self.findings.lock();
        if findings.objects.is_empty() && findings.blocks.is_empty() {
            return;
        }
        let (mut all, objects, blocks) = (Vec::new(), "object (K17)", "block (K19)");
        self.engine.each(0..self.pages(), |index, slot| match slot.kind() {
            Kind::Stored(object) if findings.objects.contains(&object.handle().get()) => {
                self.pool.unmark(self.engine.pool(), object.handle());
                all.push((index, objects));
            }
            Kind::WrittenBack(place) if findings.blocks.contains(&place.block) => {
                all.push((index, blocks));
            }
            _ => {}
        });
        for (index, what) in all {
            let name = self.disk.name();
            findings.add(format!("page {index} of {name}: another page has the same {what}"));
            self.engine.lose_page(Cpu(0), index);
        }
    }

    /// Makes the device ready, after the zone has adopted the live frames.
    ///
    /// # Errors
    /// `EBUSY` if the device got a size meanwhile.
    pub fn finish(self) -> Result<Recovered, ControlError> {
        let Recovery { disk, engine, pool, log, bytes, generation, findings, .. } = self;
        pool.finish(engine.pool());
        if let (Some(Backing::Log(to)), Some(left)) = (engine.backing().map(|it| &**it), log) {
            to.adopt(left);
        }
        engine.shared().link_unused();
        if disk.engine.publish(Box::new(Arc::new(engine))).is_err() {
            return Err(ControlError::new(Errno::EBUSY, format!("{} is in use", disk.name())));
        }
        disk.generation.store(generation, Ordering::Relaxed);
        disk.bytes.store(bytes, Ordering::Relaxed);
        let mut findings = findings.lock();
        Ok(Recovered {
            id: disk.id(),
            bytes,
            pages: disk.counts.sum(Count::PagesStored),
            compressed_bytes: disk.counts.sum(Count::ComprBytes),
            lost: disk.counts.sum(Count::LostPages),
            findings: core::mem::take(&mut findings.told),
            all_findings: findings.all,
        })
    }
}

fn not_left(path: &str, error: NotLeft) -> ControlError {
    match error {
        NotLeft::NoMemory => ControlError::new(Errno::ENOMEM, format!("{error}")),
        NotLeft::Nothing | NotLeft::Size { .. } => {
            ControlError::invalid(format!("{path}: {error} (K24)"))
        }
    }
}
