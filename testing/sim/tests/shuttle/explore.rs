//! Runs a scenario under many schedules, or repeats one schedule.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::any::Any;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use testkit::{Rng, asked, seed};

use crate::scenario;

/// The number of schedules of a scenario under a scheme, without `RAMPACK_SCHEDULES`.
const SCHEDULES: usize = 400;
/// The number of schedules that must reject a broken engine.
const PATIENCE: usize = 200_000;
/// The number of schedules under one scheduler before the next scheduler.
const TURN: usize = 40;
/// One more than the places where a schedule of the PCT scheduler changes who goes first.
const DEPTHS: [usize; 3] = [2, 3, 6];

/// The function that runs once for each schedule.
pub type Play = Arc<dyn Fn() + Send + Sync>;

/// Checks that `play` succeeds under many schedules. `RAMPACK_SUBJECT` names the only subject.
pub fn holds(test: &str, subject: &str, play: &Play) {
    if env::var("RAMPACK_SUBJECT").is_ok_and(|only| only != subject) {
        return;
    }
    let what = format!("{test}, {subject}");
    if again(&what, play) {
        return;
    }
    let schedules = asked("RAMPACK_SCHEDULES", SCHEDULES);
    let mut rng = Rng::new(seed(&what));
    let run = AtomicUsize::new(0).into();
    let outcome = explore(&mut rng, schedules, play, &run);
    let run = run.load(Ordering::Relaxed);
    println!("{what}: {run} schedules, {:?}", scenario::tally());
    if let Err(payload) = outcome {
        println!(
            "{what}: schedule {run} failed. RAMPACK_SEED repeats the run; RAMPACK_SCHEDULE=… with \
             the failing schedule above, and this test alone, repeats it for each scheme"
        );
        resume_unwind(payload);
    }
}

/// Checks that `play`, which runs a broken subject, fails.
pub fn rejected(test: &str, play: &Play) {
    if again(test, play) {
        return;
    }
    let mut rng = Rng::new(seed(test));
    let run = AtomicUsize::new(0).into();
    let outcome = explore(&mut rng, PATIENCE, play, &run);
    let run = run.load(Ordering::Relaxed);
    let Err(payload) = outcome else { panic!("{test}: {run} schedules found nothing wrong") };
    let said = payload.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("");
    println!("{test}: found by schedule {run}: {said}");
}

/// Makes a test for each broken subject, which some schedule must reject.
macro_rules! controls {
    ($($test:ident: $play:expr;)*) => {
        $(
            #[test]
            fn $test() {
                $crate::explore::rejected(stringify!($test), &$play);
            }
        )*
    };
}
#[allow(unused_imports)]
pub(crate) use controls;

/// Runs the schedule of `RAMPACK_SCHEDULE`, if there is one.
fn again(what: &str, play: &Play) -> bool {
    let Ok(schedule) = env::var("RAMPACK_SCHEDULE") else { return false };
    println!("{what}: the schedule of RAMPACK_SCHEDULE");
    schedule_with(ReplayScheduler::new_from_encoded(&schedule), play, &Arc::default());
    true
}

/// Runs schedules until one fails or there have been enough; `run` counts those begun.
fn explore(
    rng: &mut Rng,
    schedules: usize,
    play: &Play,
    run: &Arc<AtomicUsize>,
) -> Result<(), Box<dyn Any + Send>> {
    let mut turn = 0;
    while run.load(Ordering::Relaxed) < schedules {
        let count = TURN.min(schedules - run.load(Ordering::Relaxed));
        let (seed, depth) = (rng.next_u64(), DEPTHS[turn / 2 % DEPTHS.len()]);
        catch_unwind(AssertUnwindSafe(|| match turn % 2 {
            0 => schedule_with(RandomScheduler::new_from_seed(seed, count), play, run),
            _ => schedule_with(PctScheduler::new_from_seed(seed, depth, count), play, run),
        }))?;
        turn += 1;
    }
    Ok(())
}

fn schedule_with(scheduler: impl Scheduler + 'static, play: &Play, run: &Arc<AtomicUsize>) {
    let mut config = Config::new();
    // The stack holds pages.
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    // Shuttle warns that it does not model memory orderings, which is known.
    config.silence_warnings = true;
    let (play, run) = (play.clone(), run.clone());
    Runner::new(scheduler, config).run(move || {
        run.fetch_add(1, Ordering::Relaxed);
        play();
    });
}
