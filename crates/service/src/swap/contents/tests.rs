use super::*;

const MIB: usize = 1 << 20;

/// A store of this many bytes, all zero but for these.
fn store(bytes: usize, data: &[(usize, &[u8])]) -> Vec<u8> {
    let mut store = vec![0; bytes];
    for (at, data) in data {
        store[*at..at + data.len()].copy_from_slice(data);
    }
    store
}

fn judged(store: &[u8]) -> Contents {
    let end = store.len().min(END);
    contents(store.len() as u64, &store[..end], &store[store.len() - end..])
}

fn header(label: &str) -> Vec<u8> {
    header::header(4096, [7; 16], label).unwrap().to_vec()
}

#[test]
fn a_new_file_is_free_and_so_is_a_swap_area_that_was_never_used() {
    for bytes in [4096, 40960, MIB, MIB + 4096, 2 * MIB, 5 * MIB] {
        assert_eq!(judged(&store(bytes, &[])), Contents::Nothing, "{bytes}");
        let made = store(bytes, &[(0, &header("")[..])]);
        assert_eq!(judged(&made), Contents::Nothing, "{bytes}");
        let ours = store(bytes, &[(0, &header(LABEL)[..])]);
        assert_eq!(judged(&ours), Contents::Ours, "{bytes}");
    }
    // What is far from both ends does not tell.
    assert_eq!(judged(&store(5 * MIB, &[(2 * MIB, b"x")])), Contents::Nothing);
}

#[test]
fn superblocks_are_seen_wherever_they_are() {
    let bytes = 8 * MIB + 4096;
    let places: [(&str, usize, &[u8]); 16] = [
        ("partitions", 510, b"\x55\xaa"),
        ("LVM", 512, b"LABELONE"),
        ("GPT", 512, b"EFI PART"),
        ("ext4", 1024 + 56, b"\x53\xef"),
        ("md 1.1", 0, &MD),
        ("md 1.2", 4096, &MD),
        ("bcache", 4096 + 24, &BCACHE),
        ("btrfs", 65536 + 64, b"_BHRfS_M"),
        ("reiserfs", 65536 + 52, b"ReIsErFs"),
        ("ZFS, an uberblock", 128 << 10, b"\x0c\xb1\xba\0"),
        ("LVM, metadata alone", MIB - 512, b"contents"),
        ("ZFS, the last label", bytes - (256 << 10) + (128 << 10), b"\x0c\xb1\xba\0"),
        ("md 0.90", 8 * MIB - 65536, &MD),
        ("md 1.0", bytes - 8192, &MD),
        ("DRBD", bytes - 4096 + 60, b"\x83\x74\x02\x6b"),
        ("GPT, the copy", bytes - 512, b"EFI PART"),
    ];
    for (name, at, magic) in places {
        let found = judged(&store(bytes, &[(at, magic)]));
        assert!(matches!(found, Contents::Data | Contents::Known(_)), "{name}: {found:?}");
        // The header of a swap area that was there before says nothing of it.
        if at >= 4096 {
            let found = judged(&store(bytes, &[(0, &header("")[..]), (at, magic)]));
            assert!(matches!(found, Contents::SwapSpace | Contents::Known(_)), "{name}: {found:?}");
        }
    }
}

#[test]
fn a_label_does_not_hide_what_came_after_it() {
    let bytes = 8 * MIB;
    let labelled =
        |at: usize, magic: &[u8]| judged(&store(bytes, &[(0, &header(LABEL)[..]), (at, magic)]));
    // Swapped-out pages.
    for at in [4096, 65536, MIB - 1, bytes - MIB, bytes - 1] {
        assert_eq!(labelled(at, b"x"), Contents::Ours, "{at}");
    }
    let md = Contents::Known("a member of an md RAID");
    for at in [4096, bytes - 8192, bytes - 65536] {
        assert_eq!(labelled(at, &MD), md, "{at}");
    }
    assert_eq!(labelled(4096 + 24, &BCACHE), Contents::Known("a bcache device"));
    for at in [512, bytes - 512] {
        let gpt = Contents::Known("a partition table (GPT)");
        assert_eq!(labelled(at, b"EFI PART"), gpt, "{at}");
    }
    assert_eq!(
        judged(&store(bytes, &[(0, &header(LABEL)[..]), (0, b"boot")])),
        Contents::SwapSpace
    );
    // The header of the device itself may be written back over the label.
    assert_eq!(
        judged(&store(bytes, &[(0, &header("rampack-swap3")[..]), (8192, b"x")])),
        Contents::Ours
    );
}

#[test]
fn swap_space_that_was_used_is_not_free() {
    for at in [4096, MIB - 1, 2 * MIB, 3 * MIB - 1] {
        let used = store(3 * MIB, &[(0, &header("swap")[..]), (at, b"x")]);
        assert_eq!(judged(&used), Contents::SwapSpace, "{at}");
    }
    // Of a suspended machine.
    let image = store(3 * MIB, &[(4086, b"S1SUSPEND\0")]);
    assert_eq!(judged(&image), Contents::Data);
}

#[test]
fn stores_of_any_length_are_judged() {
    for bytes in [0, 1, 511, 4095, 4097, 65536, MIB - 1] {
        let found = judged(&store(bytes, &[]));
        let is_free = found == Contents::Nothing;
        assert_eq!(is_free, bytes >= 4096, "{bytes}: {found:?}");
    }
}
