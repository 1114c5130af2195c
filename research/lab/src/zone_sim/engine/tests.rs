use super::*;

const TRANSFER: f64 = 50.0;

fn load(threads: usize) -> Load {
    let load = crate::zone_sim::published::page_fault1(threads, 1600.0, 20, true);
    Load { frees: false, alloc_ns: 0.0, ..load }
}

fn alone(held: f64) -> Demand {
    Demand { alloc: Visit::alone(16.0, held), free: Visit::NONE }
}

/// The shared lock, with `heads` heads of lists of `head_ns` each.
fn beside(pages: f64, held: f64, heads: f64, head_ns: f64) -> Visit {
    Visit { reads: 1.0, read_ns: pages * held, heads, head_ns, ..Visit::alone(pages, 0.0) }
}

fn rate(demand: &Demand, load: &Load) -> f64 {
    simulate(demand, load, TRANSFER, 1).pages_per_s
}

fn assert_near(is: f64, wanted: f64, percent: f64, what: &str) {
    assert!((is / wanted - 1.0).abs() * 100.0 < percent, "{what}: {is} instead of {wanted}");
}

#[test]
fn one_thread_takes_what_its_parts_take() {
    let load = Load { alloc_ns: 30.0, ..load(1) };
    let outcome = simulate(&alone(10.0), &load, TRANSFER, 1);
    assert_near(outcome.pages_per_s, 1e9 / 40.0, 0.1, "alone");
    assert_eq!(outcome.lock_wait_percent() + outcome.head_wait_percent, 0.0);
    let both = Demand { free: Visit::alone(8.0, 5.0), ..alone(10.0) };
    let load = Load { frees: true, free_ns: 7.0, ..load };
    assert_near(rate(&both, &load), 1e9 / (40.0 + 12.0), 0.1, "both phases");
}

#[test]
fn a_full_lock_lets_through_what_its_holders_leave() {
    for threads in [2, 8, 56] {
        let outcome = simulate(&alone(10.0), &load(threads), TRANSFER, 1);
        let each = 16.0 * 10.0 + TRANSFER;
        assert_near(outcome.pages_per_s, 16e9 / each, 1.0, "full");
        // All but the one inside wait, and the next while the lock is handed over.
        let wait = 100.0 * (1.0 - 160.0 / each / threads as f64);
        assert_near(outcome.write_wait_percent, wait, 2.0, "waiting");
    }
}

#[test]
fn readers_are_inside_together_and_keep_writers_out() {
    let read = Demand { alloc: beside(16.0, 10.0, 0.0, 0.0), free: Visit::NONE };
    for threads in [2, 8] {
        // Each finds the lock in another's hands.
        let each = 160.0 + TRANSFER;
        assert_near(rate(&read, &load(threads)), threads as f64 * 16e9 / each, 2.0, "readers");
    }
    let half = Visit { write_ns: 160.0, reads: 0.5, ..read.alloc };
    let half = Demand { alloc: half, free: Visit::NONE };
    let (mixed, writers) = (rate(&half, &load(8)), rate(&alone(10.0), &load(8)));
    let readers = rate(&read, &load(8));
    assert!(writers < mixed && mixed < readers, "{writers} {mixed} {readers}");
}

#[test]
fn a_head_that_all_want_is_slower_by_each_that_waits() {
    let heads = Visit { heads: 1.0, head_ns: 75.0, pages: 1.0, ..Visit::NONE };
    let demand = Demand { alloc: heads, free: Visit::NONE };
    for threads in [2, 10, 26] {
        // One is served, one has just come back, the others wait.
        let each = 75.0 + TRANSFER * (threads as f64 - 2.0);
        assert_near(rate(&demand, &load(threads)), 1e9 / each, 2.0, "heads");
    }
    let outcome = simulate(&demand, &load(26), TRANSFER, 1);
    assert!(outcome.head_wait_percent > 90.0 && outcome.lock_wait_percent() == 0.0);
}
