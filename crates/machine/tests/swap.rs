//! The cache in front of swap areas, as a machine makes it.

#[path = "recovery_swap/areas.rs"]
#[allow(dead_code)]
mod areas;
#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit, Wait, ZeroMode,
};
use control::{Bound, Errno, Object};
use machine::{Machine, MachineOptions};
use store::{Layout, Spec, Store};
use units::{Cpu, PAGE_SIZE, Page};
use zram::NoHostFiles;
use zswap::{
    AreaOptions, DEBUG, Key, LoadError, MEMCG_ATTRIBUTES, PARAMETERS, SwapDevice, SwapType, Zswap,
};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

fn cache(cpus: usize) -> Arc<Zswap> {
    let options = MachineOptions {
        cpus,
        memory: 64 << 20,
        files: Arc::new(NoHostFiles),
        swap_memory: Arc::new(host::Mmap),
        track_access: false,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap().swap().unwrap()
}

fn area() -> SwapType {
    SwapType::new(3).unwrap()
}

fn on(zswap: &Arc<Zswap>, pages: u64, device: Option<Arc<dyn BlockDevice>>) -> SwapDevice {
    let memcg = zswap.memcg("default").unwrap();
    zswap.swapon(area(), pages, AreaOptions { device, memcg }).unwrap();
    SwapDevice::new(zswap.clone(), area())
}

/// Half of it shrinks, half does not; no two are the same.
fn page(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    testkit::Rng::new(number).fill(&mut page[..PAGE_SIZE / 2]);
    page
}

fn write(device: &SwapDevice, number: u64, page: &Page) {
    device.submit(CPU, Operation::Write { offset: number * P, from: page }).unwrap();
}

fn read(device: &SwapDevice, number: u64) -> Page {
    let mut page = [1; PAGE_SIZE];
    device.submit(CPU, Operation::Read { offset: number * P, into: &mut page }).unwrap();
    page
}

/// A request that comes late must not find another area that has the number by then.
#[test]
fn a_swap_device_is_of_one_area_alone() {
    let zswap = cache(2);
    let late = on(&zswap, 8, None);
    write(&late, 1, &page(1));
    zswap.invalidate_area(CPU, area());
    zswap.swapoff(area()).unwrap();
    assert_eq!(late.geometry().bytes, 0);
    let device = on(&zswap, 16, None);
    write(&device, 1, &page(2));
    let mut into = [1; PAGE_SIZE];
    for refused in [
        late.submit(CPU, Operation::Read { offset: P, into: &mut into }),
        late.submit(CPU, Operation::Write { offset: P, from: &page(3) }),
        late.submit(CPU, Operation::Discard { offset: P, length: P }),
        late.extents(CPU, 0, P, &mut |_| ControlFlow::Continue(())),
    ] {
        assert_eq!(refused, Err(IoError::NotReady));
    }
    assert_eq!((late.geometry().bytes, device.geometry().bytes), (0, 16 * P));
    assert_eq!(read(&device, 1), page(2));
}

/// Pages come back whether they are in the cache or were written back.
#[test]
fn a_swap_device_keeps_what_it_was_given() {
    let zswap = cache(2);
    let backing: Arc<dyn BlockDevice> = Arc::new(Plain::new(4096 * PAGE_SIZE));
    let device = on(&zswap, 4096, Some(backing));
    zswap.set_max_pool_bytes(2 << 20);
    for number in 0..4096 {
        write(&device, number, &page(number));
    }
    let stats = zswap.stats();
    assert!(stats.written_back_pages > 2000, "{stats:?}");
    assert!(stats.pool_bytes <= 2 << 20, "{stats:?}");
    assert_eq!(stats.stored_pages + stats.on_device, 4096, "{stats:?}");
    for number in 0..4096 {
        assert!(read(&device, number) == page(number), "page {number}");
    }
    device.submit(CPU, Operation::Discard { offset: 0, length: 2048 * P }).unwrap();
    assert_eq!(read(&device, 7), [0; PAGE_SIZE]);
    assert!(read(&device, 2048) == page(2048));
    zswap.validate();
    assert_eq!(zswap.swapoff(area()).unwrap_err().errno, Errno::EBUSY);
    zswap.invalidate_area(CPU, area());
    zswap.swapoff(area()).unwrap();
    zswap.validate();
    assert_eq!(zswap.stats().pool_bytes, 0);
}

/// The cache before a sealed device on a plain one, with pages written back.
fn sealed() -> (Arc<Zswap>, SwapDevice, Arc<Plain>) {
    let zswap = cache(2);
    let below = Arc::new(Plain::new(1024 * PAGE_SIZE));
    let device = store::sealed(below.clone(), &host::Mmap, 1024 * P, "below").unwrap();
    let device = on(&zswap, 1024, Some(device));
    zswap.set_max_pool_bytes(1 << 20);
    for number in 0..1024 {
        write(&device, number, &page(number));
    }
    (zswap, device, below)
}

/// What is below block `number`.
fn below(plain: &Plain, number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    plain.submit(CPU, Operation::Read { offset: number * P, into: &mut page }).unwrap();
    page
}

#[test]
fn a_scrub_finds_what_the_device_changed() {
    let (zswap, device, plain) = sealed();
    let rows = Bound::new(zswap.clone(), DEBUG);
    let scrub = || rows.store("scrub", "1");
    assert!(zswap.stats().on_device > 300);
    assert!(zswap.scrub(CPU).unwrap() > 300);
    scrub().unwrap();
    let used: Vec<u64> = (0..1024).filter(|at| below(&plain, *at) != [0; PAGE_SIZE]).collect();
    let mut random = testkit::Rng::new(testkit::seed("a_scrub_finds_what_the_device_changed"));
    let pick = |random: &mut testkit::Rng| used[random.below(used.len() as u64 - 1) as usize];
    let flipped = pick(&mut random);
    let moved = loop {
        let at = pick(&mut random);
        if at != flipped {
            break at;
        }
    };
    let put = |at: u64, page: &Page| {
        plain.submit(CPU, Operation::Write { offset: at * P, from: page }).unwrap();
    };
    let (mut changed, other) = (below(&plain, flipped), below(&plain, *used.last().unwrap()));
    changed[random.below(P) as usize] ^= 1 << random.below(8);
    put(flipped, &changed);
    put(moved, &other);
    let fault = scrub().unwrap_err();
    assert_eq!(fault.errno, Errno::EIO);
    for words in ["2 of", "swap area 3", &format!("the first is page {}", flipped.min(moved))] {
        assert!(fault.message.contains(words), "{fault}");
    }
    // What is given up is not looked at any more.
    for at in [flipped, moved] {
        device.submit(CPU, Operation::Discard { offset: at * P, length: P }).unwrap();
    }
    scrub().unwrap();
    zswap.invalidate_area(CPU, area());
}

#[test]
fn a_scrub_goes_on_beside_pages_that_come_and_go() {
    let (zswap, device, _) = sealed();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..6 {
                for number in 0..1024 {
                    write(&device, number, &page(number + 1024 * round));
                }
            }
        });
        let mut scrubs = 0;
        while !writer.is_finished() || scrubs == 0 {
            zswap.scrub(CPU).unwrap();
            scrubs += 1;
        }
        writer.join().unwrap();
    });
    for number in 0..1024 {
        assert!(read(&device, number) == page(number + 1024 * 5), "page {number}");
    }
    zswap.validate();
    zswap.invalidate_area(CPU, area());
}

#[test]
fn a_scrub_needs_a_device_that_can_tell() {
    let zswap = cache(1);
    let rows = Bound::new(zswap.clone(), DEBUG);
    let refused = || rows.store("scrub", "1").unwrap_err();
    assert_eq!(refused().errno, Errno::EINVAL, "no area is on");
    on(&zswap, 64, Some(Arc::new(Plain::new(64 * PAGE_SIZE))));
    let fault = refused();
    assert_eq!(fault.errno, Errno::ENOTSUP);
    assert!(fault.message.contains("swap area 3") && fault.message.contains("unsealed"), "{fault}");
    zswap.swapoff(area()).unwrap();
    on(&zswap, 64, None);
    assert_eq!(refused().errno, Errno::EINVAL, "the area has no device");
}

/// Loads keep the entry or take it out, as the setting says.
#[test]
fn loads_follow_either_contract() {
    let zswap = cache(1);
    on(&zswap, 64, None);
    let memcg = zswap.memcg("default").unwrap();
    let key = Key { swap: area(), offset: 5 };
    let mut into = [0; PAGE_SIZE];
    zswap.store(CPU, key, &memcg, &page(1)).unwrap();
    zswap.load(CPU, key, &mut into).unwrap();
    zswap.load(CPU, key, &mut into).unwrap();
    assert!(into == page(1));
    zswap.policy().set_exclusive_loads(true);
    zswap.load(CPU, key, &mut into).unwrap();
    assert_eq!(zswap.load(CPU, key, &mut into), Err(LoadError::NotFound));
    zswap.validate();
}

/// Parameters have the names, values and refusals of Linux's.
#[test]
fn parameters_are_the_kernels() {
    let zswap = cache(1);
    on(&zswap, 64, None);
    let rows = Bound::new(zswap.clone(), PARAMETERS);
    assert_eq!(rows.show("enabled").unwrap(), "Y\n");
    assert_eq!(rows.show("max_pool_percent").unwrap(), "20\n");
    assert_eq!(rows.store("compressor", "lz77\n").unwrap_err().errno, Errno::ENOENT);
    let memcg = zswap.memcg("default").unwrap();
    let key = |offset| Key { swap: area(), offset };
    zswap.store(CPU, key(1), &memcg, &page(1)).unwrap();
    rows.store("compressor", "zstd\n").unwrap();
    zswap.store(CPU, key(2), &memcg, &page(2)).unwrap();
    for offset in [1, 2] {
        let mut into = [0; PAGE_SIZE];
        zswap.load(CPU, key(offset), &mut into).unwrap();
        assert!(into == page(offset));
    }
    assert_eq!(rows.store("max_pool_percent", "101").unwrap_err().errno, Errno::EINVAL);
    rows.store("enabled", "0").unwrap();
    assert!(zswap.store(CPU, key(3), &memcg, &page(3)).is_err());
    zswap.validate();
}

/// While it writes a page, it discards that page.
#[derive(Default)]
struct Discards {
    above: Mutex<Option<SwapDevice>>,
    answers: Mutex<Vec<Result<(), IoError>>>,
}

impl BlockDevice for Discards {
    fn geometry(&self) -> Geometry {
        Plain::new(64 * PAGE_SIZE).geometry()
    }
    fn abilities(&self) -> Abilities {
        Plain::new(PAGE_SIZE).abilities()
    }
    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Write { offset, from } = operation
            && let Some(above) = &*self.above.lock().unwrap()
        {
            let context = Context { wait: Wait::No, ..Context::waiting(CPU) };
            let length = from.len() as u64;
            let answer = above.perform(context, Operation::Discard { offset, length });
            self.answers.lock().unwrap().push(answer);
        }
        Ok(())
    }
    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Ok(())
    }
}

/// A page that is being written back would be marked as on the device after it was discarded, for a
/// moment: a process that died then would leave the page. So a discard waits for the write.
#[test]
fn a_discard_waits_for_a_page_that_is_being_written() {
    let (below, zswap) = (Arc::new(Discards::default()), cache(2));
    let device = on(&zswap, 64, Some(below.clone()));
    write(&device, 0, &page(1));
    *below.above.lock().unwrap() = Some(SwapDevice::new(zswap.clone(), area()));
    zswap.reclaim(CPU, 1);
    *below.above.lock().unwrap() = None;
    assert_eq!(*below.answers.lock().unwrap(), [Err(IoError::WouldBlock)]);
    assert_eq!(zswap.stats().on_device, 1);
    device.submit(CPU, Operation::Discard { offset: 0, length: P }).unwrap();
    assert_eq!((read(&device, 0), zswap.stats().on_device), ([0; PAGE_SIZE], 0));
}

#[test]
fn a_cache_is_made_anew_in_kept_memory_once_no_area_is_on() {
    let memory = host::Memfds::new();
    let machine = areas::machine(&memory);
    // One that ends with the process.
    machine.swap().unwrap();
    let first = machine.kept_swap_anew(&memory).unwrap();
    let regions = || memory.regions().into_iter().filter(|it| it.name.starts_with("swap")).count();
    let empty = regions();
    assert!(empty > 0);
    let swap_device = areas::on(&first, 0, "default", None);
    write(&swap_device, 3, &page(3));
    assert!(Arc::ptr_eq(&first, &machine.kept_swap_anew(&memory).unwrap()));
    drop(swap_device);
    first.invalidate_area(CPU, areas::swap(0));
    first.swapoff(areas::swap(0)).unwrap();
    drop(first);
    let second = machine.kept_swap_anew(&memory).unwrap();
    assert_eq!((second.areas().len(), regions()), (0, empty));
    drop(second);
    machine.swap_anew().unwrap();
    assert_eq!(regions(), 0, "nothing of it is kept");
}

/// What the cache has anew, or nobody wants any more, takes no room in a log behind it.
#[test]
fn a_log_keeps_only_what_the_cache_has_not() {
    const PAGES: u64 = 1000;
    let zswap = cache(2);
    let below = Arc::new(Plain::new(8 << 20));
    let log = Store::open(Spec::new(below, "below", Layout::Log(PAGES))).unwrap().log.unwrap();
    let device = on(&zswap, PAGES, Some(log.clone()));
    let live = || log.stats().live_bytes;
    let mut rng = testkit::Rng::new(testkit::seed("a_log_keeps_only_what_the_cache_has_not"));
    let mut versions = vec![None; PAGES as usize];
    for round in 1..20 {
        for number in (0..PAGES).filter(|_| round == 1 || rng.one_in(3)) {
            let version = round * PAGES + number;
            write(&device, number, &page(version));
            versions[number as usize] = Some(version);
        }
        for number in (0..PAGES).filter(|_| rng.one_in(16)).collect::<Vec<_>>() {
            let discard = Operation::Discard { offset: number * P, length: P };
            device.submit(CPU, discard).unwrap();
            versions[number as usize] = None;
        }
        zswap.reclaim(CPU, rng.below(PAGES));
        let there = zswap.area_stats(area()).unwrap().on_device;
        assert_eq!(live() / (P / 2 + 64), there, "{there} pages are there");
    }
    for (number, version) in (0..).zip(&versions) {
        assert!(read(&device, number) == version.map_or([0; PAGE_SIZE], page), "page {number}");
    }
    assert!(log.stats().cleaned_segments > 0);
    for (number, version) in (0..).zip(&versions) {
        write(&device, number, &page(version.unwrap_or(number)));
    }
    assert_eq!(live(), 0, "all pages are in the cache");
    zswap.reclaim(CPU, PAGES);
    assert!(live() > 0);
    zswap.invalidate_area(CPU, area());
    assert_eq!(live(), 0, "there are no pages");
}

/// The log gets the objects of the cache byte by byte. Pages that have none, and objects of a codec
/// that needs memory to expand a page, are compressed for the log.
#[test]
fn a_log_has_the_objects_of_the_cache() {
    const PAGES: u64 = 64;
    for (codec, is_kept) in [("lz4", true), ("lzo-rle", true), ("zstd", true), ("deflate", false)] {
        let zswap = cache(2);
        let below = Arc::new(Plain::new(8 << 20));
        let spec = Spec::new(below.clone(), "below", Layout::Log(PAGES));
        let device = on(&zswap, PAGES, Some(Store::open(spec).unwrap().device));
        zswap.set_compressor(codec).unwrap();
        let noise = |number| {
            let mut page = [0; PAGE_SIZE];
            testkit::Rng::new(number).fill(&mut page);
            page
        };
        let contents = |number: u64| match number % 4 {
            0 => [number as u8; PAGE_SIZE],
            1 => noise(number),
            _ => areas::contents(number | 3),
        };
        (0..PAGES).for_each(|number| write(&device, number, &contents(number)));
        assert_eq!(zswap.reclaim(CPU, PAGES).written, PAGES);
        let mut all = vec![0; 8 << 20];
        below.submit(CPU, Operation::Read { offset: 0, into: &mut all }).unwrap();
        let compressor = zcomp::open(codec, &Default::default()).unwrap();
        let (mut context, mut object) = (compressor.context().unwrap(), [0; 2 * PAGE_SIZE]);
        for number in (0..PAGES).filter(|number| number % 4 > 1) {
            let length = context.compress(&contents(number), &mut object).unwrap();
            let is_there = all.windows(length).any(|bytes| bytes == &object[..length]);
            assert_eq!(is_there, is_kept, "{codec}: page {number}, {length} bytes");
        }
        assert_eq!(zswap.scrub(CPU).unwrap(), PAGES);
        for number in 0..PAGES {
            assert!(read(&device, number) == contents(number), "{codec}: page {number}");
        }
    }
}

#[test]
fn a_memcg_tells_what_came_and_went() {
    let zswap = cache(1);
    let device = on(&zswap, 64, None);
    let memcg = zswap.memcg("default").unwrap();
    let stat =
        || Bound::new(Arc::new(memcg.clone()), MEMCG_ATTRIBUTES).show("memory.stat").unwrap();
    (0..5).for_each(|number| write(&device, number, &page(number)));
    let mut noise = page(9);
    testkit::Rng::new(10).fill(&mut noise);
    write(&device, 9, &noise);
    (0..3).for_each(|number| assert_eq!(read(&device, number), page(number)));
    let key = |offset| Key { swap: area(), offset };
    zswap.load_and_take(CPU, key(3), &mut page(0)).unwrap();
    let bytes = zswap.stats().compressed_bytes;
    let expected = format!(
        "zswap {bytes}\nzswapped 20480\nzswap_incomp 4096\nzswpin 4\nzswpout 6\nzswpwb 0\n"
    );
    assert_eq!(stat(), expected);
    zswap.invalidate_page(CPU, key(9));
    assert!(stat().contains("zswapped 16384\nzswap_incomp 0\n"), "{}", stat());
}

/// While pages are on their way out of a full cache, others wait for that: the cache goes on taking
/// pages, and has no need to shrink first.
#[test]
fn a_cache_that_others_write_back_takes_pages_still() {
    const PAGES: u64 = 1024;
    let (zswap, device, gated) = gated(PAGES);
    let quick = beside(&zswap, PAGES, Some(Arc::new(Plain::new(PAGES as usize * PAGE_SIZE))));
    let rows = Bound::new(zswap.clone(), PARAMETERS);
    rows.store("max_pool_bytes", "1M").unwrap();
    rows.store("writebacks_max", "32").unwrap();
    (0..400).for_each(|number| write(&device, number, &page(number)));
    let is_refused = || zswap.stats().writebacks_refused > 0;
    thread::scope(|scope| {
        let evicting = scope.spawn(|| zswap.reclaim(Cpu(1), 32).written);
        let is_under_way = wait_until(|| zswap.stats().asked > 0);
        let writing = scope.spawn(|| {
            let refused = |it: &u64| {
                write(&quick, *it, &page(1000 + it));
                is_refused()
            };
            (0..PAGES).find(refused)
        });
        let is_full = wait_until(is_refused);
        gated.open();
        let last = writing.join().unwrap();
        assert_eq!((is_under_way, is_full, evicting.join().unwrap()), (true, true, 32));
        let before = zswap.stats();
        assert_eq!(before.through, 0, "page {last:?} went to the device: {before:?}");
        write(&quick, PAGES - 1, &page(0));
        assert_eq!(zswap.stats().stores, before.stores + 1, "the next one, too");
    });
}

/// A device whose writes wait for a gate.
struct Gated {
    plain: Plain,
    is_open: (Mutex<bool>, Condvar),
}

impl Gated {
    fn open(&self) {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.plain.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.plain.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Write { .. } = operation {
            let is_open = self.is_open.0.lock().unwrap();
            let limit = Duration::from_secs(60);
            drop(self.is_open.1.wait_timeout_while(is_open, limit, |it| !*it).unwrap());
        }
        self.plain.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, from: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.plain.extents(cpu, from, length, visit)
    }
}

/// A page that has no other place waits for pages that are on their way out of a full cache.
#[test]
fn a_full_cache_waits_for_what_is_being_written_back() {
    const PAGES: u64 = 1024;
    let (zswap, device, gated) = gated(PAGES);
    let alone = beside(&zswap, PAGES, None);
    let rows = Bound::new(zswap.clone(), PARAMETERS);
    rows.store("max_pool_bytes", "1M").unwrap();
    rows.store("writebacks_max", "32").unwrap();
    (0..400).for_each(|number| write(&device, number, &page(number)));
    thread::scope(|scope| {
        let evicting = scope.spawn(|| zswap.reclaim(Cpu(1), 32).written);
        let is_under_way = wait_until(|| zswap.stats().asked > 0);
        // It has more than what is left.
        let writing = scope.spawn(|| (0..200).for_each(|it| write(&alone, it, &page(1000 + it))));
        let is_full = wait_until(|| zswap.stats().writebacks_refused > 0);
        gated.open();
        writing.join().unwrap();
        assert_eq!((is_under_way, is_full, evicting.join().unwrap()), (true, true, 32));
    });
    (0..200).for_each(|it| assert!(read(&alone, it) == page(1000 + it), "page {it}"));
    (0..400).for_each(|it| assert!(read(&device, it) == page(it), "page {it}"));
}

/// A page that has no other place makes room in a cache that has to shrink, which takes others no
/// more.
#[test]
fn a_page_that_must_stay_makes_room_in_a_cache_that_has_to_shrink() {
    const PAGES: u64 = 1024;
    let zswap = cache(2);
    let device = on(&zswap, PAGES, Some(Arc::new(Plain::new(PAGES as usize * PAGE_SIZE))));
    let (alone, memcg) = (beside(&zswap, PAGES, None), zswap.memcg("default").unwrap());
    let rows = Bound::new(zswap.clone(), PARAMETERS);
    rows.store("max_pool_bytes", "1M").unwrap();
    rows.store("accept_threshold_percent", "30").unwrap();
    // The cache has to shrink once it is full and no page may leave.
    memcg.set_writeback(false);
    let store = |number: &u64| {
        let from = page(*number);
        device.submit(CPU, Operation::Write { offset: number * P, from: &from }).is_err()
    };
    let full = (0..PAGES).find(store).expect("there is a limit");
    memcg.set_writeback(true);
    write(&alone, 0, &page(PAGES));
    assert!(read(&alone, 0) == page(PAGES));
    (0..full).for_each(|it| assert!(read(&device, it) == page(it), "page {it}"));
}

/// A cache whose limit was lowered shrinks with each page that comes, and not on the way of one.
#[test]
fn a_lower_limit_holds_no_page_up() {
    const PAGES: u64 = 1024;
    for of_memcg in [false, true] {
        let zswap = cache(1);
        let below = Arc::new(Plain::new((PAGES + 1) as usize * PAGE_SIZE));
        let device = on(&zswap, PAGES + 1, Some(below));
        (0..PAGES).for_each(|number| write(&device, number, &page(number)));
        match of_memcg {
            true => zswap.memcg("default").unwrap().set_max(64 << 10),
            false => zswap.set_max_pool_bytes(64 << 10),
        }
        write(&device, PAGES, &page(PAGES));
        let stats = zswap.stats();
        assert!((1..=64).contains(&stats.written_back_pages), "{of_memcg}: {stats:?}");
        assert_eq!(stats.through, 1, "{of_memcg}: {stats:?}");
        (0..=PAGES).for_each(|it| assert!(read(&device, it) == page(it), "{of_memcg}: page {it}"));
    }
}

/// Another area of the cache.
fn beside(zswap: &Arc<Zswap>, pages: u64, device: Option<Arc<dyn BlockDevice>>) -> SwapDevice {
    let (area, memcg) = (SwapType::new(4).unwrap(), zswap.memcg("default").unwrap());
    zswap.swapon(area, pages, AreaOptions { device, memcg }).unwrap();
    SwapDevice::new(zswap.clone(), area)
}

/// Waits until `is_so`, but not for ever. Returns whether it is.
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() && Instant::now() < end {
        thread::yield_now();
    }
    is_so()
}

fn gated(pages: u64) -> (Arc<Zswap>, SwapDevice, Arc<Gated>) {
    let plain = Plain::new(pages as usize * PAGE_SIZE);
    let gated = Arc::new(Gated { plain, is_open: Default::default() });
    let zswap = cache(2);
    let device = on(&zswap, pages, Some(gated.clone()));
    (zswap, device, gated)
}

/// A thread that serves other requests too must not wait because a part of a request is done.
#[test]
fn a_store_that_is_done_in_part_does_not_wait() {
    let (zswap, device, gated) = gated(8);
    zswap.policy().set_max_compression_ratio(50).unwrap();
    let mut from = [0; 2 * PAGE_SIZE];
    testkit::Rng::new(1).fill(&mut from[PAGE_SIZE..]);
    let at_once = |operation| device.perform(Context::at_once(CPU), operation);
    let write = || Operation::Write { offset: 0, from: &from };
    assert_eq!(at_once(write()), Err(IoError::WouldBlock));
    assert_eq!((zswap.stats().asked, zswap.stats().stores), (0, 0));
    gated.open();
    device.submit(CPU, write()).unwrap();
    let stats = zswap.stats();
    assert_eq!((stats.through, stats.stores), (1, 1));
    // The second page is on the device now.
    let mode = ZeroMode::KeepAllocated;
    let zeroes = || Operation::WriteZeroes { offset: 0, length: 2 * P, mode };
    assert_eq!(at_once(zeroes()), Err(IoError::WouldBlock));
    assert_eq!(read(&device, 1), from[PAGE_SIZE..]);
    assert_eq!(zswap.stats().stores, 1, "what is repeated counts once");
    device.submit(CPU, zeroes()).unwrap();
    assert_eq!((read(&device, 1), zswap.stats().on_device), ([0; PAGE_SIZE], 0));
}

#[test]
fn a_discard_that_is_done_in_part_does_not_wait() {
    const PAGES: u64 = 128;
    let (zswap, device, gated) = gated(PAGES);
    write(&device, 100, &page(1));
    thread::scope(|scope| {
        let evicting = scope.spawn(|| zswap.reclaim(Cpu(1), 1).written);
        let end = Instant::now() + Duration::from_secs(30);
        while zswap.stats().asked == 0 && Instant::now() < end {
            thread::yield_now();
        }
        let discard = || Operation::Discard { offset: 0, length: PAGES * P };
        let discarded = device.perform(Context::at_once(CPU), discard());
        gated.open();
        assert_eq!((discarded, evicting.join().unwrap()), (Err(IoError::WouldBlock), 1));
        device.submit(CPU, discard()).unwrap();
    });
    assert_eq!((read(&device, 100), zswap.stats().on_device), ([0; PAGE_SIZE], 0));
}

/// Stores of an area without a device have pages of another area written back.
#[test]
fn an_area_without_a_device_does_not_wait_for_that_of_another() {
    const PAGES: u64 = 1024;
    let (zswap, device, gated) = gated(PAGES);
    let alone = beside(&zswap, PAGES, None);
    write(&alone, 0, &page(0));
    Bound::new(zswap.clone(), PARAMETERS).store("max_pool_bytes", "1M").unwrap();
    (0..400).for_each(|number| write(&device, number, &page(number)));
    // One of a few requests finds room for some of its pages alone.
    let from: Vec<u8> = (0..64).flat_map(page).collect();
    let write = |first: u64| Operation::Write { offset: first * 64 * P, from: &from };
    let blocked = (1..8).any(|first| {
        alone.perform(Context::at_once(CPU), write(first)) == Err(IoError::WouldBlock)
    });
    assert_eq!((blocked, zswap.stats().asked), (true, 0));
    assert_eq!(read(&alone, 0), page(0));
    gated.open();
    (1..8).for_each(|first| alone.submit(CPU, write(first)).unwrap());
    (0..64).for_each(|number| assert_eq!(read(&alone, 64 + number), page(number)));
}
