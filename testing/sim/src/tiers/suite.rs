//! What every policy of tiers must hold to.

use tiers::Budgets;

use super::out;
use super::peers::{clairvoyant, fixed};
use super::recorded::{RECORDED, parse};
use super::run::{Flaw, Setting, run};
use super::trace::{Kind, Trace};

const PAGES: u32 = 2000;
const SECONDS: u32 = 6000;
/// The most moves of a page that may be mistakes, in a hundred minutes.
const MISTAKES: u32 = 32;
/// The age with which the policy begins, before it has learned anything.
const FIRST: u32 = 64;
/// The ages that are compared, in seconds.
const AGES: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Runs the suite. Returns a table of the gains.
///
/// # Errors
/// What the policy did not hold to.
pub fn suite(flaw: Option<Flaw>, seed: u64) -> Result<String, String> {
    let mut table =
        String::from("trace: policy, fixed 64 s, best fixed age (which), clairvoyant\n");
    let traces = Kind::ALL.map(|kind| (kind, Trace::new(kind, PAGES, SECONDS, seed)));
    let budgets = Budgets { cpu_percent: 100, ..Budgets::default() };
    let setting = Setting { budgets, flaw };
    for (kind, trace) in &traces {
        table += &compare(&format!("{kind:?}"), trace, tenths(*kind), setting)?;
    }
    for (name, text) in RECORDED {
        let trace = parse(text).map_err(|why| format!("{name}: {why}"))?;
        let (first, then) = tenths_recorded(name);
        table += &compare(name, &trace, first, setting)?;
        table += &once_more(name, &trace, then, setting)?;
    }
    for (kind, trace) in &traces {
        target(*kind, trace, flaw)?;
    }
    for (kind, trace) in &traces {
        table += &writes(*kind, trace, flaw)?;
    }
    cpu(flaw)?;
    Ok(table)
}

/// Compares the policy under a trace with the best fixed age and with one who knows the future.
/// Returns lines of the table.
///
/// # Errors
/// It gains too little: less than so many tenths of what the best fixed age gains.
pub fn compare(name: &str, trace: &Trace, tenths: i64, setting: Setting) -> Result<String, String> {
    let outcome = run(trace, setting);
    let by_age = AGES.map(|age| fixed(trace, age));
    let (best, age) = by_age.into_iter().zip(AGES).max().unwrap_or_default();
    let most = clairvoyant(trace);
    let mistakes = outcome.mistakes.iter().max().copied().unwrap_or(0);
    let line = format!(
        "{name}: {}, {}, {best} ({age} s), {most}\n  \
         at most {mistakes} moves of a page were mistakes\n",
        outcome.gain,
        fixed(trace, FIRST)
    );
    check(best <= most, || format!("{name}: {best} is more than {most}"))?;
    check(outcome.gain * 10 >= best * tenths, || {
        format!("{name}: {} is too little beside {best}\n{line}", outcome.gain)
    })?;
    check(mistakes <= MISTAKES, || format!("{name}: {mistakes} mistakes with one page\n{line}"))?;
    Ok(line)
}

/// Compares the policy when the trace comes once more, after it has learned from it.
fn once_more(name: &str, trace: &Trace, tenths: i64, setting: Setting) -> Result<String, String> {
    let twice = trace.twice();
    let gain = run(&twice, setting).gain - run(trace, setting).gain;
    let best = AGES.map(|age| fixed(&twice, age) - fixed(trace, age));
    let best = best.into_iter().max().unwrap_or_default();
    let line = format!("  once more: {gain}, {best}\n");
    check(gain * 10 >= best * tenths, || format!("{name}: too little the second time:\n{line}"))?;
    Ok(line)
}

/// What is asked for with recorded traces, in tenths of what the best fixed age gains: the first
/// time, and when the trace comes once more. They last minutes, and at first the policy knows
/// nothing. `node` collects garbage: it reads all of its memory several times within seconds, after
/// half a minute or after three. There the policy gains half of what the best age gains.
fn tenths_recorded(name: &str) -> (i64, i64) {
    match name {
        "node" => (5, 4),
        _ => (8, 9),
    }
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

/// It writes no more to a device than time allows, and hardly a page that is used again at once.
fn writes(kind: Kind, trace: &Trace, flaw: Option<Flaw>) -> Result<String, String> {
    // Enough for a quarter of the pages.
    let a_day = u64::from(PAGES) * 1024 * 86_400 / u64::from(SECONDS);
    let done = out::run(trace, a_day, flaw);
    check(done.beyond == 0, || format!("{kind:?}: more is written than allowed: {done:?}"))?;
    check(done.mistakes <= 20 + done.pages / 10, || {
        format!("{kind:?}: pages in use are written: {done:?}")
    })?;
    // Only here pages are sure to be unused for long.
    let is_done = kind != Kind::Phases || done.pages > 0;
    check(is_done, || format!("{kind:?}: nothing is written"))?;
    Ok(format!("{kind:?}: {} pages written, {} mistakes\n", done.pages, done.mistakes))
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
