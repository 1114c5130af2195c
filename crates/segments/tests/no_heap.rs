//! After a log was made it does not use the heap.

use segments::{Layout, NoVictim, Place, Segments};
use testkit::CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

#[test]
fn a_log_takes_its_memory_when_it_is_made() {
    const PAGES: usize = 4000;
    let layout = Layout { bytes: 16 << 20, segment_bytes: 1 << 20 };
    let mut log = Segments::new(layout).expect("a log");
    let mut slots: Vec<Option<Place>> = vec![None; PAGES];
    let mut rng = testkit::Rng::new(testkit::seed("a_log_takes_its_memory_when_it_is_made"));
    let mut cleaned = 0;
    let calls = CountingHeap::calls_of(|| {
        for now in 0..100_000 {
            let key = rng.below(PAGES as u64) as usize;
            let pending = loop {
                if let Ok(pending) = log.append(2500, now) {
                    break pending;
                }
                match log.victim(now) {
                    Ok(victim) => {
                        let bytes = victim.bytes();
                        for slot in &mut slots {
                            let Some(old) = *slot else { continue };
                            if bytes.contains(&old.byte()) {
                                let copy = log.append_survivor(&victim, 2500).expect("the reserve");
                                *slot = Some(log.written(copy));
                                log.free(old, 2500).expect("it is there");
                            }
                        }
                        log.cleaned(victim);
                        cleaned += 1;
                    }
                    Err(NoVictim::PunchFirst) => {
                        let punch = log.punch().expect("one is empty");
                        log.punched(punch);
                    }
                    Err(why) => panic!("{why:?}"),
                }
            };
            if let Some(old) = slots[key].replace(log.written(pending)) {
                log.free(old, 2500).expect("it is there");
            }
        }
    });
    assert!(cleaned > 100, "{cleaned}");
    assert_eq!(calls, 0);
}
