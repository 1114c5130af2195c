use testkit::TempDir;

use super::*;
use crate::memory::smaller;

/// The groups of a process.
const OWN: &str = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n";

fn mount(target: &Path, kind: &str) -> String {
    part("/", target, kind)
}

/// A mount of a part of a hierarchy.
fn part(root: &str, target: &Path, kind: &str) -> String {
    format!("29 1 0:1 {root} {} rw,nosuid - {kind} {kind} rw\n", target.display())
}

#[test]
fn limits_of_version_1_are_found_up_to_the_top() {
    let dir = TempDir::new();
    let top = dir.join("memory");
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
    fs::write(top.join("a/memory.limit_in_bytes"), "1048576\n").unwrap();
    fs::write(top.join("a/b/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
    let others = mount(dir.path(), "cgroup2") + &mount(dir.path(), "ext4");
    let found = Controller::among(&(others + &mount(&top, "cgroup")), OWN).unwrap();
    assert!(found.v1);
    let group = found.group_of(OWN).unwrap();
    assert_eq!(group, top.join("a/b"));
    let limits = found.limits(&group);
    assert_eq!(limits, [GroupLimit { file: top.join("a/memory.limit_in_bytes"), bytes: 1 << 20 }]);
    assert!(limits[0].to_string().ends_with("a/memory.limit_in_bytes is 1M"), "{}", limits[0]);
    // Told from further up than what can be seen here.
    assert_eq!(found.group_of("4:memory:/host/c\n").unwrap(), top);
    assert_eq!(found.group_of("0::/\n"), None);
}

#[test]
fn a_part_of_a_hierarchy_counts_for_those_in_it() {
    let dir = TempDir::new();
    let [all, other, own] = ["all", "other", "own"].map(|name| dir.join(name));
    for (top, limit) in [(&all, "4096\n"), (&other, "8192\n"), (&own, "16384\n")] {
        fs::create_dir_all(top.join("b")).unwrap();
        fs::write(top.join("memory.limit_in_bytes"), limit).unwrap();
    }
    let other = part("/other", &other, "cgroup");
    let bytes = |mounts: &str| {
        let found = Controller::among(mounts, OWN)?;
        Some(found.limits(&found.group_of(OWN)?).iter().map(|limit| limit.bytes).sum::<u64>())
    };
    assert_eq!(bytes(&other), None, "the group of somebody else");
    assert_eq!(bytes(&(other.clone() + &mount(&all, "cgroup"))), Some(4096));
    // As in a container without control groups of its own.
    assert_eq!(bytes(&(other + &part("/a", &own, "cgroup"))), Some(16384));
    let found = Controller::among(&part("/a", &own, "cgroup"), OWN).unwrap();
    assert_eq!(found.group_of(OWN).unwrap(), own.join("b"));
}

#[test]
fn limits_of_version_2_are_hard_and_soft() {
    let dir = TempDir::new();
    let top = dir.path();
    fs::create_dir(top.join("a")).unwrap();
    fs::write(top.join("cgroup.controllers"), "cpu memory io\n").unwrap();
    fs::write(top.join("a/memory.max"), "max\n").unwrap();
    fs::write(top.join("a/memory.high"), "4096\n").unwrap();
    let found = Controller::among(&mount(top, "cgroup2"), "0::/a\n").unwrap();
    let group = found.group_of("0::/a\n").unwrap();
    assert_eq!(found.limits(&group), [GroupLimit { file: top.join("a/memory.high"), bytes: 4096 }]);
    fs::write(top.join("cgroup.controllers"), "cpu io\n").unwrap();
    assert_eq!(Controller::among(&mount(top, "cgroup2"), "0::/a\n"), None);
}

#[test]
fn all_memory_is_the_least_of_the_machine_and_of_each_group() {
    let limit = |bytes| GroupLimit { file: "memory.max".into(), bytes };
    assert_eq!(smaller(8 << 30, &[]), 8 << 30);
    assert_eq!(smaller(8 << 30, &[limit(9 << 30)]), 8 << 30);
    assert_eq!(smaller(8 << 30, &[limit(1 << 30), limit(512 << 20), limit(2 << 30)]), 512 << 20);
    assert_eq!(smaller(0, &[limit(1 << 30)]), 1 << 30, "/proc/meminfo could not be read");
}

#[test]
fn numbers_without_meaning_are_no_limits() {
    for text in ["", "max\n", "9223372036854771712", "-1", "much"] {
        assert_eq!(parse_limit(text), None, "{text:?}");
    }
    assert_eq!(parse_limit("0\n"), Some(0));
}
