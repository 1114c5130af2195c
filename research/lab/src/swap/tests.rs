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
    let all = Mode::list(&texts(&["all"])).expect("modes");
    assert_eq!(all.len(), 6);
    let two = Mode::list(&texts(&["design:rbtree", "design:xarray"])).expect("modes");
    assert_eq!(two.len(), 2);
    let twice = Mode::list(&texts(&["file", "all"])).expect_err("twice");
    assert!(twice.to_string().contains("file is there already"), "{twice}");
}
