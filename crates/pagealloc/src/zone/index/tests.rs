use super::*;
use crate::pretended::HeapWorld;

const ALL: [Shelf; 4] =
    [Shelf::Off, Shelf::Partial, Shelf::Free { idle: false }, Shelf::Free { idle: true }];

#[test]
fn blocks_stand_where_they_were_put() {
    let mut index = Index::new(&HeapWorld::default(), 5).unwrap();
    let mut model = [Shelf::Off; 5];
    let mut numbers = testkit::Rng::new(1);
    for _ in 0..5000 {
        let (block, shelf) = (numbers.below(5) as usize, *numbers.pick(&ALL));
        index.put(block as u32, shelf);
        model[block] = shelf;
        for (block, shelf) in model.iter().enumerate() {
            assert_eq!(index.shelf_of(block as u32), *shelf);
        }
        let is_free = |block: &usize| matches!(model[*block], Shelf::Free { .. });
        for from in 0..6 {
            let first = |wanted: &dyn Fn(&usize) -> bool| {
                (from..5).find(|block| wanted(block)).map(|block| block as u32)
            };
            assert_eq!(index.free(from as u32), first(&is_free));
            let partial = |block: &usize| model[*block] == Shelf::Partial;
            assert_eq!(index.partial(from as u32), first(&partial));
            let pair = |block: &usize| {
                block.is_multiple_of(2) && *block < 4 && { is_free(block) && is_free(&(block + 1)) }
            };
            assert_eq!(index.pair(from as u32), first(&pair));
        }
        let idle = |shelf: &&Shelf| **shelf == Shelf::Free { idle: true };
        assert_eq!(index.idle as usize, model.iter().filter(idle).count());
        let last = model.iter().rposition(|shelf| idle(&shelf));
        assert_eq!(index.last_idle(), last.map(|block| block as u32));
        index.validate();
    }
}
