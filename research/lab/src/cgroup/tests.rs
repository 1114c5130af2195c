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
