use super::super::awake::Awake;
use super::super::protections::Protections;
use super::*;

use std::process::{Child, Command};
use std::time::Duration;

use testkit::{Need, met};

#[test]
fn a_group_that_cannot_be_left_is_told() {
    let dir = testkit::TempDir::new();
    let group = dir.path().join("session-3.scope");
    fs::create_dir(&group).unwrap();
    // No such file: the topmost.
    assert!(OwnGroup::take(dir.path(), &group, 7).protection().had);
    fs::write(group.join(KIND), "domain\n").unwrap();
    fs::write(group.join(PROCESSES), "7\n8\n9\n").unwrap();
    let own = OwnGroup::take(dir.path(), &group, 7);
    let protection = own.protection();
    assert!(!protection.had);
    for word in ["session-3.scope", "with 2 other processes", "systemd-oomd", "cannot", "omit"] {
        assert!(protection.text.contains(word), "{word}: {}", protection.text);
    }
    assert!(!dir.path().join(OWN).exists(), "what was made is removed");
    assert!(!is_spared(&group));
}

/// A hierarchy below the real one, with groups that are removed in the end.
struct World {
    top: PathBuf,
    children: Vec<Child>,
}

impl World {
    fn new(name: &str) -> World {
        let mounts = host::mounts().unwrap();
        let top = mounts.into_iter().find(|mount| mount.kind == "cgroup2").unwrap().at;
        let top = top.join(format!("rampack-test-{name}-{}", std::process::id()));
        fs::create_dir(&top).unwrap();
        World { top, children: Vec::new() }
    }

    /// A group with this many processes.
    fn group(&mut self, name: &str, count: usize) -> (PathBuf, Vec<u32>) {
        let group = self.top.join(name);
        fs::create_dir(&group).unwrap();
        let mut pids = Vec::new();
        for _ in 0..count {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            pids.push(child.id());
            self.children.push(child);
            fs::write(group.join(PROCESSES), pids[pids.len() - 1].to_string()).unwrap();
        }
        (group, pids)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for group in fs::read_dir(&self.top).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(group.path());
        }
        let _ = fs::remove_dir(&self.top);
    }
}

/// The processes in a group.
fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_shared_group_is_left_for_one_that_is_left_alone() {
    let needs = [Need::UnifiedGroup, Need::program("sleep", "coreutils")];
    if !met("a_shared_group_is_left_for_one_that_is_left_alone", &needs) {
        return;
    }
    let mut world = World::new("shared");
    let (group, pids) = world.group("session-3.scope", 3);
    let own = OwnGroup::take(&world.top, &group, pids[0]);
    let there = world.top.join(OWN);
    assert!(own.protection().had, "{:?}", own.protection());
    assert!(own.protection().text.contains(there.to_str().unwrap()), "{:?}", own.protection());
    assert_eq!((processes(&there), processes(&group).len()), (vec![pids[0]], 2));
    assert!(is_spared(&there) && !is_spared(&group));
    // Another daemon has another one.
    let second = OwnGroup::take(&world.top, &group, pids[1]);
    let other = world.top.join(format!("{OWN}-{}", pids[1]));
    assert_eq!(processes(&other), [pids[1]], "{:?}", second.protection());
    drop(second);
    drop(own);
    assert_eq!(processes(&group).len(), 3);
    assert!(!there.exists() && !other.exists());
    // What a killed daemon left is as good as a new one.
    fs::create_dir(&there).unwrap();
    let own = OwnGroup::take(&world.top, &group, pids[0]);
    assert_eq!(processes(&there), [pids[0]]);
    drop(own);
    assert!(!there.exists());
}

#[test]
fn the_inhibitor_of_sleep_leaves_the_group_before_it_is_removed() {
    let needs = [Need::UnifiedGroup, Need::program("sleep", "coreutils")];
    if !met("the_inhibitor_of_sleep_leaves_the_group_before_it_is_removed", &needs) {
        return;
    }
    let mut world = World::new("awake");
    let (group, pids) = world.group("session-3.scope", 2);
    let own = OwnGroup::take(&world.top, &group, pids[0]);
    let there = world.top.join(OWN);
    let path = there.clone();
    let inhibit = move || {
        let mut inhibit = Command::new("sh");
        inhibit.args(["-c", "echo $$ >$0/cgroup.procs; exec cat"]).arg(&path);
        inhibit
    };
    let awake = Awake::by(inhibit, Duration::from_secs(60));
    let protections = Protections::of(own, awake);
    assert_eq!(processes(&there).len(), 2);
    drop(protections);
    assert!(!there.exists());
}

#[test]
fn a_service_is_marked_and_not_left() {
    let needs = [Need::UnifiedGroup, Need::program("sleep", "coreutils")];
    if !met("a_service_is_marked_and_not_left", &needs) {
        return;
    }
    let mut world = World::new("service");
    for (name, count) in [("rampack.service", 2), ("run-7.scope", 1)] {
        let (group, pids) = world.group(name, count);
        let own = OwnGroup::take(&world.top, &group, pids[0]);
        assert!(own.protection().had && is_spared(&group), "{:?}", own.protection());
        assert_eq!(processes(&group).len(), count);
        assert!(!world.top.join(OWN).exists());
    }
}
