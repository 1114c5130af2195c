use super::shop::paths;
use super::*;

#[test]
fn modes_by_name() {
    let mode = |text| Mode::parse(text).expect("a mode");
    assert_eq!(mode("file"), Mode { kind: Kind::File, variant: None });
    let zswap = Mode { kind: Kind::KernelZswap, variant: Some("lzo".to_owned()) };
    assert_eq!(mode("kernel-zswap:lzo"), zswap);
    assert_eq!(zswap.to_string(), "kernel-zswap:lzo");
    assert_eq!(mode("design:xarray").to_string(), "design:xarray");
    for (text, word) in [
        ("disk", "kernel-zram"),
        ("file:x", "no variants"),
        ("rampack:", "missing"),
        ("design", "xarray-split"),
        ("", "none"),
    ] {
        let message = Mode::parse(text).expect_err(text);
        assert!(message.contains(word), "{word:?} is missing in {message}");
    }
}

#[test]
fn modes_in_lists() {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let all = Mode::list(&texts(&["all"]), &KINDS).expect("modes");
    assert_eq!(all.len(), 5);
    let two = Mode::list(&texts(&["design:rbtree", "design:xarray"]), &KINDS).expect("modes");
    assert_eq!(two.len(), 2);
    let twice = Mode::list(&texts(&["file", "all"]), &KINDS).expect_err("twice");
    assert!(twice.to_string().contains("file is there already"), "{twice}");
}

#[test]
fn counters_of_the_kernel() {
    let text = "nr_free_pages 5\npswpin 10\npswpout 20\nzswpin 1\nzswpout 2\n";
    let before = Vmstat::parse(text);
    assert_eq!((before.pswpin, before.pswpout), (10, 20));
    assert_eq!((before.zswpin, before.zswpout, before.zswpwb), (Some(1), Some(2), None));
    let now = Vmstat { pswpin: 15, zswpin: Some(4), zswpwb: Some(1), ..before };
    let since = now.since(before);
    assert_eq!((since.pswpin, since.pswpout, since.zswpin), (5, 0, Some(3)));
    assert_eq!(since.zswpwb, None);
}

#[test]
fn swap_that_is_on() {
    let text =
        "Filename\t\t\tType\t\tSize\n/swap\\040file  file 1 0 -2\n/dev/sda2 partition 9 9 1\n";
    assert_eq!(paths(text), ["/swap\\040file", "/dev/sda2"]);
    assert!(paths("Filename Type\n").is_empty());
}
