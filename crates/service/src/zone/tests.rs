use super::*;

fn stats() -> ZoneStats {
    let mut free_blocks = [0; 11];
    (free_blocks[0], free_blocks[3], free_blocks[10]) = (4267, 538, 4585);
    ZoneStats {
        allocated: 256,
        cached: 16,
        free_blocks,
        managed: 8192,
        returned_blocks: 3,
        bad_frees: 0,
    }
}

/// A line of a real one, with most numbers left out.
#[test]
fn buddyinfo_is_in_the_kernels_format() {
    let line = "Node 0, zone   Normal   4267      0      0    538      0      0      0      0      \
                0      0   4585 \n";
    assert_eq!(buddyinfo(&stats()), line);
    let numbers: Vec<u64> =
        line.split_whitespace().skip(4).map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers, stats().free_blocks);
}

#[test]
fn the_line_of_status_tells_of_bad_frees_only_when_there_are_any() {
    let report = ZoneReport::new("spin", &stats());
    let line = report.line(false);
    assert!(line.starts_with("zone spin: 1M allocated, 64K in pcp lists of CPUs, "), "{line}");
    assert!(line.contains("of 32M asked of the system; 3 pageblocks") && !line.contains("BAD"));
    assert!(report.line(true).contains("1048576 allocated, 65536 in"));
    let report = ZoneReport { bad_frees: 2, ..report };
    assert!(report.line(false).contains("2 BAD FREES"));
}
