//! Pages that were written back sealed: they come back with their key and their seals, or are lost.

use super::*;

/// A disk with pages 11 to 13 on a sealed backing device.
fn with_sealed_pages(directory: &TempDir) -> (Memfds, Machine) {
    let (memory, machine) = machine();
    let disk = machine.add().unwrap();
    let backing = directory.path().join("backing");
    File::create(&backing).unwrap().set_len(100 * PAGE_SIZE as u64).unwrap();
    set(&disk, "backing_dev", backing.to_str().unwrap());
    set(&disk, "disksize", &(PAGES * PAGE_SIZE as u64).to_string());
    fill(&disk, 0..PAGES);
    disk.writeback(&Writeback { select: None, pages: vec![(11, 13)] }).unwrap();
    (memory, machine)
}

#[test]
fn pages_that_were_written_back_sealed_come_back_again_and_again() {
    let directory = TempDir::new();
    let (mut memory, mut machine) = with_sealed_pages(&directory);
    for round in 0..3 {
        let (next, mut disks) = dies(&memory, machine);
        move_backing(&mut disks);
        let (recovered, told) = try_recover(&next, &disks).unwrap();
        assert_eq!(told[0].findings.all, 0, "{told:?}");
        check(&recovered, &told[0], &[]);
        let disk = recovered.disk(0).unwrap();
        assert_eq!(show(&disk, "bd_stat").split_whitespace().next(), Some("3"), "round {round}");
        set(&disk, "scrub", "1");
        (memory, machine) = (next, recovered);
    }
    // The key and the seals of a device that is given up go.
    let disk = machine.disk(0).unwrap();
    let sealed = |name: &str| name.contains(".key.") || name.contains(".seals.");
    let names = || {
        let names = memory.regions().into_iter().map(|region| region.name);
        names.filter(|name| sealed(name)).collect::<Vec<String>>()
    };
    let before = names();
    assert_eq!(before.len(), 2);
    set(&disk, "reset", "1");
    assert_eq!(names(), Vec::<String>::new());
    // Who keeps them tells the next ones by their names.
    let other = directory.path().join("other");
    File::create(&other).unwrap().set_len(100 * PAGE_SIZE as u64).unwrap();
    set(&disk, "backing_dev", other.to_str().unwrap());
    set(&disk, "disksize", "1M");
    let now = names();
    assert!(now.len() == 2 && now.iter().all(|name| !before.contains(name)), "{before:?} {now:?}");
}

/// A device of 100,000 blocks needs another region for its seals than one of 100.
#[test]
fn pages_that_were_written_back_sealed_stay_when_the_file_has_another_length() {
    let directory = TempDir::new();
    let (mut memory, mut machine) = with_sealed_pages(&directory);
    for blocks in [101, 100_000, 50, 100] {
        let (next, mut disks) = dies(&memory, machine);
        move_backing(&mut disks);
        let settings = &disks[0].settings;
        let (_, path) = settings.iter().find(|(name, _)| name == "backing_dev").unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(blocks * PAGE_SIZE as u64).unwrap();
        let (recovered, told) = try_recover(&next, &disks).unwrap();
        assert_eq!(told[0].findings.all, 0, "{blocks} blocks: {told:?}");
        check(&recovered, &told[0], &[]);
        let disk = recovered.disk(0).unwrap();
        set(&disk, "scrub", "1");
        // It goes on with it.
        fill(&disk, 12..13);
        disk.writeback(&Writeback { select: None, pages: vec![(12, 12)] }).unwrap();
        assert!(load(&disk, 12) == Ok(contents(12)), "{blocks} blocks");
        (memory, machine) = (next, recovered);
    }
}

#[test]
fn pages_that_were_sealed_with_a_key_that_is_gone_are_lost_by_name() {
    let directory = TempDir::new();
    let (memory, machine) = with_sealed_pages(&directory);
    let (memory, mut disks) = dies(&memory, machine);
    move_backing(&mut disks);
    assert!(memory.forget("zram0.key.1") && memory.forget("zram0.seals.1"));
    let (machine, told) = try_recover(&memory, &disks).unwrap();
    let found = &told[0].findings.told;
    let said = "it was written back sealed, and the key ended with the process (K18)";
    assert_eq!(found[0], format!("page 11 of zram0: {said}"));
    check(&machine, &told[0], &[11, 12, 13]);
}

/// A key without its seals, and seals without their key: what is read is an error, never data.
#[test]
fn half_of_what_opens_a_block_opens_nothing() {
    for missing in ["zram0.key.1", "zram0.seals.1"] {
        let directory = TempDir::new();
        let (memory, machine) = with_sealed_pages(&directory);
        let (memory, mut disks) = dies(&memory, machine);
        move_backing(&mut disks);
        assert!(memory.forget(missing));
        let (machine, _) = try_recover(&memory, &disks).unwrap();
        let disk = machine.disk(0).unwrap();
        for page in 0..PAGES {
            match (11..=13).contains(&page) {
                true => assert!(load(&disk, page).is_err(), "without {missing}: page {page}"),
                false => assert_eq!(load(&disk, page), Ok(contents(page))),
            }
        }
    }
}
