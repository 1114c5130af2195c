//! The simulated machine against what can be worked out by hand.

use super::engine::{Costs, Scene, simulate};
use super::schemes::{Cell, Guard, Op, SCHEMES};
use crate::sim::{Gate, GateId, Length, Machine, Mode, Model, Outcome, Step};

/// Threads that all do the same.
struct Loop<F>(F);

impl<F: FnMut(usize, &mut Machine) -> Vec<Step>> Model for Loop<F> {
    fn plan(&mut self, thread: usize, machine: &mut Machine) {
        let steps = (self.0)(thread, machine);
        machine.push(thread, &steps);
    }
}

/// The only gate of a machine.
const GATE: GateId = 0;

fn run(threads: usize, gate: Gate, mut plan: impl FnMut(&mut Machine) -> Vec<Step>) -> Outcome {
    let mut machine = Machine::new(threads, 1);
    machine.add(gate);
    let plan = |_: usize, machine: &mut Machine| plan(machine);
    machine.run(&mut Loop(plan), Length::of(40_000), 1000.0)
}

fn lock() -> Gate {
    Gate::new("a lock", 0.0)
}

fn held(step: Step, mode: Mode) -> [Step; 3] {
    [Step::Take(GATE, mode), step, Step::Leave(GATE, mode)]
}

fn exponential(mean: f64, machine: &mut Machine) -> Step {
    Step::Work(-mean * (1.0 - machine.chance()).ln())
}

fn near(what: &str, rate: f64, wanted: f64, percent: f64) {
    let error = (rate / wanted - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{what}: {rate:.0} operations a second, not {wanted:.0}");
}

/// All that can be worked out by hand.
#[test]
fn agrees_with_closed_forms() {
    // One lock held for H, and work W without it: N / (W + H) until the lock is full, then 1 / H.
    let (inside, work) = (100.0, 400.0);
    for threads in [1, 2, 4, 8, 32] {
        let outcome = run(threads, lock(), |_| {
            [&held(Step::Work(inside), Mode::Write)[..], &[Step::Work(work)]].concat()
        });
        let wanted = (threads as f64 / (work + inside)).min(1.0 / inside) * 1e9;
        near(&format!("a lock, {threads} threads"), outcome.rate, wanted, 3.0);
    }
    // Work and holding drawn exponentially: the machine repairman, M/M/1 with N customers.
    for threads in [2, 6] {
        let outcome = run(threads, lock(), |machine| {
            let (inside, outside) = (exponential(inside, machine), exponential(work, machine));
            [&held(inside, Mode::Write)[..], &[outside]].concat()
        });
        let (mut state, mut sum) = (1.0, 1.0);
        for waiting in 0..threads {
            state *= (threads - waiting) as f64 * inside / work;
            sum += state;
        }
        let wanted = (1.0 - 1.0 / sum) / inside * 1e9;
        near(&format!("repairman, {threads} threads"), outcome.rate, wanted, 3.0);
    }
    // A line that everybody changes is a server with a queue: the same with its transfer for H.
    for threads in [2, 4, 16] {
        let outcome = run(threads, Gate::new("a line", 100.0), |_| {
            [&held(Step::Work(0.0), Mode::Write)[..], &[Step::Work(work)]].concat()
        });
        let wanted = (threads as f64 / (work + 100.0)).min(1.0 / 100.0) * 1e9;
        near(&format!("a line that {threads} change"), outcome.rate, wanted, 3.0);
    }
    // With W drawn exponentially, work after which the line is asked for comes as M/D/1 while the
    // line is little used: each waits for U / (2 (1 - U)) transfers.
    let outcome = run(32, Gate::new("a line", 10.0), |machine| {
        [&held(Step::Work(0.0), Mode::Write)[..], &[exponential(1000.0, machine)]].concat()
    });
    let used: f64 = outcome.rate * 10.0 / 1e9;
    let wait = 10.0 * used / (2.0 * (1.0 - used));
    near("M/D/1", outcome.rate, 32.0 / (1000.0 + 10.0 + wait) * 1e9, 2.0);
    // Readers of one reader-writer lock exclude nobody.
    for threads in [1, 2, 32] {
        let outcome = run(threads, lock(), |_| {
            [&held(Step::Work(2000.0), Mode::Read)[..], &[Step::Work(work)]].concat()
        });
        near("readers", outcome.rate, threads as f64 / (2000.0 + work) * 1e9, 3.0);
    }
    // So many streams, each for S: N / S until there are no more streams.
    for (threads, places) in [(2, 4), (16, 4)] {
        let outcome = run(threads, Gate { places, ..lock() }, |_| {
            held(Step::Work(500.0), Mode::Write).to_vec()
        });
        let wanted = (threads as f64).min(f64::from(places)) / 500.0 * 1e9;
        near("streams", outcome.rate, wanted, 3.0);
    }
}

/// Waiters that sleep make a full lock slower, and are all woken in the end.
#[test]
fn sleepers_are_woken() {
    let sleep = crate::sim::Sleep { after: 50.0, waker: 30.0, latency: 5000.0 };
    for (threads, mode) in [(2, Mode::Write), (16, Mode::Write), (16, Mode::Read)] {
        let gate = Gate { sleep: Some(sleep), ..lock() };
        let outcome = run(threads, gate, |machine| {
            let mode = if machine.random.u32(..8) == 0 { Mode::Write } else { mode };
            [&held(Step::Work(100.0), mode)[..], &[Step::Work(20.0)]].concat()
        });
        let most = if mode == Mode::Write { 1.0 } else { threads as f64 } / 100.0 * 1e9;
        assert!(outcome.rate > 0.02 * most && outcome.rate <= most, "{threads}: {outcome:?}");
    }
}

fn scenes() -> Vec<Scene<'static>> {
    let costs = Costs {
        local_ns: 5.0,
        transfer_ns: 60.0,
        spin_ns: 400.0,
        waker_ns: 3000.0,
        latency_ns: 20_000.0,
    };
    let (store_ns, load_ns, spread) = (900.0, 300.0, &[0.8, 1.2][..]);
    let scene = |cell| Scene { cell, store_ns, load_ns, spread, costs };
    Cell::all().into_iter().map(scene).collect()
}

const SHORT: Length = Length::of(3000);

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let mut differ = 0;
    for scene in scenes() {
        let [one, again, other] = [7, 7, 8].map(|seed| simulate(&scene, 5, seed, SHORT));
        assert_eq!(one, again);
        differ += usize::from(one.rate.to_bits() != other.rate.to_bits());
    }
    assert!(differ > 60, "only {differ} of 76 depend on the seed");
}

/// Whatever the scheme: everybody gets on, nothing is faster than without the others, and on a
/// thread alone only what it does itself counts.
#[test]
fn nobody_is_faster_together() {
    for scene in scenes() {
        let rate = |threads| simulate(&scene, threads, 1, SHORT).rate;
        let (one, two, many) = (rate(1), rate(2), rate(24));
        let what = scene.cell;
        assert!(two < one * 2.06 && two > one * 0.02, "{what:?}: {one} {two}");
        assert!(many < one * 25.0 && many > one * 0.01, "{what:?}: {one} {many}");
    }
}

/// Loads of different slots take nothing from each other under `epoch`.
#[test]
fn epoch_loads_scale() {
    for scene in scenes() {
        if scene.cell.scheme.guard != Guard::Published || scene.cell.op != Op::Load {
            continue;
        }
        let rate = |threads| simulate(&scene, threads, 1, SHORT).rate;
        let (one, many) = (rate(1), rate(64));
        assert!(many > one * 60.0, "{:?}: {one} {many}", scene.cell);
    }
}

#[test]
fn schemes_are_the_engines() {
    use designs::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
    use zram::slots::{BitLock, SlotTable};
    let mut names: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.name).collect();
    let mut engines = designs::SLOT_SCHEMES.to_vec();
    names.sort_unstable();
    engines.sort_unstable();
    assert_eq!(names, engines);
    let bytes = [
        (GlobalRwLock::NAME, GlobalRwLock::BYTES),
        (Cas::NAME, Cas::BYTES),
        (SpinLock::NAME, SpinLock::BYTES),
        (RwLock::NAME, RwLock::BYTES),
        (BitLock::NAME, BitLock::BYTES),
        (Epoch::NAME, Epoch::BYTES),
    ];
    assert_eq!(bytes, SCHEMES.map(|scheme| (scheme.name, scheme.bytes)));
}
