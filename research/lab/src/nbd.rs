//! `rampack-lab nbd` measures NBD servers under the same load, in turn.
//!
//! The servers are ours, and the memory plugin of nbdkit with and without compression. All run at
//! once, each on a Unix socket in a directory of its own. All but one are idle at any time.

mod fio;
mod report;
mod server;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::args::NbdArgs;
use crate::programs;
use crate::report::{begin, step};
use fio::{Fio, Load};
use report::Outcome;
use server::Server;

/// Runs the command.
pub fn run(args: &NbdArgs) -> Result<Value> {
    let fio = programs::find("fio").context("fio is not installed; the package fio brings it")?;
    // The servers end before their directory is removed.
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
    begin(servers.len() as u64 * (1 + 2 * u64::from(args.repeat)));
    let outcome = |server| Outcome { server, writes: Vec::new(), reads: Vec::new() };
    let mut outcomes: Vec<Outcome> = servers.into_iter().map(outcome).collect();
    // Pages that were never written cost nothing to read, so all are written first.
    for Outcome { server, .. } in &outcomes {
        step(format!("{} filling", server.name))?;
        fio.run(server, Load::Fill)?;
    }
    for _ in 0..args.repeat {
        for Outcome { server, writes, reads } in &mut outcomes {
            for (load, figures) in [(Load::Write, writes), (Load::Read, reads)] {
                step(format!("{} random 4 KiB", server.name))?;
                figures.push(fio.run(server, load)?);
            }
        }
    }
    let resident = outcomes.iter().map(|outcome| outcome.server.resident_bytes());
    let resident = resident.collect::<Result<Vec<u64>>>()?;
    Ok(report::json(&version, args, &outcomes, &resident))
}
