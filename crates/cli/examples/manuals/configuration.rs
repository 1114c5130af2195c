//! The page of the configuration file. Its keys, and the messages that it shows, are those of the
//! program.

use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, line_break, roman};
use cli::config::options::{Kind, MOST, keys};
use cli::config::understand;

use super::argument::{Meaning, meaning};
use super::{begun, marked, see_also};

/// What the packages have as an example.
const EXAMPLE: &str = include_str!("../../../../dist/examples/rampack.toml");

/// A file with faults.
const WRONG: &str = "\
[zram0]
memory = \"ram /\"
mount = \"fast\"
when-full = \"never\"
[disk0]
";

/// What the notes of `rampack config` do not say.
const FORM: &str = "

Files are TOML. A value is text, a whole number, true, false, or a list of text for what may be \
repeated. Paths begin with /. Of a key that several files have, the value of the last file counts. \
What is unknown or wrong is refused, and then nothing is started.

After a change, `rampack config check` tells what is wrong or what would be, `rampack config show` \
where each value is from, and `systemctl reload-or-restart rampack rampack-swap`, or `rampack \
config apply`, has a daemon follow what can change at once, the size of a disk among it. What left the files \
stays until `rampack config apply --remove`, which takes it down unless it is in use.";

/// The page. `command` is the command line of the program.
pub fn page(command: &Command, date: &str) -> String {
    let what = "disks and swap devices that are there after each boot";
    let mut page = begun("rampack.toml", "5", date, what);
    page.control("SH", ["SYNOPSIS"]);
    let directories = cli::config::files::OWN;
    let main = cli::config::files::MAIN;
    let mut places = Vec::new();
    for directory in directories {
        places.extend([bold(format!("/{directory}/{main}")), line_break()]);
        places.extend([bold(format!("/{directory}/{main}.d/*.toml")), line_break()]);
    }
    places.pop();
    page.text(places);
    page.control("SH", ["DESCRIPTION"]);
    let help = |command: &Command| command.get_after_help().map(ToString::to_string);
    let notes = command.find_subcommand("config").and_then(help).unwrap_or_default();
    paragraphs(&mut page, &(notes + FORM));
    page.control("SH", ["SIZES"]);
    let sizes = help(command).unwrap_or_default();
    let sizes = sizes.split("\n\n").find(|text| text.starts_with("Sizes")).unwrap_or_default();
    paragraphs(
        &mut page,
        &format!(
            "{sizes} An expression has numbers, ram, N% of it, min(…), max(…), + - * / and \
             parentheses. One that cannot be computed is refused. Other units are said with the \
             key."
        ),
    );
    let last = MOST - 1;
    section(
        &mut page,
        "[zramN]",
        &format!("A disk; N is 0 to {last}. Keys are the options of `rampack up`."),
        Kind::Disk(0),
    );
    set(&mut page, "[zramN.set]", "attributes of the disk", "block/zramN");
    let last = service::swap::MOST - 1;
    section(
        &mut page,
        "[swapN]",
        &format!("A swap device; N is 0 to {last}. Keys are the options of `rampack swap on`."),
        Kind::Swap(0),
    );
    set(&mut page, "[swapN.set]", "parameters of the cache", "module/zswap/parameters");
    section(&mut page, "[serve]", "How disks are served: options of `rampack serve`.", Kind::Serve);
    page.control("SH", ["ENVIRONMENT"]);
    page.control("TP", []).text([bold("RAMPACK_CONFIG_ROOT")]);
    page.text([roman("A directory that is used in the place of / to find the files.")]);
    page.control("SH", ["DIAGNOSTICS"]);
    page.text([roman("Each fault is told with its file and line. Of this file")]);
    page.control("PP", []);
    verbatim(&mut page, WRONG);
    page.control("PP", []);
    page.text([roman("the messages are:")]);
    for fault in understand(&[(format!("/{}/{main}", directories[0]).into(), WRONG.into())]).1 {
        page.control("IP", []).text([roman(fault.to_string())]);
    }
    page.control("SH", ["EXAMPLES"]);
    verbatim(&mut page, EXAMPLE);
    see_also(
        &mut page,
        &[
            "rampack-config(1)",
            "rampack-up(1)",
            "rampack-serve(1)",
            "rampack-swap-on(1)",
            "rampack-attributes(7)",
        ],
    );
    page.render()
}

/// Paragraphs, with lines that begin with spaces as they are.
fn paragraphs(page: &mut Roff, text: &str) {
    let is_example = |line: &str| line.starts_with("  ");
    let mut is_first = true;
    for paragraph in text.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().collect();
        for run in lines.chunk_by(|a, b| is_example(a) == is_example(b)) {
            if !is_first {
                page.control("PP", []);
            }
            is_first = false;
            if is_example(run[0]) {
                verbatim(page, &run.join("\n"));
            } else {
                page.text(marked(&run.join(" ")));
            }
        }
    }
}

/// Lines as they are.
fn verbatim(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.lines() {
        page.text([roman(if line.is_empty() { " " } else { line })]);
    }
    page.control("fi", []);
}

/// A section of the file with its keys.
fn section(page: &mut Roff, name: &str, what: &str, kind: Kind) {
    page.control("SH", [name]);
    page.text(marked(what));
    let command = kind.command();
    let names: Vec<&str> = keys(&command).filter_map(Arg::get_long).collect();
    for arg in keys(&command) {
        page.control("TP", []);
        page.text([bold(arg.get_long().unwrap_or_default()), roman(" = "), italic(value(arg))]);
        let Meaning { help, values, default } = meaning(arg);
        let default = default.map(|it| format!(" [default: {it}]")).unwrap_or_default();
        page.text(as_keys(&(help + &default), &names));
        if values.iter().any(|(_, help)| !help.is_empty()) {
            page.control("RS", []);
            for (value, help) in values {
                page.control("TP", []).text([bold(value)]).text(as_keys(&help, &names));
            }
            page.control("RE", []);
        }
    }
}

/// What a key may be.
fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map(ToString::to_string).unwrap_or_default();
    let Meaning { values, .. } = meaning(arg);
    match arg.get_action() {
        ArgAction::Append => format!("[{name}, ...]"),
        action if !action.takes_values() || name == "on|off" && arg.is_require_equals_set() => {
            "true|false".into()
        }
        _ if values.is_empty() => name,
        _ => values.into_iter().map(|it| it.0).collect::<Vec<_>>().join("|"),
    }
}

/// The help of an option, with the names of options as those of keys.
fn as_keys(text: &str, keys: &[&str]) -> Vec<Inline> {
    let is_key = |word: &str| keys.contains(&word);
    let mut text = text.to_owned();
    let mut from = 0;
    while let Some(at) = text[from..].find("--").map(|at| from + at) {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        if is_key(&rest[..end]) {
            text = format!("{}`{}`{}", &text[..at], &rest[..end], &rest[end..]);
        }
        from = at + 2;
    }
    marked(&text)
}

/// A section of attributes.
fn set(page: &mut Roff, name: &str, what: &str, place: &str) {
    page.control("SH", [name]);
    page.text([
        roman(format!("Values of {what}: those of {place} in ")),
        bold("rampack-attributes"),
        roman(
            "(7) that can be written. One in bytes may be an expression. They are set before the \
             device gets its size.",
        ),
    ]);
}
