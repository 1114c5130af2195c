//! The interface of disks, as a program has it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rampack::{
    Algorithm, Budgets, Disk, DiskOptions, Error, PAGE_SIZE, Page, Pressure, Rampack, Upkeep,
    WhenFull,
};

/// A page of words, different from the next in a word.
fn page(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    for (n, word) in page.chunks_exact_mut(8).enumerate() {
        let value = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        word.copy_from_slice(&if n == 0 { number } else { value }.to_ne_bytes());
    }
    page
}

fn manual() -> Rampack {
    Rampack::builder().memory(1 << 30).upkeep(Upkeep::Manual).build().unwrap()
}

#[test]
fn everything_goes_to_other_threads() {
    fn is_free<T: Send + Sync + Clone + 'static>() {}
    is_free::<Rampack>();
    is_free::<Disk>();
    is_free::<Error>();
    is_free::<DiskOptions>();
}

#[test]
fn each_algorithm_keeps_pages() {
    let rampack = manual();
    for algorithm in Algorithm::all() {
        let disk = rampack.disk(DiskOptions::new(1 << 20).algorithm(algorithm)).unwrap();
        disk.store(7, &page(7)).unwrap();
        let mut back = [1; PAGE_SIZE];
        disk.load(7, &mut back).unwrap();
        assert_eq!(back, page(7), "{algorithm}");
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    let error = rampack.disk(DiskOptions::new(1 << 20).algorithm(Algorithm::LZO.level(3)));
    let Err(Error::Invalid(why)) = error.map(|_| ()) else { panic!("lzo has no levels") };
    assert!(why.contains("lzo"), "{why}");
    let unknown = "zip".parse::<Algorithm>().unwrap_err().to_string();
    assert!(unknown.contains("zip") && unknown.contains("lzo-rle"), "{unknown}");
}

#[test]
fn ranges_of_bytes_are_as_they_were_written() {
    let disk = manual().disk(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    disk.write_at(3000, &bytes).unwrap();
    let mut back = vec![0; bytes.len() + 2];
    disk.read_at(2999, &mut back).unwrap();
    assert_eq!(back[1..=bytes.len()], bytes);
    assert_eq!((back[0], back[bytes.len() + 1]), (0, 0));
    assert_eq!(disk.read_at((1 << 20) - 1, &mut [0; 2]), Err(Error::OutOfRange));
    assert_eq!(disk.store(256, &[0; PAGE_SIZE]), Err(Error::OutOfRange));
    assert_eq!(disk.size(), 1 << 20);
    disk.discard(0, 256).unwrap();
    assert_eq!(disk.stats().pages, 0);
}

#[test]
fn a_program_says_what_a_store_does_at_the_limit() {
    let rampack = manual();
    // The pages differ in a word each, so packs of them are far smaller. The 64 frames are few for
    // the size classes that smaller objects need.
    let stored = [WhenFull::Fail, WhenFull::Wait].map(|when_full| {
        let options = DiskOptions::new(64 << 20).mem_limit(256 << 10).when_full(when_full);
        let disk = rampack.disk(options.auto(Budgets::default())).unwrap();
        let refused = (0..16_384).find_map(|index| disk.store(index, &page(index)).err());
        assert_eq!(refused, Some(Error::Full), "there is a limit");
        disk.stats().pages
    });
    assert!(stored[1] > 2 * stored[0], "{stored:?} pages");
}

#[test]
fn bad_settings_are_refused_in_words() {
    let small = Rampack::builder().memory(1000).build().err().unwrap();
    assert!(small.to_string().contains("1 MiB"), "{small}");
    assert_eq!(small.errno(), 22);
    let none = manual().disk(0).err().unwrap();
    assert!(matches!(none, Error::Invalid(_)), "{none:?}");
    let error: std::io::Error = Error::Full.into();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn all_disks_together_stay_within_the_memory() {
    let (told, said) = mpsc::channel();
    let builder = Rampack::builder().memory(4 << 20).upkeep(Upkeep::Manual);
    let rampack = builder.on_pressure(move |why| told.send(why).unwrap()).build().unwrap();
    rampack.upkeep().unwrap();
    assert!(said.try_recv().is_err(), "nothing is stored");
    let disks = [rampack.disk(64 << 20).unwrap(), rampack.disk(64 << 20).unwrap()];
    let mut noise = fastrand::Rng::with_seed(1);
    let mut bytes = [0; PAGE_SIZE];
    let refused = (0..4096).find_map(|n| {
        noise.fill(&mut bytes);
        disks[n % 2].store(n as u64, &bytes).err()
    });
    assert!(matches!(refused, Some(Error::NoMemory(_))), "{refused:?}");
    rampack.upkeep().unwrap();
    let Ok(Pressure::Limit(memory)) = said.try_recv() else { panic!("the memory is used") };
    assert!(memory.used_bytes <= memory.limit_bytes && memory.limit_bytes == 4 << 20, "{memory:?}");
    drop(disks);
    assert_eq!(rampack.memory().used_bytes, 0);
}

#[test]
fn the_thread_of_upkeep_ends_with_the_last_disk() {
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let names = tasks.filter_map(|task| name(task).ok());
        names.filter(|name| name.trim() == "rampack-upkeep").count()
    };
    let rampack = Rampack::new().unwrap();
    let disk = rampack.disk(1 << 20).unwrap();
    drop(rampack);
    disk.store(0, &page(0)).unwrap();
    // A thread has its name a moment after it was started.
    while named() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(disk);
    while named() > 0 {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn clones_are_disks_of_their_own() {
    let rampack = manual();
    let disk = rampack.disk(1 << 20).unwrap();
    (0..200).for_each(|n| disk.store(n, &page(n)).unwrap());
    let one = disk.stats();
    let first = disk.clone_contents().unwrap();
    let second = first.clone_contents().unwrap();
    (0..100).for_each(|n| first.store(n, &page(n + 1000)).unwrap());
    let mut back = [0; PAGE_SIZE];
    for n in 0..200 {
        disk.load(n, &mut back).unwrap();
        assert_eq!(back, page(n));
        first.load(n, &mut back).unwrap();
        assert_eq!(back, page(if n < 100 { n + 1000 } else { n }));
    }
    assert!(disk.stats().memory_bytes < 2 * one.memory_bytes);
    // A clone goes on without the handles of the others, and the memory ends with the last.
    drop((disk, first));
    second.load(7, &mut back).unwrap();
    assert_eq!(back, page(7));
    drop(second);
    assert_eq!(rampack.memory().used_bytes, 0);
}
