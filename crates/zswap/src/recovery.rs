//! Recovery of a cache whose process died. The indexes say what lives, and everything else follows.
//!
//! # Invariants
//! At each instant of a process whose cache outlives it:
//! * A word of an index lies in a part of the table that is marked as written. It names an entry in
//!   its present life, whose key is the place of the word.
//! * The entry was written before the word, and so was its object, which is as
//!   [`zsmalloc::Recovery`] expects it. Both are given up only when no index names the entry.
//! * The number of the codec in the name of an object, and the memcg of an entry, are in the record
//!   before an index names the entry.
//! * A page that its device holds is marked before it leaves the index. A page with a word is in
//!   the cache, whatever its mark says.
//!
//! So a recovered area has each page as of its last store that had ended, or of one that had begun.
//! In the place of a word that cannot be right there is [`Word::LOST`] then: loads of that page
//! fail. The lists of memcgs are in the order of ages.
//!
//! # Operations
//! [`Zswap::recover`], [`Recovery::walk`] through the pages of each area, on any number of threads,
//! [`Recovery::settle`], then the zone adopts the frames, then [`Recovery::finish`]. A process that
//! dies meanwhile leaves a state to recover from as well.

use alloc::collections::BTreeSet;
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use block::BlockDevice;
use control::{ControlError, Errno, parse_switch};
use objects::Object;
use pagealloc::{FrameSet, MemoryProvider};
use sync::Mutex;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};
use zcomp::{CODECS, Chosen};
use zsmalloc::{BadObject, Census, Unfit};

use crate::area::Area;
use crate::counts::Count;
use crate::engine::{Parts, RECORD, Zswap, names_of, no_memory};
use crate::entry::Content;
use crate::index::{Flat, Index};
use crate::record::{KeptArea, KeptMemcg, MAX_MEMCGS, Record, WARM_PRIORITY};
use crate::{Key, MAX_OFFSETS, MAX_TYPES, PARAMETERS, SwapType, Word};

/// Findings that are told; more are counted.
const TOLD: usize = 100;

/// What was recovered of a cache.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// The areas, by number.
    pub areas: Vec<RecoveredArea>,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// What could not be right, the first hundred; empty after a death at any instant.
    pub findings: Vec<String>,
    /// How many findings there were.
    pub all_findings: u64,
}

/// What was recovered of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

#[derive(Default)]
struct Findings {
    told: Vec<String>,
    all: u64,
    /// Objects that two entries name.
    objects: BTreeSet<u32>,
}

impl Findings {
    fn add(&mut self, text: String) {
        self.all += 1;
        if self.told.len() < TOLD {
            self.told.push(text);
        }
    }
}

/// An area that is being recovered.
struct Found {
    area: Arc<Area<Flat>>,
    lost: AtomicU64,
}

/// A cache that is being recovered.
pub struct Recovery {
    zswap: Zswap<Flat>,
    pool: zsmalloc::Recovery,
    found: Vec<Found>,
    /// A bit for each number that is a codec's.
    codecs: u32,
    findings: Mutex<Findings>,
    /// Whether pages are to be recompressed. That waits for the end: only then it is known which
    /// codecs objects need.
    auto: AtomicBool,
}

impl Zswap<Flat> {
    /// Begins to recover the cache that another process left in `parts.kept`, with the given areas
    /// and the device of each. An area that is not given is off afterwards; one that was off is not
    /// recovered. A device is opened when nobody else has it open: then the writes of the dead
    /// process have ended.
    ///
    /// # Errors
    /// `EINVAL` for what is no cache or damaged, for a device that is too short; `ENOTSUP` if this
    /// program does not have a codec of its pages; `ENOMEM` when memory is out. What was left is as
    /// it was.
    pub fn recover(
        provider: Arc<dyn MemoryProvider>,
        parts: Parts,
        areas: Vec<(SwapType, Option<Arc<dyn BlockDevice>>)>,
    ) -> Result<Recovery, ControlError> {
        begin(provider, parts, areas).map_err(|error| {
            let message = format!("the swap cache cannot be recovered: {}", error.message);
            ControlError::new(error.errno, message)
        })
    }
}

fn begin(
    provider: Arc<dyn MemoryProvider>,
    mut parts: Parts,
    areas: Vec<(SwapType, Option<Arc<dyn BlockDevice>>)>,
) -> Result<Recovery, ControlError> {
    let none = || ControlError::invalid("it is in no memory that outlives a process");
    let kept = parts.kept.as_ref().ok_or_else(none)?;
    let record = Record::open(&*kept.provider(RECORD)).map_err(ControlError::invalid)?;
    let entries = record.entries();
    let most = u32::try_from(entries).ok().filter(|entries| (1..=1 << 30).contains(entries));
    parts.entries =
        most.ok_or_else(|| ControlError::invalid(format!("it cannot have {entries} entries")))?;
    let (frames, codec) = (parts.frames.capacity(), parts.codec.clone());
    let zswap = Zswap::<Flat>::without_codec(provider, parts, record)?;
    let mut findings = Findings::default();
    let codecs = zswap.restore_codecs(codec, &mut findings)?;
    zswap.restore_memcgs(&mut findings);
    zswap.memcg("default")?;
    zswap.entries.begin_recovery(|text| findings.add(text)).map_err(no_memory)?;
    let census = Arc::new(Census::new(&*zswap.provider, frames).map_err(no_memory)?);
    let pool = zsmalloc::Recovery::survey(zswap.pool(), census, |text| findings.add(text));
    let pool = pool.map_err(|error| {
        let errno = match error {
            Unfit::SizeClasses => Errno::ENOTSUP,
            Unfit::NoMemory(_) => Errno::ENOMEM,
        };
        ControlError::new(errno, format!("{error}"))
    })?;
    let mut found = Vec::new();
    for (swap, device) in areas {
        found.extend(zswap.find_area(swap, device, &mut findings)?);
    }
    found.sort_by_key(|found: &Found| found.area.swap);
    Ok(Recovery {
        zswap,
        pool,
        found,
        codecs,
        findings: Mutex::new(findings),
        auto: AtomicBool::new(false),
    })
}

impl Zswap<Flat> {
    /// Puts the codecs of the record back under their numbers, and returns these, a bit for each.
    /// `instead` makes new objects if what was kept of their codec is damaged.
    fn restore_codecs(
        &self,
        instead: Chosen,
        findings: &mut Findings,
    ) -> Result<u32, ControlError> {
        let (mut numbers, current) = (0, self.record.current_codec());
        let warm = self.record.warm_codec();
        for number in 0..CODECS as u8 {
            let name = match self.record.codec(number) {
                Ok(Some(name)) => name,
                Ok(None) => continue,
                Err(why) => {
                    findings.add(why);
                    continue;
                }
            };
            let chosen = (self.find_codec)(&name).map_err(|error| {
                let message = format!("pages are compressed by codec {name}: {}", error.message);
                ControlError::new(Errno::ENOTSUP, message)
            })?;
            let priority = if warm == Some(number) { WARM_PRIORITY } else { 0 };
            let is_chosen = [current, warm].contains(&Some(number));
            self.objects
                .codecs()
                .restore(number, priority, chosen, is_chosen)
                .map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
            numbers |= 1 << number;
        }
        if current.is_none_or(|number| number >= 32 || numbers & 1 << number == 0) {
            self.objects.install(0, instead, || numbers)?;
        }
        Ok(numbers)
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

    /// The area, if it was on.
    fn find_area(
        &self,
        swap: SwapType,
        device: Option<Arc<dyn BlockDevice>>,
        findings: &mut Findings,
    ) -> Result<Option<Found>, ControlError> {
        let kept = self.record.area(swap).map_err(ControlError::invalid)?;
        let Some(KeptArea { pages, generation, memcg }) = kept else { return Ok(None) };
        let wrong = |text| Err(ControlError::invalid(format!("swap area {swap} {text}")));
        if pages > MAX_OFFSETS {
            return wrong(format!("has {pages} pages, and may have {MAX_OFFSETS}"));
        }
        let there = device.as_ref().map(|device| device.geometry().bytes / PAGE_SIZE as u64);
        if let Some(there) = there.filter(|there| *there < pages) {
            return wrong(format!("has {pages} pages, and its device {there}"));
        }
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
        let area = index.and_then(|index| {
            Area::new((&*self.provider, &*marks), (swap, pages), index, device, memcg)
        });
        let area = area.map_err(|error| {
            let message = format!("the tables of swap area {swap}: {error}");
            ControlError::new(Errno::ENOMEM, message)
        })?;
        Ok(Some(Found { area: Arc::new(area), lost: AtomicU64::new(0) }))
    }
}

impl Recovery {
    /// Stores a parameter of the cache, except the compressor, which is in its memory.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name; the error of the parameter.
    pub fn set(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let row = PARAMETERS.iter().find(|row| row.name == name && name != "compressor");
        let store = row.and_then(|row| row.store).ok_or_else(|| {
            ControlError::new(Errno::ENOENT, format!("no setting has the name {name:?}"))
        })?;
        if name == "auto" {
            self.auto.store(parse_switch(name, value)?, Ordering::Relaxed);
            return Ok(());
        }
        store(&self.zswap, value)
    }

    /// The areas and their pages, in the order of their numbers.
    pub fn areas(&self) -> impl Iterator<Item = (SwapType, u64)> {
        self.found.iter().map(|found| (found.area.swap, found.area.pages))
    }

    /// Judges each page of a range of the area at place `n` in [`Recovery::areas`]. A range begins
    /// at a multiple of 64. Any number of threads may call it at once, each page being in one
    /// range; `cpu` is the CPU that it runs on.
    pub fn walk(&self, cpu: Cpu, n: usize, pages: Range<u64>) {
        let found = &self.found[n];
        let (area, end) = (&found.area, pages.end.min(found.area.pages));
        let mut at = area.index.next(pages.start, end);
        while at < end {
            area.index.recover(cpu, at, |word| self.judge(cpu, found, at, word?));
            at = area.index.next(at + 1, end);
        }
        let range = pages.start..end;
        for offset in area.marked(range.clone()) {
            if area.index.has(offset) {
                area.clear_on_device(cpu, offset);
            } else if area.device.is_none() {
                area.clear_on_device(cpu, offset);
                let why = "it was written to the device below, and there is none";
                self.tell(area.swap, offset, why.into());
                area.index.recover(cpu, offset, |_| Some(self.lose(cpu, found)));
            }
        }
        area.forget_unmarked(cpu, range);
    }

    fn tell(&self, swap: SwapType, offset: u64, why: String) {
        self.findings.lock().add(format!("page {offset} of swap area {swap}: {why}"));
    }

    fn lose(&self, cpu: Cpu, found: &Found) -> Word {
        found.lost.fetch_add(1, Ordering::Relaxed);
        self.zswap.counts.add(cpu, Count::Lost, 1);
        Word::LOST
    }

    /// What is right in the place of a word.
    fn judge(&self, cpu: Cpu, found: &Found, offset: u64, word: Word) -> Option<Word> {
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
        if let Content::Stored(object) = content {
            self.mark(object)?;
        }
        zswap.entries.set_named(number);
        zswap.account(cpu, memcg, content, 1);
        Ok(())
    }

    fn mark(&self, object: Object) -> Result<(), String> {
        if let Object::Compressed { codec, .. } = object
            && self.codecs & 1 << codec == 0
        {
            return Err(format!("nothing was kept of its codec {codec}"));
        }
        let marked = self.pool.mark(self.zswap.pool(), object.handle(), object.bytes());
        if let Err(BadObject::Taken(_)) = marked {
            self.findings.lock().objects.insert(object.handle().get());
        }
        marked.map_err(|error| format!("{error}"))
    }

    /// Decides what lives, after all pages were walked through, and adds its frames to `live`.
    pub fn settle(&self, live: &FrameSet) {
        let doubles = core::mem::take(&mut self.findings.lock().objects);
        if !doubles.is_empty() {
            self.lose_what_two_pages_name(&doubles);
        }
        self.pool.settle(self.zswap.pool(), live);
    }

    /// Of two pages with one object, nobody can say whose it is.
    fn lose_what_two_pages_name(&self, doubles: &BTreeSet<u32>) {
        let (zswap, cpu) = (&self.zswap, Cpu(0));
        for found in &self.found {
            let (area, end) = (&found.area, found.area.pages);
            let mut at = area.index.next(0, end);
            while at < end {
                let word = area.index.get(cpu, at).filter(|word| *word != Word::LOST);
                if let Some(word) = word
                    && let content @ Content::Stored(object) = zswap.entries.content(word.number())
                    && doubles.contains(&object.handle().get())
                {
                    self.pool.unmark(zswap.pool(), object.handle());
                    let reader = zswap.readers.enter(cpu);
                    if let Some(memcg) = zswap.memcg_of(&reader, word.number()) {
                        zswap.account(cpu, memcg, content, -1);
                    }
                    zswap.entries.set_unnamed(word.number());
                    self.tell(area.swap, at, "another page has its contents too".into());
                    // A table has room for each of its pages.
                    let _ = area.index.insert(cpu, at, self.lose(cpu, found));
                }
                at = area.index.next(at + 1, end);
            }
        }
    }

    /// Makes the cache ready, after the zone has adopted the live frames.
    #[must_use]
    pub fn finish(self) -> (Zswap<Flat>, Recovered) {
        let Recovery { zswap, pool, found, findings, auto, .. } = self;
        pool.finish(zswap.pool());
        let has_device = |swap: SwapType| {
            found.iter().any(|found| found.area.swap == swap && found.area.device.is_some())
        };
        let listed = |number: u32| has_device(zswap.entries.key(number).swap);
        let (oldest_first, youngest) = zswap.entries.settle(listed);
        let reader = zswap.readers.enter(Cpu(0));
        for number in oldest_first {
            if let Some(memcg) = zswap.memcg_of(&reader, number) {
                memcg.0.lru.restore(&zswap.entries, number);
            }
        }
        drop(reader);
        zswap.ages.go_on_from(youngest);
        let areas = found.iter().map(|Found { area, lost }| {
            let lost = lost.load(Ordering::Relaxed);
            let (cached, on_device) = (area.index.count() - lost, area.count_on_device());
            RecoveredArea { swap: area.swap, pages: area.pages, cached, on_device, lost }
        });
        let areas: Vec<_> = areas.collect();
        for swap in (0..MAX_TYPES).filter_map(|number| SwapType::new(number).ok()) {
            if areas.iter().all(|area| area.swap != swap) {
                zswap.record.set_off(swap);
            }
        }
        for Found { area, .. } in found {
            // No area was published before.
            let _ = zswap.areas[area.swap.number()].publish(Box::new(area));
        }
        let mut findings = findings.lock();
        if auto.load(Ordering::Relaxed)
            && let Err(error) = zswap.set_auto(true)
        {
            findings.add(format!("pages are not recompressed any more: {}", error.message));
        }
        let recovered = Recovered {
            areas,
            compressed_bytes: zswap.counts.sum(Count::Bytes),
            findings: core::mem::take(&mut findings.told),
            all_findings: findings.all,
        };
        (zswap, recovered)
    }
}
