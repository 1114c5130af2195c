use super::*;

#[test]
fn reads_what_the_kernel_document_shows() {
    let text = "38936576 12189696 12996608 0 13004800 12 3 5 0\n";
    let figures = parse_mm_stat(text).expect("figures");
    assert_eq!(figures.orig, Some(38_936_576));
    assert_eq!(figures.compressed, Some(12_189_696));
    assert_eq!(figures.pool, Some(12_996_608));
    assert_eq!(parse_mm_stat("1 2"), None);
    assert_eq!(parse_mm_stat("1 x 3"), None);
    assert_eq!(selected("lzo [lz4] zstd"), Some("lz4"));
    assert_eq!(selected("lzo lz4"), None);
}

#[test]
fn only_zram_devices_have_a_directory() {
    for path in ["/dev/null", "/dev/zram", "/etc/zram0", "/does/not/exist", "/dev/zram0x"] {
        assert_eq!(directory(Path::new(path)), None, "{path}");
    }
    let refused = Setup::new(Path::new("/dev/null"), "lz4", 1).err().expect("refused");
    assert!(refused.to_string().contains("/dev/null"), "{refused}");
}
