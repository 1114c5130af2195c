use super::*;
use crate::pretended::HeapWorld;

fn buddy(frames: u32) -> Buddy {
    let mut buddy = Buddy::new(&HeapWorld::default(), frames, true).unwrap();
    buddy.extend(frames);
    buddy.validate();
    buddy
}

#[test]
fn any_number_of_frames_is_cut_into_aligned_blocks() {
    let mut buddy = Buddy::new(&HeapWorld::default(), 5000, false).unwrap();
    for (frames, blocks) in [(3, "11"), (1, "001"), (1020, "00000000001"), (6, "01100000001")] {
        buddy.extend(frames);
        buddy.validate();
        for (order, count) in blocks.bytes().enumerate() {
            assert_eq!(buddy.free_blocks()[order], u64::from(count - b'0'), "{frames} {order}");
        }
    }
}

#[test]
fn the_lowest_block_is_taken_whatever_its_order() {
    let mut buddy = buddy(64);
    assert_eq!(buddy.take(5), Some(0));
    assert_eq!(buddy.take(0), Some(32));
    buddy.give(8, 3);
    assert_eq!(buddy.take(0), Some(8), "order 3 at 8 lies lower than order 0 at 33");
    assert_eq!(buddy.take(4), Some(48));
    assert_eq!(buddy.take(4), None);
    let mut singles = [0; 24];
    assert_eq!(buddy.take_singles(&mut singles), 22);
    assert!(singles[..22].iter().copied().eq((9..16).chain(33..48)));
    buddy.validate();
}

#[test]
fn singles_merge_into_what_they_were() {
    let mut buddy = buddy(1024);
    let mut singles = [0; 1024];
    assert_eq!(buddy.take_singles(&mut singles), 1024);
    assert_eq!((buddy.taken(), buddy.free_blocks()), (1024, [0; ORDERS]));
    for n in 0..1024 {
        // Every frame once, in no order to speak of.
        buddy.give((n * 389 + 17) % 1024, 0);
    }
    assert_eq!((buddy.taken(), buddy.free_blocks()[10]), (0, 1));
    buddy.validate();
}

#[test]
fn the_highest_idle_block_leaves_and_comes_back_fresh() {
    let mut buddy = buddy(4 * FRAMES_PER_BLOCK);
    buddy.settle = false;
    assert!(!buddy.has_chores(0), "what was never taken has no memory to give back");
    assert_eq!((buddy.take(10), buddy.take(9)), (Some(0), Some(1024)));
    buddy.give(0, 10);
    buddy.give(1024, 9);
    assert!(buddy.has_chores(2) && !buddy.has_chores(3));
    assert_eq!(buddy.chore(2), Some(Chore::Release(2)));
    assert_eq!(buddy.chore(2), None);
    buddy.validate();
    assert_eq!(buddy.take(10), Some(0), "block 3 is free, but its buddy is away");
    assert_eq!(buddy.take(9), Some(1536));
    assert_eq!(buddy.take(0), None);
    buddy.released(2);
    buddy.validate();
    assert_eq!(buddy.returned(), 1);
    assert_eq!(buddy.take(9), Some(1024));
}

#[test]
fn a_full_block_is_settled_unless_it_has_changed_its_mind() {
    let mut buddy = buddy(2 * FRAMES_PER_BLOCK);
    assert_eq!(buddy.take(9), Some(0));
    assert_eq!(buddy.chore(9), Some(Chore::Settle(0)));
    assert_eq!(buddy.chore(9), None);
    assert_eq!(buddy.take(9), Some(512));
    buddy.give(700, 0);
    assert_eq!(buddy.chore(9), None, "it's not full any more");
    assert_eq!(buddy.take(0), Some(700));
    assert_eq!(buddy.chore(9), Some(Chore::Settle(1)), "and now it is again");
    buddy.validate();
}

/// A corrupted buddy and what its validation says.
fn finds(expected: &str, corrupt: impl FnOnce(&mut Buddy) + std::panic::UnwindSafe) {
    let panic = std::panic::catch_unwind(|| {
        let mut buddy = buddy(2048);
        assert_eq!(buddy.take(3), Some(0));
        corrupt(&mut buddy);
        buddy.validate();
    })
    .expect_err(expected);
    let text = panic.downcast_ref::<std::string::String>().unwrap();
    assert!(text.contains(expected), "{expected}: {text}");
}

#[test]
fn validation_finds_contradictions() {
    finds("free twice", |buddy| buddy.insert(1024, 0));
    finds("were not merged", |buddy| {
        buddy.remove(1024, 10);
        buddy.insert(1024, 9);
        buddy.insert(1536, 9);
    });
    finds("count, set", |buddy| buddy.free_blocks[10] += 1);
    finds("noted, set", |buddy| buddy.first[10] = 0);
    finds("aren't free", |buddy| buddy.taken += 1);
    finds("aren't free", |buddy| buddy.remove(8, 3));
    finds("frames taken of 2 MiB block 0", |buddy| buddy.blocks.get(0).store(0, Ordering::Relaxed));
    finds("set of idle blocks", |buddy| buddy.bits.insert(IDLE, 1));
    finds("resident or leaving", |buddy| buddy.blocks.get(0).store(8, Ordering::Relaxed));
    finds("idle blocks: count", |buddy| buddy.idle = 1);
    finds("goes beyond", |buddy| buddy.managed = 1536);
}
