//! What makes no sense is refused, by every command, with a message that names it.

use std::fs;

use crate::common::{Place, write_corpus};

/// Command lines, and a word of the message for each. Files are made by the test.
const REFUSED: &[(&str, &str)] = &[
    ("backing --size 4194305", "4K"),
    ("churn --zone hope", "there are:"),
    ("churn --corpus missing", "missing"),
    ("codecs --corpus missing", "missing"),
    ("codecs --corpus zeros", "one pattern"),
    ("codecs --corpus c --algorithm zip", "lzo-rle lzo lz4"),
    ("codecs --corpus c --algorithm zstd:high", "no level"),
    ("codecs --corpus c --algorithm lz4hc:13", "1 to 12 are allowed"),
    ("codecs --corpus c --algorithm 842 --algorithm 842", "already"),
    ("corpus --out out --program emacs", "python"),
    ("corpus --out /proc/out", "/proc/out"),
    ("corpus --out out --half --program python", "--half"),
    ("density --corpus none.pages", "none.pages"),
    ("density --corpus c --idle 101", "101"),
    ("density --corpus c --algorithm lz5", "lz5"),
    ("density --corpus c --swap --algorithm lz4", "--algorithm"),
    ("density --corpus c --kernel c", "no zram device"),
    ("figures", "--out"),
    ("figures --out out --only hope", "zone-sim"),
    // Where there is no git, the commit must be named.
    ("figures --out out --only churn --quick", "--commit"),
    ("index --variants hope", "xarray-split"),
    ("index --variants flat,flat", "already"),
    ("index --threads 128", "CPUs"),
    ("kernel-build --swap disk", "kernel-zram"),
    ("kernel-build --swap file,file", "already"),
    ("kernel-build --swap file:x", "no variants"),
    ("kernel-build --swap design", "xarray-split"),
    ("kernel-build --limit 1K", "4M"),
    ("kernel-build --limit 64M,64M", "2 limits"),
    ("kernel-build --swap-size 8388609", "4K"),
    ("kernel-build --source missing", "missing"),
    ("kernel-build --source empty", "no Makefile"),
    ("kernel-build --source file.zip", "tar archive"),
    ("locks --schemes hope", "there are: bit-spinlock"),
    ("locks --schemes cas,cas", "takes part already"),
    ("locks --size 17K", "16K"),
    ("locks --workload fio --size 16M", "--size"),
    ("locks --threads 2,1,2", "twice"),
    ("locks --content nothing", "iozone, half"),
    ("locks --content short.pages", "short.pages"),
    ("locks --content half --shuffle", "--shuffle"),
    ("locks --algorithm zip", "zip"),
    ("locks --kernel /dev/null", "/dev/null"),
    ("locks --kernel-algorithm lz4", "--kernel"),
    ("locks-sim --threads 4,129", "129"),
    ("nbd --size 0", "1M"),
    ("nbd --size 100001", "100001"),
    ("nbd --size 4Mx", "\"x\""),
    ("pages --corpus missing", "missing"),
    ("pages --corpus tiny", "4096"),
    ("pages --corpus c --algorithm zip", "zip"),
    ("pages --corpus c --threads 1001", "1001 threads"),
    ("pages --corpus c --level 1000000", "allowed"),
    ("pages --corpus c --compare engine", "engine"),
    ("pages --corpus c --compare engine:hope", "there are: bit-spinlock"),
    ("pages --corpus c --device /dev/null", "/dev/null"),
    ("pages --corpus c --device missing", "missing"),
    ("pages --corpus c --setup-kernel-zram lz4", "/dev/zram"),
    ("pages --corpus c --plot no/such/place.svg --repeat 1", "no/such/place.svg"),
    ("serve", "--size"),
    ("serve --size many", "many"),
    ("serve --size 1M --slots hope", "bit-spinlock"),
    ("serve --size 1M --streams hope", "percpu"),
    ("serve --size 1M --zone hope", "bitfield"),
    ("serve --size 1M --index hope", "xarray-split"),
    ("serve --size 1M --index rbtree --slots cas", "--slots"),
    ("serve --size 1M --backing x", "--index"),
    ("serve --size 1M --algorithm zip", "zip"),
    ("streams --policies hope", "percpu"),
    ("streams --policies percpu:0", "percpu:0"),
    ("streams --policies percpu,percpu", "takes part already"),
    ("writeback --corpus none.pages", "none.pages"),
    ("writeback --corpus c --full 96", "96"),
    ("writeback --corpus c --dir . --algorithm rot13", "rot13"),
    ("zone --frames 8192 --threads 1024", "zone-sim"),
    ("zone --design hope", "no-pcp"),
    ("zone --workload hope", "page-fault1"),
    ("zone --workload bulk,bulk", "already"),
    ("zone --frames 128 --threads 1", "128"),
    ("zone-sim --design hope", "no-merge-cluster"),
    ("zone-sim --design pcp-only", "of its lock"),
    // Numbers out of range.
    ("backing --repeat 0", "--repeat"),
    ("codecs --corpus c --pages 0", "--pages"),
    ("corpus --out out --pages 0", "--pages"),
    ("kernel-build --jobs 0", "--jobs"),
    ("locks --threads 0", "--threads"),
    ("locks --repeat 0", "--repeat"),
    ("locks-sim --milliseconds 0", "--milliseconds"),
    ("locks-sim --operations 1", "--operations"),
    ("nbd --milliseconds 1", "--milliseconds"),
    ("pages --corpus c --threads 0", "--threads"),
    ("pages --corpus c --repeat 0", "--repeat"),
];

#[test]
fn nonsense_is_refused_and_named() {
    let place = Place::new();
    write_corpus(&place.path("c"), 1000);
    fs::write(place.path("zeros"), [0; 8192]).expect("a file");
    fs::write(place.path("tiny"), [1; 4095]).expect("a file");
    fs::write(place.path("short.pages"), [1; 4096]).expect("a file");
    fs::write(place.path("file.zip"), "x").expect("a file");
    fs::create_dir(place.path("empty")).expect("a directory");
    for (line, word) in REFUSED {
        let message = place.refused(line);
        assert!(message.contains(word), "{line}: {word:?} is missing in {message}");
    }
    place.assert_nothing_left();
}
