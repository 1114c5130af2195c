use super::*;

const AFTER: u64 = 10;

/// The seconds at which a program is ended, when `what` happens in each of 60 seconds.
fn ended(what: impl Fn(u64, &mut Sample)) -> Vec<u64> {
    let mut stuck = Stuck::new(Duration::from_secs(AFTER));
    let mut sample = Sample { is_short: true, ..Sample::default() };
    let look = |second: &u64| {
        sample.at = Duration::from_secs(*second);
        what(*second, &mut sample);
        stuck.look(sample)
    };
    (1..=60).filter(look).collect()
}

/// What was seen in a guest: every page refused, everybody waiting.
fn stuck(sample: &mut Sample) {
    sample.refused += 20_000;
    sample.waited += Duration::from_millis(990);
}

#[test]
fn a_program_is_ended_when_it_was_stuck_for_long_enough_and_again_if_that_did_not_help() {
    assert_eq!(ended(|_, sample| stuck(sample)), [10, 20, 30, 40, 50, 60]);
    let from_7_on = |second, sample: &mut Sample| {
        if second > 7 {
            stuck(sample);
        }
    };
    assert_eq!(ended(from_7_on).first(), Some(&17));
}

#[test]
fn a_machine_that_gets_on_is_left_alone() {
    let none: [u64; 0] = [];
    let served = |_, sample: &mut Sample| {
        stuck(sample);
        sample.served += 2_500;
    };
    assert_eq!(ended(served), none, "pages are stored and loaded");
    let at_work = |_, sample: &mut Sample| {
        sample.refused += 20_000;
        sample.waited += Duration::from_millis(700);
    };
    assert_eq!(ended(at_work), none, "programs do something but wait");
    let few = |_, sample: &mut Sample| {
        sample.refused += 50;
        sample.waited += Duration::from_millis(990);
    };
    assert_eq!(ended(few), none, "hardly a page is refused");
    let memory = |_, sample: &mut Sample| {
        stuck(sample);
        sample.is_short = false;
    };
    assert_eq!(ended(memory), none, "there is memory: a group of programs is at its own limit");
    let now_and_then = |second, sample: &mut Sample| {
        stuck(sample);
        sample.is_short = second % 9 != 0;
    };
    assert_eq!(ended(now_and_then), none, "never for long enough");
}

#[test]
fn nobody_is_ended_when_nobody_is_to_be() {
    let (watcher, said) = Watcher::new(Duration::ZERO);
    assert!(watcher.is_none() && said.had, "{said:?}");
    assert!(said.text.contains("--oom-after 0"), "{said:?}");
}
