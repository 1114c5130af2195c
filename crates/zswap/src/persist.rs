//! Recovery of a cache whose process died. The indexes say what lives, and everything else follows.
//!
//! # Invariants
//! At each instant of a process whose cache outlives it:
//! * A word of an index lies in a part of the table that is marked as written. It names an entry in
//!   its present life, whose key is the place of the word.
//! * The entry was written before the word, and so was its object, which is as
//!   [`zsmalloc::Recovery`] expects it. Both are given up only when no index names the entry.
//! * An entry that has a part of a pack is a reference to the pack's entry, which was written
//!   before it and says what the pack is. Recovery counts the references anew.
//! * The number of the codec in the name of an object, and the memcg of an entry, are in the record
//!   before an index names the entry.
//! * A page that its device holds is marked before it leaves the index. A page with a word is in
//!   the cache, whatever its mark says.
//!
//! So a recovered area has each page as of its last store that had ended, or of one that had begun.
//! In the place of a word that cannot be right there is [`Word::LOST`] then: loads of that page
//! fail. The lists of memcgs are in the order of ages.
//!
//! A process that dies on the way leaves a state to recover from as well.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::ops::Range;

use block::{Absent, BlockDevice};
use control::{ControlError, Errno, parse_switch};
use objects::{Findings, Object, Persist, Survey, all_there};
use pagealloc::{FrameSet, MemoryProvider};
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};
use zcomp::{Chosen, Params};
use zsmalloc::Census;

use crate::area::{Area, AreaForm};
use crate::counts::Count;
use crate::engine::{ENTRIES, PACKS, Parts, RECORD, ZSPAGES, Zswap, names_of, no_memory};
use crate::entry::{Content, Part};
use crate::index::{AreaIndex, Flat, Index};
use crate::record::{KeptArea, KeptMemcg, MAX_MEMCGS, OLDEST_LAYOUT, Record};
use crate::{Key, MAX_OFFSETS, MAX_TYPES, PARAMETERS, SwapType, Word};

/// The parameter that is in the memory of the cache.
const COMPRESSOR: &str = "compressor";

/// What another process needs to know of the cache in front of swap areas, besides its memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SavedSwap {
    /// The areas that are on, by number.
    pub areas: Vec<SwapType>,
    /// Its settings by the names of attributes, in any order.
    pub settings: Vec<(String, String)>,
}

/// What was recovered of a cache.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// The areas, by number.
    pub areas: Vec<RecoveredArea>,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// What could not be right.
    pub findings: Findings,
}

/// What was recovered of an area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredArea {
    /// The area.
    pub swap: SwapType,
    /// Its size in pages.
    pub pages: u64,
    /// Pages in the cache, lost ones not among them.
    pub cached: u64,
    /// Pages on its device.
    pub on_device: u64,
    /// Pages that are lost: loads of them fail.
    pub lost: u64,
    /// Why it has no device for now. Reads of pages there fail until another process finds it, and
    /// nothing is written back.
    pub absent_device: Option<String>,
}

/// An area, and the device below it if it has one, or why that cannot be used now.
pub type AreaLeft = (SwapType, Result<Option<Arc<dyn BlockDevice>>, ControlError>);

/// An area that is being recovered.
struct FoundArea {
    area: Arc<Area>,
    lost: AtomicU64,
    absent: Option<String>,
}

impl FoundArea {
    /// Its index.
    fn words(&self) -> &Flat {
        match &self.area.index {
            AreaIndex::Flat(flat) => flat,
            AreaIndex::Other(_) => unreachable!("a recovered area has the product's index"),
        }
    }
}

/// What a cache is made of that another process left.
pub struct Left {
    /// The memory of what ends with this process.
    pub provider: Arc<dyn MemoryProvider>,
    /// The parts; what outlives the process is in `parts.kept`.
    pub parts: Parts,
    /// The areas. One that is not here is off afterwards; one that was off is not recovered. A
    /// device is opened when nobody else has it open: then the writes of the dead process have
    /// ended. Instead of one that cannot be used, or is too short, the area has one that fails.
    pub areas: Vec<AreaLeft>,
}

/// A cache that is being recovered.
pub struct Recovery {
    zswap: Zswap,
    objects: Survey,
    found: Vec<FoundArea>,
    /// Whether pages are to be recompressed. That waits for the end: only then it is known which
    /// codecs objects need.
    auto: bool,
}

impl Persist for Recovery {
    type Kept = Zswap;
    type Saved = SavedSwap;
    type Parts = Left;
    type Recovered = (Zswap, Recovered);

    fn save(zswap: &Zswap) -> SavedSwap {
        let rows = PARAMETERS.iter().filter(|row| row.name != COMPRESSOR);
        let settings = rows.filter_map(|row| {
            let mut text = String::new();
            row.show?(zswap, &mut text).ok()?;
            Some((row.name.into(), text.trim().into()))
        });
        SavedSwap { areas: zswap.areas(), settings: settings.collect() }
    }

    fn survey(
        left: Left,
        saved: &SavedSwap,
        census: &Arc<Census>,
    ) -> Result<Option<Recovery>, ControlError> {
        let mut recovery = begin(left, census).map_err(|error| {
            let message = format!("the swap cache cannot be recovered: {}", error.message);
            ControlError::new(error.errno, message)
        })?;
        for (name, value) in &saved.settings {
            recovery.set(name, value).map_err(|error| {
                let what = format!("{name} of the swap cache: {}", error.message);
                ControlError::new(error.errno, what)
            })?;
        }
        Ok(Some(recovery))
    }

    fn spans(&self) -> Vec<(u32, u64)> {
        let number = |area: &Area| area.swap.number() as u32;
        self.found.iter().map(|found| (number(&found.area), found.area.pages)).collect()
    }

    fn walk(&self, cpu: Cpu, span: usize, pages: Range<u64>) {
        let found = &self.found[span];
        let (area, words) = (&found.area, found.words());
        let range = pages.start..pages.end.min(area.pages);
        for at in words.touched(range.clone()) {
            words.recover(cpu, at, |word| self.judge(cpu, found, at, word?));
        }
        for offset in area.marked(range.clone()) {
            if words.has(offset) {
                area.clear_on_device(cpu, offset);
            } else if area.device.is_none() {
                area.clear_on_device(cpu, offset);
                let why = "it was written to the device below, and there is none";
                self.tell(area.swap, offset, why.into());
                words.recover(cpu, offset, |_| Some(self.lose(cpu, found)));
            }
        }
        area.forget_unmarked(cpu, range);
    }

    fn settle(&self, live: &FrameSet) {
        self.judge_packs();
        let doubles = self.objects.doubles();
        if !doubles.is_empty() {
            self.lose_what_two_pages_name(&doubles);
        }
        self.objects.settle(&self.zswap.objects, live);
    }

    fn finish(self) -> Result<(Zswap, Recovered), ControlError> {
        let Recovery { zswap, objects, found, auto } = self;
        let mut findings = objects.finish(&zswap.objects);
        let has_device = |swap: SwapType| {
            found.iter().any(|found| found.area.swap == swap && found.area.device.is_some())
        };
        let listed = |number: u32| has_device(zswap.entries.key(number).swap);
        let (oldest_first, youngest) = zswap.entries.settle(listed);
        zswap.ages.go_on_from(youngest);
        zswap.packs.link_unused();
        let reader = zswap.readers.enter(Cpu(0));
        for number in oldest_first {
            if let Some(memcg) = zswap.memcg_of(&reader, number) {
                memcg.0.lru.restore(&zswap.entries, &zswap.ages, number);
            }
        }
        drop(reader);
        let areas = found.iter().map(|FoundArea { area, lost, absent }| {
            let lost = lost.load(Ordering::Relaxed);
            let (cached, on_device) = (area.index.count() - lost, area.count_on_device());
            let (swap, pages, absent_device) = (area.swap, area.pages, absent.clone());
            RecoveredArea { swap, pages, cached, on_device, lost, absent_device }
        });
        let areas: Vec<_> = areas.collect();
        for swap in (0..MAX_TYPES).filter_map(|number| SwapType::new(number).ok()) {
            if areas.iter().all(|area| area.swap != swap) {
                zswap.record.set_off(swap);
            }
        }
        for FoundArea { area, .. } in found {
            // No area was published before.
            let _ = zswap.areas[area.swap.number()].publish(Box::new(area));
        }
        if auto && let Err(error) = zswap.set_auto(true) {
            findings.add(format!("pages are not recompressed any more: {}", error.message));
        }
        let compressed_bytes = zswap.counts.sum(Count::Bytes);
        Ok((zswap, Recovered { areas, compressed_bytes, findings }))
    }
}

fn begin(left: Left, census: &Arc<Census>) -> Result<Recovery, ControlError> {
    let Left { provider, mut parts, areas } = left;
    let none = || ControlError::invalid("it is in no memory that outlives a process");
    let kept = parts.kept.as_ref().ok_or_else(none)?;
    let record = Record::open(&*kept.provider(RECORD)).map_err(ControlError::invalid)?;
    let entries = record.entries();
    let packs = (record.layout() > OLDEST_LAYOUT).then_some(PACKS);
    all_there(&**kept, [ENTRIES, &format!("{ENTRIES}.1"), ZSPAGES].into_iter().chain(packs))?;
    let most = u32::try_from(entries).ok().filter(|entries| (1..=1 << 30).contains(entries));
    parts.entries =
        most.ok_or_else(|| ControlError::invalid(format!("it cannot have {entries} entries")))?;
    let codec = parts.codec.clone();
    let zswap = Zswap::without_codec(provider, parts, record)?;
    zswap.begin_packs()?;
    let mut findings = Findings::default();
    let codecs = zswap.restore_codecs(codec, &mut findings)?;
    zswap.restore_memcgs(&mut findings);
    zswap.memcg("default")?;
    zswap.entries.begin_recovery(|text| findings.add(text)).map_err(no_memory)?;
    let mut found = Vec::new();
    for area in areas {
        found.extend(zswap.find_area(area, &mut findings)?);
    }
    found.sort_by_key(|found: &FoundArea| found.area.swap);
    let objects = Survey::begin(&zswap.objects, census, codecs, findings)?;
    Ok(Recovery { zswap, objects, found, auto: false })
}

impl Zswap {
    /// Begins the recovery of packs: nothing has a reference.
    fn begin_packs(&self) -> Result<(), ControlError> {
        let room = self.packs.room();
        self.packs.forget_references().map_err(|used| {
            let message =
                format!("{used} entries of packs were used, and there is room for {room}");
            ControlError::invalid(message)
        })?;
        match self.packs.provide(0) {
            true => Ok(()),
            false => Err(ControlError::new(Errno::ENOMEM, "no memory for the entries of packs")),
        }
    }

    /// Puts the codecs of the record back under their numbers, and returns these, a bit for each.
    /// `instead` makes new objects if what was kept of their codec is damaged.
    fn restore_codecs(
        &self,
        instead: Chosen,
        findings: &mut Findings,
    ) -> Result<u32, ControlError> {
        let open = |name: &str, _: &Params| Ok((self.find_codec)(name)?.compressor);
        let restored = self.objects.restore(&self.record, open, |_, why| {
            findings.add(why);
            Ok(())
        })?;
        if restored.current[0].is_none() {
            self.objects.install(0, instead, || restored.numbers)?;
        }
        Ok(restored.numbers)
    }

    fn restore_memcgs(&self, findings: &mut Findings) {
        for number in 0..MAX_MEMCGS as u8 {
            let kept = match self.record.memcg(number) {
                Ok(Some(kept)) => kept,
                Ok(None) => continue,
                Err(why) => {
                    // Its pages are right.
                    findings.add(why);
                    let name = format!("memcg{number}");
                    let kept = KeptMemcg { name, max: u64::MAX, writeback: true };
                    self.record.set_memcg(number, &kept);
                    kept
                }
            };
            self.publish_memcg(number, kept);
        }
    }

    /// The record of an area, if it was on and all that it names is there.
    ///
    /// # Errors
    /// Says what is damaged or missing.
    fn left_of_area(&self, swap: SwapType) -> Result<Option<KeptArea>, String> {
        let Some(area) = self.record.area(swap)? else { return Ok(None) };
        if area.pages > MAX_OFFSETS {
            return Err(format!("it has {} pages, and may have {MAX_OFFSETS}", area.pages));
        }
        if let Some(kept) = &self.kept {
            let (index, marks) = names_of(swap, area.generation);
            let names = [&*index, &format!("{index}.1"), &marks];
            all_there(&**kept, names.into_iter()).map_err(|error| error.message)?;
        }
        Ok(Some(area))
    }

    /// The area, if it was on. What cannot be recovered of one area is found, and costs its pages:
    /// the others go on.
    fn find_area(
        &self,
        (swap, device): AreaLeft,
        findings: &mut Findings,
    ) -> Result<Option<FoundArea>, ControlError> {
        let kept = match self.left_of_area(swap) {
            Ok(kept) => kept,
            Err(why) => {
                findings.add(format!("swap area {swap} is lost with all its pages: {why}"));
                return Ok(None);
            }
        };
        let Some(KeptArea { pages, generation, memcg }) = kept else { return Ok(None) };
        let wrong = |text| ControlError::invalid(format!("swap area {swap} {text}"));
        let device = device.and_then(|device| {
            let there = device.as_ref().map(|it| it.geometry().bytes / PAGE_SIZE as u64);
            match there.filter(|there| *there < pages) {
                Some(there) => Err(wrong(format!("has {pages} pages, and its device {there}"))),
                None => Ok(device),
            }
        });
        let (device, absent) = match device {
            Ok(device) => (device, None),
            Err(why) => {
                let absent: Arc<dyn BlockDevice> = Arc::new(Absent::new(pages * PAGE_SIZE as u64));
                (Some(absent), Some(why.message))
            }
        };
        let memcg = self.memcgs().into_iter().find(|it| it.0.number == memcg).map_or_else(
            || {
                findings.add(format!("the memcg of swap area {swap} is not there"));
                self.memcg("default")
            },
            Ok,
        )?;
        let (index, marks) = names_of(swap, generation);
        let (index, marks) = (self.memory_of(&index), self.memory_of(&marks));
        let index = Flat::make(&*index, pages, self.entries.capacity(), self.cpus);
        let area = index.map(AreaIndex::Flat).and_then(|index| {
            let (provider, marks, readers) = (&*self.provider, &*marks, &self.readers);
            let what = AreaForm { provider, marks, readers, swap, generation, pages };
            Area::new(what, index, device, memcg)
        });
        let area = area.map_err(|error| {
            let message = format!("the tables of swap area {swap}: {error}");
            ControlError::new(Errno::ENOMEM, message)
        })?;
        Ok(Some(FoundArea { area: Arc::new(area), lost: AtomicU64::new(0), absent }))
    }
}

impl Recovery {
    /// Stores a parameter of the cache.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ControlError> {
        let row = PARAMETERS.iter().find(|row| row.name == name && name != COMPRESSOR);
        let store = row.and_then(|row| row.store).ok_or_else(|| {
            ControlError::new(Errno::ENOENT, format!("no setting has the name {name:?}"))
        })?;
        if name == "auto" {
            self.auto = parse_switch(name, value)?;
            return Ok(());
        }
        store(&self.zswap, value)
    }

    fn tell(&self, swap: SwapType, offset: u64, why: String) {
        self.objects.tell(format!("page {offset} of swap area {swap}: {why}"));
    }

    fn lose(&self, cpu: Cpu, found: &FoundArea) -> Word {
        found.lost.fetch_add(1, Ordering::Relaxed);
        self.zswap.counts.add(cpu, Count::Lost, 1);
        Word::LOST
    }

    /// What is right in the place of a word.
    fn judge(&self, cpu: Cpu, found: &FoundArea, offset: u64, word: Word) -> Option<Word> {
        if word == Word::LOST {
            return Some(self.lose(cpu, found));
        }
        let key = Key { swap: found.area.swap, offset };
        if let Err(why) = self.take(cpu, key, word) {
            self.tell(key.swap, offset, why);
            return Some(self.lose(cpu, found));
        }
        Some(word)
    }

    /// Marks what a word names as live. Says what is wrong with it.
    fn take(&self, cpu: Cpu, key: Key, word: Word) -> Result<(), String> {
        let (zswap, number) = (&self.zswap, word.number());
        let content = zswap.entries.find(word, key)?;
        let reader = zswap.readers.enter(cpu);
        let memcg = zswap.memcg_of(&reader, number).ok_or_else(|| {
            format!(
                "entry {number} is of memcg {}, which is not there",
                zswap.entries.memcg(number)
            )
        })?;
        match content {
            Content::SameFilled(_) => {}
            Content::Stored(object) => self.objects.mark(&zswap.objects, object)?,
            Content::Part(part) => self.take_part(part)?,
        }
        zswap.entries.set_named(number);
        zswap.account(cpu, memcg, content, 1);
        Ok(())
    }

    /// Counts the reference to a pack. Its object is looked for when all are counted.
    fn take_part(&self, part: Part) -> Result<(), String> {
        let (packs, pack) = (&self.zswap.packs, part.pack);
        let shared = packs.left_in(pack).ok_or_else(|| format!("there is no pack {pack}"))?;
        let fits = usize::from(part.part) < shared.pages
            && shared.pages > 1
            && part.share == shared.share()
            && matches!(shared.object, Object::Compressed { codec, .. } if codec == part.codec);
        if !fits {
            return Err(format!("pack {pack} has no such part"));
        }
        packs.hold(pack);
        Ok(())
    }

    /// Looks for the objects of the packs that pages name. The pages of those that cannot be are
    /// lost.
    fn judge_packs(&self) {
        let (zswap, mut bad) = (&self.zswap, BTreeMap::new());
        zswap.packs.each(|pack, shared, _| {
            if let Err(why) = self.objects.mark(&zswap.objects, shared.object) {
                bad.insert(pack, why);
            }
        });
        if !bad.is_empty() {
            self.lose_pages(&|content| match content {
                Content::Part(part) => bad.get(&part.pack).cloned(),
                _ => None,
            });
        }
    }

    /// Of two that have one object, nobody can say whose it is.
    fn lose_what_two_pages_name(&self, doubles: &BTreeSet<u32>) {
        let (zswap, mut bad) = (&self.zswap, BTreeSet::new());
        zswap.packs.each(|pack, shared, _| {
            if doubles.contains(&shared.object.handle().get()) {
                self.objects.unmark(&zswap.objects, shared.object);
                bad.insert(pack);
            }
        });
        self.lose_pages(&|content| {
            let is_double = match content {
                Content::SameFilled(_) => false,
                Content::Stored(object) if doubles.contains(&object.handle().get()) => {
                    self.objects.unmark(&zswap.objects, object);
                    true
                }
                Content::Stored(_) => false,
                Content::Part(part) => bad.contains(&part.pack),
            };
            is_double.then(|| "another page has its contents too".into())
        });
    }

    /// Loses the pages whose contents cannot be, as `why` tells.
    fn lose_pages(&self, why: &dyn Fn(Content) -> Option<String>) {
        let (zswap, cpu) = (&self.zswap, Cpu(0));
        for found in &self.found {
            let (area, words) = (&found.area, found.words());
            for at in words.touched(0..area.pages) {
                let word = words.get(cpu, at).filter(|word| *word != Word::LOST);
                if let Some(word) = word
                    && let content = zswap.entries.content(word.number())
                    && let Some(why) = why(content)
                {
                    let reader = zswap.readers.enter(cpu);
                    if let Some(memcg) = zswap.memcg_of(&reader, word.number()) {
                        zswap.account(cpu, memcg, content, -1);
                    }
                    if let Content::Part(part) = content {
                        zswap.packs.forget(part.pack);
                    }
                    zswap.entries.set_unnamed(word.number());
                    self.tell(area.swap, at, why);
                    // A table has room for each of its pages.
                    let _ = words.insert(cpu, at, self.lose(cpu, found));
                }
            }
        }
    }
}
