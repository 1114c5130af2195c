use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::need::{append, on_path};
use crate::{Need, Rng, TempDir, asked, cases, dies, met, run, try_run};

const ABSENT: Need = Need::program("rampack-no-such-program", "no-such-package");

/// Not a test by itself: the tests below run it in a child process with the environment they need.
#[test]
fn child() {
    if std::env::var_os("TESTKIT_CHILD").is_some() {
        let ran = met("child", &[Need::program("sh", "dash"), ABSENT]);
        println!("met says {ran}");
    }
}

/// Like `child`, for a test that needs root.
#[test]
fn child_of_root() {
    if std::env::var_os("TESTKIT_CHILD").is_some() {
        println!("met says {}", met("child_of_root", &[Need::Root]));
    }
}

#[test]
fn root_is_used_only_when_that_is_allowed() {
    let command = || {
        let mut command = child_command("tests::child_of_root");
        command.env_remove("RAMPACK_THOROUGH");
        command
    };
    let output = run(&mut command());
    assert!(output.stdout.contains("met says false"), "{output:?}");
    assert!(output.stderr.contains("SKIPPED child_of_root: needs root ("), "{output:?}");
    let output = run(command().env("RAMPACK_THOROUGH", "1"));
    assert!(output.stdout.contains(&format!("met says {}", Need::Root.is_met())), "{output:?}");
}

fn child_command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env("TESTKIT_CHILD", "1").env_remove("RAMPACK_STRICT").env_remove("RAMPACK_SKIPS");
    command
}

#[test]
fn a_missing_need_is_printed_and_recorded() {
    let scratch = TempDir::new();
    let skips = scratch.join("skips");
    let line = "SKIPPED child: needs rampack-no-such-program (package no-such-package)\n";
    for _ in 0..2 {
        let output = run(child_command("tests::child").env("RAMPACK_SKIPS", &skips));
        assert!(output.stdout.contains("met says false"), "{output:?}");
        assert!(output.stderr.contains(line), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&skips).unwrap(), line.repeat(2));
}

#[test]
fn strict_mode_panics_with_the_name() {
    let output = try_run(child_command("tests::child").env("RAMPACK_STRICT", "1"));
    assert!(!output.status.success());
    let said = output.stdout + &output.stderr;
    assert!(said.contains("rampack-no-such-program (package no-such-package)"), "{said}");
}

#[test]
fn needs_that_are_there_are_met() {
    assert!(met("needs_that_are_there_are_met", &[]));
    assert!(met("needs_that_are_there_are_met", &[Need::program("sh", "dash")]));
    assert!(!on_path("rampack-no-such-program"));
    assert!(met("needs_that_are_there_are_met", &[Need::other(true, "the sky above")]));
    assert!(!Need::other(false, "the sky above").is_met());
    assert_eq!(Need::other(false, "the sky above").to_string(), "the sky above");
}

#[test]
#[should_panic(expected = "RAMPACK_SKIPS=")]
fn a_skips_file_that_cannot_be_written_is_an_error() {
    append(std::path::Path::new("/proc/no/such/directory"), "line\n");
}

#[test]
fn the_generator_repeats_and_stays_in_range() {
    // A printed seed repeats its run as long as these numbers stay the same.
    let mut rng = Rng::new(1_234_567);
    assert_eq!(rng.next_u64(), 13_725_641_357_320_173_039);
    assert_eq!(rng.next_u64(), 13_099_500_103_347_697_343);
    let seen: BTreeSet<u64> = (0..1000).map(|_| rng.range(5..8)).collect();
    assert_eq!(seen, BTreeSet::from([5, 6, 7]));
    assert_eq!(rng.below(0), 0);
    assert!(!rng.one_in(0));
    assert!(rng.one_in(1));
    let mut bytes = [0; 13];
    rng.fill(&mut bytes);
    assert_ne!(bytes, [0; 13]);
    let mut order: Vec<u32> = (0..100).collect();
    rng.shuffle(&mut order);
    assert_ne!(order, (0..100).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn seeds_are_read_in_both_bases() {
    assert_eq!(crate::rng::parse("42"), Some(42));
    assert_eq!(crate::rng::parse("0x2a"), Some(42));
    assert_eq!(crate::rng::parse("2a"), None);
    assert_eq!(crate::rng::parse(""), None);
}

#[test]
fn all_tests_of_a_process_draw_from_one_seed() {
    assert_eq!(crate::seed("one of them"), crate::seed("another"));
}

#[test]
fn a_scratch_directory_goes_away() {
    let scratch = TempDir::new();
    let path = scratch.path().to_owned();
    fs::write(scratch.join("file"), "x").unwrap();
    drop(scratch);
    assert!(!path.exists());
}

#[test]
#[should_panic(expected = "the reason")]
fn a_failing_program_shows_its_output() {
    run(Command::new("sh").args(["-c", "echo the reason >&2; exit 3"]));
}

#[test]
fn what_ends_its_process_dies_and_what_does_not_lives() {
    let name = "tests::what_ends_its_process_dies_and_what_does_not_lives";
    dies(name, "the end of it", || panic!("the end of it"));
}

/// Not a test by itself, either.
#[test]
fn child_of_amounts() {
    if std::env::var_os("TESTKIT_CHILD").is_some() {
        println!("{} of 7, {}", cases(7), asked("TESTKIT_NUMBER", 3));
    }
}

#[test]
fn a_long_run_tries_more_cases() {
    let command = || {
        let mut command = child_command("tests::child_of_amounts");
        command.env_remove("RAMPACK_LONG").env_remove("TESTKIT_NUMBER");
        command
    };
    assert!(run(&mut command()).stdout.contains("4 of 7, 3"));
    let long = run(command().env("RAMPACK_LONG", "1").env("TESTKIT_NUMBER", "12"));
    assert!(long.stdout.contains("7 of 7, 12"), "{long:?}");
    let wrong = try_run(command().env("TESTKIT_NUMBER", "many"));
    assert!(wrong.stderr.contains("TESTKIT_NUMBER=many: it must be"), "{wrong:?}");
}
