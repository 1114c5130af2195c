//! `modprobe`, `rmmod` and `insmod` of the module zram under `rampack exec`, as kmod 30 has them.
//!
//! Everything else, and every other module, goes to the system's own program.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};

use host::errno;

use super::programs;
use crate::terminal::answer;
use service::failure::{say, sentence};

const ZRAM: &str = "zram";
/// Loads and unloads; see `tree::CONTROL`.
const CONTROL: &str = "/sys/class/zram-control";
/// The file is there while the module is loaded.
const STATE: &str = "/sys/module/zram/initstate";
const NUM_DEVICES: &str = "num_devices";
/// How many devices a load makes, if no parameter says otherwise.
const USUAL: &str = "1";
/// The exit code of a shell for a command that does not exist.
const NOT_FOUND: u8 = 127;

/// What a command line asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    /// Nothing of zram: the system's program does it.
    Other,
    /// To load zram with these parameters.
    Load { parameters: Vec<String>, how: How, others: Option<Vec<String>> },
    /// To unload zram.
    Unload { how: How, others: Option<Vec<String>> },
}

/// The options that change what happens or is said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct How {
    first_time: bool,
    quiet: bool,
    verbose: bool,
    dry: bool,
}

/// The name of a module: `-` and `_` are the same in it.
fn is_zram(name: &str) -> bool {
    name.replace('-', "_") == ZRAM
}

/// Is `path` the file of the module, compressed or not?
fn is_file_of_zram(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some(rest) = name.strip_prefix(ZRAM) else { return false };
    matches!(rest, ".ko" | ".ko.xz" | ".ko.gz" | ".ko.zst")
}

/// The words of a command line: its options in short or long form, and the other words.
struct Words {
    options: Vec<String>,
    others: Vec<String>,
}

/// Splits a command line as getopt_long(3) does. `with_value` has the options with a value.
fn split(words: &[String], with_value: &[&str]) -> Words {
    let (mut options, mut others) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            others.extend(words.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            if value.is_none() && with_value.contains(&name) {
                words.next();
            }
            options.push(name.to_string());
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            for (at, letter) in short.char_indices() {
                let name = letter.to_string();
                let takes = with_value.contains(&name.as_str());
                let is_last = at + letter.len_utf8() == short.len();
                options.push(name);
                if takes {
                    if is_last {
                        words.next();
                    }
                    break;
                }
            }
        } else {
            others.push(word.clone());
        }
    }
    Words { options, others }
}

/// Options of modprobe with a value.
const MODPROBE_VALUES: &[&str] = &["C", "config", "d", "dirname", "S", "set-version", "w", "wait"];
/// Options of modprobe that ask and change nothing, or that name other modules than the running
/// kernel's.
const MODPROBE_ASKS: &[&str] = &[
    "S",
    "R",
    "resolve-alias",
    "D",
    "show-depends",
    "c",
    "showconfig",
    "show-config",
    "dump-modversions",
    "show-modversions",
    "show-exports",
    "V",
    "version",
    "h",
    "help",
    "d",
    "dirname",
    "set-version",
];
/// Other options of modprobe.
const MODPROBE_KNOWN: &[&str] = &[
    "a",
    "all",
    "r",
    "remove",
    "remove-dependencies",
    "remove-holders",
    "first-time",
    "i",
    "ignore-install",
    "ignore-remove",
    "b",
    "use-blacklist",
    "f",
    "force",
    "force-modversion",
    "force-vermagic",
    "n",
    "show",
    "dry-run",
    "s",
    "syslog",
    "q",
    "quiet",
    "v",
    "verbose",
    "C",
];

fn modprobe(words: &[String]) -> Asked {
    let Words { options, others } = split(words, MODPROBE_VALUES);
    let has = |names: &[&str]| options.iter().any(|option| names.contains(&option.as_str()));
    let is_known = |option: &String| {
        let option = option.as_str();
        MODPROBE_KNOWN.contains(&option) || MODPROBE_VALUES.contains(&option)
    };
    if has(MODPROBE_ASKS) || !options.iter().all(is_known) {
        return Asked::Other;
    }
    let how = How {
        first_time: has(&["first-time"]),
        quiet: has(&["q", "quiet"]),
        verbose: has(&["v", "verbose"]),
        dry: has(&["n", "show", "dry-run"]),
    };
    let is_removal = has(&["r", "remove", "remove-dependencies", "remove-holders"]);
    if !is_removal && !has(&["a", "all"]) {
        // Words behind the module are its parameters.
        return match others.split_first() {
            Some((module, parameters)) if is_zram(module) => {
                Asked::Load { parameters: parameters.to_vec(), how, others: None }
            }
            _ => Asked::Other,
        };
    }
    if !others.iter().any(|module| is_zram(module)) {
        return Asked::Other;
    }
    let others = without_zram(words, &others);
    match is_removal {
        true => Asked::Unload { how, others },
        false => Asked::Load { parameters: Vec::new(), how, others },
    }
}

/// The command line without zram; `None` if no other module is named.
fn without_zram(words: &[String], modules: &[String]) -> Option<Vec<String>> {
    let has_others = modules.iter().any(|module| !is_zram(module));
    has_others.then(|| words.iter().filter(|word| !is_zram(word)).cloned().collect())
}

fn rmmod(words: &[String]) -> Asked {
    let Words { options, others } = split(words, &[]);
    let has = |names: &[&str]| options.iter().any(|option| names.contains(&option.as_str()));
    if has(&["h", "help", "V", "version"]) || !others.iter().any(|module| is_zram(module)) {
        return Asked::Other;
    }
    let how = How { verbose: has(&["v", "verbose"]), first_time: true, ..How::default() };
    Asked::Unload { how, others: without_zram(words, &others) }
}

fn insmod(words: &[String]) -> Asked {
    let Words { options, others } = split(words, &[]);
    let has = |names: &[&str]| options.iter().any(|option| names.contains(&option.as_str()));
    match others.split_first() {
        Some((file, parameters))
            if is_file_of_zram(file) && !has(&["h", "help", "V", "version"]) =>
        {
            let how = How { first_time: true, ..How::default() };
            Asked::Load { parameters: parameters.to_vec(), how, others: None }
        }
        _ => Asked::Other,
    }
}

/// The value of `num_devices` among parameters: the last one holds.
fn num_devices(parameters: &[String]) -> Option<&str> {
    parameters.iter().rev().find_map(|parameter| match parameter.split_once('=') {
        Some((name, value)) => (name == NUM_DEVICES).then_some(value),
        None => (parameter == NUM_DEVICES).then_some(""),
    })
}

/// The parameters that the output of `modprobe --showconfig` has for zram.
fn configured(text: &str) -> Vec<String> {
    let of_zram = |line: &str| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("options") && words.next().is_some_and(is_zram);
        is_it.then(|| words.map(String::from).collect::<Vec<_>>())
    };
    text.lines().filter_map(of_zram).flatten().collect()
}

/// The name by which this program was called, if it is one of the covered programs.
#[must_use]
pub fn called_as(name: &OsStr) -> Option<&'static str> {
    let name = Path::new(name).file_name()?;
    programs::NAMES.into_iter().find(|known| name == *known)
}

/// The program `name` with these words: `modprobe`, `rmmod`, `insmod`, or another one of kmod.
#[must_use]
pub fn main(name: &'static str, words: Vec<OsString>) -> ExitCode {
    if !programs::are_covered() {
        say(&format!("{name}: rampack is {name} only for commands of `rampack exec`\n"));
        return ExitCode::from(NOT_FOUND);
    }
    let text: Option<Vec<String>> = words.iter().map(|it| it.clone().into_string().ok()).collect();
    let asked = match (name, &text) {
        ("modprobe", Some(text)) => modprobe(text),
        ("rmmod", Some(text)) => rmmod(text),
        ("insmod", Some(text)) => insmod(text),
        _ => Asked::Other,
    };
    let (code, others) = match asked {
        Asked::Other => return become_real(name, &words),
        Asked::Load { parameters, how, others } => (load(name, &parameters, how), others),
        Asked::Unload { how, others } => (unload(name, how), others),
    };
    let code_of_others = others.map_or(0, |words| run_real(name, &words));
    ExitCode::from(if code == 0 { code_of_others } else { code })
}

fn no_program(name: &str) -> u8 {
    say(&format!("{name}: this system has no {name} for other modules than zram\n"));
    NOT_FOUND
}

/// Becomes the system's own program.
fn become_real(name: &str, words: &[OsString]) -> ExitCode {
    let Some(real) = programs::real(name) else { return ExitCode::from(no_program(name)) };
    let error = Command::new(&real).arg0(name).args(words).exec();
    say(&format!("{name}: cannot run {}: {error}\n", real.display()));
    ExitCode::from(126)
}

/// Runs the system's own program and returns its exit code.
fn run_real(name: &str, words: &[String]) -> u8 {
    let Some(real) = programs::real(name) else { return no_program(name) };
    match Command::new(&real).arg0(name).args(words).status() {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }
        Err(error) => {
            say(&format!("{name}: cannot run {}: {error}\n", real.display()));
            126
        }
    }
}

/// The output of `modprobe --showconfig`; empty without a modprobe.
fn configuration() -> String {
    let Some(real) = programs::real("modprobe") else { return String::new() };
    let output = Command::new(real).arg0("modprobe").arg("--showconfig").output();
    output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default()
}

fn store(attribute: &str, value: &str) -> io::Result<()> {
    let path = Path::new(CONTROL).join(attribute);
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The text of an error without Rust's ` (os error N)`.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

fn load(name: &str, given: &[String], how: How) -> u8 {
    let is_loaded = fs::exists(STATE).unwrap_or(false);
    if is_loaded && how.first_time {
        let why = if name == "insmod" { "File exists" } else { "Module already in kernel" };
        say(&could_not_insert(name, why));
        return 1;
    }
    let mut parameters = match name {
        "modprobe" => configured(&configuration()),
        _ => Vec::new(),
    };
    parameters.extend(given.iter().cloned());
    if how.verbose && !is_loaded {
        let words: String = parameters.iter().map(|it| format!(" {it}")).collect();
        if !printed(&format!("insmod {ZRAM}{words}\n")) {
            return 1;
        }
    }
    if how.dry {
        return 0;
    }
    let count = num_devices(&parameters).unwrap_or(USUAL);
    match store("load", &format!("{count}\n")) {
        Ok(()) => 0,
        Err(error) => {
            if !how.quiet {
                say(&could_not_insert(name, &text_of(&error)));
            }
            1
        }
    }
}

/// Prints what `--verbose` is for.
fn printed(text: &str) -> bool {
    let printed = answer(text).map_err(|error| say(&format!("{}\n", sentence(&error))));
    printed.is_ok()
}

fn could_not_insert(name: &str, why: &str) -> String {
    match name {
        "insmod" => format!("insmod: ERROR: could not insert module {ZRAM}: {why}\n"),
        _ => format!("{name}: ERROR: could not insert '{ZRAM}': {why}\n"),
    }
}

fn unload(name: &str, how: How) -> u8 {
    let complain = |modprobe: &str, rmmod: &str| {
        match name {
            "rmmod" => say(&format!("rmmod: ERROR: {rmmod}\n")),
            _ if how.quiet => {}
            _ => say(&format!("{name}: FATAL: {modprobe}\n")),
        }
        1
    };
    if !fs::exists(STATE).unwrap_or(false) {
        if !how.first_time {
            return 0;
        }
        return complain(
            &format!("Module {ZRAM} is not in kernel."),
            &format!("Module {ZRAM} is not currently loaded"),
        );
    }
    if how.verbose && !printed(&format!("rmmod {ZRAM}\n")) {
        return 1;
    }
    if how.dry {
        return 0;
    }
    match store("unload", "1\n") {
        Ok(()) => 0,
        Err(error) if error.raw_os_error() == Some(errno::EBUSY) => {
            let text = format!("Module {ZRAM} is in use");
            complain(&format!("{text}."), &text)
        }
        Err(error) => {
            let text = format!("could not remove '{ZRAM}': {}", text_of(&error));
            complain(&text, &text)
        }
    }
}

#[cfg(test)]
mod tests;
