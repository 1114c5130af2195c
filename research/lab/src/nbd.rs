//! `rampack-lab nbd` measures NBD servers under the same load, in turn.
//!
//! The servers are ours, and the memory plugin of nbdkit with and without compression. All run at
//! once, each on a Unix socket in a directory of its own. All but one are idle at any time.

mod fio;
mod server;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::NbdArgs;
use crate::programs;
use crate::report::{begin, step};
use crate::statistics::median;
use fio::{Figures, Fio, Load, QUEUE_DEPTH};
use server::Server;

/// Runs the command.
pub fn run(args: &NbdArgs) -> Result<Value> {
    let fio = programs::find("fio").context("fio is not installed; the package fio brings it")?;
    // The servers end before their directory is removed.
    let directory =
        TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
    let ours = programs::rampack(args.rampack.as_deref())?;
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
    Ok(report(&version, args, &outcomes, &resident))
}

/// A server with its figures in each round: of writes, and of reads.
struct Outcome {
    server: Server,
    writes: Vec<Figures>,
    reads: Vec<Figures>,
}

fn rate(figures: &[Figures]) -> f64 {
    median(figures.iter().map(|figures| figures.per_second))
}

fn side(figures: &[Figures]) -> Value {
    json!({
        "per_second": rate(figures),
        "p50_us": median(figures.iter().map(|figures| figures.p50_us)),
        "p99_us": median(figures.iter().map(|figures| figures.p99_us)),
        "requests": figures.iter().map(|figures| figures.requests).sum::<u64>(),
        "rounds": figures.iter().map(|figures| figures.per_second).collect::<Vec<f64>>(),
    })
}

/// All results, with the ratios of our requests a second to those of each other server.
fn report(tool: &str, args: &NbdArgs, outcomes: &[Outcome], resident: &[u64]) -> Value {
    let line = |(Outcome { server, writes, reads }, resident): (&Outcome, &u64)| {
        json!({
            "name": server.name,
            "version": server.version,
            "command": server.command,
            "write": side(writes),
            "read": side(reads),
            "resident_bytes": resident,
        })
    };
    let ratio = |other: &Outcome| {
        json!({
            "over": other.server.name,
            "write": rate(&outcomes[0].writes) / rate(&other.writes),
            "read": rate(&outcomes[0].reads) / rate(&other.reads),
        })
    };
    json!({
        "tool": tool,
        "size_bytes": args.size,
        "queue_depth": QUEUE_DEPTH,
        "milliseconds": args.milliseconds,
        "rounds": args.repeat,
        "servers": outcomes.iter().zip(resident).map(line).collect::<Vec<Value>>(),
        "ratios": outcomes[1..].iter().map(ratio).collect::<Vec<Value>>(),
    })
}
