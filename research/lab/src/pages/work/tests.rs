use std::collections::HashMap;
use std::sync::Mutex;

use super::*;

/// Keeps pages in a map, and can be told to lose one store, or to change one byte.
#[derive(Default)]
struct Map {
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    stores: Mutex<HashMap<u64, u64>>,
    loses_the_second_of: Option<u64>,
    changes: Option<u64>,
}

impl Target for Map {
    fn write(&self, offset: u64, page: &[u8]) -> Result<()> {
        let index = offset / PAGE_SIZE as u64;
        let mut stores = self.stores.lock().expect("a lock");
        let times = stores.entry(index).or_default();
        *times += 1;
        if self.loses_the_second_of != Some(index) || *times != 2 {
            self.pages.lock().expect("a lock").insert(index, page.to_vec());
        }
        Ok(())
    }

    fn read(&self, offset: u64, page: &mut [u8]) -> Result<()> {
        let index = offset / PAGE_SIZE as u64;
        page.copy_from_slice(&self.pages.lock().expect("a lock")[&index]);
        if self.changes == Some(index) {
            page[4095] ^= 1;
        }
        Ok(())
    }
}

fn corpus(pages: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(5);
    (0..pages * PAGE_SIZE / 8).flat_map(|_| random.u64(..).to_le_bytes()).collect()
}

fn run(target: &Map, threads: usize) -> Result<u64> {
    let corpus = corpus(301);
    let work = Work::new(&corpus, threads)?.churning(true);
    work.store_first(target)?;
    let before = target.pages.lock().expect("a lock").clone();
    assert_eq!(before.len(), 301);
    for (index, bytes) in before {
        assert_ne!(&bytes[..], page(&corpus, index as usize), "page {index} is in place too early");
    }
    work.store(target)?;
    let (speed, verified) = work.load_verified(target)?;
    assert!(speed.ns_per_page > 0.0 && speed.mb_per_s > 0.0);
    work.load(target)?;
    Ok(verified)
}

#[test]
fn every_page_is_stored_twice_and_verified() {
    for threads in [1, 2, 3] {
        let map = Map::default();
        assert_eq!(run(&map, threads).expect("a run"), 301);
        let stores = map.stores.lock().expect("a lock");
        assert!(stores.values().all(|&times| times == 2));
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    for index in [0, 150, 300] {
        let map = Map { changes: Some(index), ..Map::default() };
        let error = run(&map, 2).expect_err("page {index} was changed");
        assert!(error.to_string().contains(&format!("page {index} ")), "{error}");
    }
}

#[test]
fn a_lost_store_is_noticed() {
    let map = Map { loses_the_second_of: Some(77), ..Map::default() };
    let error = run(&map, 1).expect_err("a store was lost");
    assert!(error.to_string().contains("page 77 "), "{error}");
}

#[test]
fn the_order_is_shuffled_and_fixed() {
    let corpus = corpus(100);
    let one = Work::new(&corpus, 1).expect("work");
    let two = Work::new(&corpus, 2).expect("work");
    assert_eq!(one.order, two.order);
    assert!(one.order.windows(2).any(|pair| pair[0] > pair[1]));
    let mut sorted = one.order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..100));
}

#[test]
fn more_threads_than_pages_are_refused() {
    assert!(Work::new(&corpus(2), 3).is_err());
    assert!(Work::new(&corpus(2), 0).is_err());
    assert!(Work::new(&[], 1).is_err());
}

#[test]
fn requests_are_shuffled_and_their_pages_lie_side_by_side() {
    let corpus = corpus(43);
    let work = Work::new(&corpus, 2).and_then(|work| work.in_requests(8)).expect("work");
    assert_eq!((work.pages(), work.largest_share()), (40, 24));
    for order in [&work.order, &work.others] {
        assert!(order.chunks(8).all(|run| run.windows(2).all(|two| two[1] == two[0] + 1)));
    }
    assert_ne!(work.order, work.others);
    let error = work.in_requests(32).map(|_| ()).expect_err("a request for two threads");
    assert_eq!(error.to_string(), "2 threads for 1 requests: each needs one at least");
}
