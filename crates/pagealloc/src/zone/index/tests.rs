use super::*;
use crate::pretended::HeapProvider;

const ALL: [FreeList; 4] = [
    FreeList::Off,
    FreeList::Partial,
    FreeList::Free { idle: false },
    FreeList::Free { idle: true },
];

#[test]
fn blocks_stand_where_they_were_put() {
    let mut index = Index::new(&HeapProvider::default(), 5).unwrap();
    let mut model = [FreeList::Off; 5];
    let mut numbers = testkit::Rng::new(1);
    for _ in 0..5000 {
        let (block, free_list) = (numbers.below(5) as usize, *numbers.pick(&ALL));
        index.put(block as u32, free_list);
        model[block] = free_list;
        for (block, free_list) in model.iter().enumerate() {
            assert_eq!(index.backing_of(block as u32), *free_list);
        }
        let is_free = |block: &usize| matches!(model[*block], FreeList::Free { .. });
        for from in 0..6 {
            let first = |wanted: &dyn Fn(&usize) -> bool| {
                (from..5).find(|block| wanted(block)).map(|block| block as u32)
            };
            assert_eq!(index.free(from as u32), first(&is_free));
            let partial = |block: &usize| model[*block] == FreeList::Partial;
            assert_eq!(index.partial(from as u32), first(&partial));
        }
        let idle = |free_list: &&FreeList| **free_list == FreeList::Free { idle: true };
        assert_eq!(index.idle as usize, model.iter().filter(idle).count());
        let lowest = model.iter().position(|free_list| idle(&free_list));
        assert_eq!(index.lowest_idle(), lowest.map(|block| block as u32));
        let last = model.iter().rposition(|free_list| idle(&free_list));
        assert_eq!(index.last_idle(), last.map(|block| block as u32));
        index.validate();
    }
}
