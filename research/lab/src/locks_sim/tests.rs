//! The simulated machine against what can be worked out by hand, and flaws it must not have.

use super::engine::{Parts, Scene, simulate};
use super::schemes::{Cell, Guard, Op, SCHEMES, give, take};
use crate::sim::lines::{Costs, LineId};
use crate::sim::lock::{Lock, Manner, Mode};
use crate::sim::machine::{Length, Machine, Model, Outcome, Step};

/// A machine on which only what a test is about takes time.
fn free() -> Costs {
    Costs {
        local: 0.0,
        take: 0.0,
        upgrade: 0.0,
        reading_moves: false,
        read: 0.0,
        read_in_row: 0.0,
        write_in_row: 0.0,
        pause: 0.5,
        spins: u32::MAX,
        system_call: 0.0,
        wakes: Vec::new(),
    }
}

/// One where a line takes so long.
fn lines_of(ns: f64) -> Costs {
    Costs { take: ns, upgrade: ns, read: ns, ..free() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    LetsTwoIn,
    NoQueue,
}

/// Threads that all do the same.
struct Loop<F>(F);

impl<F: FnMut(usize, &mut Machine) -> Vec<Step>> Model for Loop<F> {
    fn plan(&mut self, thread: usize, machine: &mut Machine) {
        let steps = (self.0)(thread, machine);
        machine.push_all(thread, &steps);
    }
}

fn run(
    threads: usize,
    costs: Costs,
    flaw: Flaw,
    prepare: impl FnOnce(&mut Machine) -> usize,
    mut plan: impl FnMut(usize, usize, &mut Machine) -> Vec<Step>,
) -> Outcome {
    let mut machine = Machine::new(threads, costs, u64::MAX, 1);
    machine.lets_two_in = flaw == Flaw::LetsTwoIn;
    machine.lines.no_queue = flaw == Flaw::NoQueue;
    let what = prepare(&mut machine);
    let plan = |thread, machine: &mut Machine| plan(thread, what, machine);
    machine.run(&mut Loop(plan), Length::of(40_000, u64::MAX), 1000.0)
}

fn add_lock(machine: &mut Machine, manner: Manner) -> usize {
    let line = machine.lines.add("a line", 1, 0);
    let queue = machine.lines.add("a queue", 1, 0);
    machine.add_lock(Lock::new("a lock", manner, line, queue))
}

fn add_line(machine: &mut Machine) -> LineId {
    machine.lines.add("a line", 1, 0)
}

fn exponential(mean: f64, machine: &mut Machine) -> Step {
    Step::Work(-mean * (1.0 - machine.chance()).ln())
}

fn near(what: &str, rate: f64, wanted: f64, percent: f64) -> Result<(), String> {
    let error = (rate / wanted - 1.0) * 100.0;
    if error.abs() <= percent {
        return Ok(());
    }
    Err(format!("{what}: {rate:.0} operations a second, not {wanted:.0} ({error:+.1} %)"))
}

/// All that can be worked out by hand; the first difference, if there is one.
fn closed_forms(flaw: Flaw) -> Result<(), String> {
    const MANNERS: [Manner; 5] =
        [Manner::WaitQueues, Manner::Shared, Manner::Owned, Manner::Mutex, Manner::SpinsOnOwner];
    // One lock held for H, and work W without it: N / (W + H) until the lock is full, then 1 / H.
    let (held, work) = (100.0, 400.0);
    for manner in MANNERS {
        for threads in [1, 2, 4, 8, 32] {
            let outcome = run(
                threads,
                free(),
                flaw,
                |machine| add_lock(machine, manner),
                |_, lock, _| {
                    let inside = Step::Work(held);
                    vec![take(lock, Mode::Write), inside, give(lock, Mode::Write), Step::Work(work)]
                },
            );
            let wanted = (threads as f64 / (work + held)).min(1.0 / held) * 1e9;
            near(&format!("{manner:?}, {threads} threads"), outcome.rate, wanted, 3.0)?;
        }
    }
    // Work and holding drawn exponentially: the machine repairman, M/M/1 with N customers.
    for threads in [2, 6] {
        let outcome = run(
            threads,
            free(),
            flaw,
            |machine| add_lock(machine, Manner::Mutex),
            |_, lock, machine| {
                let (inside, outside) = (exponential(held, machine), exponential(work, machine));
                vec![take(lock, Mode::Write), inside, give(lock, Mode::Write), outside]
            },
        );
        let (mut state, mut sum) = (1.0, 1.0);
        for waiting in 0..threads {
            state *= (threads - waiting) as f64 * held / work;
            sum += state;
        }
        let wanted = (1.0 - 1.0 / sum) / held * 1e9;
        near(&format!("repairman, {threads} threads"), outcome.rate, wanted, 3.0)?;
    }
    // A line that everybody changes is a server with a queue: the same with its transfer for H.
    for threads in [2, 4, 16] {
        let outcome = run(threads, lines_of(100.0), flaw, add_line, |_, line, _| {
            vec![Step::Own(line), Step::Work(work)]
        });
        let wanted = (threads as f64 / (work + 100.0)).min(1.0 / 100.0) * 1e9;
        near(&format!("a line that {threads} change"), outcome.rate, wanted, 3.0)?;
    }
    // With W drawn exponentially, work after which the line is asked for comes as M/D/1 while the
    // line is little used: each waits for U / (2 (1 - U)) transfers.
    let outcome = run(32, lines_of(10.0), flaw, add_line, |_, line, machine| {
        vec![Step::Own(line), exponential(1000.0, machine)]
    });
    let used: f64 = outcome.rate * 10.0 / 1e9;
    let wait = 10.0 * used / (2.0 * (1.0 - used));
    near("M/D/1", outcome.rate, 32.0 / (1000.0 + 10.0 + wait) * 1e9, 2.0)?;
    // A line that is only read is in everybody's way once.
    for threads in [1, 8, 112] {
        let outcome = run(threads, lines_of(100.0), flaw, add_line, |_, line, _| {
            vec![Step::Read(line), Step::Work(work)]
        });
        near("a line that is read", outcome.rate, threads as f64 / work * 1e9, 3.0)?;
    }
    // Readers of one reader-writer lock exclude nobody, and take its line from each other twice.
    let inside = 2000.0;
    for threads in [1, 2, 32] {
        let outcome = run(
            threads,
            lines_of(50.0),
            flaw,
            |machine| add_lock(machine, Manner::Shared),
            |_, lock, _| {
                let within = Step::Work(inside);
                vec![take(lock, Mode::Read), within, give(lock, Mode::Read), Step::Work(work)]
            },
        );
        let alone = threads as f64 / (inside + work) * 1e9;
        let most = alone.min(1.0 / 100.0 * 1e9);
        if outcome.rate > most * 1.02 {
            return Err(format!("{threads} readers: {:.0}, above {most:.0}", outcome.rate));
        }
        if threads <= 2 {
            near("readers together", outcome.rate, alone, 15.0)?;
        }
    }
    // So many streams, each for S: N / S until there are no more streams.
    for (threads, places) in [(2, 4), (16, 4)] {
        let outcome = run(
            threads,
            free(),
            flaw,
            |machine| add_lock(machine, Manner::Permits(places)),
            |_, lock, _| vec![take(lock, Mode::Write), Step::Work(500.0), give(lock, Mode::Write)],
        );
        let wanted = (threads as f64).min(f64::from(places)) / 500.0 * 1e9;
        near("streams", outcome.rate, wanted, 3.0)?;
    }
    Ok(())
}

#[test]
fn agrees_with_closed_forms() {
    closed_forms(Flaw::None).unwrap_or_else(|difference| panic!("{difference}"));
}

#[test]
fn a_lock_that_lets_two_in_is_found() {
    let difference = closed_forms(Flaw::LetsTwoIn).expect_err("a lock that lets two in");
    assert!(difference.contains("threads"), "{difference}");
}

#[test]
fn a_line_without_a_queue_is_found() {
    let difference = closed_forms(Flaw::NoQueue).expect_err("a line without a queue");
    assert!(difference.contains("change"), "{difference}");
}

fn scenes<'a>(objects: &'a [(usize, u32)], spread: &'a [f64]) -> Vec<Scene<'a>> {
    let parts = Parts {
        outside: 20.0,
        update_held: 5.0,
        class_take: 15.0,
        class_leave: 15.0,
        store_body: 900.0,
        load_body: 300.0,
    };
    let scene = |cell| Scene { cell, parts: parts.clone(), spread, objects, reach: u64::MAX };
    Cell::plain_ones().into_iter().map(scene).collect()
}

fn real() -> Costs {
    use crate::sim::lines::Wake;
    Costs {
        local: 5.0,
        reading_moves: true,
        spins: Costs::SPINS,
        pause: 10.0,
        system_call: 200.0,
        read_in_row: 9.0,
        write_in_row: 9.0,
        wakes: vec![Wake { asleep_ns: 0.0, waker_ns: 3000.0, latency_ns: 20_000.0 }],
        ..lines_of(60.0)
    }
}

const SHORT: Length = Length::of(3000, u64::MAX);

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let mut differ = 0;
    for scene in scenes(&[(3, 20), (5, 30)], &[0.8, 1.2]) {
        let [one, again, other] = [7, 7, 8].map(|seed| simulate(&scene, 5, &real(), seed, SHORT));
        assert_eq!(one, again);
        differ += usize::from(one.rate.to_bits() != other.rate.to_bits());
    }
    assert!(differ > 60, "only {differ} of 72 depend on the seed");
}

/// Whatever the scheme: everybody gets on, nothing is faster than without the others, and on a
/// thread alone only what it does itself counts.
#[test]
fn nobody_is_faster_together() {
    for scene in scenes(&[(3, 20), (5, 30)], &[1.0]) {
        let rate = |threads| simulate(&scene, threads, &real(), 1, SHORT).rate;
        let (one, two, many) = (rate(1), rate(2), rate(24));
        let what = scene.cell;
        assert!(two < one * 2.03 && two > one * 0.02, "{what:?}: {one} {two}");
        assert!(many < one * 24.5 && many > one * 0.01, "{what:?}: {one} {many}");
    }
}

/// Loads of different slots take nothing from each other under `epoch`.
#[test]
fn epoch_loads_scale() {
    for scene in scenes(&[(3, 20)], &[1.0]) {
        if scene.cell.scheme.guard != Guard::Published || scene.cell.op != Op::Load {
            continue;
        }
        let rate = |threads| simulate(&scene, threads, &real(), 1, SHORT).rate;
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
