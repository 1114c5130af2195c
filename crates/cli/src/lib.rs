//! The program `rampack`: its command line, over the library [`service`].
//!
//! # Layers
//!
//! A file imports only files of its own layer and of lower layers. No two files import each other,
//! directly or through others (`cargo xtask rules` checks it). From the bottom up:
//!
//! 1. [`terminal`], `table`, [`live`]: what the program prints.
//! 2. [`columns`], [`args`]: the table of `rampack status`, and the command line; [`schema`]: what
//!    `rampack status --json` promises.
//! 3. [`config`]: what is configured in files.
//! 4. `sandbox`, `watch`, `running`, `beside`, [`up`]: from the command line to a daemon, and to
//!    its end.
//! 5. [`keep`], [`upgrade`], [`fsck`], `doctor`, [`estimating`], [`exec`], [`swap`], [`commands`],
//!    [`configured`], [`config::commands`], `snapshots`, `metrics`, `top`: the other commands.

pub mod args;
mod beside;
pub mod columns;
pub mod commands;
pub mod config;
pub mod configured;
mod doctor;
pub mod estimating;
pub mod exec;
pub mod fsck;
pub mod keep;
pub mod live;
#[cfg(feature = "metrics")]
mod metrics;
mod running;
mod sandbox;
pub mod schema;
mod snapshots;
pub mod swap;
mod table;
pub mod terminal;
#[cfg(feature = "top")]
mod top;
pub mod up;
pub mod upgrade;
mod watch;

use std::process::ExitCode;

use control::{ControlError, Errno};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use units::human;

use service::failure::with_limits;
use service::protocol::Request;
use service::rehearsal::Answer;
use service::root::Root;
use service::{failure, layouts, outlet};

use args::{Cli, Command, Serve, Swap, SwapAction};

/// The stack of the first thread, in bytes, at least.
const STACK: u64 = 1 << 20;
/// The data and addresses of a command that is no daemon, in bytes, at least.
const HEAP: u64 = 16 << 20;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = check_limits() {
        failure::say(&format!("rampack: {}\n", failure::sentence(&error)));
        return ExitCode::FAILURE;
    }
    let mut words = std::env::args_os();
    if let Some(name) = words.next().and_then(|name| exec::kmod::called_as(&name)) {
        return exec::kmod::main(name, words.collect());
    }
    if let Some(ended) = service::helper() {
        return ended;
    }
    host::return_freed_memory();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(terminal::tell(&error)),
    };
    log_to_stderr(cli.verbose);
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if kept::is_rehearsal() => {
            terminal::print(&Answer::of(&Err(error)).text());
            ExitCode::SUCCESS
        }
        Err(error) => {
            failure::say(&format!("rampack: {}\n", failure::sentence(&error)));
            ExitCode::FAILURE
        }
    }
}

/// A stack or a heap at its limit ends a program without a word of why.
fn check_limits() -> Result<(), ControlError> {
    let needs = |message| Err(ControlError::new(Errno::ENOMEM, message));
    if let Err(limit) = host::allow_stack(STACK) {
        return needs(format!("the stack needs {}, and {limit}", human(STACK)));
    }
    match host::has_room_for(HEAP) {
        true => Ok(()),
        false => needs(format!("the program needs {}", human(HEAP))).map_err(with_limits),
    }
}

fn run(cli: Cli) -> Result<(), ControlError> {
    let root = || Root::choose(cli.root.as_deref());
    match &cli.command {
        Command::Serve(Serve { config: Some(file), frontends, .. }) => {
            configured::serve(cli.root.as_deref(), file.as_deref(), frontends.sandbox)
        }
        Command::Serve(serve) => up::serve(cli.root, serve),
        Command::Up(up) => up::up(&root()?, up),
        Command::Swap(Swap { action: SwapAction::On(on) }) => match &on.config {
            Some(file) => configured::swap_on(root()?, file.as_deref(), on.sandbox),
            None => swap::commands::on(root()?, on),
        },
        Command::Swap(Swap { action: SwapAction::Off(off) }) => swap::commands::off(&root()?, off),
        Command::Keep(it) => keep::run(cli.root.as_deref(), cli.verbose, it),
        Command::Config(it) => config::commands::run(root, it),
        Command::Estimate(it) => estimating::run(it),
        Command::Fsck(it) => {
            fsck::run(cli.root.as_deref(), it);
            Ok(())
        }
        Command::Doctor(it) => match doctor::run(it)? {
            true => Ok(()),
            false => std::process::exit(1),
        },
        Command::Layouts => {
            let text = serde_json::to_string(&layouts::Layouts::own());
            terminal::answer(text.map(|text| text + "\n").unwrap_or_default())
        }
        Command::Names => commands::names(&root()?),
        Command::Selftest(selftest) => swap::selftest::run(selftest),
        Command::Status(it) if it.schema => commands::schema(it),
        Command::Status(it) => commands::status(&root()?, it),
        #[cfg(feature = "top")]
        Command::Top(it) => top::run(&root()?, it),
        #[cfg(not(feature = "top"))]
        Command::Top(_) => Err(left_out("top")),
        #[cfg(feature = "metrics")]
        Command::Metrics(it) => metrics::run(&root()?, it),
        #[cfg(not(feature = "metrics"))]
        Command::Metrics(_) => Err(left_out("metrics")),
        Command::Add(it) => commands::add(&root()?, it),
        Command::Remove(it) => commands::take_away(&root()?, it, Request::Remove),
        Command::Reset(it) => commands::take_away(&root()?, it, Request::Reset),
        Command::Get(it) => commands::get(&root()?, it),
        Command::Set(it) => commands::set(&root()?, it),
        Command::Tree(it) => commands::tree(&root()?, it),
        Command::Exec(it) => exec::exec(&root()?, &it.command),
        Command::Snapshot(it) => snapshots::take(&root()?, it),
        Command::Restore(it) => snapshots::restore(&root()?, it),
        Command::Clone(it) => snapshots::clone(&root()?, it),
        Command::Stop(it) => commands::stop(&root()?, it.force),
        Command::Upgrade(it) => upgrade::run(&root()?, it),
    }
}

/// The refusal of a command that this program was built without.
#[cfg(not(all(feature = "metrics", feature = "top")))]
fn left_out(feature: &str) -> ControlError {
    let message = format!("this program was built without it: build it with --features {feature}");
    ControlError::new(Errno::ENOTSUP, message)
}

/// Logs go to standard error: standard output belongs to the result, or to an NBD client.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let wanted = std::env::var("RAMPACK_LOG").ok().filter(|text| !text.is_empty());
    let filter = wanted.and_then(|text| text.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(level));
    let lines = fmt::layer()
        .with_writer(|| outlet::Log)
        .with_ansi(outlet::STDERR.is_terminal())
        .with_target(false)
        .without_time();
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}
