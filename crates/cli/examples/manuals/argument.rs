//! What the definition of an argument says, for pages of any kind.

use clap::Arg;

/// What an argument does.
pub struct Meaning {
    /// Its help, on one line.
    pub help: String,
    /// The values that it may have, each with its help; empty if others are allowed, or `help`
    /// names them.
    pub values: Vec<(String, String)>,
    /// What it is without being given, unless `help` says so or nothing is.
    pub default: Option<String>,
}

/// What `arg` does.
pub fn meaning(arg: &Arg) -> Meaning {
    let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
    let help = one_line(help.unwrap_or_default());
    let takes_value = arg.get_action().takes_values();
    let lists = takes_value && arg.get_long().is_some() && !arg.is_hide_possible_values_set();
    let values = if lists { arg.get_possible_values() } else { Vec::new() };
    let help_of = |help: &clap::builder::StyledStr| one_line(help.to_string());
    let values = values.iter().map(|value| {
        (value.get_name().to_owned(), value.get_help().map(help_of).unwrap_or_default())
    });
    let default = arg.get_default_values().iter().map(|it| it.to_string_lossy());
    let default = default.filter(|_| takes_value).collect::<Vec<_>>().join(" ");
    let is_said = default.is_empty() || help.contains("[default");
    Meaning { values: values.collect(), default: (!is_said).then_some(default), help }
}
