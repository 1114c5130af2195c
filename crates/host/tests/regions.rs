//! The contract of regions of memory, for each provider, and what outlives a process.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use host::{KeptRegion, Memfds, Mmap};
use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper};
use testkit::{Need, Rng};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};

const MIB: usize = 1 << 20;

fn page() -> usize {
    host::page_bytes() as usize
}

/// Writes a value to each frame of a committed part.
fn fill(region: &Region, offset: usize, bytes: usize, value: u8) {
    for at in (offset..offset + bytes).step_by(PAGE_SIZE) {
        // SAFETY: the callers pass committed parts of a region that they hold.
        unsafe { region.base().as_ptr().add(at).write_volatile(value) };
    }
}

fn all_are(region: &Region, offset: usize, bytes: usize, value: u8) -> bool {
    (offset..offset + bytes).step_by(PAGE_SIZE).all(|at| {
        // SAFETY: as above.
        unsafe { region.base().as_ptr().add(at).read_volatile() == value }
    })
}

/// Bytes of a part that this process has in its page table (bit 63 of an entry of the page map,
/// kernel document `admin-guide/mm/pagemap.rst`).
fn resident(region: &Region, offset: usize, bytes: usize) -> usize {
    let map = File::open("/proc/self/pagemap").unwrap();
    let mut entries = vec![0u8; bytes / page() * 8];
    let first = (region.base().as_ptr() as usize + offset) / page();
    map.read_exact_at(&mut entries, first as u64 * 8).unwrap();
    entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count() * page()
}

/// The flags of the mapping of a region, as proc_pid_smaps(5) writes them.
fn flags(region: &Region) -> String {
    let base = format!("{:x}-", region.base().as_ptr() as usize);
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&base));
    lines.find(|line| line.starts_with("VmFlags:")).expect("a mapping").to_owned() + " "
}

fn reserve(provider: &dyn MemoryProvider, mib: usize) -> Region {
    let region = provider.reserve(mib * MIB).unwrap();
    region.commit(0, mib * MIB).unwrap();
    region
}

/// Addresses are aligned, memory reads as zeroes, and a page has none until it is touched.
fn is_zero_until_written(provider: &dyn MemoryProvider) {
    let region = provider.reserve(10 * MIB + 1).unwrap();
    assert_eq!(region.base().as_ptr() as usize % PAGEBLOCK_SIZE, 0);
    assert_eq!(region.bytes(), 12 * MIB);
    region.commit(0, 8 * MIB).unwrap();
    assert_eq!(resident(&region, 0, 12 * MIB), 0);
    fill(&region, 3 * MIB, PAGE_SIZE, 7);
    assert_eq!(resident(&region, 0, 12 * MIB), page(), "one page was touched");
    assert!(all_are(&region, 0, 3 * MIB, 0));
    assert!(all_are(&region, 3 * MIB + page(), MIB, 0));
    let far = provider.reserve(1 << 40).unwrap();
    far.commit(0, 1 << 40).unwrap();
    fill(&far, (1 << 40) - page(), page(), 1);
    assert_eq!(resident(&far, (1 << 40) - 2 * MIB, 2 * MIB), page());
}

/// Released pages have no memory, read as zeroes and can be used again; those beside them stay.
fn releases(provider: &dyn MemoryProvider) {
    let region = reserve(provider, 8);
    fill(&region, 0, 8 * MIB, 0xa5);
    assert_eq!(resident(&region, 0, 8 * MIB), 8 * MIB);
    region.release(2 * MIB, 4 * MIB);
    assert_eq!(resident(&region, 0, 8 * MIB), 4 * MIB);
    region.release(MIB, page());
    assert_eq!(resident(&region, 0, 2 * MIB), 2 * MIB - page());
    assert!(all_are(&region, 0, MIB, 0xa5));
    assert!(all_are(&region, MIB, page(), 0));
    assert!(all_are(&region, MIB + page(), MIB - page(), 0xa5));
    assert!(all_are(&region, 2 * MIB, 4 * MIB, 0));
    assert!(all_are(&region, 6 * MIB, 2 * MIB, 0xa5));
    fill(&region, 0, 8 * MIB, 1);
    assert!(all_are(&region, 0, 8 * MIB, 1), "a released part stays usable");
}

/// The contents are those of a vector, whatever is released, populated and collapsed.
fn keeps_contents(provider: &dyn MemoryProvider) {
    let mut rng = Rng::new(testkit::seed("keeps_contents"));
    let (frames, block) = (8 * MIB / PAGE_SIZE, PAGEBLOCK_SIZE / PAGE_SIZE);
    let region = reserve(provider, 8);
    let mut model = vec![0u8; frames];
    for _ in 0..300 {
        let first = rng.below(frames as u64) as usize;
        let count = rng.below((frames - first).min(600) as u64) as usize + 1;
        let (offset, bytes) = (first * PAGE_SIZE, count * PAGE_SIZE);
        let value = rng.below(256) as u8;
        match rng.below(4) {
            0 | 1 => {
                fill(&region, offset, bytes, value);
                model[first..first + count].fill(value);
            }
            2 => {
                region.release(offset, bytes);
                // Only pages of the system that lie whole in the part.
                let whole = offset.next_multiple_of(page())..(offset + bytes) / page() * page();
                if !whole.is_empty() {
                    model[whole.start / PAGE_SIZE..whole.end / PAGE_SIZE].fill(0);
                }
            }
            _ if rng.one_in(2) => assert!(region.populate(offset, bytes)),
            _ => region.collapse(first / block * PAGEBLOCK_SIZE),
        }
        let same = (0..frames).all(|n| all_are(&region, n * PAGE_SIZE, PAGE_SIZE, model[n]));
        assert!(same, "after {count} frames at {first}");
    }
}

/// Populating gives memory to the part that was asked for, and to no other.
fn populates(provider: &dyn MemoryProvider) {
    let region = reserve(provider, 4);
    fill(&region, 0, PAGE_SIZE, 9);
    assert!(region.populate(0, MIB));
    assert_eq!(resident(&region, 0, 4 * MIB), MIB);
    assert!(all_are(&region, 0, PAGE_SIZE, 9));
    assert!(all_are(&region, page(), MIB - page(), 0));
}

/// A part of a huge page can be released, and no other huge page comes by itself.
fn brings_no_huge_page_uninvited(provider: &dyn MemoryProvider) {
    let region = reserve(provider, 4);
    fill(&region, 0, 2 * MIB, 1);
    region.collapse(0);
    region.release(0, MIB);
    // The rest may have left the page table, and comes back when it is touched.
    assert!(all_are(&region, MIB, MIB, 1));
    assert_eq!(resident(&region, 0, 2 * MIB), MIB);
    region.release(0, 2 * MIB);
    fill(&region, 0, PAGE_SIZE, 1);
    assert_eq!(resident(&region, 0, 2 * MIB), page(), "one page was touched");
}

/// Locked pages can be released.
fn releases_locked_pages(provider: &dyn MemoryProvider) {
    let region = reserve(provider, 2);
    let base = region.base().as_ptr().cast();
    // SAFETY: the range is the region's; locking changes no contents.
    let locked = unsafe { libc::mlock2(base, 2 * MIB, libc::MLOCK_ONFAULT) };
    assert_eq!(locked, 0, "2 MiB may be locked by anybody");
    fill(&region, 0, 2 * MIB, 7);
    region.release(0, MIB);
    assert_eq!(resident(&region, 0, 2 * MIB), MIB);
    assert!(all_are(&region, 0, MIB, 0));
    assert!(all_are(&region, MIB, MIB, 7));
}

/// A core dump has nothing of it, also after a collapse and a release.
fn is_in_no_core_dump(provider: &dyn MemoryProvider) {
    let region = reserve(provider, 4);
    region.collapse(0);
    region.release(0, MIB);
    assert!(flags(&region).contains(" dd "), "{}", flags(&region));
}

/// What cannot be is an error.
fn refuses_too_much(provider: &dyn MemoryProvider) {
    for bytes in [usize::MAX, usize::MAX - PAGEBLOCK_SIZE, 1 << 60] {
        assert_eq!(provider.reserve(bytes).err(), Some(NoMemory { bytes }));
    }
}

type Check = fn(&dyn MemoryProvider);
const CHECKS: [(&str, Check); 8] = [
    ("is_zero_until_written", is_zero_until_written),
    ("releases", releases),
    ("keeps_contents", keeps_contents),
    ("populates", populates),
    ("brings_no_huge_page_uninvited", brings_no_huge_page_uninvited),
    ("releases_locked_pages", releases_locked_pages),
    ("is_in_no_core_dump", is_in_no_core_dump),
    ("refuses_too_much", refuses_too_much),
];

fn run(provider: impl MemoryProvider) {
    for (name, check) in CHECKS {
        println!("{name}");
        check(&provider);
    }
}

#[test]
fn anonymous_memory_keeps_the_contract() {
    run(Mmap);
}

#[test]
fn memfds_keep_the_contract() {
    run(Memfds::new().provider("frames"));
}

#[test]
fn memory_without_swap_keeps_the_contract() {
    if !testkit::met("memory_without_swap_keeps_the_contract", &[Need::Root]) {
        return;
    }
    run(Memfds::unswappable().unwrap().provider("frames"));
}

/// A provider with one flaw.
struct Flawed {
    inner: Memfds,
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Gives nothing back to the system.
    Keeps,
    /// Writes zeroes instead of giving memory back.
    Clears,
    /// Gives back the page behind as well.
    TooMuch,
    /// Provides no memory.
    Lazy,
}

struct FlawedKeeper {
    inner: Region,
    flaw: Flaw,
}

impl MemoryProvider for Flawed {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let inner = self.inner.provider(&format!("{:?}", std::time::Instant::now()));
        let inner = inner.reserve(bytes)?;
        let (base, bytes) = (inner.base(), inner.bytes());
        let keeper = FlawedKeeper { inner, flaw: self.flaw };
        // SAFETY: the keeper has the region, which owns the range.
        Ok(unsafe { Region::new(base, bytes, Box::new(keeper)) })
    }
}

// SAFETY: it keeps the region that owns the range.
unsafe impl RegionKeeper for FlawedKeeper {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        self.inner.commit(offset, bytes)
    }

    fn release(&self, offset: usize, bytes: usize) {
        match self.flaw {
            Flaw::Keeps => {}
            Flaw::Clears => fill(&self.inner, offset, bytes, 0),
            Flaw::TooMuch => {
                let more = (bytes + page()).min(self.inner.bytes() - offset);
                self.inner.release(offset, more);
            }
            _ => self.inner.release(offset, bytes),
        }
    }

    fn collapse(&self, offset: usize) {
        self.inner.collapse(offset);
    }

    fn populate(&self, offset: usize, bytes: usize) -> bool {
        self.flaw == Flaw::Lazy || self.inner.populate(offset, bytes)
    }
}

#[test]
fn flawed_providers_are_found_out() {
    let fails = |flaw, check: Check| {
        let provider = Flawed { inner: Memfds::new(), flaw };
        catch_unwind(AssertUnwindSafe(|| check(&provider))).is_err()
    };
    for (_, check) in CHECKS {
        assert!(!fails(Flaw::None, check));
    }
    for (flaw, checks) in [
        (Flaw::Keeps, &[releases as Check, keeps_contents, releases_locked_pages][..]),
        (Flaw::Clears, &[releases, releases_locked_pages]),
        (Flaw::TooMuch, &[releases, keeps_contents, releases_locked_pages]),
        (Flaw::Lazy, &[populates]),
    ] {
        for check in checks {
            assert!(fails(flaw, *check), "{flaw:?} is accepted");
        }
    }
}

/// As another process gets a region: by a descriptor of its own.
fn handed_over(region: &KeptRegion) -> OwnedFd {
    OwnedFd::from(region.file.try_clone().unwrap())
}

fn outlives(first: &Memfds, second: &Memfds) {
    let region = first.provider("disk").reserve(4 * MIB).unwrap();
    region.commit(0, 4 * MIB).unwrap();
    fill(&region, 0, 3 * MIB, 5);
    region.release(0, MIB);
    let kept = first.regions();
    assert_eq!((kept.len(), &*kept[0].name, kept[0].bytes), (1, "disk", 4 << 20));
    assert_eq!(kept[0].resident_bytes().unwrap(), 2 << 20);
    second.adopt("disk", handed_over(&kept[0]), kept[0].bytes).unwrap();
    // A killed process drops nothing; the drop of the region has the same effect on the memory.
    drop(region);
    assert!(first.regions().is_empty(), "what is dropped is given up");
    let again = second.provider("disk").reserve(4 * MIB).unwrap();
    again.commit(0, 4 * MIB).unwrap();
    assert!(all_are(&again, 0, MIB, 0));
    assert!(all_are(&again, MIB, 2 * MIB, 5));
    assert!(all_are(&again, 3 * MIB, MIB, 0));
    assert_eq!(kept[0].resident_bytes().unwrap(), 4 << 20, "a read gives memory to a hole");
}

#[test]
fn contents_outlive_the_process() {
    outlives(&Memfds::new(), &Memfds::new());
    if testkit::met("contents_outlive_the_process", &[Need::Root]) {
        let new = || Memfds::unswappable().unwrap();
        outlives(&new(), &new());
        outlives(&new(), &Memfds::new());
    }
}

#[test]
fn regions_are_found_by_their_names() {
    let set = Memfds::new();
    let provider = set.provider("frames");
    let regions = [provider.reserve(1).unwrap(), provider.reserve(3 * MIB).unwrap()];
    let names: Vec<_> = set.regions().iter().map(|it| (it.name.clone(), it.bytes)).collect();
    assert_eq!(names, [("frames".into(), 2 << 20), ("frames.1".into(), 4 << 20)]);
    let error = set.region("frames", 1).err().unwrap();
    assert!(error.to_string().contains("\"frames\" is in use"), "{error}");
    let kept = set.regions();

    let later = Memfds::new();
    let refused = |name: &str, file, bytes| later.adopt(name, file, bytes).unwrap_err().to_string();
    let text = refused("frames", handed_over(&kept[0]), 4 << 20);
    assert_eq!(text, "region \"frames\" has 2097152 bytes, and 4194304 are expected");
    let text = refused("frames", handed_over(&kept[0]), 0);
    assert_eq!(text, "region \"frames\" has 2097152 bytes, and 0 are expected");
    let text = refused("frames", File::open("/dev/null").unwrap().into(), 0);
    assert_eq!(text, "the descriptor of region \"frames\" is no file in memory");
    later.adopt("frames", handed_over(&kept[0]), 2 << 20).unwrap();
    later.adopt("old", handed_over(&kept[1]), 4 << 20).unwrap();
    let text = refused("frames", handed_over(&kept[0]), 2 << 20);
    assert_eq!(text, "there is a region \"frames\" already");
    let error = later.region("frames", 4 * MIB).err().unwrap();
    assert_eq!(error.to_string(), "region \"frames\" has 2097152 bytes, not 4194304");
    assert!(later.forget("old") && !later.forget("old") && !later.forget("none"));
    let region = later.region("frames", 2 * MIB).unwrap();
    assert!(!later.forget("frames"), "it is in use");
    drop(region);
    drop(regions);
}

#[test]
fn what_another_process_left_stays_until_it_is_settled() {
    let set = Memfds::new();
    let kept = set.region("table", 2 * MIB).unwrap();
    kept.commit(0, MIB).unwrap();
    fill(&kept, 0, MIB, 9);
    let later = Memfds::new();
    let left = set.regions().remove(0);
    later.adopt("table", handed_over(&left), left.bytes).unwrap();
    // Two recoveries fail. What they made themselves goes with them.
    for _ in 0..2 {
        let (table, new) = (later.region("table", 2 * MIB).unwrap(), later.region("new", 1));
        table.commit(0, MIB).unwrap();
        assert!(all_are(&table, 0, MIB, 9));
        drop((table, new));
        assert_eq!(later.unused(), ["table"]);
    }
    // Nobody has asked for it.
    later.settle();
    drop(later.region("table", 2 * MIB).unwrap());
    assert_eq!(later.unused(), ["table"]);
    let table = later.region("table", 2 * MIB).unwrap();
    later.settle();
    drop(table);
    assert!(later.regions().is_empty());
}

#[test]
fn nobody_can_shrink_a_memfd() {
    let set = Memfds::new();
    let _region = set.region("frames", 2 * MIB).unwrap();
    let file = set.regions()[0].file.clone();
    for bytes in [0, 4096, 4 << 20] {
        assert_eq!(file.set_len(bytes).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}

#[test]
fn a_child_gets_no_copy_of_the_mapping() {
    let region = reserve(&Memfds::new().provider("frames"), 2);
    assert!(flags(&region).contains(" dc "), "{}", flags(&region));
}

#[test]
fn memory_without_swap_is_unevictable_without_a_process() {
    let name = "memory_without_swap_is_unevictable_without_a_process";
    if !testkit::met(name, &[Need::Root]) {
        return;
    }
    let set = Memfds::unswappable().unwrap();
    let taken = || {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Unevictable:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<usize>().unwrap()
    };
    let before = taken();
    let more = reserve(&set.provider("more"), 64);
    fill(&more, 0, 64 * MIB, 1);
    assert!(taken() >= before + 32 * 1024, "64 MiB were touched, and no more are unevictable");
}

/// What a set of copies does with a file of `original`, and that others do not see it.
fn copies_change_nothing(original: &Memfds) {
    let region = original.region("table", 4 * MIB).unwrap();
    region.commit(0, 4 * MIB).unwrap();
    fill(&region, MIB, MIB, 7);
    let kept = &original.regions()[0];
    assert_eq!(kept.data(0).unwrap(), Some(MIB as u64..2 * MIB as u64));
    assert_eq!(kept.data(2 * MIB as u64).unwrap(), None);
    let path = format!("/proc/self/fd/{}", kept.file.as_raw_fd());
    let shown = fs::read_link(&path).unwrap();
    assert!(shown.to_str().unwrap().ends_with("rampack.table (deleted)"), "{shown:?}");
    let copies = Memfds::copies();
    // To read is enough.
    copies.adopt("table", File::open(&path).unwrap().into(), kept.bytes).unwrap();
    let copy = copies.region("table", 4 * MIB).unwrap();
    copy.commit(0, 4 * MIB).unwrap();
    assert!(all_are(&copy, MIB, MIB, 7) && all_are(&copy, 0, MIB, 0));
    fill(&copy, 0, 3 * MIB / 2, 9);
    copy.release(0, 4 * MIB);
    drop(copy);
    assert!(all_are(&region, 0, MIB, 0) && all_are(&region, MIB, MIB, 7));
}

#[test]
fn a_copy_of_a_region_changes_nothing_for_others() {
    copies_change_nothing(&Memfds::new());
    if testkit::met("a_copy_of_a_region_changes_nothing_for_others", &[Need::Root]) {
        copies_change_nothing(&Memfds::unswappable().unwrap());
    }
}
