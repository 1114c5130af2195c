use super::*;

#[test]
fn only_private_anonymous_writable_ranges_are_wanted() {
    let maps = "\
00400000-00401000 r-xp 00000000 fe:00 131 /usr/bin/x
00600000-00601000 rw-p 00001000 fe:00 131 /usr/bin/x
01000000-01004000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000002000 rw-s 00000000 00:01 9 /dev/zero (deleted)
7f0000002000-7f0000003000 rw-p 00000000 00:00 0 
7f0000003000-7f0000004000 ---p 00000000 00:00 0 
7f0000004000-7f0000005000 rwxp 00000000 00:00 0 
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0 [stack]
nonsense
";
    assert_eq!(
        wanted_ranges(maps),
        [
            (0x100_0000, 0x100_4000),
            (0x7f00_0000_2000, 0x7f00_0000_3000),
            (0x7ffd_0000_0000, 0x7ffd_0000_1000)
        ]
    );
}

#[test]
fn a_page_must_be_present_anonymous_and_its_own() {
    assert!(is_wanted(PRESENT | EXCLUSIVE | 0x1234));
    assert!(!is_wanted(0));
    assert!(!is_wanted(PRESENT));
    assert!(!is_wanted(EXCLUSIVE));
    assert!(!is_wanted(PRESENT | EXCLUSIVE | FILE_OR_SHARED));
    let swapped = 1 << 62;
    assert!(!is_wanted(swapped | EXCLUSIVE));
}

#[test]
fn takes_what_this_process_has_in_memory() {
    let mut mine = crate::sys::Memory::new(64 * PAGE_SIZE).expect("memory");
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
