//! The programs run in this kernel, at functions of this test (uprobes), which it calls as the
//! kernel calls its own.

use std::hint::black_box;
use std::os::fd::AsRawFd;

use testkit::{Need, met};

use super::*;

const PAGES: u64 = 1000;
const SWAPON: Before = Before(0);

/// As `swap_entry_range_free`.
#[inline(never)]
extern "C" fn range_free(area: usize, entry: u64, pages: u32) -> u64 {
    black_box(entry ^ u64::from(pages) ^ area as u64)
}

/// As `zswap_invalidate`.
#[inline(never)]
extern "C" fn invalidate(entry: u64) -> u64 {
    black_box(entry.rotate_left(3))
}

/// As `swap_cgroup_swapon`.
#[inline(never)]
extern "C" fn swapon(swap: i32, pages: u64) -> u64 {
    black_box(pages.rotate_left(swap.cast_unsigned()))
}

fn entry(swap: u64, offset: u64) -> u64 {
    swap << 58 | offset
}

/// A probe at a function of this program.
fn probe(function: usize) -> Option<Probe<'static>> {
    let driver = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let inside = number(start)?..number(end)?;
        let offset = number(words.nth(1)?)?;
        inside.contains(&function).then(|| (function - inside.start + offset) as u64)
    })?;
    let (name, process) = ("/proc/self/exe", Some(0));
    Some(Probe { driver: driver.trim().parse().ok()?, name, offset, process })
}

/// Hears of pages by functions of this program; `None` where that cannot be tried.
fn of(test: &str, freeing: usize, arguments: Arguments) -> Option<Frees> {
    let what = "uprobes (CONFIG_UPROBES)";
    let probes = [probe(swapon as *const () as usize), probe(freeing)];
    let is_there = probes.iter().all(Option::is_some);
    if !met(test, &[Need::Root, Need::other(is_there, what)]) {
        return None;
    }
    let [given, freed] = probes.map(Option::unwrap);
    let (map, shared) = memory(PAGES).unwrap();
    let number = map.as_raw_fd();
    let run = |code: &[u64], probe| {
        let loaded =
            bpf::load(code).unwrap_or_else(|error| panic!("{error}: {}", bpf::why_not(code)));
        bpf::attach(&probe, &loaded).unwrap()
    };
    let given = run(&program::given(number).unwrap(), given);
    let freed = run(&program::frees(number, arguments, PAGES), freed);
    let running = vec![given, freed];
    shared.words()[FUNCTION / 8].store(LAYOUT, Ordering::Relaxed);
    Some(Frees { function: FREEING[0], pages: PAGES, running, shared, map })
}

fn set(frees: &Frees) -> Vec<u64> {
    let bit = |(n, word): (usize, &AtomicU64)| {
        let word = word.load(Ordering::Relaxed);
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| n as u64 * 64 + bit)
    };
    frees.as_ref().iter().enumerate().flat_map(bit).collect()
}

#[test]
fn freed_pages_are_heard_of_and_no_others() {
    let arguments = Arguments { entry: program::argument(1).unwrap(), count: program::argument(2) };
    let test = "freed_pages_are_heard_of_and_no_others";
    let Some(frees) = of(test, range_free as *const () as usize, arguments) else { return };
    let free = |swap, offset, pages| black_box(range_free)(7, entry(swap, offset), pages);
    // Nothing is ours yet, and no type was given.
    free(0, 1, 1);
    free(3, 1, 1);
    let unseen = frees.hear(Caller::this(), SWAPON, 0..PAGES).unwrap_err();
    assert!(unseen.0.contains("did not see"), "{unseen:?}");
    black_box(swapon)(3, 400);
    let other = Caller { thread: 1, ..Caller::this() };
    assert!(frees.hear(other, SWAPON, 0..400).is_err(), "another thread's");
    free(3, 1, 1);
    assert_eq!(set(&frees), [0; 0], "nobody has said where its bits are");
    frees.hear(Caller::this(), SWAPON, 0..400).unwrap();
    let late = Before(u64::MAX);
    assert!(frees.hear(Caller::this(), late, 0..400).is_err(), "it was given before");
    black_box(swapon)(5, 600);
    frees.hear(Caller::this(), SWAPON, 400..1000).unwrap();
    free(3, 1, 1);
    free(3, 399, 1);
    free(5, 63, 3);
    free(5, 599, 1);
    let heard = [1, 399, 463, 464, 465, 999];
    assert_eq!(set(&frees), heard);
    assert_eq!(frees.heard(), 6);
    // Beyond the ends, other types, too many, none.
    for (swap, offset, pages) in [
        (3, 400, 1),
        (3, 399, 2),
        (5, 600, 1),
        (5, (1 << 58) - 1, 1),
        (4, 1, 1),
        (31, 1, 1),
        (32, 1, 1),
        (63, 1, 1),
        (5, 0, 513),
        (5, 0, u32::MAX),
        (5, 7, 0),
    ] {
        free(swap, offset, pages);
        assert_eq!(set(&frees), heard, "{swap} {offset} {pages}");
    }
    free(5, 0, 512);
    assert_eq!(set(&frees).len(), 6 + 512 - 3);
    // The type is given to others, before their first page is freed.
    frees.as_ref().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    black_box(swapon)(5, 600);
    free(5, 1, 1);
    free(3, 2, 1);
    assert_eq!(set(&frees), [2]);
    assert!(frees.hear(Caller::this(), SWAPON, 0..600).is_err(), "it has another place");
    frees.hear(Caller::this(), SWAPON, 400..1000).unwrap();
    free(5, 1, 1);
    assert_eq!(set(&frees), [2, 401]);
    frees.forget(&(400..1000));
    free(5, 2, 1);
    free(3, 3, 1);
    assert_eq!(set(&frees), [2, 3, 401]);
}

#[test]
fn a_function_of_one_page_is_heard() {
    let arguments = Arguments { entry: program::argument(0).unwrap(), count: None };
    let test = "a_function_of_one_page_is_heard";
    let Some(frees) = of(test, invalidate as *const () as usize, arguments) else { return };
    black_box(swapon)(0, PAGES);
    frees.hear(Caller::this(), SWAPON, 0..PAGES).unwrap();
    for offset in [1, 64, 999, 1000] {
        black_box(invalidate)(entry(0, offset));
    }
    assert_eq!(set(&frees), [1, 64, 999]);
    // The next process hears of what was freed before it came.
    let kept: Vec<_> = frees.descriptors().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    drop(frees);
    black_box(invalidate)(entry(0, 2));
    let [clone, again] =
        [0, 1].map(|_| kept.iter().rev().map(|fd| fd.try_clone().unwrap()).collect::<Vec<_>>());
    drop(kept);
    let frees = Frees::of_kept(again, PAGES).unwrap();
    assert_eq!((set(&frees), frees.heard()), (vec![1, 2, 64, 999], 4));
    black_box(invalidate)(entry(0, 3));
    assert_eq!((set(&frees).len(), frees.function()), (5, FREEING[0]));
    assert!(Frees::of_kept(clone, 1 << 20).is_err(), "there are fewer pages");
    assert!(Frees::of_kept(Vec::new(), PAGES).is_err());
}

/// Each program passes the verifier for any number of pages.
#[test]
fn the_verifier_takes_the_programs() {
    if !met("the_verifier_takes_the_programs", &[Need::Root]) {
        return;
    }
    for pages in [1, 63, 64, 65, 262_144, 1 << 25] {
        let (map, _shared) = memory(pages).unwrap();
        for count in [None, program::argument(2)] {
            let arguments = Arguments { entry: program::argument(1).unwrap(), count };
            let code = program::frees(map.as_raw_fd(), arguments, pages);
            bpf::load(&code).unwrap_or_else(|error| panic!("{error}: {}", bpf::why_not(&code)));
        }
    }
    assert!(memory(1 << 36).is_err());
}

#[test]
fn only_functions_that_are_known_are_used() {
    use Parameter::{Entry, Integer, Other, Unknown};
    let at = |number| program::argument(number).unwrap();
    let known =
        |entry, count: Option<usize>| Some(Arguments { entry: at(entry), count: count.map(at) });
    for (parameters, right) in [
        (vec![Entry], known(0, None)),
        (vec![Other, Entry], known(1, None)),
        (vec![Other, Entry, Integer(4)], known(1, Some(2))),
        (vec![Other, Other, Entry, Integer(4)], known(2, Some(3))),
        (vec![Integer(4), Integer(8)], None),
        (vec![Other, Entry, Integer(8)], None),
        (vec![Other, Entry, Other], None),
        (vec![Unknown, Entry], None),
        (vec![Other, Entry, Integer(4), Integer(4)], None),
        (vec![], None),
        ([vec![Other; 8], vec![Entry]].concat(), None),
    ] {
        assert_eq!(arguments(&parameters), right, "{parameters:?}");
    }
}

#[test]
fn a_kernel_that_cannot_says_what_it_lacks() {
    let nothing = functions(&[]).unwrap_err();
    assert!(nothing.0.contains("cannot be read"), "{nothing:?}");
    match Frees::of(PAGES) {
        Ok(frees) => assert!(FREEING.contains(&frees.function()) && frees.heard() == 0),
        Err(Unheard(why)) => assert!(!why.is_empty() && !why.ends_with('.'), "{why}"),
    }
}
