//! The policy under a trace.

use tiers::{Action, Allowance, Budgets, Memory, News, Pass, Policy, Seen, Tier};

use super::peers::{MOVE, READ};
use super::trace::Trace;

/// The price of a move and a slow read: [`MOVE`] and [`READ`], nearly.
const WORTH: u32 = 64;

/// The tiers of the product.
static TIERS: [Tier; 2] = [
    Tier { name: "hot", slowest_read: 0, worth: 0, on_device: false },
    Tier { name: "warm", slowest_read: 40, worth: WORTH, on_device: false },
];

/// Nanoseconds of CPU time for a move, and for a look at a page.
const MOVE_NS: u64 = 10_000;
const LOOK_NS: u64 = 10;
/// Bytes of a page in each tier.
const BYTES: [u64; 2] = [1500, 1000];

/// A policy that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// It does not look at pages that came back.
    IgnoresRefaults,
    /// It forgets which pages came back, and only counts them.
    ForgetsPages,
    /// Each use brings a page up.
    AlwaysUp,
    /// No page ever moves.
    Idle,
    /// It moves on below its target.
    PassesTarget,
    /// It works for as long as there is work.
    Spends,
    /// It writes more to a device than a day allows.
    WritesMore,
    /// It writes pages to a device that are in use.
    WritesUsed,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Flaw; 8] = [
        Flaw::IgnoresRefaults,
        Flaw::ForgetsPages,
        Flaw::AlwaysUp,
        Flaw::Idle,
        Flaw::PassesTarget,
        Flaw::Spends,
        Flaw::WritesMore,
        Flaw::WritesUsed,
    ];
}

/// How the policy is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Its budgets.
    pub budgets: Budgets,
    /// How it is broken.
    pub flaw: Option<Flaw>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The gain, in the prices of [`super`].
    pub gain: i64,
    /// How often each page was used soon after a move: at most half a minute later.
    pub mistakes: Vec<u32>,
    /// The bytes of all pages at the end.
    pub bytes: u64,
    /// CPU time, in nanoseconds.
    pub spent: u64,
    /// The most CPU time of a second, in nanoseconds.
    pub busiest: u64,
}

struct Page {
    exists: bool,
    tier: usize,
    used: u32,
    memory: Memory,
    moved: Option<u32>,
}

/// Runs the policy under a trace.
#[must_use]
pub fn run(trace: &Trace, setting: Setting) -> Outcome {
    let mut budgets = setting.budgets;
    let is = |flaw| setting.flaw == Some(flaw);
    if is(Flaw::PassesTarget) {
        budgets.target = 0;
    }
    let mut policy = Policy::new(&TIERS, budgets);
    let mut credit = Allowance::of_cpu(budgets.cpu_percent);
    let blank = || Page { exists: false, tier: 0, used: 0, memory: Memory::default(), moved: None };
    let mut pages: Vec<Page> = (0..trace.pages()).map(|_| blank()).collect();
    let mut out = Outcome { mistakes: vec![0; pages.len()], ..Outcome::default() };
    let (mut uses, mut next, mut pass) = (trace.uses().iter().peekable(), 0, Pass::default());
    let (mut begun, mut due) = (0, 0);
    for now in 0..trace.seconds() {
        while let Some(used) = uses.next_if(|used| used.second == now) {
            let page = &mut pages[used.page as usize];
            (page.exists, page.used) = (true, now);
            if page.moved.take().is_some_and(|moved| now - moved <= WORTH / 2) {
                out.mistakes[used.page as usize] += 1;
            }
            match used.writes {
                true => page.tier = 0,
                false => out.gain -= READ * page.tier as i64,
            }
        }
        credit.earn(1_000_000_000);
        let before = out.spent;
        while now >= due && (credit.left() > 0 || is(Flaw::Spends)) {
            let cost = match &mut pages[next] {
                page if page.exists => visit(page, now, setting.flaw, &policy, &mut pass),
                _ => LOOK_NS,
            };
            if cost == MOVE_NS {
                out.gain -= MOVE;
            }
            credit.spend(cost);
            out.spent += cost;
            next += 1;
            if next == pages.len() {
                pass.seconds = now - begun;
                pass.memory = bytes(&pages);
                policy.learn(&pass);
                (next, pass) = (0, Pass::default());
                due = begun.saturating_add(policy.pause()).max(now + 1);
                begun = now;
                break;
            }
        }
        out.busiest = out.busiest.max(out.spent - before);
        out.gain += pages.iter().filter(|page| page.tier > 0).count() as i64;
    }
    out.bytes = bytes(&pages);
    out
}

fn bytes(pages: &[Page]) -> u64 {
    pages.iter().filter(|page| page.exists).map(|page| BYTES[page.tier]).sum()
}

/// Judges a page, and does what is to be done with it. Returns the CPU time.
fn visit(page: &mut Page, now: u32, flaw: Option<Flaw>, policy: &Policy, pass: &mut Pass) -> u64 {
    let seen = Seen { tier: page.tier, last_used: page.used, memory: page.memory };
    let mut verdict = policy.judge(seen, now);
    match flaw {
        Some(Flaw::IgnoresRefaults) => {
            (verdict.news, verdict.interval) = (News::Nothing, None);
            verdict.memory = forget(verdict.memory);
        }
        Some(Flaw::ForgetsPages) => verdict.memory = forget(verdict.memory),
        Some(Flaw::AlwaysUp) if matches!(verdict.news, News::Late(_)) && page.tier > 0 => {
            (verdict.action, verdict.memory) = (Action::Up, Memory::default());
        }
        Some(Flaw::Idle) => verdict.action = Action::Stay,
        _ => {}
    }
    pass.count(&seen, &verdict, now);
    page.memory = verdict.memory;
    match verdict.action {
        Action::Stay => return LOOK_NS,
        Action::Up => page.tier = 0,
        Action::Down(to) => {
            (page.tier, page.moved) = (to, Some(now));
            pass.tiers[to].moved += 1;
            pass.tiers[to].saved += BYTES[0] - BYTES[1];
        }
    }
    MOVE_NS
}

fn forget(memory: Memory) -> Memory {
    Memory::from_bits(memory.bits() & !(7 << 27))
}
