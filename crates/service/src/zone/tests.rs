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
fn the_report_has_bytes() {
    let report = ZoneReport::new("spin", &stats());
    let bytes = (report.allocated_bytes, report.cached_bytes, report.managed_bytes);
    assert_eq!(bytes, (1 << 20, 64 << 10, 32 << 20));
    assert_eq!((report.returned_blocks, report.bad_frees), (3, 0));
}
