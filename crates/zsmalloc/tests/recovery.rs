//! A pool whose process died, and what another process makes of its frames and descriptors.

mod common;

use std::collections::BTreeMap;
use std::mem::forget;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::{CPU, Live, Site, contents, pick, some_size};
use host::{Memfds, Mmap};
use pagealloc::{FrameSet, Frames, Zone, ZoneOptions};
use testkit::Rng;
use units::{Frame, PAGE_SIZE};
use zsmalloc::{BadObject, Census, Handle, Pool, Recovery, SizeClasses, Unfit};

const FRAMES: u32 = 4096;
const ZSPAGES: &str = "zspages";
/// Bytes of a descriptor, and offsets in it: of the frames, of the number of descriptors that were used
/// (in the first), of the mark of the size classes (likewise), of the class.
const DESCRIPTOR: u64 = 128;
const FRAMES_AT: u64 = 28;
const FRESH_AT: u64 = 16;
const MARK_AT: u64 = 20;
const CLASS_AT: u64 = 24;

/// A pool in memory that outlives it.
struct Kept {
    memory: Memfds,
    zone: Arc<Zone>,
    site: Site,
}

fn make(memory: Memfds) -> Kept {
    let options = ZoneOptions::new(2, FRAMES);
    let zone = Arc::new(Zone::over(&memory.provider("frames"), &Mmap, options).unwrap());
    let pool = Pool::new(&memory.provider(ZSPAGES), zone.clone()).unwrap();
    Kept { memory, zone: zone.clone(), site: Site { frames: zone, pool } }
}

impl Kept {
    /// What another process finds after the death of this one.
    fn dies(self) -> Memfds {
        let later = Memfds::new();
        for region in self.memory.regions() {
            let file = OwnedFd::from(region.file.try_clone().unwrap());
            later.adopt(&region.name, file, region.bytes).unwrap();
        }
        forget(self);
        later
    }

    /// A pool with objects in holes, in gaps and at the ends of chains.
    fn filled(seed: u64) -> (Kept, Live) {
        let (kept, mut live, mut rng) = (make(Memfds::new()), Live::new(), Rng::new(seed));
        for stamp in 0..4000 {
            kept.site.add(&mut live, stamp, some_size(&mut rng));
            if rng.below(3) == 0
                && let Some(handle) = pick(&mut rng, &live)
            {
                kept.site.free(CPU, Handle::from_raw(handle));
                live.remove(&handle);
            }
        }
        (kept, live)
    }
}

/// What a recovery said of each name, and what it found.
struct Outcome {
    kept: Kept,
    refused: BTreeMap<u32, BadObject>,
    findings: Vec<String>,
}

fn recover(memory: Memfds, names: &[(u32, usize)]) -> Result<Outcome, Unfit> {
    let kept = make(memory);
    let pool = &kept.site.pool;
    let census = Arc::new(Census::new(&Mmap, FRAMES).unwrap());
    let (mut findings, mut refused) = (Vec::new(), BTreeMap::new());
    let recovery = Recovery::survey(pool, census, |text| findings.push(text))?;
    for (handle, length) in names {
        if let Err(error) = recovery.mark(pool, Handle::from_raw(*handle), *length) {
            refused.insert(*handle, error);
        }
    }
    let live = FrameSet::new(&Mmap, FRAMES).unwrap();
    recovery.settle(pool, &live);
    kept.zone.adopt(&live).unwrap();
    recovery.finish(pool);
    Ok(Outcome { kept, refused, findings })
}

fn names(live: &Live) -> Vec<(u32, usize)> {
    live.iter().map(|(handle, (_, length))| (*handle, *length)).collect()
}

fn write(memory: &Memfds, zspage: u32, at: u64, value: &[u8]) {
    let region = memory.regions().into_iter().find(|region| region.name == ZSPAGES).unwrap();
    region.file.write_all_at(value, u64::from(zspage) * DESCRIPTOR + at).unwrap();
}

fn read(memory: &Memfds, zspage: u32, at: u64) -> u32 {
    let region = memory.regions().into_iter().find(|region| region.name == ZSPAGES).unwrap();
    let mut bytes = [0; 4];
    region.file.read_exact_at(&mut bytes, u64::from(zspage) * DESCRIPTOR + at).unwrap();
    u32::from_ne_bytes(bytes)
}

/// The objects in a zspage.
fn within(live: &Live, zspage: u32) -> Vec<u32> {
    live.keys().copied().filter(|handle| handle >> 7 == zspage).collect()
}

#[test]
fn named_objects_live_and_all_others_are_free() {
    let seed = testkit::seed("named_objects_live_and_all_others_are_free");
    let mut rng = Rng::new(seed);
    for named in [10, 9, 1, 0] {
        let (kept, mut live) = Kept::filled(rng.next_u64());
        let memory = kept.dies();
        // What no page names was being stored, or was given up a moment ago.
        live.retain(|_, _| rng.below(10) < named);
        let mut outcome = recover(memory, &names(&live)).unwrap();
        assert_eq!((outcome.refused.len(), &outcome.findings[..]), (0, &[][..]));
        let site = &mut outcome.kept.site;
        site.check(&live);
        outcome.kept.zone.drain();
        assert_eq!(site.frames.stats().allocated, site.pool.frames());
        // The pool is as good as another one, and can be recovered once more.
        for stamp in 0..500 {
            site.add(&mut live, 1_000_000 + stamp, some_size(&mut rng));
        }
        site.thin_out(&mut live, || rng.below(4) != 0);
        site.compact(&mut live);
        site.check(&live);
        let again = recover(outcome.kept.dies(), &names(&live)).unwrap();
        assert!(again.refused.is_empty());
        again.kept.site.check(&live);
    }
}

#[test]
fn a_recovery_that_was_begun_can_be_repeated() {
    let (kept, live) = Kept::filled(testkit::seed("a_recovery_that_was_begun_can_be_repeated"));
    let mut memory = kept.dies();
    for steps in 0..3 {
        let begun = make(memory);
        let census = Arc::new(Census::new(&Mmap, FRAMES).unwrap());
        let pool = &begun.site.pool;
        let recovery = Recovery::survey(pool, census, |text| panic!("{text}")).unwrap();
        for (handle, length) in names(&live).into_iter().take(steps * 1000) {
            recovery.mark(pool, Handle::from_raw(handle), length).unwrap();
        }
        if steps == 2 {
            for (handle, length) in names(&live).into_iter().skip(2000) {
                recovery.mark(pool, Handle::from_raw(handle), length).unwrap();
            }
            recovery.settle(pool, &FrameSet::new(&Mmap, FRAMES).unwrap());
        }
        memory = begun.dies();
    }
    recover(memory, &names(&live)).unwrap().kept.site.check(&live);
}

/// Names that cannot be are refused one by one, and nothing else is hurt.
#[test]
fn a_name_of_nothing_is_refused() {
    let (kept, live) = Kept::filled(7);
    let free = (kept.site.store(CPU, &contents(1, 100)).unwrap()).get();
    kept.site.free(CPU, Handle::from_raw(free));
    let most = PAGE_SIZE + 1;
    let mut all = names(&live);
    let (first, length) = all[0];
    all.extend([(first, length), (5, 100), (0xffff_ff80, 100), (first, 0), (first, most)]);
    let outcome = recover(kept.dies(), &all).unwrap();
    let said: Vec<String> = outcome.refused.values().map(BadObject::to_string).collect();
    assert_eq!(outcome.findings, [""; 0]);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(outcome.refused.contains_key(&5) && outcome.refused.contains_key(&0xffff_ff80));
    outcome.kept.site.check(&live);
}

#[test]
fn a_damaged_descriptor_costs_its_own_objects_only() {
    let seed = testkit::seed("a_damaged_descriptor_costs_its_own_objects_only");
    let classes = SizeClasses::new().count() as u16;
    for damage in 0..5 {
        let (kept, mut live) = Kept::filled(seed.wrapping_add(damage));
        let memory = kept.dies();
        let zspage = live.keys().nth(live.len() / 2).unwrap() >> 7;
        // The first frame of a zspage may be gone.
        let has_frame = |id: &u32| *id != zspage && read(&memory, *id, FRAMES_AT) != 0;
        let other = live.keys().map(|handle| handle >> 7).find(has_frame).unwrap();
        let mut hurt = within(&live, zspage);
        let (text, places) = match damage {
            0 => {
                write(&memory, zspage, CLASS_AT, &classes.to_ne_bytes());
                ("has size class", None)
            }
            1 => {
                let none = FRAMES + 1;
                (0..16)
                    .for_each(|n| write(&memory, zspage, FRAMES_AT + n * 4, &none.to_ne_bytes()));
                ("which there is not", None)
            }
            2 => {
                (0..16).for_each(|n| write(&memory, zspage, FRAMES_AT + n * 4, &[0; 4]));
                ("", None)
            }
            3 => {
                // Whose frame it is, nobody can say.
                let frame = read(&memory, other, FRAMES_AT);
                write(&memory, zspage, FRAMES_AT, &frame.to_ne_bytes());
                hurt.extend(within(&live, other));
                ("which another has too", Some(frame))
            }
            _ => {
                // Descriptors that were in use are none.
                write(&memory, 0, FRESH_AT, &zspage.to_ne_bytes());
                hurt = live.keys().copied().filter(|handle| handle >> 7 >= zspage).collect();
                ("", None)
            }
        };
        let outcome = recover(memory, &names(&live)).unwrap();
        let refused: Vec<u32> = outcome.refused.keys().copied().collect();
        match places {
            None => assert_eq!(refused, hurt, "damage {damage}"),
            Some(_) => assert!(
                !refused.is_empty() && refused.iter().all(|handle| hurt.contains(handle)),
                "damage {damage}"
            ),
        }
        assert_eq!(outcome.findings.is_empty(), text.is_empty(), "damage {damage}");
        assert!(outcome.findings.iter().all(|found| found.contains(text)), "{text}");
        live.retain(|handle, _| !refused.contains(handle));
        outcome.kept.site.check(&live);
        // It is a pool as any other, also where it takes the descriptors of what was lost.
        let mut rng = Rng::new(damage);
        for stamp in 0..2000 {
            outcome.kept.site.add(&mut live, 1_000_000 + stamp, some_size(&mut rng));
        }
        outcome.kept.site.check(&live);
    }
}

#[test]
fn other_size_classes_are_refused() {
    let (kept, live) = Kept::filled(3);
    let memory = kept.dies();
    write(&memory, 0, MARK_AT, &12u32.to_ne_bytes());
    let error = recover(memory, &names(&live)).err().unwrap();
    assert_eq!(error, Unfit::SizeClasses);
    assert!(error.to_string().contains("other size classes"));
}

/// A number of descriptors that cannot be is reported; the objects are there.
#[test]
fn too_many_descriptors_are_reported() {
    let (kept, live) = Kept::filled(4);
    let memory = kept.dies();
    write(&memory, 0, FRESH_AT, &u32::MAX.to_ne_bytes());
    let outcome = recover(memory, &names(&live)).unwrap();
    assert!(outcome.findings[0].contains("zspages were used, and there is room for 4097"));
    assert!(outcome.refused.is_empty());
    outcome.kept.site.check(&live);
    assert!(!FrameSet::new(&Mmap, 1).unwrap().contains(Frame(0)));
}
