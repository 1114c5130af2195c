use super::*;

#[test]
fn the_header_is_mkswap_s() {
    let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    let page = header(16384, uuid, "rampack-swap0").unwrap();
    let mut expected = [0; PAGE_SIZE];
    // mkswap --endianness native -L rampack-swap0 -U 0123… on a file of 64 MiB.
    expected[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    expected[1028..1032].copy_from_slice(&16383u32.to_ne_bytes());
    expected[1036..1052].copy_from_slice(&uuid);
    expected[1052..1065].copy_from_slice(b"rampack-swap0");
    expected[4086..].copy_from_slice(b"SWAPSPACE2");
    assert_eq!(page, expected);
    assert!(is_header(&page) && !is_header(&[0; PAGE_SIZE]) && !is_header(b"SWAPSPACE2"));
}

#[test]
fn a_label_is_read_from_a_page_with_a_header_alone() {
    let page = header(16384, [7; 16], "fifteen letters").unwrap();
    assert_eq!(label(&page), Some(&b"fifteen letters"[..]));
    assert_eq!(label(&header(10, [0; 16], "").unwrap()), Some(&b""[..]));
    // A boot loader, another version, a bad page, data behind the label, no header.
    for (at, byte) in [(0, 1), (512, b'L'), (1024, 2), (1032, 1), (1068, 1), (4085, 1), (4095, 0)] {
        let mut page = page;
        page[at] = byte;
        assert_eq!(label(&page), None, "{at}");
    }
    assert_eq!(label(&[0; PAGE_SIZE]), None);
    assert_eq!(label(b"SWAPSPACE2"), None);
}

#[test]
fn sizes_have_bounds() {
    for pages in [0, 1, 9, MOST_PAGES + 1, u64::MAX] {
        let fault = header(pages, [0; 16], "").unwrap_err();
        assert_eq!(fault.errno, control::Errno::EINVAL);
        assert!(fault.message.contains("40960 bytes at least"), "{fault}");
    }
    let last = header(MOST_PAGES, [0; 16], "").unwrap();
    assert_eq!(last[1028..1032], [0xff; 4]);
}

#[test]
fn labels_have_bounds() {
    header(10, [0; 16], "fifteen letters").unwrap();
    assert!(header(10, [0; 16], "sixteen letters!").is_err());
    assert!(header(10, [0; 16], "a\0b").is_err());
}

#[test]
fn names_are_random_and_text_is_checked() {
    assert_ne!(new_uuid(), new_uuid());
    for text in ["", "0123", "g1234567-89ab-cdef-0123-456789abcdef", "é".repeat(16).as_str()] {
        assert_eq!(parse_uuid(text), None, "{text}");
    }
}
