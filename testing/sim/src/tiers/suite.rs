//! What every policy of tiers must hold to.

use tiers::Budgets;

use super::peers::{clairvoyant, fixed};
use super::run::{Flaw, Setting, run};
use super::trace::{Kind, Trace};

const PAGES: u32 = 2000;
const SECONDS: u32 = 6000;
/// The most moves of a page that may be mistakes, in a hundred minutes.
const MISTAKES: u32 = 32;
/// The ages that are compared, in seconds.
const AGES: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Runs the suite. Returns a table of the gains.
///
/// # Errors
/// What the policy did not hold to.
pub fn suite(flaw: Option<Flaw>, seed: u64) -> Result<String, String> {
    let mut table = String::from("trace: policy, best fixed age (which), clairvoyant\n");
    let traces = Kind::ALL.map(|kind| (kind, Trace::new(kind, PAGES, SECONDS, seed)));
    let budgets = Budgets { cpu_percent: 100, ..Budgets::default() };
    for (kind, trace) in &traces {
        let outcome = run(trace, Setting { budgets, flaw });
        let by_age = AGES.map(|age| fixed(trace, age));
        let (best, age) = by_age.into_iter().zip(AGES).max().unwrap_or_default();
        let most = clairvoyant(trace);
        table += &format!("{kind:?}: {}, {best} ({age} s), {most}\n", outcome.gain);
        check(best <= most, || format!("{kind:?}: {best} is more than {most}"))?;
        check(outcome.gain * 10 >= best * tenths(*kind), || {
            format!("{kind:?}: {} is too little beside {best}\n{table}", outcome.gain)
        })?;
        let mistakes = outcome.mistakes.iter().max().copied().unwrap_or(0);
        table += &format!("  at most {mistakes} moves of a page were mistakes\n");
        check(mistakes <= MISTAKES, || {
            format!("{kind:?}: {mistakes} mistakes with one page\n{table}")
        })?;
    }
    for (kind, trace) in &traces {
        target(*kind, trace, flaw)?;
    }
    cpu(flaw)?;
    Ok(table)
}

/// What is asked for, in tenths of what the best fixed age gains, which nobody knows beforehand.
/// Where each page comes back after the same time, whatever its age, its age tells nothing: there
/// the policy must not lose.
fn tenths(kind: Kind) -> i64 {
    match kind {
        Kind::Zipf | Kind::Phases | Kind::Sweeps | Kind::Mixed => 9,
        Kind::Periods => 0,
    }
}

/// It comes to its target and stays there.
fn target(kind: Kind, trace: &Trace, flaw: Option<Flaw>) -> Result<(), String> {
    let aim = u64::from(PAGES) * 1350;
    let budgets = Budgets { cpu_percent: 100, target: aim, ..Budgets::default() };
    let outcome = run(trace, Setting { budgets, flaw });
    // Where no move pays, none is made for the target's sake either.
    let is_above = kind == Kind::Periods && outcome.bytes >= aim;
    let is_near = is_above || outcome.bytes.abs_diff(aim) <= aim / 20;
    check(is_near, || format!("{kind:?}: {} bytes, aimed at {aim}", outcome.bytes))
}

/// It takes its share of a CPU and no more, in small pieces.
fn cpu(flaw: Option<Flaw>) -> Result<(), String> {
    const SHARE: u64 = 10_000_000;
    let trace = Trace::new(Kind::Zipf, PAGES * 5, 120, 1);
    let budgets = Budgets { cpu_percent: 1, ..Budgets::default() };
    let outcome = run(&trace, Setting { budgets, flaw });
    let (spent, all) = (outcome.spent, u64::from(trace.seconds()) * SHARE);
    check(spent <= all, || format!("{spent} ns of CPU time, {all} allowed"))?;
    // Two seconds' share may be saved up.
    let busiest = outcome.busiest;
    check(busiest <= 2 * SHARE + SHARE / 10, || format!("{busiest} ns in one second"))
}

fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
