use super::*;

const LINES: &str = "\
             cc1  4711 ffffffff81a0b1c2 clear_page_erms ([kernel.kallsyms])
             cc1  4711           7f8a10 ggc_internal_alloc(unsigned long) (/usr/lib/cc1)
         swapper     0 ffffffff81a0b1c2 pv_native_safe_halt ([kernel.kallsyms])
    Web Content    99 ffffffff81a0b1c2 lo_rw_aio ([kernel.kallsyms])
 rampack-fuse-0  4800     55d0c0ffee00 <zswap::Zswap>::store (/usr/bin/rampack)
 rampack-fuse-0  4800     55d0c0ffee10 LZ4_compress_fast_extState (/usr/bin/rampack)
 rampack-fuse-0  4800 ffffffff81a0b1c2 fuse_dev_do_write ([kernel.kallsyms])
  kworker/u4:1     33 ffffffff81a0b1c2 memcpy_orig ([kernel.kallsyms])
            perf  4801 ffffffff81a0b1c2 memcpy_orig ([kernel.kallsyms])
             cc1  4711 ffffffffa1a0b1c2 [unknown] ([kernel.kallsyms])
nonsense
";

#[test]
fn reads_lines() {
    let samples: Vec<Sample<'_>> = LINES.lines().filter_map(Sample::parse).collect();
    assert_eq!(samples.len(), 10);
    let object = "[kernel.kallsyms]";
    let expected = Sample { command: "cc1", process: 4711, symbol: "clear_page_erms", object };
    assert_eq!(samples[0], expected);
    assert_eq!(samples[1].symbol, "ggc_internal_alloc(unsigned long)");
    assert_eq!((samples[3].command, samples[3].process), ("Web Content", 99));
    assert_eq!(samples[4].symbol, "<zswap::Zswap>::store");
}

#[test]
fn adds_up_groups() {
    let shares = shares(LINES.lines().filter_map(Sample::parse), Some(4800));
    assert_eq!(shares.samples, 8);
    let percent = |name: &str| {
        let share = shares.groups.iter().find(|share| share.group == name);
        share.unwrap_or_else(|| panic!("no {name} in {shares:?}")).percent
    };
    assert_eq!(percent("kernel: the programs' faults, reclaim, files"), 25.0);
    assert_eq!(percent("the programs"), 12.5);
    assert_eq!(percent("ours: codec"), 12.5);
    assert_eq!(percent("ours: engine and the rest"), 12.5);
    assert_eq!(percent("transport: FUSE, in the daemon"), 12.5);
    assert_eq!(percent("transport: kernel workers"), 12.5);
    assert_eq!(percent("transport: FUSE and loop, elsewhere"), 12.5);
    let sum: f64 = shares.groups.iter().map(|share| share.percent).sum();
    assert!((sum - 100.0).abs() < 1e-9);
    let table = shares.table();
    assert!(table.contains("25.0 %") && table.contains("clear_page_erms"), "{table}");
}
