use super::*;

#[test]
fn dates() {
    // Each as `date -u -d @N +%FT%TZ` writes it.
    assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
    assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(timestamp(951_868_800), "2000-03-01T00:00:00Z");
    assert_eq!(timestamp(1_735_689_599), "2024-12-31T23:59:59Z");
    assert_eq!(timestamp(4_107_542_400), "2100-03-01T00:00:00Z");
}
