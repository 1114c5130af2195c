//! `rampack-lab nbd` measures NBD servers under the same load, in turn.
//!
//! The servers are ours, and the memory plugin of nbdkit with and without compression. All run at
//! once, each on a Unix socket in a directory of its own. All but one are idle at any time.

mod fio;
mod report;
mod server;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::args::NbdArgs;
use crate::interrupt;
use crate::programs;
use fio::{Fio, Load};
use report::{Outcome, Report};
use server::Server;

/// Runs the command.
///
/// # Errors
/// fio is missing, a server cannot start or ends early, or the command was interrupted.
pub fn run(args: &NbdArgs) -> Result<()> {
    let fio = programs::find("fio").context("fio is not installed; the package fio brings it")?;
    let directory =
        TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
    let ours = args.rampack.clone().map_or_else(programs::beside_us, Ok)?;
    let mut servers = vec![Server::ours(&ours, directory.path(), args.size)?];
    match programs::find("nbdkit") {
        Some(nbdkit) => {
            for allocator in server::allocators(&nbdkit)? {
                servers.push(Server::nbdkit(&nbdkit, allocator, directory.path(), args.size)?);
            }
        }
        None => eprintln!("nbdkit is not installed (package nbdkit), so there is no comparison"),
    }

    let version = programs::version(&fio, "--version");
    let fio = Fio { program: fio, bytes: args.size, milliseconds: args.milliseconds };
    let mut outcomes: Vec<Outcome> = servers.iter().map(Outcome::new).collect();
    let bar = crate::report::bar(servers.len() as u64 * (1 + 2 * u64::from(args.repeat)));
    let step = |server: &Server, what: &str| {
        bar.set_message(format!("{} {what}", server.name));
        interrupt::check()
    };
    // Pages that were never written cost nothing to read, so all are written first.
    for server in &mut servers {
        step(server, "filling")?;
        fio.run(server, Load::Fill)?;
        bar.inc(1);
    }
    for _ in 0..args.repeat {
        for (server, outcome) in servers.iter_mut().zip(&mut outcomes) {
            for (load, figures) in
                [(Load::Write, &mut outcome.writes), (Load::Read, &mut outcome.reads)]
            {
                step(server, "random 4 KiB")?;
                figures.push(fio.run(server, load)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    for (server, outcome) in servers.iter_mut().zip(&mut outcomes) {
        outcome.resident_bytes = server.resident_bytes()?;
    }
    // The servers end before their directory is removed.
    drop(servers);

    let report = Report::new(version, args, &outcomes);
    crate::report::show(&report, args.json)?;
    if outcomes.iter().any(|outcome| outcome.writes.is_empty()) {
        bail!("nothing was measured");
    }
    Ok(())
}
