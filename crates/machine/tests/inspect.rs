//! A look at disks that outlive their process finds each state that cannot be right, by the number
//! of the invariant that is broken, and changes nothing. So does a look at swap areas, in words.

#[path = "recovery_swap/areas.rs"]
#[allow(dead_code)]
mod areas;
#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::fs::File;
use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use control::Object;
use host::{KeptRegion, Memfds};
use machine::{Inspected, Machine, SwapSeen, inspect};
use testkit::{Rng, TempDir};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, SavedDisk, Share, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 600;
const SLOTS: &str = "zram0.1.slots";
const MARKS: &str = "zram0.1.slots.1";
const RECORD: &str = "zram0.1.record";
const ZSPAGES: &str = "zram0.1.zspages";
const SHARED: &str = "zram0.1.shared";
const LOG: &str = "zram0.1.log";
const FRAMES: &str = "zram.frames";
/// Bytes of the descriptor of a zspage, and where its class and its frames are in it.
const DESCRIPTOR: u64 = 128;
const CLASS_AT: u64 = 24;
const FRAMES_AT: u64 = 28;
/// Where the number of descriptors and the mark of the size classes are in descriptor 0.
const FRESH_AT: u64 = 16;
const MARK_AT: u64 = 20;

/// A third of text, a third of noise, and patterns.
fn contents(page: u64) -> Page {
    // These two are equal, and share an object.
    let page = if page == 48 { 45 } else { page };
    let mut bytes = [0; PAGE_SIZE];
    match page % 3 {
        0 => Rng::new(page).fill(&mut bytes[..1500]),
        1 => Rng::new(page).fill(&mut bytes),
        _ => bytes.fill(page as u8),
    }
    bytes
}

/// A state that a process left, with the pages 30 to 39 on a backing device.
struct State {
    regions: Vec<KeptRegion>,
    disks: Vec<SavedDisk>,
    _directory: TempDir,
}

impl State {
    fn new() -> State {
        State::with("pages")
    }

    fn with(layout: &str) -> State {
        let directory = TempDir::new();
        let backing = directory.path().join("backing");
        File::create(&backing).unwrap().set_len(3 << 20).unwrap();
        // What dies here keeps its descriptors.
        let _ = host::allow_descriptors(0);
        let memory = Memfds::new();
        let machine = Machine::kept(&memory, Arc::new(host::Mmap), kept::options()).unwrap();
        let disk: Arc<Disk> = machine.add().unwrap();
        let rows = attributes(disk.clone());
        for (name, value) in [
            ("sealed_backing", "0"),
            ("backing_layout", layout),
            ("backing_dev", backing.to_str().unwrap()),
            ("disksize", &(PAGES * PAGE_SIZE as u64).to_string()),
        ] {
            rows.store(name, value).unwrap();
        }
        for page in 0..PAGES {
            disk.store_page(CPU, page, &contents(page)).unwrap();
        }
        assert_eq!(disk.share(&Share::default()).unwrap(), 1);
        disk.writeback(&Writeback { select: None, pages: vec![(30, 39)] }).unwrap();
        let (regions, disks) = (memory.regions(), machine.saved());
        // It dies: nothing of it is given up.
        forget(machine);
        State { regions, disks, _directory: directory }
    }

    fn file(&self, name: &str) -> &File {
        &self.regions.iter().find(|region| region.name == name).expect(name).file
    }

    fn read<const N: usize>(&self, name: &str, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file(name).read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) {
        self.file(name).write_all_at(bytes, at).unwrap();
    }

    fn word(&self, name: &str, at: u64) -> u64 {
        u64::from_ne_bytes(self.read(name, at * 8))
    }

    fn set_word(&self, name: &str, at: u64, word: u64) {
        self.write(name, at * 8, &word.to_ne_bytes());
    }

    fn change(&self, page: u64, change: impl FnOnce(u64) -> u64) {
        self.set_word(SLOTS, page, change(self.word(SLOTS, page)));
    }

    /// The descriptor of the zspage in which the object of a page is.
    fn descriptor(&self, page: u64) -> u64 {
        (self.word(SLOTS, page) & 0xffff_ffff) >> 7
    }

    /// A sum of all that is there.
    fn sum(&self) -> Vec<(String, u64)> {
        let sum = |region: &KeptRegion| {
            let mut chunk = vec![0; 1 << 20];
            let mut sum = 0u64;
            let mut from = 0;
            while let Some(data) = region.data(from).unwrap() {
                for offset in data.clone().step_by(chunk.len()) {
                    let length = chunk.len().min((data.end - offset) as usize);
                    region.file.read_exact_at(&mut chunk[..length], offset).unwrap();
                    for word in chunk[..length].chunks_exact(8) {
                        let word = u64::from_ne_bytes(word.try_into().unwrap());
                        let kept = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
                        // A page of zeroes may get memory by the look.
                        sum = if word == 0 { sum } else { kept };
                    }
                }
                from = data.end;
            }
            (region.name.clone(), sum)
        };
        self.regions.iter().map(sum).collect()
    }

    /// What is found, as one text; the error if nothing can be recovered.
    fn look(&self) -> (bool, String) {
        let before = self.sum();
        let found = inspect(&self.regions, &self.disks, None, true, &|_| ());
        assert!(before == self.sum(), "a look changes nothing");
        match found {
            Err(error) => (false, error.message),
            Ok(found) => (found.is_clean(), text(&found)),
        }
    }
}

fn text(found: &Inspected) -> String {
    let disks = found.disks.iter().flat_map(|disk| &disk.findings.told);
    disks.chain(&found.others.told).cloned().collect::<Vec<_>>().join("\n")
}

#[test]
fn a_right_state_is_clean_and_can_be_recovered_after_the_look() {
    let mut state = State::new();
    assert_eq!(state.look(), (true, String::new()));
    // Also as a kill leaves it, with locks and claims.
    for (page, bits) in [(8, 1 << 63), (9, 3 << 62), (10, 1 << 52), (12, 1 << 63 | 3 << 52)] {
        state.change(page, |word| word | bits);
    }
    assert_eq!(state.look(), (true, String::new()));
    let found = inspect(&state.regions, &state.disks, None, false, &|_| ()).unwrap();
    assert_eq!((found.disks[0].pages, found.disks[0].lost), (PAGES, 0));
    // This process has the backing file locked.
    let (_, path) =
        state.disks[0].settings.iter_mut().find(|(name, _)| name == "backing_dev").unwrap();
    let copy = format!("{path}.copy");
    std::fs::copy(&*path, &copy).unwrap();
    *path = copy;
    let saved = kept::Saved { disks: state.disks.clone(), swap: None, below: None };
    let machine = kept::recovered(&kept::adopted(&state.regions), &saved);
    let disk = machine.disk(0).unwrap();
    for page in 0..PAGES {
        let mut found = [0; PAGE_SIZE];
        disk.load_page(CPU, page, &mut found).unwrap();
        assert!(found == contents(page), "page {page}");
    }
}

#[test]
fn each_state_that_cannot_be_is_found_by_its_number() {
    type Damage = fn(&State);
    // Page 3 is compressed, 4 is huge, 5 same-filled, and 31 is on the backing device.
    let damages: &[(&str, &str, Damage)] = &[
        ("K5", "its record is none", |it| it.set_word(RECORD, 0, 7)),
        ("K5", "its record has layout 9", |it| it.set_word(RECORD, 1, 9)),
        ("K6", "its size of 12345 bytes is none", |it| it.set_word(RECORD, 2, 12_345)),
        ("K6", "bytes is none of", |it| it.set_word(RECORD, 2, 1 << 50)),
        ("K7", "what was kept of codec 0 is damaged", |it| {
            it.set_word(RECORD, 18, it.word(RECORD, 18) ^ 3);
        }),
        ("K7", "nothing was kept of its primary codec", |it| it.set_word(RECORD, 16, 0)),
        ("K8", "there is room for", |it| it.write(ZSPAGES, FRESH_AT, &[0xff; 4])),
        ("K8", "other size classes", |it| it.write(ZSPAGES, MARK_AT, &[5; 4])),
        ("K9", "has size class", |it| {
            it.write(ZSPAGES, it.descriptor(3) * DESCRIPTOR + CLASS_AT, &[0xff; 2]);
        }),
        ("K10", "which there is not", |it| {
            it.write(ZSPAGES, it.descriptor(3) * DESCRIPTOR + FRAMES_AT, &[0xff; 4]);
        }),
        ("K11", "which another has too", |it| {
            let frame: [u8; 4] = it.read(ZSPAGES, it.descriptor(4) * DESCRIPTOR + FRAMES_AT);
            it.write(ZSPAGES, it.descriptor(3) * DESCRIPTOR + FRAMES_AT, &frame);
        }),
        ("K12", "a frame beyond its chain", |it| {
            // The objects of its size class need no chain of 16 frames.
            it.write(
                ZSPAGES,
                it.descriptor(3) * DESCRIPTOR + FRAMES_AT + 60,
                &9000u32.to_ne_bytes(),
            );
        }),
        ("K13", "slot 512 of zram0.1.slots is in a part that is not marked", |it| {
            it.set_word(MARKS, 0, it.word(MARKS, 0) & !2);
        }),
        ("K14", "says nothing that can be", |it| it.change(3, |word| word | 1 << 60)),
        ("K14", "says nothing that can be", |it| it.change(5, |word| word | 1 << 57)),
        ("K15", "nothing was kept of its codec 9", |it| it.change(3, |word| word | 9 << 45)),
        ("K16", "there is no zspage 0", |it| it.change(3, |word| word & !0xffff_ffff | 5)),
        ("K16", "no such slot", |it| it.change(4, |word| word | 0x7f)),
        ("K16", "has no frame for it", |it| {
            it.write(ZSPAGES, it.descriptor(4) * DESCRIPTOR + FRAMES_AT, &[0; 4]);
        }),
        ("K17", "page 90 of zram0: another page has the same object", |it| {
            it.set_word(SLOTS, 90, it.word(SLOTS, 3));
        }),
        ("K18", "is none of the", |it| it.change(31, |word| word | 0xffff)),
        ("K19", "page 31 of zram0: another page has the same block", |it| {
            it.set_word(SLOTS, 33, it.word(SLOTS, 31));
        }),
        ("K15", "page 45 of zram0: nothing was kept of its codec 9", |it| {
            it.set_word(SHARED, 2, it.word(SHARED, 2) | 9 << 45);
        }),
        ("K16", "page 48 of zram0: there is no zspage 0", |it| {
            it.set_word(SHARED, 2, it.word(SHARED, 2) & !0xffff_ffff | 5);
        }),
        ("K17", "page 48 of zram0: another page has the same object", |it| {
            let object = it.word(SHARED, 2) & ((1 << 50) - 1);
            it.set_word(SLOTS, 90, object | 2 << 50);
        }),
        ("K22", "there is no shared object 77", |it| {
            it.change(48, |word| word & !0xffff_ffff | 77);
        }),
        ("K22", "there is no shared object 1", |it| it.set_word(SHARED, 2, 0)),
        ("K22", "shared object 1 has no such part", |it| it.change(45, |word| word | 1 << 34)),
        ("K23", "there is room for", |it| it.set_word(SHARED, 0, 1 << 40)),
        ("K20", "contents beyond the end", |it| it.set_word(RECORD, 2, 500 * PAGE_SIZE as u64)),
        ("K21", "cannot be read", |it| {
            let frame: [u8; 4] = it.read(ZSPAGES, it.descriptor(3) * DESCRIPTOR + FRAMES_AT);
            let offset = u64::from(u32::from_ne_bytes(frame) - 1) * PAGE_SIZE as u64;
            it.write(FRAMES, offset, &[0xff; PAGE_SIZE]);
        }),
    ];
    for (number, said, damage) in damages {
        let state = State::new();
        damage(&state);
        let (is_clean, text) = state.look();
        let found =
            text.lines().any(|line| line.contains(said) && line.ends_with(&format!("({number})")));
        assert!(!is_clean && found, "{number} {said}: {text:?}");
    }
}

#[test]
fn a_log_that_cannot_be_is_found_by_its_number() {
    type Damage = fn(&State);
    assert_eq!(State::with("log").look(), (true, String::new()));
    let damages: &[(&str, &str, Damage)] = &[
        ("K24", "nothing was kept of its log", |it| it.set_word(LOG, 0, 0)),
        ("K24", "on a device that has 3145728 bytes now", |it| it.set_word(LOG, 0, 1 << 32 | 4)),
        ("K24", "what was kept of segment 0 of its log cannot be", |it| {
            it.set_word(LOG, 1, it.word(LOG, 1) | 1 << 51);
        }),
        ("K25", "beyond the end of the log", |it| it.change(31, |word| word | 0xffff_ffff)),
        ("K25", "in a segment of the log that is free", |it| {
            it.change(31, |word| word + (1 << 20) / 64);
        }),
        ("K25", "behind what was written to its segment", |it| it.change(31, |word| word + 9999)),
        ("K25", "in a segment of the log that is free", |it| it.set_word(LOG, 1, 0)),
        ("K25", "has no room for all of its objects", |it| {
            // One object for all, and a segment that has little more.
            let first = it.word(SLOTS, 31);
            (30..40).for_each(|page| it.set_word(SLOTS, page, first));
            it.set_word(LOG, 1, it.word(LOG, 1) & !(0x1_ffff << 32) | 200 << 32);
        }),
        // Another life: the headers on the device are not of it.
        ("K21", "cannot be read", |it| it.set_word(LOG, 1, it.word(LOG, 1) + (1 << 52))),
        ("K21", "cannot be read", |it| it.set_word(SLOTS, 33, it.word(SLOTS, 31))),
    ];
    for (number, said, damage) in damages {
        let state = State::with("log");
        damage(&state);
        let (is_clean, text) = state.look();
        let found =
            text.lines().any(|line| line.contains(said) && line.ends_with(&format!("({number})")));
        assert!(!is_clean && found, "{number} {said}: {text:?}");
    }
}

#[test]
fn what_is_given_up_or_not_there_is_told() {
    let mut state = State::new();
    state.regions.retain(|region| region.name != FRAMES);
    let error = inspect(&state.regions, &state.disks, None, false, &|_| ()).unwrap_err();
    assert_eq!(error.message, "there is no region \"zram.frames\"");
    let state = State::new();
    let found = inspect(&state.regions, &[], None, false, &|_| ()).unwrap();
    assert!(found.is_clean() && found.disks.is_empty());
}

#[test]
fn a_look_at_swap_areas_finds_what_recovery_finds_and_changes_nothing() {
    use areas::{
        PAGES, cache, check, device, dies, fill, index_of, read_word, recover, write_word,
    };
    let (memory, machine, zswap) = cache(None);
    fill(&device(&zswap, 0), 0..PAGES);
    forget(zswap);
    let (memory, saved) = dies(&memory, machine);
    let seen = SwapSeen { saved: saved.clone(), below: Vec::new() };
    let look =
        |memory: &Memfds| inspect(&memory.regions(), &[], Some(&seen), true, &|_| ()).unwrap();
    let found = look(&memory);
    assert!(found.is_clean(), "{found:?}");
    assert_eq!(found.swap.unwrap().areas[0].cached, PAGES);
    // An entry that cannot be, and one whose object is another page's.
    let right = read_word(&memory, index_of(7));
    write_word(&memory, index_of(7), u64::MAX - 1);
    for _ in 0..2 {
        let found = look(&memory);
        assert!(!found.is_clean());
        let swap = found.swap.unwrap();
        assert_eq!((swap.findings.all, swap.areas[0].lost), (1, 1), "{:?}", swap.findings.told);
        assert!(
            swap.findings.told[0].starts_with("page 7 of swap area 0: "),
            "{:?}",
            swap.findings.told
        );
        // It cannot be read either.
        assert!(
            found.others.told[0].starts_with("page 7 of swap0 cannot be read"),
            "{:?}",
            found.others
        );
    }
    write_word(&memory, index_of(7), right);
    let (_machine, zswap, told) = recover(&memory, &saved, None);
    check(&zswap, &told, &[]);
}
