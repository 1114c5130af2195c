use super::*;

#[test]
fn every_page_is_its_own() {
    let mut seen = std::collections::BTreeSet::new();
    for page in 0..64 {
        for version in 1..4 {
            let mut bytes = [0; PAGE_SIZE];
            contents(7, page, version, &mut bytes);
            assert!(seen.insert(bytes), "{page} {version}");
        }
    }
    let mut same = [1; PAGE_SIZE];
    contents(7, 2, 1, &mut same);
    assert!(same.chunks(8).all(|chunk| chunk == &same[..8]));
}

#[test]
fn a_byte_that_is_wrong_is_found_wherever_it_is() {
    for pages in [1, 2, 60, 61, 62, 200] {
        let mut memory = Memory::new(pages, 3);
        for page in 0..pages {
            memory.write(page, 1 + page as u32 % 2);
        }
        assert_eq!(memory.verify(), 0);
        for page in 0..pages {
            memory.bytes[page * PAGE_SIZE + page * 7 % PAGE_SIZE] ^= 1;
        }
        assert_eq!(memory.verify(), pages as u64, "each of {pages} pages is looked at once");
    }
}
