//! Trees that are broken by hand: the check must see it.

use super::*;

const CPU: Cpu = Cpu(0);

/// A tree with pages 0 to 20, whose entries have the numbers after those.
fn tree() -> (RedBlackTrees, AtomicU64) {
    let trees = RedBlackTrees::new(&host::Mmap, 1, 64, 64, 1).expect("there are addresses");
    let root = AtomicU64::new(0);
    for offset in 0..21 {
        let word = Word::new(offset + 1, 1).expect("a word");
        let put = trees.insert(CPU, &root, u64::from(offset), word);
        assert_eq!(put, Ok(None));
    }
    assert_eq!(trees.validate(&root), (21, 21));
    (trees, root)
}

/// A node of this colour that has one above it.
fn node(trees: &RedBlackTrees, red: bool) -> u32 {
    let is = |node: &u32| trees.is_red(*node) == red && trees.above(*node) != NONE;
    (1..=21).find(is).expect("there are both colours")
}

#[test]
#[should_panic = "different numbers of blacks"]
fn a_black_node_painted_red_is_seen() {
    let (trees, root) = tree();
    // One whose neighbours are black, so that it is not two reds that are seen.
    let lonely = (1..=21).find(|node| {
        let children = [Side::Left, Side::Right].map(|side| trees.below(*node, side));
        let above = trees.above(*node);
        above != NONE
            && !trees.is_red(*node)
            && !trees.is_red(above)
            && !children.iter().any(|child| trees.is_red(*child))
    });
    trees.paint(lonely.expect("there is one"), true);
    trees.validate(&root);
}

#[test]
#[should_panic = "different numbers of blacks"]
fn a_red_node_painted_black_is_seen() {
    let (trees, root) = tree();
    trees.paint(node(&trees, true), false);
    trees.validate(&root);
}

#[test]
#[should_panic = "is red, and so is what is above it"]
fn inserting_without_mending_is_seen() {
    let (trees, root) = tree();
    let (above, side) = trees.find(&root, 30).expect_err("there is no page 30");
    trees.paint(above, true);
    trees.set(40, ABOVE, u64::from(above) | RED);
    trees.set(40, OFFSET, 30);
    trees.set(40, WORD, 40);
    trees.set_below(above, side, 40);
    trees.validate(&root);
}

#[test]
#[should_panic = "does not know what is above it"]
fn a_lost_way_up_is_seen() {
    let (trees, root) = tree();
    let node = node(&trees, false);
    trees.set_above(node, if trees.above(node) == 1 { 2 } else { 1 });
    trees.validate(&root);
}

#[test]
#[should_panic = "is in the tree where only pages"]
fn a_page_in_a_wrong_place_is_seen() {
    let (trees, root) = tree();
    trees.set(5, OFFSET, 50);
    trees.validate(&root);
}
