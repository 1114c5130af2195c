//! Compaction: the owner of the handles moves objects while others are stored, read and freed.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{CPU, Live, Site, contents, leaving, pick, site, some_size};
use testkit::{Ends, Rng};
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pass};

/// A pool of 20,000 objects of 200 to 1700 bytes.
fn filled(rng: &mut Rng) -> (Site, Live) {
    let (site, mut live) = (site(1 << 16), Live::new());
    for stamp in 0..20_000 {
        assert!(site.add(&mut live, stamp, 200 + rng.below(1500) as usize));
    }
    (site, live)
}

/// The least frames that the objects could need.
fn least_frames(live: &Live) -> u64 {
    let bytes: usize = live.values().map(|(_, length)| length).sum();
    (bytes / PAGE_SIZE) as u64
}

#[test]
fn compaction_gives_frames_back_and_objects_stay() {
    let mut rng = Rng::new(testkit::seed("compaction_gives_frames_back_and_objects_stay"));
    let (site, mut live) = filled(&mut rng);
    let full = site.pool.frames();
    // Three of four go, at random: every zspage keeps some.
    site.thin_out(&mut live, || rng.below(4) == 0);
    let thinned = site.pool.frames();
    let expected = site.pool.compactable();
    let freed = site.compact(&mut live);
    let packed = site.pool.frames();
    assert!(freed > 0 && packed < thinned, "{full} frames, {thinned} thinned, {packed} packed");
    assert_eq!(freed, thinned - packed);
    assert_eq!(freed, site.pool.stats().frames_compacted);
    assert!(freed <= expected && expected - freed <= expected / 8, "{freed} of {expected}");
    let least = least_frames(&live);
    assert!(packed <= least + least / 8, "{packed} frames for {least} frames of objects");
    site.check(&live);
    // Moved objects are moved again.
    site.thin_out(&mut live, || rng.below(3) == 0);
    site.compact(&mut live);
    site.check(&live);
    site.thin_out(&mut live, || false);
    site.check(&live);
    assert_eq!(site.pool.stats().overhead_bytes, 0, "nothing is left behind");
}

/// Slots of these sizes lie across frames, so a zspage that lost a few objects has no hole: only
/// frames of which a part is unused. Each zspage alone would need as many frames elsewhere.
#[test]
fn zspages_without_holes_are_put_together() {
    let mut rng = Rng::new(testkit::seed("zspages_without_holes_are_put_together"));
    for size in [1365, 1424, 2184, 2275, 2730, 3640] {
        let (site, mut live) = (site(1 << 14), Live::new());
        for stamp in 0..2000 {
            assert!(site.add(&mut live, stamp, size));
        }
        site.thin_out(&mut live, || rng.below(3) == 0);
        site.compact(&mut live);
        let (frames, left) = (site.pool.frames(), site.pool.compactable());
        assert!(left <= frames / 50 + 2, "{size} bytes: {left} of {frames} frames are too many");
        site.check(&live);
    }
}

/// An object that is moved again and again costs no more than one that never was.
#[test]
fn survivors_of_many_compactions_cost_nothing() {
    let mut rng = Rng::new(testkit::seed("survivors_of_many_compactions_cost_nothing"));
    let (site, mut live) = filled(&mut rng);
    site.thin_out(&mut live, || rng.below(16) == 0);
    let survivors = live.len();
    let (mut after_ten, mut moves) = (0, 0);
    for round in 1..=50u64 {
        // Others fill the holes beside them, and leave.
        for n in 0..2000 {
            assert!(site.add(&mut live, round << 32 | n, 200 + rng.below(1500) as usize));
        }
        for left in [2, u64::MAX] {
            let gone = |stamp: u64, rng: &mut Rng| stamp >> 32 != 0 && rng.below(left) != 0;
            live.retain(|handle, (stamp, _)| {
                let stays = !gone(*stamp, &mut rng);
                if !stays {
                    site.free(CPU, Handle::from_raw(*handle));
                }
                stays
            });
            let before = live.clone();
            site.compact(&mut live);
            moves += before.keys().filter(|handle| !live.contains_key(handle)).count();
        }
        if round == 5 {
            after_ten = site.pool.stats().overhead_bytes;
        }
    }
    live.retain(|handle, (stamp, _)| {
        let stays = *stamp >> 32 == 0;
        if !stays {
            site.free(CPU, Handle::from_raw(*handle));
        }
        stays
    });
    assert_eq!(live.len(), survivors);
    site.check(&live);
    assert!(moves > 5 * survivors, "{moves} moves among {survivors} survivors");
    let overhead = site.pool.stats().overhead_bytes;
    assert!(overhead <= after_ten * 2, "{after_ten} bytes after ten compactions, then {overhead}");
}

#[test]
fn no_place_and_no_number_is_used_again_while_it_is_emptied() {
    let mut rng = Rng::new(testkit::seed("no_place_and_no_number_is_used_again"));
    let (site, mut live) = filled(&mut rng);
    site.thin_out(&mut live, || rng.below(4) == 0);
    let (mut passes, mut stamp) = (0, 1 << 40);
    site.pool.compact(CPU, |pass| {
        passes += 1;
        let old = leaving(pass, &live);
        assert!(!old.is_empty());
        if passes > 3 {
            return;
        }
        for handle in &old {
            live.remove(&handle.get());
            site.free(CPU, *handle);
        }
        for _ in 0..2 * old.len() {
            stamp += 1;
            assert!(site.add(&mut live, stamp, 200 + rng.below(1500) as usize));
        }
        for handle in &old {
            assert!(pass.is_leaving(*handle), "handle {:#x} may be used again", handle.get());
            assert!(!live.contains_key(&handle.get()), "handle {:#x} is used again", handle.get());
        }
    });
    assert!(passes > 0);
    site.check(&live);
}

/// Objects whose handles the owner does not know stay where they are.
#[test]
fn a_walk_that_moves_nothing_changes_nothing() {
    let mut rng = Rng::new(testkit::seed("a_walk_that_moves_nothing_changes_nothing"));
    let (site, mut live) = filled(&mut rng);
    site.thin_out(&mut live, || rng.below(4) == 0);
    let (frames, mut passes) = (site.pool.frames(), 0);
    assert_eq!(site.pool.compact(CPU, |_| passes += 1), 0);
    assert_eq!((passes, site.pool.frames()), (1, frames));
    site.check(&live);
    // Every second object is moved, and what is half empty stays in use.
    let moved = |pass: &mut Pass<'_>, live: &mut Live| {
        for from in leaving(pass, live).into_iter().step_by(2) {
            let Some(to) = pass.place_for(from) else { continue };
            // SAFETY: the object is live, and the place was taken for it.
            unsafe { pass.copy(from, to) };
            let object = live.remove(&from.get()).unwrap();
            live.insert(to.get(), object);
            site.free(CPU, from);
        }
    };
    site.pool.compact(CPU, |pass| moved(pass, &mut live));
    site.check(&live);
}

/// Stores objects, frees most of them, and sets the limit to what is used.
fn thinned_at_the_limit(seed: u64, size: usize) -> (Site, Live) {
    let (site, mut live, mut rng) = (site(4096), Live::new(), Rng::new(seed));
    for stamp in 0..600 {
        assert!(site.add(&mut live, stamp, size));
    }
    site.thin_out(&mut live, || rng.below(5) == 0);
    site.pool.set_limit(site.pool.stats().frames);
    (site, live)
}

/// How many objects of `size` fit.
fn room(site: &Site, live: &mut Live, size: usize) -> usize {
    (0..).take_while(|n| site.add(live, 1 << 40 | *n, size)).count()
}

#[test]
fn a_compaction_without_memory_loses_no_room() {
    let seed = testkit::seed("a_compaction_without_memory_loses_no_room");
    for size in [700, 1300, 1500, 2200, 2700, 3100] {
        let rooms = [0, 3].map(|compactions| {
            let (site, mut live) = thinned_at_the_limit(seed, size);
            for _ in 0..compactions {
                site.compact(&mut live);
            }
            site.check(&live);
            let room = room(&site, &mut live, size);
            site.check(&live);
            room
        });
        assert!(rooms[1] >= rooms[0], "{size} bytes: room for {}, then {}", rooms[0], rooms[1]);
    }
}

/// The zspages that are being emptied have most of the holes. A store that has no other space takes
/// them back.
#[test]
fn a_store_during_a_compaction_finds_every_hole() {
    let seed = testkit::seed("a_store_during_a_compaction_finds_every_hole");
    for size in [700, 1300, 1500, 2200, 2700, 3100] {
        let (untouched, mut live) = thinned_at_the_limit(seed, size);
        let expected = room(&untouched, &mut live, size);
        let (site, mut live) = thinned_at_the_limit(seed, size);
        let mut found = None;
        site.pool.compact(CPU, |pass| {
            assert!(!leaving(pass, &live).is_empty());
            found.get_or_insert_with(|| room(&site, &mut live, size));
            site.move_all(pass, &mut live);
        });
        assert_eq!(found, Some(expected), "{size} bytes");
        site.check(&live);
    }
}

/// A thread's objects. Its lock stands for that of the word that names an object.
type Owned = Mutex<Live>;

#[test]
fn threads_store_read_and_free_beside_compaction() {
    let seed = testkit::seed("threads_store_read_and_free_beside_compaction");
    let site = site(1 << 16);
    let done = AtomicBool::new(false);
    let lives: [Owned; 3] = Default::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = lives
            .iter()
            .zip(0u32..)
            .map(|(live, n)| {
                let site = &site;
                let seed = seed.wrapping_add(u64::from(n));
                scope.spawn(move || live_randomly(site, Cpu(n), seed, live))
            })
            .collect();
        let ending = Ends(&done);
        let (site, done, lives) = (&site, &done, &lives);
        let compactor = scope.spawn(move || {
            while !done.load(Relaxed) {
                site.pool
                    .compact(CPU, |pass| lives.iter().for_each(|live| move_from(site, pass, live)));
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(ending);
        compactor.join().unwrap();
    });
    assert!(site.pool.stats().frames_compacted > 0, "nothing was ever moved");
    let live = lives.into_iter().flat_map(|live| live.into_inner().unwrap()).collect();
    site.check(&live);
}

fn move_from(site: &Site, pass: &mut Pass<'_>, live: &Owned) {
    let found = leaving(pass, &live.lock().unwrap());
    for from in found {
        let Some(to) = pass.place_for(from) else { continue };
        let mut live = live.lock().unwrap();
        let is_there = live.contains_key(&from.get()) && pass.is_leaving(from);
        if is_there {
            // SAFETY: the object is live as long as the lock is held, and the place was taken for
            // it.
            unsafe { pass.copy(from, to) };
            let object = live.remove(&from.get()).unwrap();
            assert!(live.insert(to.get(), object).is_none());
        }
        drop(live);
        site.free(CPU, if is_there { from } else { to });
    }
}

/// Stores, checks and frees objects of its own.
fn live_randomly(site: &Site, cpu: Cpu, seed: u64, live: &Owned) {
    let mut rng = Rng::new(seed);
    for step in 0..20_000 {
        let stamp = seed << 32 | step;
        // Tides: the pool fills, then thins out, so that there is something to compact.
        let filling = step / 2_500 % 2 == 0;
        if rng.below(10) < if filling { 7 } else { 3 } {
            let length = some_size(&mut rng);
            let handle = site.store(cpu, &contents(stamp, length)).unwrap();
            assert!(live.lock().unwrap().insert(handle.get(), (stamp, length)).is_none());
            continue;
        }
        let mut live = live.lock().unwrap();
        if let Some(handle) = pick(&mut rng, &live) {
            let (stamp, length) = live[&handle];
            let read = site.read(Handle::from_raw(handle), length);
            assert!(read == contents(stamp, length), "object {handle:#x} changed");
            if rng.below(2) == 0 {
                live.remove(&handle);
                site.free(cpu, Handle::from_raw(handle));
            }
        }
    }
}
