//! `rampack-lab trace`, at a small size: what is recorded is a trace that the model of the tiers
//! reads.

mod common;

use std::fs;

use common::Place;
use sim::tiers::{Trace, clairvoyant, fixed, parse};
use testkit::Need;

/// A program that fills twice its limit, uses a half of that again some seconds later, and ends.
const PROGRAM: &str = "import time\n\
    m = bytearray(48 << 20)\n\
    for i in range(0, len(m), 512): m[i] = i % 251\n\
    time.sleep(3)\n\
    s = sum(m[i] for i in range(0, len(m) // 2, 4096))\n";

fn needs(program: Need) -> Vec<Need> {
    let mkswap = Need::program("mkswap", "util-linux");
    vec![Need::MemoryGroup, Need::Swap, Need::Fuse, Need::Loop, mkswap, program]
}

fn recorded(place: &Place, arguments: &[&str]) -> (String, Trace) {
    let common = ["trace", "--out", "a.trace", "--swap-size", "128M", "--force"];
    let output = testkit::run(&mut place.lab(&[&common[..], arguments].concat()));
    assert!(output.stdout.starts_with("a.trace: "), "{}", output.stdout);
    common::assert_no_swap_of(place);
    place.assert_nothing_left();
    let text = fs::read_to_string(place.path("a.trace")).expect("a trace");
    let trace = parse(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
    (text, trace)
}

#[test]
fn a_program_of_the_users_is_recorded() {
    let test = "a_program_of_the_users_is_recorded";
    if !testkit::met(test, &needs(Need::program("python3", "python3"))) {
        return;
    }
    let place = Place::new();
    let arguments = ["--limit", "24M", "--pages", "300", "--", "python3", "-c", PROGRAM];
    let (text, trace) = recorded(&place, &arguments);
    assert!(text.contains("\ncommand python3 -c import time m = bytearray(48 << 20)"), "{text}");
    assert_eq!(trace.pages(), 300);
    let writes = trace.uses().iter().filter(|used| used.writes).count();
    let reads = trace.uses().len() - writes;
    assert!(writes >= 300, "{writes} writes of 300 pages");
    assert!(reads > 0, "no page was used again: {text}");
    assert!(fixed(&trace, 4) <= clairvoyant(&trace));
}

#[test]
fn a_program_of_the_labs_is_recorded() {
    let test = "a_program_of_the_labs_is_recorded";
    if !testkit::met(test, &needs(Need::program("python3", "python3"))) {
        return;
    }
    let place = Place::new();
    let sizes = ["--limit", "16M", "--size", "40M", "--seconds", "8", "--pages", "100"];
    let (text, trace) = recorded(&place, &[&["--program", "python"], &sizes[..]].concat());
    assert!(text.contains("\nprogram python\ncommand python3 heap.py\n"), "{text}");
    assert!(trace.pages() <= 100 && trace.seconds() <= 10, "{text}");
}

#[test]
fn nonsense_is_refused_and_named() {
    let place = Place::new();
    for (arguments, word) in [
        (&["--program", "emacs"][..], "python, node, java"),
        (&["--program", "python", "--limit", "64M", "--size", "64M"], "nothing would be swapped"),
        (&["--program", "python", "--", "true"], "cannot be used with"),
        (&["--pages", "10"], "--program"),
    ] {
        let all = [&["trace", "--out", "a.trace"], arguments].concat();
        let message = place.refused(&all);
        assert!(message.contains(word), "{arguments:?}: {word:?} is missing in {message}");
        assert!(!place.path("a.trace").exists());
    }
    if testkit::met("nonsense_is_refused_and_named", &needs(Need::program("true", "coreutils"))) {
        for (command, word) in
            [(&["true"][..], "nothing was swapped"), (&["false"], "the program has ended")]
        {
            let all = [&["trace", "--out", "a.trace", "--force", "--"], command].concat();
            let message = place.refused(&all);
            assert!(message.contains(word), "{command:?}: {word:?} is missing in {message}");
        }
    }
    place.assert_nothing_left();
}
