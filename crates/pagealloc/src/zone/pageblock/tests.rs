use std::vec::Vec;

use super::*;

fn with(count: u32) -> State {
    State(count)
}

#[test]
fn the_shelf_follows_from_the_word() {
    for count in 0..=FRAMES {
        let expected = match count {
            0 => FreeList::Off,
            FRAMES => FreeList::Free { idle: false },
            _ => FreeList::Partial,
        };
        assert_eq!(with(count).free_list(), expected);
        assert_eq!(with(count).reserved().free_list(), FreeList::Off);
        let resident = with(count).reserved().unreserved();
        let idle = FreeList::Free { idle: true };
        assert_eq!(resident.free_list(), if count == FRAMES { idle } else { expected });
    }
}

#[test]
fn who_changes_the_shelf_has_to_file_the_block() {
    for before in 0..FRAMES {
        for frames in [1, 2, 64, FRAMES] {
            if before + frames > FRAMES {
                continue;
            }
            let after = with(before + frames);
            let moves = with(before).free_list() != after.free_list();
            assert_eq!(after.is_to_be_filed(frames), moves, "{before} + {frames}");
            assert!(!after.reserved().is_to_be_filed(frames), "it's the holder's to do");
        }
    }
}

#[test]
fn marks_come_and_go() {
    let fresh = with(100);
    assert!(!fresh.is_resident() && !fresh.can_be_trimmed(), "there is no memory to give back");
    let used = fresh.reserved().unreserved();
    assert!(used.is_resident() && used.can_be_trimmed() && !used.is_reserved());
    assert!(!fresh.reserved().can_be_trimmed(), "somebody has it");
    let trimmed = used.reserved().trimmed(100);
    assert!(!trimmed.can_be_trimmed() && trimmed.was_trimmed() && !trimmed.is_reserved());
    assert_eq!((trimmed.count(), trimmed.free_list()), (100, FreeList::Partial));
    assert!(State(trimmed.0 + 3).can_be_trimmed(), "three more came free");
    assert!(trimmed.taken(10).can_be_trimmed(), "ten were taken and have memory now");
    assert_eq!(trimmed.taken(10).count(), 90);
    assert!(!trimmed.reserved().was_trimmed());
    assert!(used.reserved().trimmed(97).can_be_trimmed(), "three came free meanwhile");

    let full = used.taken(100);
    assert!(full.can_collapse() && !full.collapsed().can_collapse());
    assert!(!full.reserved().can_collapse() && !used.can_collapse());
    assert!(
        full.collapsed().is_collapsed() && !full.collapsed().reserved().trimmed(0).is_collapsed()
    );
    let whole = State(full.collapsed().0 + FRAMES);
    assert_eq!(whole.free_list(), FreeList::Free { idle: true });
    assert_eq!(whole.reserved().released(), with(FRAMES));
}

/// A block of which these bits are free.
fn block(words: [u64; WORDS]) -> Pageblock {
    let block = Pageblock::default();
    block.add(runs::count(&words));
    for (word, mask) in words.into_iter().enumerate() {
        assert_eq!(block.set(word, mask), 0);
    }
    block
}

#[test]
fn single_frames_are_the_lowest() {
    let words = [0, 0xf0, !0, 0x8000_0000_0000_0001, 0, 0, 0, 1];
    let expected: Vec<u32> = (0..FRAMES)
        .filter(|at| words[(at / 64) as usize] >> (at % 64) & 1u64 != 0)
        .map(|at| 5120 + at)
        .collect();
    for step in [1, 2, 3, 7, 32, 64, 100] {
        let block = block(words);
        let mut picked = Vec::new();
        loop {
            let mut into = [0; 100];
            let count = block.pick(5120, &mut into[..step]);
            assert_eq!(count, step.min(expected.len() - picked.len()), "by {step}");
            if count == 0 {
                break;
            }
            picked.extend_from_slice(&into[..count]);
            assert_eq!(block.state().count() as usize, expected.len() - picked.len());
            assert_eq!(runs::count(&block.words()), block.state().count());
        }
        assert_eq!(picked, expected, "by {step}");
    }
}

#[test]
fn listed_frames_are_taken_and_counted() {
    let block = block([0, 0b1010, 0, 0, 0, 0, 0, 1 << 63]);
    assert_eq!(block.take_whole(), None);
    for (at, left) in [(65, 2), (67, 1), (511, 0)] {
        let (taken, state) = block.take_lowest().unwrap();
        assert_eq!((taken, state.count(), state.is_resident()), (at, left, true));
    }
    assert_eq!(block.take_lowest(), None);
    assert_eq!((block.state().count(), block.words()), (0, [0; WORDS]));
    block.add(FRAMES);
    (0..WORDS - 1).for_each(|word| _ = block.set(word, !0));
    assert_eq!(block.take_whole(), None, "not all bits are visible");
    block.set(WORDS - 1, !0);
    let state = block.take_whole().unwrap();
    assert_eq!((state.count(), block.words()), (0, [0; WORDS]));
}

#[test]
fn what_is_set_twice_is_found() {
    let block = block([0, 0b1010, 0, 0, 0, 0, 0, 0]);
    block.add(2);
    assert_eq!(block.set(1, 0b0110), 0b0010);
    block.unadd(1);
    assert_eq!((block.state().count(), block.words()[1]), (3, 0b1110));
}

#[test]
fn what_is_taken_out_is_still_counted() {
    let block = block([!0; WORDS]);
    assert!(block.is_whole());
    assert_eq!(block.take_out(), [!0; WORDS]);
    assert!(!block.is_whole());
    assert_eq!((block.state().count(), block.words()), (512, [0; WORDS]));
}
