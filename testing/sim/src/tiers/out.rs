//! The policy with a tier on a device, which is written as little as a day allows.

use tiers::{Action, Allowance, Budgets, Memory, Pass, Policy, Seen, Tier};

use super::run::Flaw;
use super::trace::Trace;

static TIERS: [Tier; 2] = [
    Tier { name: "hot", slowest_read: 0, worth: 0, on_device: false },
    Tier { name: "out", slowest_read: 1000, worth: 1024, on_device: true },
];

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages that are used again so many seconds after they were written are mistakes.
const SOON: u32 = 60;

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    /// Pages that were written.
    pub(super) pages: u64,
    /// Those that were used soon after.
    pub(super) mistakes: u64,
    /// The most bytes that were written beyond those that time had allowed by then.
    pub(super) beyond: u64,
}

#[derive(Clone, Copy)]
struct Page {
    used: u32,
    memory: Memory,
    /// When it was written, if it is on the device.
    written: Option<u32>,
}

/// Runs the policy under a trace that writes every page in its first second. So many bytes a day
/// may be written.
pub(super) fn run(trace: &Trace, a_day: u64, flaw: Option<Flaw>) -> Writes {
    let mut policy = Policy::new(&TIERS, Budgets { written_a_day: a_day, ..Budgets::default() });
    let (mut allowance, mut out) = (Allowance::of_a_day(a_day), Writes::default());
    let blank = Page { used: 0, memory: Memory::default(), written: None };
    let mut pages = vec![blank; trace.pages() as usize];
    let mut uses = trace.uses().iter().peekable();
    let mut begun = 0;
    for now in 1..=trace.seconds() {
        while let Some(used) = uses.next_if(|used| used.second < now) {
            let page = &mut pages[used.page as usize];
            page.used = now;
            if used.writes || page.written.is_some_and(|at| now - at <= SOON) {
                let back = page.written.take();
                out.mistakes += u64::from(back.is_some_and(|at| now - at <= SOON));
            }
        }
        allowance.earn(1_000_000_000);
        if now - begun < policy.pause() {
            continue;
        }
        let mut pass = Pass { seconds: now - begun, ..Pass::default() };
        begun = now;
        for page in &mut pages {
            let tier = usize::from(page.written.is_some());
            let seen = Seen { tier, last_used: page.used, memory: page.memory };
            let verdict = policy.judge(seen, now);
            pass.count(&seen, &verdict, now);
            let leaves = match flaw {
                Some(Flaw::WritesUsed) => tier == 0,
                _ => verdict.action == Action::Down(1),
            };
            match verdict.action {
                Action::Up => page.written = None,
                Action::Stay => page.memory = verdict.memory,
                Action::Down(_) => {}
            }
            if leaves && (allowance.left() >= PAGE || flaw == Some(Flaw::WritesMore)) {
                allowance.spend(PAGE);
                out.pages += 1;
                (page.memory, page.written) = (verdict.memory, Some(now));
            }
        }
        policy.learn(&pass);
        let allowed = (u128::from(a_day) * u128::from(now) / 86_400) as u64;
        out.beyond = out.beyond.max((out.pages * PAGE).saturating_sub(allowed));
    }
    out
}
