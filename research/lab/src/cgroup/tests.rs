use super::*;

const V1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
    cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
    cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
    cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n";
const V2: &str = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";

#[test]
fn finds_either_version() {
    let found = Hierarchy::among(V1, |_| true).expect("a hierarchy");
    assert_eq!(found.top, Path::new("/sys/fs/cgroup/memory"));
    assert_eq!(found.version, Version::One);
    let found = Hierarchy::among(V2, |_| true).expect("a hierarchy");
    assert_eq!((found.top.as_path(), found.version), (Path::new("/sys/fs/cgroup"), Version::Two));
    assert_eq!(Hierarchy::among(V2, |_| false), None);
    assert_eq!(Hierarchy::among("", |_| true), None);
}

#[test]
fn reads_numbers_and_leaves_the_rest() {
    let text = "cache 12\nhierarchical 99999999999999999999999\n\nx y\npgmajfault 7\n";
    let numbers = numbers(text);
    assert_eq!(numbers.get("cache"), Some(&12));
    assert_eq!(numbers.get("pgmajfault"), Some(&7));
    assert_eq!(numbers.len(), 2);
}

#[test]
fn reads_times_behind_any_name() {
    let text = "12 (a) b ) (c)) S 1 12 12 0 -1 4194560 812 3 5 6 7 8 9 10 20 0 1 0 100 1 2 3";
    let times = Times { user: 7 + 9, system: 8 + 10, major_faults: 5 + 6 };
    assert_eq!(Times::parse(text), Some(times));
    assert_eq!(Times::parse("12 (short) S 1"), None);
    assert_eq!(Times::parse(""), None);
}

#[test]
fn a_process_has_times() {
    let text = fs::read_to_string("/proc/self/stat").expect("this process");
    assert!(Times::parse(&text).is_some(), "{text}");
    assert!(sys::ticks() >= 1.0);
}
