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
//!   beyond it are empty, up to the slots of clones.
//! * A word in the slots of clones is one of a window of `clones`, or nobody's.
//!
//! What breaks them is told with numbers, such as K14: docs/internals/kept-state.md has the list.
//!
//! So the recovered device has each page as of its last store that had ended, or of one that had
//! begun. A word that cannot be right becomes [`Slot::LOST`]: reads of that page fail.
//!
//! A process that dies on the way leaves a state to recover from as well.

mod backed;
mod family;
mod shared;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::ops::Range;

use control::{ControlError, Errno};
use objects::{Findings, Persist, Survey, all_there};
use pagealloc::FrameSet;
use pagelog::{NotLeft, StoredAt};
use sync::Mutex;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zcomp::PRIORITIES;
use zsmalloc::Census;

use crate::attributes::{restore_setting, saved_settings};
use crate::cloning::Cloned;
use crate::counts::{Count, Counts};
use crate::disk::{Disk, Place, Settings};
use crate::engine::Table;
use crate::engine::{Engine, EngineOptions};
use crate::engine::{Kind, LeftWindow, Slot};
use crate::record::{Record, WITH_SHARED_OBJECTS};
use crate::resources::Resources;

/// The setting that is stored after all others: whether it is sealed, or a log, is known then.
const BACKING: &str = "backing_dev";

/// What another process needs to know of a disk, besides its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedDisk {
    /// Its number.
    pub id: u32,
    /// Its size; 0 if it has none, and nothing but its settings is recovered. Otherwise the size is
    /// what the disk itself has kept.
    pub bytes: u64,
    /// How often it got its size: [`Disk::generation`].
    pub generation: u64,
    /// The number of the device that it is a clone of, if it is one.
    pub clone_of: Option<u32>,
    /// Its settings by the names of attributes, in any order. A clone has those of its origin.
    pub settings: Vec<(String, String)>,
}

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
    /// Why it has no backing device for now. Reads of pages there fail until another process finds
    /// it, and nothing is written back.
    pub absent_backing: Option<String>,
    /// What could not be right.
    pub findings: Findings,
}

/// What was recovered of a device and its clones.
pub struct Family {
    /// The device.
    pub origin: Recovered,
    /// Its clones.
    pub clones: Vec<(Arc<Disk>, Recovered)>,
}

/// A device that is being recovered, with its clones.
pub struct Recovery {
    disk: Arc<Disk>,
    engine: Engine,
    objects: Survey,
    bytes: u64,
    generation: u64,
    clones: Vec<(LeftWindow, Arc<Counts>)>,
    /// What was written back is encrypted.
    is_sealed: bool,
    /// Places on the backing device that two pages name.
    doubles: Mutex<BTreeSet<StoredAt>>,
}

impl Persist for Recovery {
    type Kept = Disk;
    type Saved = SavedDisk;
    /// The device is new, without settings and a size. It gets the settings first. The numbers are
    /// those of its clones; what another process was making or giving up is in none of them, and is
    /// given up.
    type Parts = (Arc<Disk>, Vec<u32>);
    type Recovered = Family;

    fn save(disk: &Disk) -> SavedDisk {
        let clone_of = disk.clone_of().map(|origin| origin.id());
        let settings = if clone_of.is_none() { saved_settings(disk) } else { Vec::new() };
        let settings = settings.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let (id, bytes, generation) = (disk.id(), disk.bytes(), disk.generation());
        SavedDisk { id, bytes, generation, clone_of, settings }
    }

    /// If its backing device cannot be opened, the device has one that fails:
    /// [`Recovered::absent_backing`].
    fn survey(
        (disk, clones): (Arc<Disk>, Vec<u32>),
        saved: &SavedDisk,
        census: &Arc<Census>,
    ) -> Result<Option<Recovery>, ControlError> {
        set(&disk, &saved.settings)?;
        if saved.bytes == 0 {
            return Ok(None);
        }
        let name = disk.name();
        begin(disk, saved.generation, &clones, census).map_err(|error| {
            let message = format!("{name} cannot be recovered: {}", error.message);
            ControlError::new(error.errno, message)
        })
    }

    fn spans(&self) -> Vec<(u32, u64)> {
        [(self.disk.id(), self.reach() as u64)].into()
    }

    fn walk(&self, cpu: Cpu, _: usize, pages: Range<u64>) {
        let end = (pages.end as usize).min(self.reach());
        for index in self.engine.touched(pages.start as usize..end) {
            if !self.has(index) {
                self.clear(cpu, index);
                continue;
            }
            self.engine.recover_page(cpu, index, |slot| {
                let slot = slot.settled();
                match self.judge(slot) {
                    Ok(()) => slot,
                    Err(why) => {
                        self.tell(index, &why);
                        Slot::LOST
                    }
                }
            });
        }
    }

    fn settle(&self, live: &FrameSet) {
        self.judge_shared();
        self.lose_what_two_pages_name();
        self.count_shared();
        self.objects.settle(self.engine.objects(), live);
    }

    fn finish(self) -> Result<Family, ControlError> {
        let Recovery { disk, engine, objects, bytes, generation, clones, .. } = self;
        let findings = objects.finish(engine.objects());
        engine.backing().inspect(|backing| backing.adopt());
        engine.shared().link_unused();
        engine.windows().forget_others();
        let engine = Arc::new(engine);
        if disk.place.publish(Box::new(Place::all(engine.clone()))).is_err() {
            return Err(ControlError::new(Errno::EBUSY, format!("{} is in use", disk.name())));
        }
        disk.generation.store(generation, Ordering::Relaxed);
        disk.bytes.store(bytes, Ordering::Relaxed);
        let clones = clones.into_iter().map(|(left, counts)| {
            let clone = Cloned::recovered(disk.clone(), &engine, &left, counts);
            let recovered = Recovered::of(&clone);
            (clone, recovered)
        });
        let clones = clones.collect();
        let absent_backing = disk.absent_backing();
        let origin = Recovered { absent_backing, findings, ..Recovered::of(&disk) };
        Ok(Family { origin, clones })
    }
}

impl Recovered {
    fn of(disk: &Disk) -> Recovered {
        Recovered {
            id: disk.id(),
            bytes: disk.bytes(),
            pages: disk.counts.sum(Count::PagesStored),
            compressed_bytes: disk.counts.sum(Count::ComprBytes),
            lost: disk.counts.sum(Count::LostPages),
            ..Recovered::default()
        }
    }
}

/// Stores settings in a new device.
fn set(disk: &Arc<Disk>, settings: &[(String, String)]) -> Result<(), ControlError> {
    let (last, first) = settings.iter().partition::<Vec<_>, _>(|it| it.0 == BACKING);
    for (name, value) in first.into_iter().chain(last) {
        let stored = match restore_setting(disk, name, value) {
            Err(error) if name == BACKING => disk.set_absent_backing(value, &error.message),
            stored => stored,
        };
        stored.map_err(|error| {
            let what = format!("{name} of {}: {}", disk.name(), error.message);
            ControlError::new(error.errno, what)
        })?;
    }
    Ok(())
}

/// Opens what was left of a device; `None` if it had no size.
fn begin(
    disk: Arc<Disk>,
    generation: u64,
    clones: &[u32],
    census: &Arc<Census>,
) -> Result<Option<Recovery>, ControlError> {
    if disk.bytes() != 0 {
        return Err(ControlError::invalid("it has a size already"));
    }
    let resources = disk.resources.clone();
    let name = Resources::kept_name(disk.id(), generation);
    let record = Record::open(&*resources.memory_of(&name, Table::Record));
    let record = record.map_err(ControlError::invalid)?;
    let (bytes, slots) = (record.bytes(), record.slots());
    if bytes == 0 {
        return Ok(None);
    }
    if bytes % PAGE_SIZE as u64 != 0 || bytes / PAGE_SIZE as u64 > slots {
        let message = format!("its size of {bytes} bytes is none of {slots} pages (K6)");
        return Err(ControlError::invalid(message));
    }
    let shared = record.layout() >= WITH_SHARED_OBJECTS;
    let tables = ["slots", "slots.1", "zspages"].into_iter();
    let tables = tables.chain(shared.then_some("shared"));
    let tables = tables.chain(record.times().then_some("times"));
    let tables = tables.chain((!clones.is_empty()).then_some("clones"));
    let names: Vec<_> = tables.map(|table| format!("{name}.{table}")).collect();
    if let Some(kept) = &resources.kept {
        all_there(&**kept, names.iter().map(|name| &**name))?;
    }
    let mut settings = disk.settings.lock();
    settings.track_access = record.times();
    if let Some(left) = record.writeback_left() {
        settings.writeback_limit = left;
    }
    let slots = usize::try_from(slots).unwrap_or(usize::MAX);
    let options = disk.engine_options(&settings, &name, Some(record.clone()));
    let options = EngineOptions { pages: slots, room: slots, ..options };
    let engine = Engine::new(&resources, options)?;
    engine.shared().forget_references().map_err(|used| {
        let room = engine.shared().room();
        ControlError::invalid(format!(
            "{used} entries of shared objects were used, and there is room for {room} (K23)"
        ))
    })?;
    let clones = Recovery::windows(&engine, &resources, (&name, bytes), clones)?;
    let mut findings = Findings::default();
    let codecs = restore_codecs(&engine, &resources, &record, &mut settings, &mut findings)?;
    let is_sealed = settings.sealed_backing;
    if let Some(backing) = settings.backing.as_deref() {
        let mut bad = |segment| {
            let what = format!("what was kept of segment {segment} of its log");
            findings.add(format!("{what} cannot be (K24)"));
        };
        let left = backing.recover(&*resources.memory_of(&name, Table::Log), &mut bad);
        left.map_err(|error| not_left(backing.path(), error))?;
    }
    drop(settings);
    let objects = Survey::begin(engine.objects(), census, codecs, findings)?;
    let doubles = Mutex::new(BTreeSet::new());
    Ok(Some(Recovery { disk, engine, objects, bytes, generation, clones, is_sealed, doubles }))
}

/// Puts the codecs of the record back under their numbers, and in the settings. Returns a bit for
/// each number.
fn restore_codecs(
    engine: &Engine,
    resources: &Resources,
    record: &Record,
    settings: &mut Settings,
    findings: &mut Findings,
) -> Result<u32, ControlError> {
    let open = |name: &str, params: &_| resources.codec(name, params);
    let restored = engine.objects().restore(record, open, |number, why| {
        if (0..PRIORITIES as u8).any(|priority| record.current(priority) == Some(number)) {
            return Err(ControlError::invalid(why));
        }
        findings.add(why);
        Ok(())
    })?;
    if restored.current[0].is_none() {
        return Err(ControlError::invalid("nothing was kept of its primary codec (K7)"));
    }
    for (place, chosen) in restored.current.into_iter().enumerate() {
        settings.algorithms[place] = chosen.as_ref().map(|chosen| chosen.compressor.name());
        settings.params[place] = chosen.map(|chosen| chosen.params).unwrap_or_default();
    }
    Ok(restored.numbers)
}

impl Recovery {
    /// The pages of the device.
    fn pages(&self) -> usize {
        (self.bytes / PAGE_SIZE as u64) as usize
    }

    fn tell(&self, index: usize, why: &str) {
        let (disk, page) = self.page_of(index);
        self.objects.tell(format!("page {page} of zram{disk}: {why}"));
    }

    /// Says what is wrong with a slot. Marks what it names.
    fn judge(&self, slot: Slot) -> Result<(), String> {
        if !slot.is_well_formed() {
            return Err(format!("its slot {:#x} says nothing that can be (K14)", slot.word()));
        }
        match slot.kind() {
            Kind::Empty | Kind::SameFilled(_) | Kind::Lost => Ok(()),
            Kind::Stored(object) => self.objects.mark(self.engine.objects(), object),
            Kind::WrittenBack(place) => self.judge_backed(place),
            Kind::Shared(part) => self.judge_part(part),
        }
    }

    /// Of two pages with one object or block, nobody can say whose it is.
    fn lose_what_two_pages_name(&self) {
        let (objects, places) = (self.objects.doubles(), self.doubles.lock().clone());
        if objects.is_empty() && places.is_empty() {
            return;
        }
        self.lose_parts(|_, shared| {
            objects.contains(&shared.object.handle().get()).then(|| {
                self.objects.unmark(self.engine.objects(), shared.object);
                "another page has the same object (K17)".into()
            })
        });
        let (mut all, another) = (Vec::new(), "another page has the same");
        self.each(|index, slot| match slot.kind() {
            Kind::Stored(object) if objects.contains(&object.handle().get()) => {
                self.objects.unmark(self.engine.objects(), object);
                all.push((index, format!("{another} object (K17)")));
            }
            Kind::WrittenBack(place) if places.contains(&place.at) => {
                all.push((index, format!("{another} block (K19)")));
            }
            _ => {}
        });
        for (index, why) in all {
            self.tell(index, &why);
            self.engine.lose_page(Cpu(0), index);
        }
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
