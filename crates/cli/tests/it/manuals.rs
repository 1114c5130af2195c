//! Man pages and completions, which are made from the command line's definition.

#[path = "../../examples/manuals/write.rs"]
pub mod write;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Need, TempDir, met, run};

use crate::common::{Daemon, Place, listing, program};
use crate::golden::rows;

/// Everything that is made, in a directory.
fn made() -> TempDir {
    let place = TempDir::new();
    write::all(place.path(), "2026-01-31", &rows()).unwrap();
    place
}

fn pages(place: &TempDir) -> Vec<PathBuf> {
    let mut pages = listing(&place.path().join("man"));
    pages.sort();
    pages
}

#[test]
fn there_is_a_page_for_each_command_and_one_for_the_attributes() {
    let place = made();
    let names: Vec<_> =
        pages(&place).iter().filter_map(|it| Some(it.file_name()?.to_str()?.to_owned())).collect();
    let some = ["rampack.1", "rampack-up.1", "rampack-swap-on.1", "rampack.toml.5"];
    for name in some.into_iter().chain(["rampack-attributes.7"]) {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    for hidden in ["rampack-layouts.1", "rampack-names.1", "rampack-help.1"] {
        assert!(!names.iter().any(|it| it == hidden), "{hidden}");
    }
    let text = fs::read_to_string(place.path().join("man/rampack-attributes.7")).unwrap();
    for row in rows() {
        assert!(text.replace('\\', "").contains(&row.path), "{}", row.path);
    }
}

/// What is wrong with a configuration of this text.
fn faults(text: &str) -> Vec<String> {
    let faults = cli::config::understand(&[("f".into(), text.into())]).1;
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn the_page_of_the_file_has_the_keys_and_messages_of_the_program() {
    let place = made();
    let text = fs::read_to_string(place.path().join("man/rampack.toml.5")).unwrap();
    let text = text.replace('\\', "");
    let parts: Vec<_> = text.split(".SH ").collect();
    for (name, title) in [("zram0", "[zramN]\n"), ("swap0", "[swapN]\n"), ("serve", "[serve]\n")] {
        let refused = faults(&format!("[{name}]\nno-key = 1\n"));
        let refused = refused.iter().find(|it| it.contains("no no-key")).unwrap();
        let there = refused.split("there are: ").nth(1).unwrap().split(';').next().unwrap();
        let part = parts.iter().find(|part| part.starts_with(title)).unwrap();
        let keys: Vec<_> = there.split_whitespace().collect();
        let told = part
            .split(".TP\n")
            .filter_map(|it| it.strip_prefix("fB")?.split_once("fR = ").map(|(key, _)| key));
        assert_eq!(told.collect::<Vec<_>>(), keys, "{part}");
    }
    assert!(parts.iter().any(|part| part.starts_with("DIAGNOSTICS")
        && part.contains(
            "/etc/rampack/rampack.toml:4: when-full = \"never\": allowed are: fail, wait, spill"
        )));
    let example = include_str!("../../../../dist/examples/rampack.toml");
    assert_eq!(faults(example), [""; 0]);
    let last = example.trim_end().lines().next_back().unwrap();
    assert!(text.contains(last), "{text}");
}

#[test]
fn the_pages_are_clean_and_render() {
    let place = made();
    let needs = [Need::program("mandoc", "mandoc"), Need::program("man", "man-db")];
    if !met("the_pages_are_clean_and_render", &needs) {
        return;
    }
    for page in pages(&place) {
        // Warnings are of what is written; style is that of clap_mangen.
        let mut lint = Command::new("mandoc");
        let lint = run(lint.args(["-T", "lint", "-W", "warning"]).arg(&page));
        assert_eq!(lint.stdout, "", "{}", page.display());
        let mut man = Command::new("man");
        let text = run(man.args(["--local-file"]).arg(&page).env("MANWIDTH", "80")).stdout;
        let name = page.file_stem().and_then(OsStr::to_str).unwrap();
        assert!(text.contains("NAME\n") && text.contains(name), "{text}");
    }
    let mut man = Command::new("man");
    man.arg("--local-file").arg(place.path().join("man/rampack-up.1")).env("MANWIDTH", "80");
    let text = run(&mut man).stdout;
    let example = "  rampack up --size 4G --algorithm zstd --memory 1G\n";
    assert!(text.contains(example), "an example is a line: {text}");
}

/// What a shell offers for the last of `words`.
fn bash(place: &Path, root: &Path, words: &[&str]) -> Vec<String> {
    let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))
                  function_of=$(complete -p rampack); function_of=${function_of#*-F }
                  ${function_of%% *} rampack \"${!#}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "-"]).arg(place.join("completions/rampack.bash"));
    let directory = Path::new(program().get_program()).parent().unwrap().to_owned();
    let path = format!("{}:/usr/bin:/bin", directory.display());
    command.args(words).env("PATH", path).env("RAMPACK_ROOT", root);
    let output = command.output().unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_devices() {
    let made = made();
    let place = Place::new();
    let offers = |words: &[&str]| bash(made.path(), &place.root(), words);
    assert_eq!(offers(&["rampack", "stat"]), ["status"]);
    assert_eq!(offers(&["rampack", "lay"]), [""; 0], "a hidden command");
    assert_eq!(offers(&["rampack", "swap", "o"]), ["on", "off"]);
    assert_eq!(offers(&["rampack", "up", "--transport", "u"]), ["ublk"]);
    assert!(offers(&["rampack", "doctor", "--s"]).contains(&"--sysctl".to_owned()));
    assert_eq!(offers(&["rampack", "get", "zr"]), [""; 0], "no daemon");
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 2 --size 8M");
    assert_eq!(offers(&["rampack", "get", "zr"]), ["zram0", "zram1"]);
    assert_eq!(offers(&["rampack", "remove", ""]), ["zram0", "zram1"]);
    assert_eq!(offers(&["rampack", "list", "zram1"]), ["zram1"]);
    assert!(offers(&["rampack", "set", "--"]).contains(&"--root".to_owned()));
    assert_eq!(offers(&["rampack", "up", "--", "get", "zr"]), [""; 0]);
    daemon.stop();
}

#[test]
fn other_shells_ask_for_the_devices_too() {
    let made = made();
    let text = |name| fs::read_to_string(made.path().join("completions").join(name)).unwrap();
    let zsh = text("_rampack");
    assert!(zsh.starts_with("#compdef rampack\n"));
    // Of get, set, status, list, remove, reset, snapshot, restore, clone, and swap off.
    assert_eq!(zsh.matches(":_rampack_names'").count(), 10, "{zsh}");
    let fish = text("rampack.fish");
    let seen = "__fish_seen_subcommand_from swap; and __fish_seen_subcommand_from off";
    assert!(fish.contains(seen) && fish.matches("rampack names").count() == 10, "{fish}");
    for (need, shell, name) in [
        (Need::program("zsh", "zsh"), "zsh", "_rampack"),
        (Need::program("fish", "fish"), "fish", "rampack.fish"),
    ] {
        if met("other_shells_ask_for_the_devices_too", &[need]) {
            run(Command::new(shell).arg("-n").arg(made.path().join("completions").join(name)));
        }
    }
}
