//! The lab: it dumps memory of live programs and measures rampack with the dumps.
//!
//! Numbers of one run are comparable, because the subjects take turns; numbers of different runs
//! are not. The lab is no part of the program `rampack`, and nothing depends on it.

mod args;
mod cgroup;
mod corpus;
mod density;
mod drive;
mod figures;
mod index;
mod interrupt;
mod kernel_build;
mod locks;
mod locks_sim;
mod meeting;
mod nbd;
mod page;
mod pages;
mod plot;
mod pressure;
mod proc_files;
mod programs;
mod report;
mod sim;
mod statistics;
mod streams;
mod swap;
mod sys;
mod threads;
mod values;
mod zone;
mod zone_sim;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};
use serde_json::Value;

use args::Command;

/// Runs the program with the arguments of this process. Errors go to standard error. The exit
/// status is 0, 1 for a failure, or 2 for invalid arguments.
pub fn main() -> ExitCode {
    let matches = args::Arguments::command().get_matches();
    let parsed = args::Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let args::Arguments { command, json, plot } = parsed;
    let result = interrupt::watch(command.is_patient()).and_then(|()| run(&command));
    report::end();
    let name = matches.subcommand_name().unwrap_or_default();
    let drawn = |result: Value| {
        plot.map_or(Ok(()), |path| figures::plot(name, &result, &path))?;
        report::show(&result, json)
    };
    match result.and_then(drawn) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rampack-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Returns its result, or null if it prints what it has to say itself.
fn run(command: &Command) -> Result<Value> {
    match command {
        Command::Corpus(args) => corpus::run(args).map(|()| Value::Null),
        Command::Figures(args) => figures::run(args).map(|()| Value::Null),
        Command::Pages(args) => pages::run(args),
        Command::Locks(args) => locks::run(args),
        Command::Streams(args) => streams::run(args),
        Command::LocksSim(args) => locks_sim::run(args),
        Command::Index(args) => index::run(args),
        Command::Zone(args) => zone::run(args),
        Command::ZoneSim(args) => zone_sim::run(args),
        Command::Density(args) => density::run(args),
        Command::Values(args) => values::run(args),
        Command::Nbd(args) => nbd::run(args),
        Command::KernelBuild(args) => kernel_build::run(args),
    }
}
