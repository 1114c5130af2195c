use core::cell::Cell;

use crate::{
    Action, Allowance, Budgets, GENERATIONS, Memory, News, PASSES, Pass, Policy, Round, Seen,
    TIMES_OLDER, Tier, Verdict, generation, waits_after,
};

static TIERS: [Tier; 3] = [
    Tier { name: "hot", slowest_read: 5, worth: 0, on_device: false },
    Tier { name: "warm", slowest_read: 40, worth: 32, on_device: false },
    Tier { name: "cold", slowest_read: 80, worth: 256, on_device: false },
];

fn seen(tier: usize, last_used: u32, memory: Memory) -> Seen {
    Seen { tier, last_used, memory }
}

#[test]
fn a_page_moves_down_one_tier_at_a_time_when_it_is_old_enough() {
    let policy = Policy::new(&TIERS, Budgets::default());
    let action = |tier, now| policy.judge(seen(tier, 1000, Memory::default()), now).action;
    assert_eq!(action(0, 1000), Action::Stay);
    assert_eq!(action(0, 1031), Action::Stay);
    assert_eq!(action(0, 1032), Action::Down(1));
    assert_eq!(action(1, 1032), Action::Stay);
    assert_eq!(action(0, 1256), Action::Down(1));
    assert_eq!(action(1, 1255), Action::Stay);
    assert_eq!(action(1, 1256), Action::Down(2));
    assert_eq!(action(2, 9999), Action::Stay);
    assert_eq!(action(0, 900), Action::Stay, "a clock that went back");
    let goes_on = |tier, now| policy.judge(seen(tier, 1000, Memory::default()), now).goes_on;
    assert_eq!([1031, 1032, 1255, 1256].map(|now| goes_on(0, now)), [false, false, false, true]);
    assert!(!goes_on(1, 9999), "there is no tier after the next one");
    // One that was compared goes on, if it is still old enough.
    let compared = Memory::default().used(1000).compared();
    let verdict = |tier, now| policy.judge(seen(tier, 1000, compared), now);
    assert_eq!(verdict(0, 1256).action, Action::Down(2));
    assert_eq!((verdict(0, 1256).memory.tier(), verdict(0, 1256).goes_on), (2, false));
    assert_eq!((verdict(0, 1255).action, verdict(0, 1255).goes_on), (Action::Down(1), false));
    assert_eq!(verdict(1, 9999).action, Action::Down(2), "it shares an object");
    let back = policy.judge(seen(1, 1010, compared), 1010);
    assert_eq!((back.action, back.news), (Action::Up, News::TooSoon(1)));
    let used = policy.judge(seen(0, 1001, compared), 9999);
    assert_eq!((used.action, used.news), (Action::Stay, News::Nothing));
    assert!(!used.memory.is_compared() && verdict(0, 1000).memory.is_compared());
    assert_eq!(policy.press(seen(0, 1000, compared), 1001).action, Action::Down(1));
    assert!([0, 1, 2].iter().all(|tier| !compared.in_tier(*tier).is_compared()));
}

/// The memory of a page that was last used in second 1000, after a move down.
fn moved(policy: &Policy, now: u32) -> Memory {
    let verdict = policy.judge(seen(0, 1000, Memory::default()), now);
    assert!(matches!(verdict.action, Action::Down(_)));
    verdict.memory
}

#[test]
fn a_page_of_any_age_moves_down_when_memory_is_needed_at_once() {
    let policy = Policy::new(&TIERS, Budgets::default());
    let press = |tier, used, memory| policy.press(seen(tier, used, memory), 1000);
    let warm = press(0, 1000, Memory::default());
    assert_eq!((warm.action, warm.memory.tier()), (Action::Down(1), 1));
    let cold = press(1, 1000, warm.memory);
    assert_eq!((cold.action, cold.memory.tier()), (Action::Down(2), 2));
    assert_eq!(press(2, 1000, cold.memory).action, Action::Stay);
    // It frees something now, also if it is old enough to go on.
    let old = press(0, 0, Memory::default());
    assert_eq!((old.action, old.goes_on), (Action::Down(1), false));
    // One that became no smaller is not tried again until it is used.
    assert_eq!(press(0, 1000, warm.memory).action, Action::Down(2));
    assert_eq!(press(1, 1000, cold.memory).action, Action::Stay);
    assert_eq!(press(0, 1001, cold.memory).action, Action::Down(1));
    // A pass raises a page that was used too soon, and hears of it first.
    let used = press(2, 1001, cold.memory);
    assert_eq!((used.action, used.memory, used.news), (Action::Stay, cold.memory, News::Nothing));
    // A tier with slower reads than the budget's is not used.
    let fast = Budgets { slowest_read: 40, ..Budgets::default() };
    let policy = Policy::new(&TIERS, fast);
    assert_eq!(policy.press(seen(1, 900, Memory::default()), 1000).action, Action::Stay);
}

#[test]
fn a_page_that_came_back_too_soon_stays_up_for_twice_as_long_each_time() {
    let policy = Policy::new(&TIERS[..2], Budgets::default());
    let (mut memory, mut used) = (Memory::default(), 1000);
    for times in 0..3u32 {
        let wait = 32 << times;
        let early = policy.judge(seen(0, used, memory), used + wait - 1);
        assert_eq!(early.action, Action::Stay, "{times}");
        let down = policy.judge(seen(0, used, memory), used + wait);
        assert_eq!(down.action, Action::Down(1), "{times}");
        // It is read 40 seconds after its last use, when it has been down for a moment.
        let back = policy.judge(seen(1, used + 40, down.memory), used + wait + 60);
        assert_eq!((back.action, back.news), (Action::Up, News::TooSoon(1)), "{times}");
        assert_eq!((back.memory.returns(), back.memory.tier()), (times + 1, 0));
        (memory, used) = (back.memory, used + 40);
    }
    for _ in 0..9 {
        memory = memory.in_tier(1);
        used += 40;
        memory = policy.judge(seen(1, used, memory), used).memory;
    }
    assert_eq!(memory.returns(), 7);
}

#[test]
fn a_page_that_is_read_late_stays_and_a_second_read_brings_it_up() {
    let policy = Policy::new(&TIERS[..2], Budgets::default());
    let moved = moved(&policy, 1032);
    let unused = policy.judge(seen(1, 1000, moved), 1100);
    assert_eq!((unused.action, unused.news), (Action::Stay, News::Nothing));
    let late = policy.judge(seen(1, 1100, moved), 1101);
    assert_eq!((late.action, late.news), (Action::Stay, News::Late(1)));
    assert_eq!(late.interval, Some(100));
    let again = policy.judge(seen(1, 1100, late.memory), 1102);
    assert_eq!((again.news, again.interval), (News::Nothing, None), "a use counts once");
    let second = policy.judge(seen(1, 1105, late.memory), 1106);
    assert_eq!((second.action, second.news), (Action::Up, News::TooSoon(1)));
}

#[test]
fn a_store_counts_as_a_use_and_needs_no_move() {
    let policy = Policy::new(&TIERS[..2], Budgets::default());
    let stored = policy.judge(seen(0, 1040, moved(&policy, 1032)), 1041);
    assert_eq!((stored.action, stored.news), (Action::Stay, News::TooSoon(1)));
    assert_eq!(stored.memory.tier(), 0);
}

#[test]
fn memory_survives_its_bits_and_the_wrap_of_its_clock() {
    let policy = Policy::new(&TIERS, Budgets::default());
    let end = (1 << 27) - 1;
    let moved = policy.judge(seen(0, end - 40, Memory::default()), end).memory;
    assert_eq!(Memory::from_bits(moved.bits()), moved);
    assert_eq!(policy.judge(seen(1, end - 40, moved), end + 9).news, News::Nothing);
    let used = policy.judge(seen(1, end + 8, moved), end + 9);
    assert_eq!((used.news, used.interval), (News::TooSoon(1), Some(48)));
}

#[test]
fn tiers_that_are_too_slow_are_not_used() {
    for (slowest_read, deepest) in [(0, 2), (100, 2), (79, 1), (40, 1), (39, 0)] {
        let policy = Policy::new(&TIERS, Budgets { slowest_read, ..Budgets::default() });
        for tier in 0..3 {
            let action = policy.judge(seen(tier, 0, Memory::default()), 1 << 20).action;
            let expected = if tier >= deepest { Action::Stay } else { Action::Down(tier + 1) };
            assert_eq!(action, expected, "{slowest_read} {tier}");
        }
        assert_eq!(policy.pause() == u32::MAX, deepest == 0);
    }
}

#[test]
fn a_target_lets_the_oldest_pages_move_and_no_more_than_needed() {
    let budgets = Budgets { target: 1 << 20, ..Budgets::default() };
    let mut policy = Policy::new(&TIERS, budgets);
    assert_eq!((policy.age(1), policy.age(2)), (None, None), "nothing is known yet");
    let mut pass = Pass { seconds: 1, memory: 1 << 20, ..Pass::default() };
    pass.tiers[0].ages[6] = 10_000;
    pass.tiers[0].ages[10] = 10_000;
    policy.learn(&pass);
    assert_eq!((policy.age(1), policy.age(2)), (None, None), "at its target");
    pass.memory += 1000 * 256;
    policy.learn(&pass);
    assert_eq!(policy.age(1), Some(1 << 10));
    pass.memory += 100_000 * 256;
    policy.learn(&pass);
    assert_eq!((policy.age(1), policy.age(2)), (Some(32), Some(256)));
}

#[test]
fn a_page_that_was_tried_in_vain_goes_on_to_the_next_tier() {
    let policy = Policy::new(&TIERS, Budgets::default());
    let tried = policy.judge(seen(0, 1000, Memory::default()), 1040).memory;
    assert_eq!(policy.judge(seen(0, 1000, tried), 1255).action, Action::Stay);
    assert_eq!(policy.judge(seen(0, 1000, tried), 1256).action, Action::Down(2));
}

#[test]
fn pages_that_cannot_move_do_not_count_for_a_target() {
    let budgets = Budgets { target: 1 << 20, ..Budgets::default() };
    let mut policy = Policy::new(&TIERS[..2], budgets);
    let mut pass = Pass { seconds: 1, memory: (1 << 20) + 1000, ..Pass::default() };
    let old = seen(0, 0, Memory::default());
    let stays = policy.judge(old, 1024);
    for _ in 0..10 {
        pass.count(&old, &stays, 1024);
        pass.stays(&old, 1024);
        // It became no smaller.
        let tried = seen(0, 0, Memory::default().in_tier(1));
        pass.count(&tried, &policy.judge(tried, 1024), 1024);
    }
    let young = seen(0, 1024 - 64, Memory::default());
    (0..10).for_each(|_| pass.count(&young, &stays, 1024));
    policy.learn(&pass);
    assert_eq!(policy.age(1), Some(64), "the old ones are of no help");
}

/// A pass that sees these intervals end, this many of each.
fn pass(intervals: &[(u32, u64)]) -> Pass {
    let mut pass = Pass { seconds: 4, ..Pass::default() };
    let stays = Policy::new(&TIERS, Budgets::default()).judge(seen(0, 9, Memory::default()), 9);
    for &(seconds, count) in intervals {
        for _ in 0..count {
            let verdict = Verdict { interval: Some(seconds), ..stays };
            pass.count(&seen(0, 9, Memory::default()), &verdict, 9);
        }
    }
    pass
}

#[test]
fn the_age_is_the_one_at_which_moves_pay_best() {
    let age = |intervals: &[(u32, u64)]| {
        let mut policy = Policy::new(&TIERS[..2], Budgets::default());
        policy.learn(&pass(intervals));
        policy.age(1)
    };
    assert_eq!(age(&[]), Some(32), "nothing is known: when waiting has cost as much");
    assert_eq!(age(&[(1000, 10)]), Some(4), "all that is idle stays so");
    assert_eq!(age(&[(35, 1000), (1000, 10)]), Some(64), "many come back after 35 s");
    assert_eq!(age(&[(1000, 10), (20, 100)]), Some(32), "many come back after 20 s");
    assert_eq!(age(&[(1000, 1000), (20, 10)]), Some(4), "they are too few to wait for them");
}

#[test]
fn what_was_seen_long_ago_counts_less() {
    let mut policy = Policy::new(&TIERS[..2], Budgets::default());
    policy.learn(&pass(&[(35, 1000)]));
    assert_eq!(policy.age(1), Some(64));
    for _ in 0..1000 {
        policy.learn(&pass(&[(4000, 1)]));
    }
    assert_eq!(policy.age(1), Some(4));
}

#[test]
fn a_device_at_rest_is_looked_at_less_often() {
    let mut policy = Policy::new(&TIERS, Budgets::default());
    let rest_after = |policy: &mut Policy, ages: &[u32], moved| {
        let mut pass = Pass { memory: 1 << 30, ..Pass::default() };
        for age in ages {
            let page = seen(0, 1000 - age, Memory::default());
            pass.count(&page, &policy.judge(page, 1000), 1000);
        }
        pass.tiers[1].moved = moved;
        policy.learn(&pass);
        (policy.rest(), policy.rest() == policy.pause())
    };
    assert!(rest_after(&mut policy, &[], 0).1, "nothing is there");
    rest_after(&mut policy, &[80, 900], 0);
    assert_eq!(rest_after(&mut policy, &[80, 900], 0), (10, false), "an eighth of the time");
    assert_eq!(rest_after(&mut policy, &[800, 900], 0), (64, false), "a minute at most");
    assert!(rest_after(&mut policy, &[800, 900], 1).1, "more may move");
    rest_after(&mut policy, &[800, 900], 0);
    policy.learn(&Pass { unused: Some(800), goes_on: true, ..Pass::default() });
    assert_eq!(policy.rest(), policy.pause(), "the next pass packs what this one compared");
    rest_after(&mut policy, &[800, 900], 0);
    assert_eq!(rest_after(&mut policy, &[800, 900], 0), (64, false));
    policy.set_budgets(Budgets::default());
    assert_eq!(policy.rest(), 64, "nothing has changed");
    policy.set_budgets(Budgets { target: 1 << 31, ..Budgets::default() });
    assert_eq!(policy.rest(), policy.pause(), "a new budget is heard at once");
    rest_after(&mut policy, &[800, 900], 0);
    assert_eq!(rest_after(&mut policy, &[800, 900], 0), (64, false), "no page needs to move");
    policy.set_budgets(Budgets { target: 1 << 20, ..Budgets::default() });
    assert!(rest_after(&mut policy, &[800, 900], 0).1, "the next pass moves pages");
}

#[test]
fn memory_is_put_together_after_moves() {
    let mut policy = Policy::new(&TIERS, Budgets::default());
    let mut pass = Pass { seconds: 1, ..Pass::default() };
    pass.tiers[0].pages = 6400;
    policy.learn(&pass);
    assert!(!policy.wants_compaction());
    pass.tiers[1].moved = 150;
    policy.learn(&pass);
    assert!(!policy.wants_compaction(), "more moves may follow");
    pass.tiers[1].moved = 0;
    policy.learn(&pass);
    assert!(policy.wants_compaction());
    policy.compacted();
    policy.learn(&pass);
    assert!(!policy.wants_compaction());
}

#[test]
fn cpu_time_is_a_share_of_time_and_debts_are_paid() {
    let mut credit = Allowance::of_cpu(5);
    assert_eq!(credit.left(), 0);
    credit.earn(1_000_000_000);
    assert_eq!(credit.left(), 50_000_000);
    credit.earn(u64::MAX);
    assert_eq!(credit.left(), 100_000_000, "no more is saved up");
    credit.spend(140_000_000);
    assert_eq!(credit.left(), 0);
    credit.earn(1_000_000_000);
    assert_eq!(credit.left(), 10_000_000);
    credit.earn_at(Allowance::of_cpu(5), 1_000_000_000);
    assert_eq!(credit.left(), 60_000_000);
    credit.earn_at(Allowance::of_cpu(6), 1_000_000_000);
    assert_eq!(credit.left(), 60_000_000, "nothing is left of another rate");
}

#[test]
fn work_has_time_until_what_was_there_is_spent() {
    let (now, mut credit) = (Cell::new(7), Allowance::new(100, 1, 100));
    let clock = || now.get();
    assert!(!credit.spell(&clock).has_time());
    credit.earn(1);
    let spell = credit.spell(&clock);
    now.set(106);
    assert!(spell.has_time());
    now.set(107);
    assert!(!spell.has_time());
    assert_eq!(spell.spent(), 100);
}

#[test]
fn pages_that_are_used_soon_make_others_wait_longer() {
    assert_eq!(waits_after(1, 1000, 300), 2);
    assert_eq!(waits_after(2, 1000, 100), 2);
    assert_eq!(waits_after(2, 1000, 10), 1);
    assert_eq!(waits_after(1, 0, 3), 1);
    let most = (0..10).fold(1, |waits, _| waits_after(waits, 0, 1000));
    assert!(most * PASSES <= 255, "so many passes cannot be remembered: {most}");
    assert!((0..10).fold(most, |waits, _| waits_after(waits, 0, 0)) == 1);
}

#[test]
fn generations_are_powers_of_two() {
    for (age, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (u32::MAX, GENERATIONS - 1)] {
        assert_eq!(generation(age), expected, "{age}");
    }
}

/// Those of before, and a device.
static WITH_DEVICE: [Tier; 4] = [
    TIERS[0],
    TIERS[1],
    TIERS[2],
    Tier { name: "out", slowest_read: 1000, worth: 1024, on_device: true },
];

#[test]
fn pages_move_to_a_device_only_if_it_may_be_written() {
    let allowed = Budgets { written_a_day: 1, ..Budgets::default() };
    for (budgets, age) in [
        (Budgets::default(), None),
        (allowed, Some(1024)),
        (Budgets { slowest_read: 999, ..allowed }, None),
        (Budgets { slowest_read: 1000, ..allowed }, Some(1024)),
    ] {
        let policy = Policy::new(&WITH_DEVICE, budgets);
        assert_eq!(policy.age(3), age, "{budgets:?}");
        let old = policy.judge(seen(2, 1000, Memory::default()), 1000 + 1024);
        assert_eq!(old.action == Action::Down(3), age.is_some(), "{budgets:?}");
        let young = policy.judge(seen(2, 1000, Memory::default()), 1000 + 1023);
        assert_eq!(young.action, Action::Stay);
    }
}

#[test]
fn pages_on_a_device_that_come_back_soon_stay_longer() {
    let policy = Policy::new(&WITH_DEVICE, Budgets { written_a_day: 1, ..Budgets::default() });
    let out = policy.judge(seen(2, 1000, Memory::default()), 2024);
    let back = policy.judge(seen(3, 2030, out.memory), 2031);
    assert_eq!((back.action, back.news), (Action::Up, News::TooSoon(3)));
    let memory = back.memory.in_tier(2);
    let waits = policy.judge(seen(2, 2030, memory), 2030 + 2047);
    assert_eq!(waits.action, Action::Stay);
    assert_eq!(policy.judge(seen(2, 2030, memory), 2030 + 2048).action, Action::Down(3));
    let late = policy.judge(seen(3, 1000 + 2048, out.memory), 4000);
    assert_eq!((late.action, late.news), (Action::Stay, News::Late(3)));
}

#[test]
fn pages_that_move_to_a_device_are_older_than_cold_ones() {
    let budgets = Budgets { written_a_day: 1, ..Budgets::default() };
    let mut policy = Policy::new(&WITH_DEVICE, budgets);
    policy.learn(&pass(&[(4000, 10)]));
    assert_eq!((policy.age(2), policy.age(3)), (Some(4), Some(4 * TIMES_OLDER)));
}

#[test]
fn bytes_are_allowed_by_the_day_and_an_hour_is_saved_up() {
    const SECOND: u64 = 1_000_000_000;
    let mut allowance = Allowance::of_a_day(86_400_000);
    assert_eq!((allowance.left(), allowance.most()), (0, 3_600_000));
    allowance.earn(10 * SECOND);
    assert_eq!(allowance.left(), 10_000);
    allowance.spend(12_000);
    assert_eq!(allowance.left(), 0);
    allowance.earn(3 * SECOND);
    assert_eq!(allowance.left(), 1000, "the debt is paid first");
    allowance.earn(u64::MAX);
    assert_eq!(allowance.left(), 3_600_000);
    // Nothing is rounded away: a byte a day in steps of a second.
    let mut slow = Allowance::of_a_day(1);
    (0..86_400).for_each(|_| slow.earn(SECOND));
    assert_eq!((slow.left(), slow.most()), (1, 32 << 10));
    let mut most = Allowance::of_a_day(u64::MAX);
    most.earn(u64::MAX);
    assert_eq!(most.left(), u64::MAX / 24);
    most.spend(u64::MAX);
    assert_eq!(most.left(), 0);
    let mut never = Allowance::of_a_day(0);
    never.earn(u64::MAX);
    assert_eq!((never.left(), never.most()), (0, 0));
}

#[test]
fn a_full_bucket_is_spent_and_grows_again() {
    const SECOND: u64 = 1_000_000_000;
    let mut budget = Allowance::new(100, 10 * SECOND, 100).full();
    assert_eq!(budget.left(), 100);
    budget.spend(99);
    assert_eq!(budget.left(), 1);
    budget.spend(51);
    budget.earn(5 * SECOND);
    assert_eq!(budget.left(), 0);
    budget.earn(SECOND);
    assert_eq!(budget.left(), 10);
    budget.earn(u64::MAX);
    assert_eq!(budget.left(), 100, "no more is saved up");
}

#[test]
fn a_round_goes_on_where_it_stopped_and_takes_no_more_than_it_earned() {
    let (now, mut looks, mut seen) = (Cell::new(0), 0, [0; 5]);
    let clock = || now.get();
    let mut round = Round::default();
    assert!(!round.is_under_way());
    round.begin(1);
    // Ten nanoseconds of a tenth of a CPU are two looks of five.
    for ends in [false, false, true] {
        let spell = round.earn(10, 100, &clock);
        let ended = round.go_on(6, spell, |next| {
            seen[looks] = next;
            looks += 1;
            now.set(now.get() + 5);
            next + 1
        });
        assert_eq!(ended, ends);
        round.spend(spell.spent());
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    assert!(!round.is_under_way());
}
