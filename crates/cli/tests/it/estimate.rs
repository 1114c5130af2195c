//! `rampack estimate`.

use std::fs;
use std::path::Path;
use std::process::{self, Command};

use serde_json::Value;
use testkit::{Need, met};

use crate::bad_input::as_nobody;
use crate::common::{Place, program, rampack, refused, said};

/// A process that waits until it is dropped.
struct Waits(process::Child);

impl Waits {
    fn start() -> Waits {
        Waits(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_in_a_table_as_json_and_as_a_picture() {
    let place = Place::new();
    let picture = place.path().join("picture.svg");
    let child = Waits::start();
    let line = format!("estimate --pid {} --svg {}", child.pid(), picture.display());
    let said = rampack(&line);
    assert_eq!(said.code, 0, "{}", said.err);
    let lines: Vec<Vec<&str>> =
        said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "PID NAME RESIDENT SAMPLED SAME DUPL LZ4 LZ4 FREES ZSTD ZSTD FREES \
                WARM WARM FREES COLD COLD FREES";
    assert_eq!(lines[0].join(" "), head);
    assert_eq!(lines[1][..2], [child.pid().to_string().as_str(), "sleep"]);
    assert_eq!(lines[2][0], "ALL");
    assert_eq!(lines[4].join(" "), "ALGORITHM RATIO COMPRESS DECOMPRESS CPU FOR ALL");
    assert_eq!([lines[5][0], lines[6][0]], ["lz4", "zstd"]);
    let head = "IDLE WITH --AUTO RATIO FREES COMPRESS DECOMPRESS CPU FOR ALL";
    assert_eq!(lines[8].join(" "), head);
    assert_eq!([lines[9][0], lines[10][0], lines[11][0]], ["hot", "warm", "cold"]);
    assert!(fs::read_to_string(&picture).unwrap().contains("sleep"));

    let line = format!("estimate --pid {0},{0} --json --seed 5 --algorithm zstd:9", child.pid());
    let said = rampack(&line);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert!(said.out.starts_with("{\n  \""), "as other commands print it: {}", said.out);
    assert_eq!(report["seed"], 5);
    assert_eq!(report["sources"].as_array().unwrap().len(), 1);
    let source = &report["sources"][0];
    assert_eq!(source["sampled_bytes"], source["resident_bytes"]);
    assert_eq!(source["codecs"][0]["codec"], "zstd:9");
    assert_eq!(source["codecs"][0]["error_bytes"], 0);
    let tiers = source["tiers"].as_array().unwrap();
    let names: Vec<_> = tiers.iter().map(|tier| tier["tier"].as_str().unwrap()).collect();
    assert_eq!(names, ["hot", "warm", "cold"]);
    let stored = |tier: usize| tiers[tier]["stored_bytes"].as_u64().unwrap();
    assert!(stored(2) <= stored(1) && stored(1) <= stored(0), "{source}");
    assert_eq!(report["sum"]["tiers"].as_array().unwrap().len(), 3);
}

#[test]
fn images_are_files_with_pages() {
    let place = Place::new();
    let file = place.path().join("image");
    fs::write(&file, [7; 5 * 4096 + 100]).unwrap();
    let said = said(&program().arg("estimate").arg(&file).arg("-J").output().unwrap());
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["sum"]["resident_bytes"], 5 * 4096);
    assert_eq!(report["sum"]["same_filled"], 1.0);
    assert_eq!(report["sum"]["codecs"][0]["stored_bytes"], 5 * 8);
    // A disk with tiers also keeps the time of last use, what it remembers, and a fingerprint.
    assert_eq!(report["sum"]["tiers"][2]["stored_bytes"], 5 * (8 + 4 + 4 + 4));
}

#[test]
fn what_cannot_be_read_is_told() {
    refused(&rampack("estimate"), 2, &["--all", "--cgroup", "FILE"]);
    refused(&rampack("estimate --pid 0"), 2, &["0"]);
    refused(&rampack("estimate --all --algorithm lz5"), 2, &["lz5", "lzo-rle", "EINVAL"]);
    refused(&rampack("estimate --all --algorithm zstd:x"), 2, &["\"x\"", "number", "EINVAL"]);
    refused(&rampack("estimate --all --sample 0"), 2, &["size 0"]);
    refused(&rampack("estimate /nonexistent"), 1, &["cannot read /nonexistent", "ENOENT"]);
    refused(&rampack("estimate /dev/null"), 1, &["neither a file nor a block device", "EINVAL"]);
    refused(&rampack("estimate --pid 2147483647"), 1, &["process 2147483647", "ESRCH"]);
    refused(&rampack("estimate --cgroup no/such"), 1, &["no control group no/such", "ENOENT"]);
    let child = Waits::start();
    let line = format!("estimate --pid {} --svg /nonexistent/picture", child.pid());
    refused(&rampack(&line), 1, &["cannot draw /nonexistent/picture", "ENOENT"]);
}

#[test]
fn processes_of_others_take_rights() {
    if !met("processes_of_others_take_rights", &[Need::Root]) {
        return;
    }
    let (place, child) = (Place::new(), Waits::start());
    let run = |words: &str| said(&as_nobody(&place).args(words.split(' ')).output().unwrap());
    let said = run(&format!("estimate --pid {}", child.pid()));
    refused(&said, 1, &[", sleep", "which takes root", "EACCES"]);
    let said = run("estimate --all");
    assert!(said.err.contains("left out that this user may not read"), "{}", said.err);
}

#[test]
fn the_processes_of_a_control_group_are_read() {
    if !met("the_processes_of_a_control_group_are_read", &[Need::Root, Need::MemoryGroup]) {
        return;
    }
    let path = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    let path = path.iter().find(|path| Path::new(path).join("cgroup.procs").exists()).unwrap();
    let name = format!("rampack-estimate-{}", process::id());
    let (outer, inner) = (Path::new(path).join(&name), Path::new(path).join(&name).join("inner"));
    fs::create_dir_all(&inner).unwrap();
    let child = Waits::start();
    fs::write(inner.join("cgroup.procs"), child.pid().to_string()).unwrap();
    let said = rampack(&format!("estimate --cgroup {name} --json"));
    let pid = child.pid();
    drop(child);
    // From Linux 6.19 on a process is in its group a moment longer.
    for path in [inner, outer] {
        crate::common::wait_until("the group is empty", || fs::remove_dir(&path).is_ok());
    }
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["sources"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["sources"][0]["pid"], pid);
}

#[test]
fn a_process_without_memory_is_refused_by_name() {
    // Nobody waits for it yet, so it is still there.
    let mut ended = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", ended.id());
    crate::common::wait_until("its end", || fs::read_to_string(&stat).unwrap().contains(") Z "));
    let said = rampack(&format!("estimate --pid {}", ended.id()));
    let process = format!("process {}, true,", ended.id());
    refused(&said, 1, &[&process, "has no memory", "thread of the kernel", "EINVAL"]);
    ended.wait().unwrap();
}
