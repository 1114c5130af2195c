use std::collections::HashSet;

use super::*;
use crate::page::{page, pages};

fn prepared(content: &Content) -> Source {
    content.prepare(4 * PAGE_SIZE, 8).expect("contents")
}

#[test]
fn iozone_has_two_pages_nearly_empty() {
    let source = prepared(&Content::Iozone);
    let count = |page: &[u8; PAGE_SIZE]| page.iter().filter(|byte| **byte != 0).count();
    let pages: Vec<_> = pages(&source.memory).collect();
    assert_eq!(pages.iter().copied().collect::<HashSet<_>>().len(), 2);
    assert_eq!(pages.iter().filter(|page| count(page) == 135).count(), 16);
    assert_eq!(pages.iter().filter(|page| count(page) == 8).count(), 48);
    assert!(pages.iter().all(|page| page[..8] == [0x5f; 8]));
    assert_eq!(source.blocks(), 16);
}

#[test]
fn half_is_half_and_new_in_each_page() {
    let source = prepared(&Content::Half);
    let seen: HashSet<_> = pages(&source.memory).map(|page| page[..8].to_vec()).collect();
    assert_eq!(seen.len(), 32);
    assert!(pages(&source.memory).all(|page| page[2048..].iter().all(|byte| *byte == 0)));
    let zeroes = page(&source.memory, 3)[..2048].iter().filter(|byte| **byte == 0).count();
    assert!(zeroes < 64, "{zeroes}");
}

#[test]
fn noise_does_not_end_and_filled_pages_are_filled() {
    let noise = prepared(&Content::Random);
    assert!(pages(&noise.memory).all(|page| page[4088..] != [0; 8]));
    let filled = prepared(&Content::SameFilled);
    assert!(pages(&filled.memory).all(|page| page.iter().all(|byte| *byte == page[0])));
    assert_ne!(filled.block(0)[0], filled.block(1)[0]);
}

#[test]
fn files_are_taken_in_order_or_shuffled() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("some.pages");
    let bytes: Vec<u8> = (0..40).flat_map(|page| [page; PAGE_SIZE]).collect();
    std::fs::write(&path, &bytes).expect("a file");
    let text = path.to_str().expect("a path");
    let plain = Content::parse(text, false).expect("contents");
    assert_eq!(plain.name(), "some.pages");
    assert_eq!(prepared(&plain).block(1)[..], bytes[4 * PAGE_SIZE..8 * PAGE_SIZE]);
    let shuffled = Content::parse(text, true).expect("contents");
    assert_eq!(shuffled.name(), "some.pages shuffled");
    let source = prepared(&shuffled);
    let mut seen: Vec<u8> = pages(&source.memory).map(|page| page[0]).collect();
    assert_ne!(seen, (0..40).collect::<Vec<u8>>());
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<u8>>());
    let short = plain.prepare(64 * PAGE_SIZE, 1).err().expect("too short");
    assert!(short.to_string().contains("some.pages"), "{short}");
}

#[test]
fn nonsense_is_refused() {
    for (text, shuffled, word) in
        [("zeroes", false, "zeroes"), ("half", true, "--shuffle"), ("/no/file", false, "/no/file")]
    {
        let error = Content::parse(text, shuffled).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    }
}
