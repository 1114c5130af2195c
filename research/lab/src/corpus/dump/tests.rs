use super::*;

#[test]
fn takes_what_this_process_has_in_memory() {
    let mut mine = crate::sys::memory(64 * PAGE_SIZE).expect("memory");
    for (number, page) in mine.chunks_mut(PAGE_SIZE).enumerate() {
        page.fill(0xa5);
        page[..8].copy_from_slice(&(0x1122_3344_5566_0000 + number as u64).to_ne_bytes());
    }
    let taken = take(std::process::id(), usize::MAX).expect("a dump of this process");
    assert_eq!(taken.len() % PAGE_SIZE, 0);
    for page in mine.chunks(PAGE_SIZE) {
        assert!(taken.chunks(PAGE_SIZE).any(|other| other == page), "a page is missing");
    }
    let few = take(std::process::id(), 5).expect("a dump of this process");
    assert_eq!(few.len(), 5 * PAGE_SIZE);
}
