use host::Memfds;
use kept::{Contents, Region};
use zram::Findings;

use super::*;

const BYTES: u64 = 2 << 20;

fn report() -> Report {
    Report { process: std::process::id(), layout: None, found: Inspected::default() }
}

fn contents(name: &str, bytes: u64) -> Contents {
    let region = Region { name: name.into(), descriptor: format!("rampack.{name}"), bytes };
    Contents { regions: vec![region], ..Contents::default() }
}

#[test]
fn each_region_has_one_file_of_its_length() {
    let (memory, other) = (Memfds::new(), Memfds::new());
    let name = "fsck.each-region";
    let region = memory.region(name, BYTES as usize).unwrap();
    let look = |name: &str, bytes: u64| {
        let mut report = report();
        let files = held(std::process::id()).unwrap();
        let parts = report.parts(&files, contents(name, bytes)).unwrap();
        (parts.map(|(regions, ..)| regions.len()), report.found.others.told.join("\n"))
    };
    assert_eq!(look(name, BYTES), (Some(1), String::new()));
    let said = format!("no file of {} bytes is {name} (K3)", 2 * BYTES);
    assert_eq!(look(name, 2 * BYTES), (None, said));
    assert!(look("fsck.none", BYTES).1.ends_with("(K3)"));
    let second = other.region(name, BYTES as usize).unwrap();
    assert_eq!(look(name, BYTES), (None, format!("there are two files of {name} (K3)")));
    drop((region, second));
}

#[test]
fn a_report_is_a_table_with_the_findings_below() {
    let mut report = report();
    report.found.disks.push(Recovered {
        id: 3,
        bytes: 4 << 20,
        pages: 7,
        compressed_bytes: 2048,
        lost: 1,
        absent_backing: None,
        findings: Findings { told: vec!["page 5 of zram3: its slot (K14)".into()], all: 3 },
    });
    let lines = report.text();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[0], "NAME   DISKSIZE  PAGES  COMPR  LOST  FINDINGS");
    assert_eq!(lines[1], "zram3        4M      7     2K     1         3");
    assert_eq!(lines[2..4], ["page 5 of zram3: its slot (K14)", "and 2 more"]);
    report.found.disks[0].findings = Findings::default();
    assert!(report.text().ends_with("\nclean\n"));
}
