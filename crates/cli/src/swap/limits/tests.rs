use testkit::TempDir;

use super::*;

fn mount(target: &Path, kind: &str) -> MountLine {
    let (target, source) = (target.to_path_buf(), kind.into());
    MountLine { device: "0:1".into(), target, kind: kind.into(), source }
}

#[test]
fn limits_of_version_1_are_found_up_to_the_top() {
    let dir = TempDir::new();
    let top = dir.join("memory");
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
    fs::write(top.join("a/memory.limit_in_bytes"), "1048576\n").unwrap();
    fs::write(top.join("a/b/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
    let found = Controller::among(&[mount(&top, "cgroup")], |top| top.join("none")).unwrap();
    assert!(found.v1);
    let group = found.group_of("9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n").unwrap();
    assert_eq!(group, top.join("a/b"));
    let limits = found.limits(&group);
    assert_eq!(limits, [Limit { file: top.join("a/memory.limit_in_bytes"), bytes: 1 << 20 }]);
    assert!(limits[0].to_string().ends_with("a/memory.limit_in_bytes is 1M"), "{}", limits[0]);
    // Told from further up than what can be seen here.
    assert_eq!(found.group_of("4:memory:/host/c\n").unwrap(), top);
    assert_eq!(found.group_of("0::/\n"), None);
}

#[test]
fn limits_of_version_2_are_hard_and_soft() {
    let dir = TempDir::new();
    let top = dir.path();
    fs::create_dir(top.join("a")).unwrap();
    fs::write(top.join("cgroup.controllers"), "cpu memory io\n").unwrap();
    fs::write(top.join("a/memory.max"), "max\n").unwrap();
    fs::write(top.join("a/memory.high"), "4096\n").unwrap();
    let file = |top: &Path| top.join("cgroup.controllers");
    let found = Controller::among(&[mount(top, "cgroup2")], file).unwrap();
    let group = found.group_of("0::/a\n").unwrap();
    assert_eq!(found.limits(&group), [Limit { file: top.join("a/memory.high"), bytes: 4096 }]);
    fs::write(top.join("cgroup.controllers"), "cpu io\n").unwrap();
    assert_eq!(Controller::among(&[mount(top, "cgroup2")], file), None);
}

#[test]
fn numbers_without_meaning_are_no_limits() {
    for text in ["", "max\n", "9223372036854771712", "-1", "much"] {
        assert_eq!(parse_limit(text), None, "{text:?}");
    }
    assert_eq!(parse_limit("0\n"), Some(0));
}
