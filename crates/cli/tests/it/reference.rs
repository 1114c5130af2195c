//! docs/reference/options.md and attributes.md, which are made from the definitions:
//! `RAMPACK_GOLDEN=write` makes them anew, to be looked at.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use cli::args::Cli;
use service::protocol::TreeAttribute;

use crate::golden::rows;
use crate::manuals::write::argument::{self, Meaning};

/// Compares a file of docs/reference with what it must be.
#[track_caller]
fn is_current(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let differ = written.lines().zip(text.lines()).find(|(written, made)| written != made);
    assert_eq!(differ, None, "docs/reference/{name}: RAMPACK_GOLDEN=write makes it anew");
    assert_eq!(written.lines().count(), text.lines().count(), "docs/reference/{name}");
}

/// A text on one line, safe in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

/// How an argument is written.
fn written(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let takes_one = arg.get_action().takes_values();
    let value = value.filter(|_| takes_one).unwrap_or_default().replace('|', "\\|");
    let Some(long) = arg.get_long() else { return format!("`{value}`") };
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let value = match (value.is_empty(), arg.is_require_equals_set()) {
        (true, _) => value,
        (false, true) => format!("[={value}]"),
        (false, false) => format!(" {value}"),
    };
    format!("{short}`--{long}{value}`")
}

/// What an argument does, with its values and its default.
fn meaning(arg: &Arg) -> String {
    let Meaning { help, values, default } = argument::meaning(arg);
    let mut text = cell(&help);
    let values: Vec<String> = values
        .iter()
        .map(|(value, help)| match cell(help) {
            help if help.is_empty() => format!("`{value}`"),
            help => format!("`{value}`: {help}"),
        })
        .collect();
    if !values.is_empty() {
        write!(text, " [{}]", values.join("; ")).unwrap();
    }
    if let Some(default) = default {
        write!(text, " [default: {default}]").unwrap();
    }
    if let Some(name) = arg.get_env() {
        write!(text, " [variable: {}]", name.to_string_lossy()).unwrap();
    }
    text
}

/// The options that an earlier command has, each with its meaning and that command.
type Told = BTreeMap<String, (String, String)>;

/// The commands with their few arguments, and a section for each that has more.
#[derive(Default)]
struct Texts {
    commands: String,
    sections: String,
}

fn command_text(command: &Command, name: &str, told: &mut Told, texts: &mut Texts) {
    let about = cell(&command.get_about().map(ToString::to_string).unwrap_or_default());
    let (mut rows, mut same) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for arg in command.get_arguments().filter(|it| !it.is_hide_set() && !it.is_global_set()) {
        let (written, meaning) = (written(arg), meaning(arg));
        match told.get(&written) {
            Some((known, at)) if *known == meaning && arg.get_long().is_some() => {
                same.entry(at.clone()).or_default().push(written);
            }
            _ => {
                rows.push((written.clone(), meaning.clone()));
                told.entry(written).or_insert((meaning, name.to_string()));
            }
        }
    }
    let is_short = rows.len() < 5 && same.values().flatten().count() < 2;
    let arguments = if is_short {
        let told = rows.iter().map(|(written, meaning)| format!("{written}: {meaning}"));
        let same = same.iter().map(|(at, options)| format!("{}, as of `{at}`", options.join(", ")));
        told.chain(same).collect::<Vec<_>>().join(". ")
    } else {
        let place = name.replace(' ', "-");
        format!("[below](#{place})")
    };
    if !command.has_subcommands() {
        writeln!(texts.commands, "| `{name}` | {about} | {arguments} |").unwrap();
    }
    if !is_short {
        writeln!(texts.sections, "\n## `{name}`\n\n| | |\n|---|---|").unwrap();
        for (written, meaning) in rows {
            writeln!(texts.sections, "| {written} | {meaning} |").unwrap();
        }
        for (at, options) in same {
            let others =
                told.iter().filter(|(written, (_, of))| *of == at && !options.contains(written));
            let others: Vec<&str> =
                others.map(|(written, _)| &written[written.find("`--").unwrap_or(0)..]).collect();
            let (options, others) = (options.join(", "), others.join(", "));
            let text = match others.len() < options.len() {
                true => format!("The others as of `{at}`, but for {others}."),
                false => format!("As of `{at}`: {options}."),
            };
            writeln!(texts.sections, "\n{}", filled(&text)).unwrap();
        }
    }
    for sub in command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help") {
        command_text(sub, &format!("{name} {}", sub.get_name()), told, texts);
    }
}

/// A text in lines of at most 100 characters.
fn filled(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.chars().count() + word.chars().count() >= 100 {
            lines.push(word.to_string());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            write!(line, "{space}{word}").unwrap();
        }
    }
    lines.join("\n")
}

#[test]
fn the_options_are_those_of_the_command_line() {
    let command = Cli::command();
    let text = "Made from the definitions in `crates/cli/src/args`. `rampack COMMAND --help` says the \
                same, with examples.";
    let mut text = format!("# Commands and options\n\n{}\n", filled(text));
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in after.split("\n\n") {
        writeln!(text, "\n{}", filled(paragraph)).unwrap();
    }
    let (mut told, mut texts) = (Told::new(), Texts::default());
    for sub in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        command_text(sub, &format!("rampack {}", sub.get_name()), &mut told, &mut texts);
    }
    writeln!(text, "\n| command | | its arguments |\n|---|---|---|\n{}", texts.commands.trim_end())
        .unwrap();
    writeln!(text, "\n## In every command\n\n| | |\n|---|---|").unwrap();
    for arg in command.get_arguments().filter(|arg| arg.is_global_set()) {
        writeln!(text, "| {} | {} |", written(arg), meaning(arg)).unwrap();
    }
    is_current("options.md", &(text + &texts.sections));
}

#[test]
fn the_attributes_are_those_of_the_tree() {
    let text = "Made from the definitions, which `rampack tree` and `rampack get NAME --describe` \
                show too. [zram.md](zram.md) and [zswap.md](zswap.md) say what Linux does otherwise. \
                A mode of 0200 is only written, and one of 0400 only root's to read.";
    let mut text = format!("# Attributes\n\n{}\n", filled(text));
    // What never changes, what has another name today, and what is for those who work on the page
    // allocator, needs no row of its own.
    let (mut constants, mut former, mut zone) = (Vec::new(), Vec::new(), Vec::new());
    let mut table = String::new();
    for row in rows() {
        let TreeAttribute { path, mode, unit, help, .. } = row;
        let name = path.strip_prefix("block/zram0/");
        if path.contains("/queue/") {
            continue;
        } else if let Some(name) = name.filter(|_| help.starts_with(['0', '1']) && mode == 0o444)
            && help.get(1..3) == Some(": ")
        {
            constants.push(format!("`{name}`"));
        } else if help.ends_with("(2013)") {
            former.push(format!("`{}`", path.rsplit('/').next().unwrap()));
        } else if let Some(name) = path.strip_prefix("kernel/debug/rampack/zone/") {
            zone.push(format!("`{name}`"));
        } else {
            writeln!(table, "| `{path}` | {mode:04o} | {unit} | {} |", cell(&help)).unwrap();
        }
    }
    let others = format!(
        "`rampack tree` tells also of constants of the block layer, in `block/zram0`: {} and all of \
         `queue`; of numbers under their names of 2013, in `kernel/debug/zswap`: {}; and of the page \
         allocator, in `kernel/debug/rampack/zone`: {}.",
        constants.join(" "),
        former.join(" "),
        zone.join(" ")
    );
    writeln!(text, "\n{}", filled(&others)).unwrap();
    text.push_str("\n| attribute | mode | unit | |\n|---|---|---|---|\n");
    is_current("attributes.md", &(text + &table));
}
