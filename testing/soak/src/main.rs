//! `rampack-soak`: tests of the product that take long. `run` does a great many operations on pages
//! over all transports and compares each page; `upgrade` measures how long clients wait while a
//! daemon is upgraded in place.

mod args;
mod interrupt;
mod processes;
mod soak;
mod upgrade;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    let result = match &arguments.command {
        args::Command::Run(args) => {
            interrupt::watch(args.part.is_some()).and_then(|()| soak::run(args))
        }
        args::Command::Upgrade(args) => interrupt::watch(false).and_then(|()| upgrade::run(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rampack-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}
