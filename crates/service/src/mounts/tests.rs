use std::fs::File;

use host::parse_mounts;

use super::*;

const MOUNTINFO: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
31 22 7:0 / /mnt/a\\040b rw,nosuid master:1 shared:4 - ext4 /dev/loop0 rw,discard\n\
32 22 0:44 / /run/rampack/files rw - fuse.rampack rampack rw,user_id=0\n\
nonsense\n\
33 22 7:0 / /again rw - ext4 /dev/loop0 rw\n\
34 22 259:3 / /part rw - ext4 /dev/ublkb0p1 rw\n";

#[test]
fn mountinfo_is_understood() {
    let mounts = parse_mounts(MOUNTINFO);
    assert_eq!(mounts.len(), 5);
    assert_eq!(mounts[1].at, Path::new("/mnt/a b"));
    assert_eq!(mounts[1].source, Path::new("/dev/loop0"));
    assert_eq!((mounts[1].device, &*mounts[2].kind), ((7, 0), "fuse.rampack"));
}

#[test]
fn places_are_mounts_and_swap() {
    let swaps = swaps::parse(b"Filename\t\tType\t\tSize\n/dev/loop0   partition\t1024\t0\t-2\n");
    let mounts = parse_mounts(MOUNTINFO);
    let places = places_among(Path::new("/dev/loop0"), &[], &mounts, &swaps);
    assert_eq!(places, ["/mnt/a b", "/again", "[SWAP]"]);
    assert!(places_among(Path::new("/dev/loop1"), &[(7, 1)], &mounts, &swaps).is_empty());
    let places = places_among(Path::new("/dev/other-name"), &[(7, 0)], &mounts, &swaps);
    assert_eq!(places, ["/mnt/a b", "/again"]);
}

#[test]
fn a_partition_is_used_and_so_is_its_device() {
    let swaps = swaps::parse(b"Filename\n/dev/ublkb1p2   partition\t1024\t0\t-2\n");
    let mounts = parse_mounts(MOUNTINFO);
    for (name, numbers, places) in [
        ("ublkb0", [(259, 0), (259, 4)], &["/part"][..]),
        ("other", [(259, 0), (259, 3)], &["/part"]),
        ("ublkb1", [(259, 1), (259, 2)], &["[SWAP]"]),
        ("ublkb2", [(259, 5), (259, 6)], &[]),
    ] {
        let path = Path::new("/dev").join(name);
        assert_eq!(places_among(&path, &numbers, &mounts, &swaps), places, "{name}");
        assert_eq!(is_used(&path, &numbers, &mounts, &swaps), !places.is_empty(), "{name}");
    }
}

#[test]
fn whoever_has_a_file_open_is_found() {
    let dir = testkit::TempDir::new();
    let place = dir.path().canonicalize().unwrap();
    assert_eq!(used_by(&place), "");
    let _open = File::create(place.join("file")).unwrap();
    let holders = holders(|path| path.starts_with(&place));
    // A program that another test starts has it, too, until it runs.
    assert!(holders.iter().any(|holder| holder.pid == std::process::id()));
    assert!(used_by(&place).contains("/file"));
}
