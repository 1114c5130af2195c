use super::*;

#[test]
fn counts_each_kind_of_page() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut noise = || -> Vec<u8> { (0..512).flat_map(|_| random.u64(..).to_le_bytes()).collect() };
    let (one, other) = (noise(), noise());
    let pattern: Vec<u8> = [1, 2, 3, 4, 5, 6, 7, 8].repeat(512);
    let bytes = [vec![0; PAGE_SIZE], pattern, one.clone(), one, other, vec![9; 100]].concat();
    let mut content = json!({});
    examine(&bytes, &mut content).expect("figures");
    assert_eq!((&content["pages"], &content["zero_percent"]), (&json!(5), &json!(20.0)));
    assert_eq!(content["same_filled_percent"], 40.0);
    assert_eq!(content["identical_percent"], 20.0);
    // Three pages of noise count whole, the other two next to nothing.
    assert!((1.6..1.7).contains(&content["lz4_ratio"].as_f64().expect("a ratio")), "{content}");
}

#[test]
fn nothing_is_no_division_by_zero() {
    let mut content = json!({});
    examine(&[], &mut content).expect("figures");
    assert_eq!((&content["zero_percent"], &content["lz4_ratio"]), (&json!(0.0), &json!(0.0)));
    // The hash of nothing, as published in FIPS 180-4's test vectors.
    let hash = content["sha256"].as_str().expect("a hash");
    assert!(hash.starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
}
