//! The options of a section: they are those of the command line, and are checked by its parser.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use control::ControlError;

use service::swap;

use super::merge::{Entry, Fault, Given, SET, Section};
use crate::args::{DiskOptions, FrontendOptions, SwapOn, attribute};

/// What a section is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `[serve]`.
    Serve,
    /// `[zramN]`, with its N.
    Disk(u32),
    /// `[swapN]`, with its N.
    Swap(u32),
}

/// The most disks there may be, so that a number is one that people write.
pub const MOST: usize = 1024;

/// Options of the command line that are none of a file: what is for the command itself.
const NOT_IN_FILES: [&str; 4] = ["config", "help", SET, "version"];

impl Kind {
    /// The kind of the section `name`.
    ///
    /// # Errors
    /// The fault; it names the kinds.
    pub fn of(section: &Section) -> Result<Kind, Fault> {
        let number = |kind: &str, most: usize| {
            let digits = section.name.strip_prefix(kind)?;
            let is_plain = digits == "0" || !digits.starts_with(['0', '+']);
            digits.parse::<u32>().ok().filter(|number| is_plain && (*number as usize) < most)
        };
        match &*section.name {
            "serve" => Ok(Kind::Serve),
            name => {
                let disk = number("zram", MOST).map(Kind::Disk);
                disk.or_else(|| number("swap", swap::MOST).map(Kind::Swap)).ok_or_else(|| Fault {
                    at: section.at.clone(),
                    what: format!(
                        "no section [{name}]; there are: [serve], [zramN] with N from 0 to {}, \
                         [swapN] with N from 0 to {}",
                        MOST - 1,
                        swap::MOST - 1
                    ),
                })
            }
        }
    }

    /// The parser of its options.
    #[must_use]
    pub fn command(self) -> Command {
        let command = Command::new("section").no_binary_name(true).disable_help_flag(true);
        match self {
            Kind::Serve => FrontendOptions::augment_args(command),
            Kind::Disk(_) => DiskOptions::augment_args(command),
            // Its daemon has one sandbox, whatever devices it has.
            Kind::Swap(_) => SwapOn::augment_args(command).mut_arg("sandbox", |it| it.hide(true)),
        }
    }
}

/// The keys of a section: those options of its [`Kind::command`] that a file may have.
pub fn keys(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        !arg.is_hide_set() && arg.get_long().is_some_and(|name| !NOT_IN_FILES.contains(&name))
    })
}

/// The options of a section, as of the command line; `None` with what is wrong in `faults`.
pub fn options<T: FromArgMatches>(
    section: &Section,
    kind: Kind,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let before = faults.len();
    let command = kind.command();
    let fault = |at: &Entry, what| Fault { at: at.at.clone(), what };
    let mut words: Vec<(&Entry, Vec<OsString>)> = Vec::new();
    for entry in &section.entries {
        match words_of(&command, section, entry) {
            Ok(given) => words.push((entry, given)),
            Err(what) => faults.push(fault(entry, what)),
        }
    }
    if let (Kind::Serve, Some(entry)) = (kind, section.set.first()) {
        faults.push(fault(entry, "[serve] has no attributes to set".to_owned()));
    } else {
        for entry in &section.set {
            match &entry.given {
                Given::Word(_) | Given::Switch(_) => match value_of(entry) {
                    Ok(value) => {
                        words.push((entry, vec![format!("--{SET}={}={value}", entry.key).into()]));
                    }
                    Err(what) => faults.push(fault(entry, what)),
                },
                Given::List(_) => {
                    let what = format!("{} is an attribute, which has one value", entry.key);
                    faults.push(fault(entry, what));
                }
            }
        }
    }
    // The parser tells the first fault. What is at fault is left out, and the rest read again.
    loop {
        let all = words.iter().flat_map(|(_, words)| words.iter().cloned());
        let error = match command.clone().try_get_matches_from(all) {
            Ok(matches) if faults.len() == before => return T::from_arg_matches(&matches).ok(),
            Ok(_) => return None,
            Err(error) => error,
        };
        let of_key = |key: &str| words.iter().position(|(entry, _)| entry.key == key);
        let missing = names(&error);
        let lacks = |words: &[OsString]| {
            let alone = command.clone().try_get_matches_from(words).err();
            alone.is_some_and(|it| {
                it.kind() == error.kind() && missing.iter().all(|name| names(&it).contains(name))
            })
        };
        // An option that needs another one lacks it also by itself.
        let lacking = || match error.kind() {
            ErrorKind::MissingRequiredArgument if !lacks(&[]) => {
                words.iter().position(|(_, words)| lacks(words))
            }
            _ => None,
        };
        let at = names(&error).iter().find_map(|name| {
            let value = error.get(ContextKind::InvalidValue).map(ToString::to_string);
            let key = value.filter(|_| name == SET);
            of_key(key.as_deref().map_or(&**name, |it| it.split('=').next().unwrap_or_default()))
        });
        // What is missing is what was left out.
        let is_told = faults.len() > before
            && error.kind() == ErrorKind::MissingRequiredArgument
            && missing.iter().all(|it| section.entries.iter().any(|entry| entry.key == *it));
        match at.or_else(lacking) {
            Some(index) => {
                let (entry, _) = words.remove(index);
                faults.extend((!is_told).then(|| entry.fault(&reason(&error))));
            }
            None if is_told => return None,
            None => {
                let what = format!("[{}]: {}", section.name, reason(&error));
                faults.push(Fault { at: section.at.clone(), what });
                return None;
            }
        }
    }
}

/// The value of an attribute, as the daemon takes it.
///
/// # Errors
/// What is wrong with it.
pub fn value_of(Entry { key, given, written, .. }: &Entry) -> Result<String, String> {
    let attribute = attribute(key.as_bytes(), given.word().as_bytes());
    let why = |error: ControlError| format!("{key} = {written}: {}", error.message);
    attribute.map(|it| it.value).map_err(why)
}

/// The options that an error names, without their dashes.
fn names(error: &clap::Error) -> Vec<String> {
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    };
    let short = |name: &String| {
        let word = name.split([' ', '=', '[']).next().unwrap_or_default();
        word.trim_start_matches('-').to_owned()
    };
    named.iter().map(short).collect()
}

/// What the parser says is wrong, in one line and without its form for a command line. The symbol
/// of the error is told once, of all faults.
fn reason(error: &clap::Error) -> String {
    use std::error::Error;

    let list = |kind| match error.get(kind) {
        Some(ContextValue::Strings(values)) => values.join(", "),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument => format!("{} is missing", names(error).join(", ")),
        ErrorKind::InvalidValue => format!("allowed are: {}", list(ContextKind::ValidValue)),
        _ => {
            let said = error.source().map(ToString::to_string);
            let said = said.unwrap_or_else(|| error.to_string());
            let first = said.split("\n\n").next().unwrap_or_default();
            let first = first.trim_start_matches("error: ").trim_end_matches(" (EINVAL)");
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}

/// The words of the command line for an entry.
fn words_of(command: &Command, section: &Section, entry: &Entry) -> Result<Vec<OsString>, String> {
    let Entry { key, given, written, .. } = entry;
    let arg = keys(command).find(|arg| arg.get_long() == Some(key)).ok_or_else(|| {
        let names: Vec<&str> = keys(command).filter_map(Arg::get_long).collect();
        let attributes = match section.name.as_str() {
            "serve" => String::new(),
            name => format!("; attributes are in [{name}.{SET}]"),
        };
        format!("[{}] has no {key}; there are: {}{attributes}", section.name, names.join(" "))
    })?;
    let option = |value: &str| OsString::from(format!("--{key}={value}"));
    let takes_value = arg.get_action().takes_values();
    match given {
        Given::Switch(on) if !takes_value => {
            Ok(if *on { vec![format!("--{key}").into()] } else { vec![] })
        }
        _ if !takes_value => Err(format!("{key} = {written}: allowed are: true, false")),
        Given::Switch(on) => Ok(vec![option(if *on { "on" } else { "off" })]),
        Given::Word(word) => {
            let is_path = arg.get_value_names().is_some_and(|names| {
                names.iter().any(|name| ["DIR", "PATH"].contains(&name.as_str()))
            });
            if is_path && !Path::new(word).is_absolute() {
                return Err(format!("{key} = {written}: a path in a file begins with /"));
            }
            Ok(vec![option(word)])
        }
        Given::List(words) if matches!(arg.get_action(), ArgAction::Append) => {
            Ok(words.iter().map(|word| option(word)).collect())
        }
        Given::List(_) => Err(format!("{key} has one value, and {written} is a list")),
    }
}
