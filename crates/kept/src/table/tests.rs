use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use host::Memfds;
use testkit::Rng;

use super::*;
use crate::contents::{Device, Mount, Region};

const PAGE: u32 = 4096;

fn contents(rng: &mut Rng) -> Contents {
    let regions = (0..rng.below(20)).map(|n| Region {
        name: format!("region {n}"),
        descriptor: format!("r{n}"),
        bytes: rng.next_u64() >> 20,
    });
    let regions = regions.collect();
    let devices = (0..rng.below(20)).map(|n| Device {
        name: format!("zram{n}"),
        bytes: rng.next_u64() >> 20,
        generation: rng.below(9),
        settings: BTreeMap::from([("comp_algorithm".to_owned(), "zstd".to_owned())]),
    });
    let devices = devices.collect();
    let mounts = (0..rng.below(3)).map(|n| Mount {
        name: format!("mount {n}"),
        descriptor: format!("m{n}"),
        files: BTreeMap::from([(format!("zram{n}"), rng.next_u64())]),
    });
    let mounts = mounts.collect();
    let asked = (0..rng.below(2)).map(|n| (format!("option {n}"), "1G".to_owned())).collect();
    Contents { regions, devices, mounts, asked }
}

fn table() -> Table {
    Table::create(Memfds::new().file(Table::BYTES).unwrap(), PAGE).unwrap()
}

fn again(table: &Table) -> Result<(Table, Contents), TableError> {
    Table::open(table.file.try_clone().unwrap(), PAGE)
}

#[test]
fn a_later_process_reads_what_was_written() {
    let mut rng = Rng::new(testkit::seed("a_later_process_reads_what_was_written"));
    let mut table = table();
    assert_eq!(again(&table).unwrap().1, Contents::default());
    for round in 0..100 {
        let written = contents(&mut rng);
        table.write(&written).unwrap();
        let (opened, read) = again(&table).unwrap();
        assert_eq!(read, written);
        assert_eq!(opened.sequence(), round + 2);
        // The next write comes from the later process.
        table = opened;
    }
}

/// Carries out the first `length` bytes of the writes `steps`, in their order.
fn cut(image: &mut [u8], steps: &[(u64, Vec<u8>)], length: usize) {
    let mut left = length;
    for (offset, bytes) in steps {
        let now = left.min(bytes.len());
        // A word is written as a whole or not at all.
        let now = if bytes.len() <= 8 && now < bytes.len() { 0 } else { now };
        image[*offset as usize..*offset as usize + now].copy_from_slice(&bytes[..now]);
        left = left.saturating_sub(bytes.len());
    }
}

/// Whether a kill at any byte of the writes leaves the old or the new contents.
fn survives_kills(rng: &mut Rng, order: impl Fn(&mut [(u64, Vec<u8>)])) -> Result<(), TableError> {
    let mut image = image(PAGE, &serde_json::to_vec(&contents(rng)).unwrap()).unwrap();
    for sequence in 2..12 {
        let old = decode(&image, PAGE)?.1;
        let new = contents(rng);
        let mut steps = steps(sequence, new.layout(), &new).unwrap();
        order(&mut steps);
        let whole = steps.iter().map(|(_, bytes)| bytes.len()).sum();
        for length in (0..whole).chain([whole]) {
            let mut killed = image.clone();
            if length % 97 != 0 && length + 12 < whole {
                continue;
            }
            cut(&mut killed, &steps, length);
            let (found, read) = decode(&killed, PAGE)?;
            let expected = if found == sequence { &new } else { &old };
            assert_eq!((&read, found == sequence), (expected, length == whole));
        }
        cut(&mut image, &steps, whole);
    }
    Ok(())
}

#[test]
fn a_kill_leaves_the_old_or_the_new_contents() {
    let mut rng = Rng::new(testkit::seed("a_kill_leaves_the_old_or_the_new_contents"));
    survives_kills(&mut rng, |_| {}).unwrap();
    let broken = survives_kills(&mut rng, |steps| steps.reverse()).unwrap_err();
    assert!(matches!(broken, TableError::Damaged(_)), "{broken}");
    let broken =
        survives_kills(&mut rng, |steps| steps[0].0 = place(steps_number(steps) + 1) as u64);
    assert!(broken.is_err(), "the copy in use is written over");
}

fn steps_number(steps: &[(u64, Vec<u8>)]) -> u64 {
    long(&steps[2].1, 0).unwrap()
}

#[test]
fn what_cannot_be_read_says_why() {
    let good = image(PAGE, br#"{"regions":[],"devices":[]}"#).unwrap();
    assert!(decode(&good, PAGE).is_ok());
    let said = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        decode(&bytes, PAGE).unwrap_err().to_string()
    };
    let set = |at: usize, number: u32| {
        said(&move |bytes| bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes()))
    };
    assert_eq!(said(&|bytes| bytes[0] = b'x'), "the file has no table of kept state");
    assert_eq!(said(&Vec::clear), "the file has no table of kept state");
    assert_eq!(
        set(8, 3),
        "the kept state has a newer layout, 3; this program reads layouts 1 to 2"
    );
    assert_eq!(
        set(8, 0),
        "the kept state has an older layout, 0; this program reads layouts 1 to 2"
    );
    assert_eq!(
        set(12, BYTE_ORDER.swap_bytes()),
        "the kept state is of a machine with the other byte order"
    );
    assert_eq!(
        set(16, 65536),
        "the kept state is of a system with pages of 65536 bytes; they have 4096 here"
    );
    let damaged = "the table of kept state is damaged: ";
    let never = said(&|bytes| bytes[CURRENT..CURRENT + 8].fill(0));
    assert_eq!(never, format!("{damaged}it was never written"));
    let other = said(&|bytes| bytes[CURRENT] ^= 2);
    assert!(other.starts_with(damaged) && other.contains("sequence number"), "{other}");
    let flipped = said(&|bytes| bytes[HEADER + COPY + 20] ^= 1);
    assert_eq!(flipped, format!("{damaged}the checksum of the current copy is wrong"));
    assert_eq!(set(HEADER + COPY + 8, u32::MAX), format!("{damaged}it is cut off"));
    for length in [HEADER - 1, HEADER + COPY, HEADER + COPY + 30] {
        assert_eq!(said(&move |bytes| bytes.truncate(length)), format!("{damaged}it is cut off"));
    }
    for (text, why) in [
        (&b"{}"[..], "missing field `regions`"),
        (b"", "EOF"),
        (br#"{"regions":[],"devices":[],"more":1}"#, "unknown field `more`"),
    ] {
        let said = decode(&image(PAGE, text).unwrap(), PAGE).unwrap_err().to_string();
        assert!(said.starts_with(damaged) && said.contains(why), "{said}");
    }
    let file = Memfds::new().file(Table::BYTES + 4096).unwrap();
    assert!(matches!(Table::open(file, PAGE), Err(TableError::NotATable)));
}

#[test]
fn what_cannot_be_written_changes_nothing() {
    let mut table = table();
    let region = |name: &str| Region { name: name.into(), descriptor: name.into(), bytes: 1 };
    let of = |regions| Contents { regions, ..Contents::default() };
    let small = of(vec![region("a"), region("b")]);
    table.write(&small).unwrap();
    let twice = of(vec![region("a"), region("a")]);
    let said = table.write(&twice).unwrap_err().to_string();
    assert_eq!(said, "the table of kept state is damaged: two regions \"a\"");
    let long = of(vec![region(&"x".repeat(COPY))]);
    assert!(matches!(table.write(&long), Err(TableError::TooLong(_))));
    assert_eq!(again(&table).unwrap().1, small);
    let _: OwnedFd = table.file.into();
}
