//! What another process makes of a cache of swap areas in memory that outlives the first: all that
//! is right, and of what cannot be right the pages that it concerns.

#[path = "recovery_swap/areas.rs"]
mod areas;
#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::fs::File;
use std::mem::forget;
use std::sync::Arc;

use block::{BlockDevice, IoError, Operation};
use control::{ControlError, Errno};
use host::Memfds;
use machine::Machine;
use store::{Layout, Memory, Spec, Store};
use units::PAGE_SIZE;
use zswap::{Recovered, SavedSwap, Zswap};

use areas::*;

#[test]
fn all_of_a_cache_comes_back() {
    let below = plain(PAGES);
    let (memory, machine, zswap) = cache(Some(below.clone()));
    let other = on(&zswap, 5, "other", None);
    let first = device(&zswap, 0);
    zswap.memcg("unused").unwrap();
    fill(&first, 0..300);
    zswap.set_compressor("zstd").unwrap();
    fill(&first, 300..PAGES);
    // The first pages are the oldest; page 2 is in use.
    read(&first, 2).unwrap();
    assert!(zswap.reclaim(CPU, 40).written >= 40);
    fill(&first, 20..24);
    discard(&first, 30);
    fill(&other, 0..100);
    for page in (0..100).step_by(3) {
        discard(&other, page);
    }
    let memcg = zswap.memcg("other").unwrap();
    memcg.set_max(40 << 20);
    memcg.set_writeback(false);
    zswap.policy().set_shrinker_enabled(true);
    zswap.set_max_pool_bytes(50 << 20);
    let state = |zswap: &Arc<Zswap>| {
        let memcgs = zswap.memcgs().into_iter().map(|memcg| {
            let name = memcg.name().to_string();
            (name, memcg.pages(), memcg.bytes(), memcg.max(), memcg.writeback())
        });
        let (stats, areas) = (zswap.stats(), zswap.areas());
        let areas = areas.into_iter().map(|area| zswap.area_stats(area));
        (
            (memcgs.collect::<Vec<_>>(), areas.collect::<Vec<_>>(), zswap.compressor()),
            (stats.stored_pages, stats.same_filled_pages, stats.incompressible_pages),
            (stats.compressed_bytes, stats.pool_bytes, stats.max_pool_bytes, stats.on_device),
        )
    };
    // What waits to be freed is free for the next process.
    zswap.validate();
    let was = state(&zswap);
    // The next process takes the pages of this one, and so does the one after it.
    let (mut memory, mut machine, mut zswap) = (memory, machine, zswap);
    for _ in 0..2 {
        forget(zswap);
        let (now, saved) = dies(&memory, machine);
        assert_eq!(saved.areas, [swap(0), swap(5)]);
        let told;
        memory = now;
        (machine, zswap, told) =
            try_recover(&memory, &saved, &[(0, Some(below.clone())), (5, None)]).unwrap();
        assert_eq!((told.findings.all, told.areas.len()), (0, 2), "{:?}", told.findings.told);
        assert_eq!(told.compressed_bytes, zswap.stats().compressed_bytes);
        assert_eq!(state(&zswap), was);
        assert_eq!(machine.saved_swap(), Some(saved));
        zswap.validate();
        assert_eq!(zswap.zone().stats().allocated * P, zswap.stats().pool_bytes);
    }
    assert!(zswap.policy().shrinker_enabled());
    let (first, other) = (device(&zswap, 0), device(&zswap, 5));
    for page in 0..PAGES {
        let right = if page == 30 { [0; PAGE_SIZE] } else { contents(page) };
        assert!(read(&first, page) == Ok(right), "page {page}");
        let is_there = page < 100 && page % 3 != 0;
        let right = if is_there { contents(page) } else { [0; PAGE_SIZE] };
        assert!(read(&other, page) == Ok(right), "page {page} of the other area");
    }
    // The cache goes on as any other.
    fill(&first, 0..PAGES);
    zswap.compact(CPU);
    zswap.reclaim(CPU, 200);
    zswap.validate();
    for area in [0, 5] {
        zswap.invalidate_area(CPU, swap(area));
        zswap.swapoff(swap(area)).unwrap();
    }
    zswap.validate();
    assert_eq!((zswap.stats().pool_bytes, zswap.zone().stats().allocated), (0, 0));
}

/// The next process has the codec of recompressed pages, and recompresses the others when they have
/// the age that counts from before.
#[test]
fn recompressed_pages_come_back_and_the_others_follow() {
    let (memory, machine, zswap) = cache(None);
    let passes = |zswap: &Zswap, count| {
        for _ in 0..count {
            zswap.recompress_old(CPU, 8_000_000_000, &|| 0);
        }
    };
    zswap.set_auto(true).unwrap();
    fill(&device(&zswap, 0), 0..200);
    passes(&zswap, 9);
    let warm = zswap.stats().warm_pages;
    assert!(warm > 0, "{:?}", zswap.stats());
    fill(&device(&zswap, 0), 200..PAGES);
    passes(&zswap, 6);
    assert_eq!(zswap.stats().warm_pages, warm);
    let (memory, saved) = dies(&memory, machine);
    forget(zswap);
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!(told.findings.all, 0, "{:?}", told.findings.told);
    assert!(zswap.auto());
    assert_eq!(zswap.stats().warm_pages, warm);
    let vain = zswap.stats().recompress_vain;
    passes(&zswap, 2);
    let stats = zswap.stats();
    assert!(stats.warm_pages > warm, "{stats:?}");
    assert_eq!((stats.warm_pages, vain), (warm + stats.recompressed, 0));
    let device = device(&zswap, 0);
    (0..PAGES).for_each(|page| assert!(read(&device, page) == Ok(contents(page)), "page {page}"));
    zswap.validate();
}

/// Lets pages rest until neighbours, such as 12 and 13, are a pack. The process dies then.
fn packed() -> (Memfds, SavedSwap) {
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    zswap.set_auto(true).unwrap();
    (0..9).for_each(|_| _ = zswap.recompress_old(CPU, 8_000_000_000, &|| 0));
    assert!(zswap.stats().packed_pages >= PAGES / 2, "{:?}", zswap.stats());
    zswap.validate();
    forget(zswap);
    dies(&memory, machine)
}

#[test]
fn packs_come_back_and_go_on_as_any_others() {
    let (memory, saved) = packed();
    assert_eq!(read_word(&memory, (RECORD, 1)), u64::from(zswap::LAYOUT));
    let (machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!((told.findings.all, zswap.layout()), (0, zswap::LAYOUT), "{:?}", told.findings.told);
    let (device, packed) = (check(&zswap, &told, &[]), zswap.stats().packed_pages);
    assert!(packed >= PAGES / 2);
    // A page leaves some packs, and most are in a pack again before long.
    (4..PAGES).step_by(8).for_each(|page| write(&device, page, &contents(page)));
    assert_eq!(zswap.stats().packed_pages, packed - PAGES / 8);
    zswap.compact(CPU);
    (0..30).for_each(|_| _ = zswap.recompress_old(CPU, 8_000_000_000, &|| 0));
    assert!(zswap.stats().packed_pages > packed - PAGES / 8, "{:?}", zswap.stats());
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!(told.findings.all, 0, "{:?}", told.findings.told);
    check(&zswap, &told, &[]);
    zswap.invalidate_area(CPU, swap(0));
    zswap.validate();
    assert_eq!((zswap.stats().pool_bytes, zswap.stats().compressed_bytes), (0, 0));
}

#[test]
fn a_pack_that_cannot_be_costs_its_pages_only() {
    // The word of a pack, by a page that has a part of it.
    let pack_of = |memory: &Memfds, page| {
        let number = u64::from(read_word(memory, entry_of(memory, page, 1)) as u32);
        ("swap.packs", 2 * number)
    };
    // All pages of the group that are in the pack of one.
    let whole = |memory: &Memfds, page: u64| -> Vec<u64> {
        let group = page / 4 * 4..page / 4 * 4 + 4;
        group.filter(|other| pack_of(memory, *other) == pack_of(memory, page)).collect()
    };
    type To = fn(u64) -> u64;
    let changes: [(bool, To, &str); 7] = [
        (true, |word| word | 0xffff_0000, "there is no pack"),
        (true, |word| word ^ 1 << 32, "has no such part"),
        (true, |word| word | 1 << 50, "names no object that can be"),
        (true, |word| word | 1 << 56, "names no object that can be"),
        (false, |_| 0, "there is no pack"),
        (false, |word| word ^ 1 << 50, "has no such part"),
        (false, |word| word | 0x7f, "no such slot"),
    ];
    for (of_page, to, said) in changes {
        let (memory, saved) = packed();
        let lost = &if of_page { vec![13] } else { whole(&memory, 13) };
        let at = if of_page { entry_of(&memory, 13, 1) } else { pack_of(&memory, 13) };
        write_word(&memory, at, to(read_word(&memory, at)));
        let (machine, zswap, told) = recover(&memory, &saved, None);
        let found = &told.findings.told;
        assert!(found.len() == lost.len() && found[0].contains(said), "{said}: {found:?}");
        check(&zswap, &told, lost);
        forget((machine, zswap));
    }
    // Of two packs with one object, nobody can say whose it is.
    let (memory, saved) = packed();
    // The two are as long as each other.
    let form = |page| read_word(&memory, entry_of(&memory, page, 1)) >> 32;
    let like = (21..PAGES).step_by(8).find(|page| form(*page) == form(13)).unwrap();
    let [first, other] = [13, like].map(|page| pack_of(&memory, page));
    let lost = [whole(&memory, 13), whole(&memory, like)].concat();
    write_word(&memory, other, read_word(&memory, first));
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!(told.findings.all, lost.len() as u64, "{:?}", told.findings.told);
    check(&zswap, &told, &lost);
}

#[test]
fn the_oldest_pages_are_still_written_back_first() {
    let below = plain(PAGES);
    let (memory, machine, zswap) = cache(Some(below.clone()));
    // The pages come in another order than their numbers are in.
    let order: Vec<u64> = (0..PAGES).map(|n| n * 7 % PAGES).collect();
    order.iter().for_each(|page| write(&device(&zswap, 0), *page, &contents(*page)));
    let (memory, saved) = dies(&memory, machine);
    forget(zswap);
    let (_machine, zswap, told) = recover(&memory, &saved, Some(below));
    assert_eq!(told.findings.all, 0);
    assert_eq!(zswap.reclaim(CPU, 128).written, 128);
    // Ages tell batches of 64 apart.
    let device = device(&zswap, 0);
    let before = zswap.stats().read_back;
    order[..64].iter().for_each(|page| assert!(read(&device, *page) == Ok(contents(*page))));
    assert_eq!(zswap.stats().read_back - before, 64, "all of the oldest were written back");
    order[192..].iter().for_each(|page| assert!(read(&device, *page) == Ok(contents(*page))));
    assert_eq!(zswap.stats().read_back - before, 64, "none of the newest was");
}

type Damage = fn(u64) -> u64;

/// Checks that a damage costs one page only, and that it is told: of the word of the page in its
/// index, or of word `which` of its entry.
fn costs_one(page: u64, which: Option<u64>, damage: Damage, said: &str) {
    let below = plain(PAGES);
    let (memory, machine, zswap) = cache(Some(below.clone()));
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let place = which.map_or(index_of(page), |which| entry_of(&memory, page, which));
    write_word(&memory, place, damage(read_word(&memory, place)));
    let (machine, zswap, told) = recover(&memory, &saved, Some(below.clone()));
    let found = &told.findings.told;
    assert!(found.len() == 1 && found[0].contains(said), "{said}: {found:?}");
    assert!(found[0].starts_with(&format!("page {page} of swap area 0: ")), "{found:?}");
    check(&zswap, &told, &[page]);
    // It stays lost for the next process, until it is stored anew.
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let (machine, zswap, told) = recover(&memory, &saved, Some(below.clone()));
    assert_eq!(told.findings.all, 0, "{:?}", told.findings.told);
    let device = check(&zswap, &told, &[page]);
    zswap.reclaim(CPU, 100);
    zswap.compact(CPU);
    assert_eq!(read(&device, page), Err(IoError::Corrupt));
    fill(&device, page..page + 1);
    check(&zswap, &Recovered::default(), &[]);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let (_machine, zswap, told) = recover(&memory, &saved, Some(below));
    assert_eq!(told.findings.all, 0);
    check(&zswap, &told, &[]);
}

#[test]
fn a_word_of_an_index_that_cannot_be_costs_its_page_only() {
    costs_one(11, None, |word| word & !0xffff_ffff, "there is no entry 0");
    costs_one(11, None, |word| word | 0x0fff_ffff, "there is no entry 268435455");
    costs_one(11, None, |word| word ^ 6, "is of another page");
    costs_one(500, None, |word| word + (1 << 32), "is in another life");
}

#[test]
fn an_entry_that_cannot_be_costs_its_page_only() {
    // Page 11 is compressed, 8 is same-filled, 9 as it is.
    costs_one(11, Some(0), |key| key + 1, "is of another page");
    costs_one(11, Some(0), |key| key ^ 1 << 35, "is of another page");
    costs_one(8, Some(1), |object| object | 1, "names no object that can be");
    costs_one(11, Some(1), |object| object | 1 << 63, "names no object that can be");
    costs_one(11, Some(1), |object| object & !(0x1fff << 32), "names no object that can be");
    costs_one(11, Some(1), |object| object | 31 << 45, "names no object that can be");
    costs_one(11, Some(1), |object| object | 9 << 45, "nothing was kept of its codec 9");
    costs_one(9, Some(1), |object| object | 1 << 45, "names no object that can be");
    costs_one(11, Some(1), |object| object | 0x7f, "no such slot");
    costs_one(11, Some(1), |object| object & !0xffff_ffff | 5, "there is no zspage 0");
    costs_one(11, Some(3), |state| state ^ 1 << 32, "is in another life");
    costs_one(11, Some(3), |state| state | 9 << 24, "is of memcg 9, which is not there");
}

#[test]
fn what_two_pages_have_is_lost_for_both() {
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    // Two entries with one object.
    let object = read_word(&memory, entry_of(&memory, 11, 1));
    write_word(&memory, entry_of(&memory, 500, 1), object);
    // Two words that name one entry: it is of one page only.
    write_word(&memory, index_of(400), read_word(&memory, index_of(12)));
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    let said = told.findings.told.join("\n");
    for what in [
        "page 500 of swap area 0: another page has the same object",
        "page 11 of swap area 0: another page has its contents too",
        "page 400 of swap area 0: entry",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(told.findings.all, 3);
    check(&zswap, &told, &[11, 400, 500]);
}

#[test]
fn pages_on_a_device_that_is_not_given_are_lost_by_name() {
    let below = plain(PAGES);
    let (memory, machine, zswap) = cache(Some(below));
    fill(&device(&zswap, 0), 0..PAGES);
    let written = zswap.reclaim(CPU, 64).written;
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!(told.areas[0].lost, written);
    assert_eq!(told.findings.all, written);
    let said = "page 0 of swap area 0: it was written to the device below, and there is none";
    assert_eq!(told.findings.told[0], said);
    let lost: Vec<u64> = (0..written).collect();
    let device = check(&zswap, &told, &lost);
    device.submit(CPU, Operation::Discard { offset: 0, length: written * P }).unwrap();
    assert_eq!((read(&device, 0), zswap.stats().lost_pages), (Ok([0; PAGE_SIZE]), 0));
}

#[test]
fn a_mark_beside_a_word_is_out_of_date() {
    let below = plain(PAGES);
    let (memory, machine, zswap) = cache(Some(below.clone()));
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    // As if the process had died between the write of page 65 and its leaving.
    write_word(&memory, ("swap0.1.marks", 1), 2);
    let (_machine, zswap, told) = recover(&memory, &saved, Some(below));
    assert_eq!((told.findings.all, told.areas[0].on_device), (0, 0));
    let device = check(&zswap, &told, &[]);
    discard(&device, 65);
    assert!(read(&device, 65) == Ok([0; PAGE_SIZE]), "what the device has is of no use");
}

/// A backing file that was made longer while no daemon served keeps the log that it had; one that was
/// cut is refused, and nothing is lost.
#[test]
fn a_log_goes_on_when_its_file_is_longer() {
    let secret = Memfds::new().secret("key", |_| Ok(())).is_ok();
    for seal in [false, true].into_iter().filter(|seal| secret || !seal) {
        let place = testkit::TempDir::new();
        let path = place.path().join("below");
        let set_len = |mib: u64| {
            let file = File::options().write(true).create(true).truncate(false).open(&path);
            file.unwrap().set_len(mib << 20).unwrap();
        };
        let open = || backing::open(&path, Default::default()).unwrap();
        set_len(400);
        let memory = Memfds::new();
        let spec =
            |left| Spec { is_sealed: seal, left, ..Spec::new(open(), "below", Layout::Log(PAGES)) };
        let kept = Store::open(spec(None).kept(&memory, "swap0")).unwrap().device;
        let write = |page: u64| {
            let from = contents(page);
            kept.submit(CPU, Operation::Write { offset: page * P, from: &from }).unwrap();
        };
        (0..PAGES).for_each(write);
        let regions = memory.regions();
        let left = || {
            let memory = kept::adopted(&regions);
            let spec = spec(Some(400 << 20)).kept(&memory, "swap0");
            Store::open(spec).map_err(ControlError::from)
        };
        drop(kept);
        set_len(399);
        let error = left().err().expect("it is refused");
        assert_eq!(error.errno, Errno::EINVAL, "{}", error.message);
        // The seals of a device of this size have another length.
        set_len(900);
        let log = left().unwrap();
        assert_eq!(log.findings.told, [""; 0]);
        let mut into = [0; PAGE_SIZE];
        for page in 0..PAGES {
            let read = Operation::Read { offset: page * P, into: &mut into };
            log.device.submit(CPU, read).unwrap();
            assert!(into == contents(page), "page {page}");
        }
    }
}

/// A process may end between clearing a mark and telling the device.
#[test]
fn a_device_need_not_keep_what_is_not_marked() {
    let memory = &host::Mmap;
    let spec = Spec::new(plain(2048), "below", Layout::Log(PAGES));
    let memory = Memory::OfProcess(memory);
    let log = Store::open(Spec { memory, ..spec }).unwrap().log.unwrap();
    let (memory, machine, zswap) = cache(Some(log.clone()));
    fill(&device(&zswap, 0), 0..PAGES);
    assert!(zswap.reclaim(CPU, 128).written >= 128);
    let live = log.stats().live_bytes;
    for page in [201, 500, PAGES - 1] {
        let from = contents(page | 1);
        log.submit(CPU, Operation::Write { offset: page * P, from: &from }).unwrap();
    }
    assert!(log.stats().live_bytes > live);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let (_machine, zswap, told) = recover(&memory, &saved, Some(log.clone()));
    assert_eq!(log.stats().live_bytes, live);
    check(&zswap, &told, &[]);
}

#[test]
fn areas_that_are_off_or_not_given_are_not_recovered() {
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    let other = on(&zswap, 1, "default", None);
    fill(&other, 0..PAGES);
    let (saved, regions) = (machine.saved_swap().unwrap(), memory.regions());
    // Area 1 goes off after it was saved.
    zswap.invalidate_area(CPU, swap(1));
    zswap.swapoff(swap(1)).unwrap();
    let memory = kept::adopted(&regions);
    let (machine, other, told) = recover(&memory, &saved, None);
    assert_eq!(told.areas.iter().map(|area| area.swap).collect::<Vec<_>>(), [swap(0)]);
    check(&other, &told, &[]);
    let left: Vec<_> = memory.regions().into_iter().map(|region| region.name).collect();
    assert!(!left.iter().any(|name| name.starts_with("swap1.")), "{left:?}");
    // An area that comes on has new memory.
    on(&other, 1, "default", None);
    assert!(memory.regions().iter().any(|region| region.name == "swap1.2.index"));
    // Nobody asks for area 0 any more.
    forget(other);
    let (memory, mut saved) = dies(&memory, machine);
    saved.areas.clear();
    let (_machine, last, told) = recover(&memory, &saved, None);
    assert_eq!((told.areas.len(), told.findings.all), (0, 0));
    assert_eq!((last.stats().pool_bytes, last.zone().stats().allocated), (0, 0));
    on(&last, 0, "default", None);
    assert_eq!(read(&device(&last, 0), 11), Ok([0; PAGE_SIZE]));
    last.validate();
    forget((zswap, last));
}

#[test]
fn a_damaged_codec_costs_its_pages_and_a_damaged_memcg_its_settings() {
    let (memory, machine, zswap) = cache(None);
    let first = device(&zswap, 0);
    fill(&first, 0..PAGES);
    zswap.set_compressor("842").unwrap();
    fill(&first, 3..8);
    zswap.memcg("gone").unwrap().set_max(5);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    // Codec 0 was lzo-rle, 1 is 842; memcg 0 is the default, 1 is the other.
    let (codec, memcg) = ((RECORD, 136 + 8 + 2), (RECORD, 384 + 132 + 4));
    for place in [codec, memcg] {
        write_word(&memory, place, read_word(&memory, place) ^ 1);
    }
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    assert_eq!(told.findings.told[0], "what was kept of codec 1 is damaged (K7)");
    assert_eq!(told.findings.told[1], "what was kept of memcg 1 is damaged");
    assert_eq!(
        told.findings.told[2],
        "page 3 of swap area 0: nothing was kept of its codec 1 (K15)"
    );
    assert_eq!(told.findings.all, 7, "{:?}", told.findings.told);
    // Another codec makes new pages, under a number that no page has.
    let first = check(&zswap, &told, &[3, 4, 5, 6, 7]);
    assert_eq!(
        zswap.memcgs().iter().map(|it| it.name().to_string()).collect::<Vec<_>>(),
        ["default", "memcg1"]
    );
    fill(&first, 3..8);
    check(&zswap, &Recovered::default(), &[]);
}

#[test]
fn an_area_whose_record_is_damaged_does_not_stop_the_others() {
    let (memory, machine, zswap) = cache(None);
    on(&zswap, 5, "default", None);
    [0, 5].into_iter().for_each(|number| fill(&device(&zswap, number), 0..PAGES));
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    // The pages of area 5, and how often area 0 came on.
    let found = |memory: &Memfds| {
        let areas = [(0, None), (5, None)];
        let (machine, zswap, told) = try_recover(memory, &saved, &areas).unwrap();
        let numbers: Vec<_> = told.areas.iter().map(|area| area.swap.number()).collect();
        (machine, zswap, numbers, told.findings)
    };
    write_word(&memory, (RECORD, 8 + 5 * 4), 1 << 40);
    let (machine, zswap, numbers, findings) = found(&memory);
    assert_eq!((numbers, findings.all), (vec![0], 1), "{:?}", findings.told);
    let why = "swap area 5 is lost with all its pages: what was kept of swap area 5 is damaged";
    assert_eq!(findings.told, [why]);
    assert_eq!(read(&device(&zswap, 5), 3), Err(IoError::NotReady));
    assert_eq!(zswap.stats().stored_pages, PAGES);
    zswap.validate();
    // It comes on again, empty.
    let other = on(&zswap, 5, "default", None);
    assert_eq!(read(&other, 3), Ok([0; PAGE_SIZE]));
    forget(zswap);
    let (memory, _) = dies(&memory, machine);
    write_word(&memory, (RECORD, 8 + 1), 77);
    let (_machine, zswap, numbers, findings) = found(&memory);
    assert_eq!((numbers, findings.all), (vec![5], 1), "{:?}", findings.told);
    assert_eq!((zswap.stats().stored_pages, zswap.stats().pool_bytes), (0, 0));
    zswap.validate();
}

#[test]
fn an_area_whose_tables_are_not_there_does_not_stop_the_others() {
    for table in ["index", "index.1", "marks"] {
        let (memory, machine, zswap) = cache(None);
        on(&zswap, 5, "default", None);
        [0, 5].into_iter().for_each(|number| fill(&device(&zswap, number), 0..PAGES));
        forget(zswap);
        let (memory, saved) = dies(&memory, machine);
        assert!(memory.forget(&format!("swap5.1.{table}")));
        let areas = [(0, None), (5, None)];
        let (_machine, zswap, told) = try_recover(&memory, &saved, &areas).unwrap();
        assert!(told.findings.told[0].starts_with("swap area 5 is lost with all its pages: "));
        assert!(told.findings.told[0].ends_with("is not there (K3)"), "{:?}", told.findings.told);
        assert_eq!(read(&device(&zswap, 5), 3), Err(IoError::NotReady));
        check(&zswap, &told, &[]);
    }
}

#[test]
fn what_cannot_be_recovered_is_refused_and_stays() {
    let below = plain(PAGES);
    let (memory, first, zswap) = cache(Some(below.clone()));
    fill(&device(&zswap, 0), 0..PAGES);
    let (regions, saved) = (memory.regions(), first.saved_swap().unwrap());
    forget((first, zswap));
    let fresh = Memfds::new();
    let other = machine(&fresh);
    let none = other.recover_swap(&fresh, &saved, &|_| Ok(None), &|_| ()).err().unwrap();
    assert_eq!((none.errno, &*none.message), (Errno::EINVAL, "there is no region \"swap.frames\""));
    assert_eq!(other.saved_swap().as_ref(), Some(&saved));
    // With a new cache in the memory, the next process needs the state of that.
    on(&other.kept_swap(&fresh).unwrap(), 3, "default", None);
    assert_eq!(other.saved_swap().unwrap().areas, [swap(3)]);
    // Only who has recovered or forgotten it makes another.
    let memory = kept::adopted(&regions);
    let recover_disks = || {
        let options = kept::options();
        Machine::recover(&memory, Arc::new(host::Mmap), options, &[], &|_| ()).unwrap().0
    };
    let other = recover_disks();
    let error = other.kept_swap(&memory).err().unwrap();
    assert_eq!(error.errno, Errno::EBUSY);
    forget(other);
    type Change = (&'static str, u64, u64, Errno, &'static str);
    let changes: [Change; 4] = [
        (RECORD, 0, 5, Errno::EINVAL, "its record is none"),
        (RECORD, 1, 1, Errno::EINVAL, "its record has layout 1; this program reads layouts 2 to 3"),
        (RECORD, 1, 9, Errno::EINVAL, "its record has layout 9; this program reads layouts 2 to 3"),
        (RECORD, 2, 0, Errno::EINVAL, "it cannot have 0 entries"),
    ];
    for (name, at, word, errno, said) in changes {
        let memory = kept::adopted(&regions);
        let right = read_word(&memory, (name, at));
        write_word(&memory, (name, at), word);
        let (refused, text) = refusal(&memory, &saved, Some(below.clone()));
        assert_eq!(refused, errno, "{text}");
        assert!(text.starts_with("the swap cache cannot be recovered: ") && text.contains(said));
        write_word(&kept::adopted(&regions), (name, at), right);
    }
    let mut wrong = saved.clone();
    wrong.settings.push(("writebacks_max".into(), "many".into()));
    let (errno, text) = refusal(&kept::adopted(&regions), &wrong, Some(below.clone()));
    assert!(errno == Errno::EINVAL && text.starts_with("writebacks_max of the swap cache: "));
    // After all that, everything is there.
    let memory = kept::adopted(&regions);
    let (machine, zswap, told) = recover(&memory, &saved, Some(below));
    check(&zswap, &told, &[]);
    let again = machine.recover_swap(&memory, &saved, &|_| Ok(None), &|_| ()).err().unwrap();
    assert_eq!(again.errno, Errno::EBUSY);
}

#[test]
fn a_cache_that_nobody_wants_is_given_up() {
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, _) = dies(&memory, machine);
    let options = kept::options();
    let (machine, _) =
        Machine::recover(&memory, Arc::new(host::Mmap), options, &[], &|_| ()).unwrap();
    machine.forget_swap(&memory);
    let zswap = machine.kept_swap(&memory).unwrap();
    on(&zswap, 0, "default", None);
    assert_eq!(read(&device(&zswap, 0), 11), Ok([0; PAGE_SIZE]));
    zswap.validate();
}

/// With memory provided ahead, all that a later page needs is there after the recovery, and what
/// is recovered has memory.
#[test]
fn a_cache_with_memory_ahead_comes_back() {
    let ahead = || {
        let mut options = kept::options();
        options.swap_memory = Arc::new(host::MmapAhead);
        options
    };
    let memory = Memfds::new();
    let first = Machine::kept(&memory, Arc::new(host::Mmap), ahead()).unwrap();
    let zswap = first.kept_swap(&memory).unwrap();
    assert!(zswap.is_ahead());
    on(&zswap, 0, "default", None);
    zswap.provide(CPU, zswap::Headroom::of_frames(1000));
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, saved) = dies(&memory, first);
    let (machine, _) =
        Machine::recover(&memory, Arc::new(host::Mmap), ahead(), &[], &|_| ()).unwrap();
    let (zswap, told) = machine.recover_swap(&memory, &saved, &|_| Ok(None), &|_| ()).unwrap();
    assert!(zswap.is_ahead() && told.findings.all == 0, "{:?}", told.findings.told);
    check(&zswap, &told, &[]);
    zswap.provide(CPU, zswap::Headroom::of_frames(1000));
    fill(&device(&zswap, 0), 0..PAGES);
    check(&zswap, &told, &[]);
}
