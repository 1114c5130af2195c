use std::fs::File;

use super::*;

const MOUNTINFO: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
31 22 7:0 / /mnt/a\\040b rw,nosuid master:1 shared:4 - ext4 /dev/loop0 rw,discard\n\
32 22 0:44 / /run/rampack/files rw - fuse.rampack rampack rw,user_id=0\n\
nonsense\n\
33 22 7:0 / /again rw - ext4 /dev/loop0 rw\n";

#[test]
fn mountinfo_is_understood() {
    let mounts = parse_mountinfo(MOUNTINFO);
    assert_eq!(mounts.len(), 4);
    assert_eq!(mounts[1].target, Path::new("/mnt/a b"));
    assert_eq!(mounts[1].source, Path::new("/dev/loop0"));
    assert_eq!((&*mounts[1].device, &*mounts[2].kind), ("7:0", "fuse.rampack"));
}

#[test]
fn places_are_mounts_and_swap() {
    let swaps = b"Filename\t\tType\t\tSize\n/dev/loop0   partition\t1024\t0\t-2\n";
    let mounts = parse_mountinfo(MOUNTINFO);
    let places = places_among(Path::new("/dev/loop0"), None, &mounts, swaps);
    assert_eq!(places, ["/mnt/a b", "/again", "[SWAP]"]);
    assert!(places_among(Path::new("/dev/loop1"), Some("7:1"), &mounts, swaps).is_empty());
    let places = places_among(Path::new("/dev/other-name"), Some("7:0"), &mounts, swaps);
    assert_eq!(places, ["/mnt/a b", "/again"]);
}

#[test]
fn broken_escapes_stay_as_they_are() {
    assert_eq!(unescape(br"\04"), Path::new(r"\04"));
    assert_eq!(unescape(br"\999"), Path::new(r"\999"));
    assert_eq!(unescape(br"a\134b"), Path::new(r"a\b"));
}

#[test]
fn whoever_has_a_file_open_is_found() {
    let dir = testkit::TempDir::new();
    let place = dir.path().canonicalize().unwrap();
    assert_eq!(used_by(&place), "");
    let _open = File::create(place.join("file")).unwrap();
    let holders = holders_of(&place);
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].pid, std::process::id());
    assert!(used_by(&place).contains("/file"));
}

#[test]
fn the_name_of_a_holder_does_not_reach_the_terminal_as_it_is() {
    let what = PathBuf::from("/mnt/\x1b[2J");
    let holder = Holder { pid: 7, command: "\x1b]0;x\x07".into(), what };
    assert_eq!(holder.to_string(), "\\u{1b}]0;x\\u{7} (pid 7: /mnt/\\u{1b}[2J)");
}
