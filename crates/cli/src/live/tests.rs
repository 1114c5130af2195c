use super::*;

#[test]
fn the_line_tells_sizes_and_rates() {
    let before = Totals { read: 0, written: 1 << 20, ..Totals::default() };
    let now = Totals {
        devices: 1,
        size: 1 << 30,
        data: 512 << 20,
        backed: 0,
        memory: 128 << 20,
        limit_hits: 0,
        read: 0,
        written: 5 << 20,
    };
    let line = now.line(&before, 2.0);
    assert_eq!(line, "data 512M of 1G  memory 128M  ratio 4.00  read 0B/s  write 2M/s");
    // Pages on a backing device take no memory.
    let backed = Totals { backed: 256 << 20, ..now };
    assert!(backed.line(&before, 2.0).contains("memory 128M  ratio 2.00"));
    let all_backed = Totals { backed: 512 << 20, ..now };
    assert!(!all_backed.line(&before, 2.0).contains("ratio"));
    let full = Totals { limit_hits: 3, ..now };
    assert!(full.line(&before, 0.0).ends_with("FAILED WRITES 3"));
    assert!(full.line(&before, 0.0).contains("read -/s"));
}
