//! The program `rampack`: the command line, the daemon behind it and its control socket.
//!
//! A daemon ([`daemon`]) owns a machine with devices ([`devices`]) and serves them through
//! frontends: a FUSE file with a loop device on it, and NBD exports ([`exports`]). The kernel swaps
//! to its swap devices ([`swap`]): ublk devices, or FUSE files with loop devices. Everything the
//! daemon makes is under one [`root`]. Other invocations of the program talk to it over a socket
//! there ([`protocol`], [`server`], [`client`]). The values they show come from the attribute rows
//! of the device.
//!
//! Nothing here is on the data path.
//!
//! # Layers
//!
//! A file imports only files of its own layer and of lower layers. No two files import each other,
//! directly or through others (`cargo xtask rules` checks it). From the bottom up:
//!
//! 1. [`sys`], [`outlet`], [`failure`], [`transport`], `child`, `table`: system calls, the streams
//!    of the program, error messages, kinds of frontends, other programs that are asked, tables.
//! 2. [`mounts`], [`filesystem`], [`root`]: mounts of the system, and the state directory of a
//!    daemon.
//! 3. [`layouts`], [`state`], [`successor`]: what outlives the daemon, and who takes it over;
//!    [`loops`]: block devices on its files; [`machine`]: the engine; [`exports`], [`live`],
//!    [`zone`]: views of it.
//! 4. [`swap::active`], [`swap::signals`], [`events`]: swap space of the kernel, and signals;
//!    [`swap::report`], [`swap::progress`]: reports of swap devices.
//! 5. [`protocol`], [`server`], [`client`]: the control socket.
//! 6. [`columns`], [`args`]: the table of `rampack status`, and the command line.
//! 7. [`devices`]: devices behind frontends.
//! 8. [`swap`]: swap devices, except the files named in other layers.
//! 9. [`tree`]: the control tree; [`exec`]: runs a command that sees the tree as the system's.
//! 10. `takeover`: what a daemon takes over from the one before; [`daemon`]: all of that in one
//!     root.
//! 11. [`terminal`], [`notify`], [`restart`], `watch`, [`up`]: from the command line to a daemon,
//!     and to its end.
//! 12. [`keep`]: keeps a daemon; [`upgrade`], [`fsck`], [`estimating`], [`swap::commands`],
//!     [`swap::selftest`], [`commands`]: the other commands.

pub mod args;
mod child;
pub mod client;
pub mod columns;
pub mod commands;
pub mod daemon;
pub mod devices;
pub mod estimating;
pub mod events;
pub mod exec;
pub mod exports;
pub mod failure;
pub mod filesystem;
pub mod fsck;
pub mod keep;
pub mod layouts;
pub mod live;
pub mod loops;
pub mod machine;
pub mod mounts;
pub mod notify;
pub mod outlet;
mod panics;
pub mod protocol;
pub mod restart;
pub mod root;
mod sandbox;
pub mod server;
pub mod state;
pub mod successor;
pub mod swap;
pub mod sys;
mod table;
mod takeover;
pub mod terminal;
pub mod transport;
pub mod tree;
pub mod up;
pub mod upgrade;
mod watch;
pub mod zone;

use std::process::ExitCode;

use clap::Parser;
use rampack::control::ControlError;
use tracing_subscriber::EnvFilter;

use args::{Cli, Command, Swap, SwapAction};
use root::Root;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(name) = words.next().and_then(|name| exec::kmod::called_as(&name)) {
        return exec::kmod::main(name, words.collect());
    }
    rampack::host::return_freed_memory();
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failure::say(&format!("rampack: {}\n", failure::sentence(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<(), ControlError> {
    match &cli.command {
        Command::Serve(serve) => up::serve(cli.root, serve),
        Command::Up(up) => up::up(&Root::choose(cli.root.as_deref())?, up),
        Command::Swap(Swap { action: SwapAction::On(on) }) => {
            swap::commands::on(Root::choose(cli.root.as_deref())?, on)
        }
        Command::SwapoffHelper(it) => {
            swap::off::help(it);
            Ok(())
        }
        Command::LoopHelper(it) => loops::help(&it.action),
        Command::Keep(it) => keep::run(cli.root.as_deref(), cli.verbose, it),
        Command::Estimate(it) => estimating::run(it),
        Command::Fsck(it) => {
            fsck::run(cli.root.as_deref(), it);
            Ok(())
        }
        Command::Layouts => {
            let text = serde_json::to_string(&layouts::Layouts::own());
            terminal::print(&text.map(|text| text + "\n").unwrap_or_default());
            Ok(())
        }
        Command::Selftest(selftest) => swap::selftest::run(selftest),
        command => commands::run(&Root::choose(cli.root.as_deref())?, command),
    }
}

/// Logs go to standard error: standard output belongs to the result, or to an NBD client.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("RAMPACK_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| outlet::Log)
        .with_ansi(outlet::STDERR.is_terminal())
        .with_target(false)
        .without_time()
        .try_init();
}
