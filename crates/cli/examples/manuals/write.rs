//! Makes the pages and the completions. Its test includes this file.

#[path = "argument.rs"]
pub mod argument;
#[path = "configuration.rs"]
mod configuration;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use cli::args::Cli;
use service::protocol::TreeAttribute;

const PROGRAM: &str = "rampack";
/// The value of arguments that name a device of the daemon.
const DEVICE: &str = "NAME";
/// What prints these names.
const NAMES: &str = "rampack names 2>/dev/null";

/// Writes `man/*.1`, `man/*.5`, `man/*.7` and `completions/*` below `directory`. `date` is that of
/// the pages, as in 2026-01-31.
///
/// # Errors
/// The error of the system.
pub fn all(directory: &Path, date: &str, rows: &[TreeAttribute]) -> io::Result<()> {
    let [pages, completions] = ["man", "completions"].map(|name| directory.join(name));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    commands(&command, date, &pages)?;
    fs::write(pages.join("rampack.toml.5"), configuration::page(&command, date))?;
    fs::write(pages.join("rampack-attributes.7"), attributes(date, rows))?;
    let mut named = Vec::new();
    take_devices(&command, &mut Vec::new(), &mut named);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let text = completion(shell, &named)?;
        let name = match shell {
            Shell::Zsh => "_rampack".to_owned(),
            shell => format!("rampack.{shell}"),
        };
        fs::write(completions.join(name), text)?;
    }
    Ok(())
}

fn source() -> String {
    format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))
}

/// A page for each command that is not hidden.
fn commands(command: &Command, date: &str, directory: &Path) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        commands(sub, date, directory)?;
    }
    let page = Man::new(command.clone()).date(date).source(source()).manual("rampack");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    fs::write(directory.join(page.get_filename()), tidied(&text))
}

/// A page as clap_mangen has it, with examples line by line, and without line breaks beside empty
/// lines, which do nothing.
fn tidied(page: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let is_empty = |at: usize| lines.get(at).is_some_and(|line| line.is_empty());
    let is_example = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("  "));
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        match *line {
            ".br" if is_empty(at - 1) || is_empty(at + 1) => continue,
            ".SH EXTRA" => text += ".SH NOTES\n",
            line => {
                if is_example(at) && !is_example(at - 1) {
                    text += ".nf\n";
                }
                text += line;
                text += "\n";
                if is_example(at) && !is_example(at + 1) {
                    text += ".fi\n";
                }
            }
        }
    }
    text
}

/// The beginning of the page `name`, and what is in it.
fn begun(name: &str, section: &str, date: &str, what: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [&*name.to_uppercase(), section, date, &source(), "rampack"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {what}"))]);
    page
}

/// A text with what is between backticks in bold.
fn marked(text: &str) -> Vec<Inline> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

/// The end of a page: other pages, each as in `rampack-up(1)`.
fn see_also(page: &mut Roff, others: &[&str]) {
    page.control("SH", ["SEE ALSO"]);
    let mut text = Vec::new();
    for (name, section) in others.iter().filter_map(|other| other.split_once('(')) {
        if !text.is_empty() {
            text.push(roman(", "));
        }
        text.extend([bold(name), roman(format!("({section}"))]);
    }
    page.text(text);
}

/// The page of all attributes.
fn attributes(date: &str, rows: &[TreeAttribute]) -> String {
    let what = "attributes of disks and of the cache of swap devices";
    let mut page = begun("rampack-attributes", "7", date, what);
    page.control("SH", ["DESCRIPTION"]);
    page.text(marked(
        "`rampack get` prints attributes, `rampack set` changes them, and a daemon with FUSE has \
         them as files in its root directory. Below are their paths there, their modes and units, \
         and what they say. A mode of 0200 is only written, and one of 0400 only root's to read.",
    ));
    page.control("SH", ["ATTRIBUTES"]);
    for TreeAttribute { path, mode, unit, help, .. } in rows {
        page.control("TP", []);
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        page.text([bold(path.as_str()), roman(format!(" ({mode:04o}{unit})"))]);
        page.text(marked(help));
    }
    see_also(
        &mut page,
        &["rampack-get(1)", "rampack-set(1)", "rampack-tree(1)", "rampack.toml(5)"],
    );
    page.render()
}

/// The commands that take the names of devices, each as its words.
fn take_devices(command: &Command, words: &mut Vec<String>, named: &mut Vec<Vec<String>>) {
    let is_device = |it: &clap::Arg| {
        it.get_value_names().is_some_and(|names| names.iter().any(|name| name == DEVICE))
    };
    if command.get_positionals().any(is_device) {
        named.push(words.clone());
    }
    for sub in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        for name in sub.get_name_and_visible_aliases() {
            words.push(name.to_owned());
            take_devices(sub, words, named);
            words.pop();
        }
    }
}

/// The completion that clap makes, with the names of devices of the daemon that runs.
fn completion(shell: Shell, named: &[Vec<String>]) -> io::Result<String> {
    // What is hidden from a user is not completed.
    let mut command = visible(&Cli::command());
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut text);
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let of = |command: &Vec<String>| command.join(" ");
    Ok(match shell {
        Shell::Bash => {
            let patterns: Vec<_> = named.iter().map(|it| format!("*\" {} \"*", of(it))).collect();
            let text = text.replace("complete -F _rampack ", "complete -F _rampack_named ");
            text + &BASH.replace("COMMANDS", &patterns.join("|")).replace("NAMES", NAMES)
        }
        Shell::Zsh => {
            let (first, rest) = text.split_once('\n').unwrap_or_default();
            let rest: Vec<_> = rest.lines().map(of_zsh).collect();
            format!("{first}\n{}{}\n", ZSH.replace("NAMES", NAMES), rest.join("\n"))
        }
        _ => {
            let line = |it: &Vec<String>| {
                let seen = it.iter().map(|word| format!("__fish_seen_subcommand_from {word}"));
                let seen = seen.collect::<Vec<_>>().join("; and ");
                format!("complete -c {PROGRAM} -n \"{seen}\" -f -a \"({NAMES})\"\n")
            };
            text + &named.iter().map(line).collect::<String>()
        }
    })
}

/// The command without what is hidden. clap takes no command out of another, so it is made anew.
fn visible(command: &Command) -> Command {
    if !command.has_subcommands() {
        return command.clone();
    }
    // clap wants texts that live as long as the program, which does not live for long.
    let leak = |text: &str| -> &'static str { text.to_owned().leak() };
    let shown = Command::new(leak(command.get_name()))
        .disable_help_subcommand(true)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().filter(|it| !it.is_hide_set()).cloned())
        .visible_aliases(command.get_visible_aliases().map(leak).collect::<Vec<_>>())
        .subcommands(command.get_subcommands().filter(|it| !it.is_hide_set()).map(visible));
    match command.get_version() {
        Some(version) => shown.version(leak(version)),
        None => shown,
    }
}

/// A line of an argument that is the name of a device.
fn of_zsh(line: &str) -> String {
    let is_device = line.contains(":name -- ") || line.contains(":names -- ");
    match line.rsplit_once(":_default'") {
        Some((before, after)) if is_device => format!("{before}:_rampack_names'{after}"),
        _ => line.to_owned(),
    }
}

const BASH: &str = r#"
_rampack_named() {
    _rampack "$@"
    local words=" ${COMP_WORDS[*]:1:COMP_CWORD-1} " cur=${COMP_WORDS[COMP_CWORD]} names
    if [[ $cur == -* || $words == *" -- "* ]]; then
        return 0
    fi
    case "$words" in
        COMMANDS)
            names=$(compgen -W "$(NAMES)" -- "$cur")
            if [[ -n $names ]]; then
                COMPREPLY=($names)
            fi
            ;;
    esac
}
"#;

const ZSH: &str = r#"
_rampack_names() {
    compadd -- ${(f)"$(NAMES)"}
}
"#;
