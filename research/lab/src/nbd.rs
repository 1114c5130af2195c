//! `rampack-lab nbd` measures NBD servers under the same loads, in turn.
//!
//! The servers are ours, with a compressed disk and with plain memory (the floor), nbdkit's memory
//! plugin with and without compression, and qemu-nbd with a file in memory. All run at once, each
//! on a Unix socket of its own. All but one are idle at any time.

mod fio;
mod server;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::NbdArgs;
use crate::programs;
use crate::report::{begin, step};
use fio::{Figures, Fio, Load};
use server::Server;

/// Requests under way of each connection, and connections.
const SHAPES: [(u32, u32); 4] = [(1, 1), (16, 1), (1, 4), (16, 4)];

/// Runs the command.
pub fn run(args: &NbdArgs) -> Result<Value> {
    let fio = programs::find("fio").context("fio is not installed; the package fio brings it")?;
    // The servers end before their directory is removed.
    let memory = std::env::var_os("TMPDIR").unwrap_or("/dev/shm".into());
    let directory = TempDir::with_prefix_in("rampack-lab-", memory)
        .context("cannot make a temporary directory")?;
    let ours = std::path::absolute(programs::rampack(args.rampack.as_deref())?)?;
    let servers = Server::all(&ours, directory.path(), args.size)?;
    let version = programs::version(&fio, "--version");
    let fio = Fio { program: fio, bytes: args.size, milliseconds: args.milliseconds };
    let rounds = u64::from(args.repeat) * 2 * SHAPES.len() as u64;
    begin(servers.len() as u64 * (1 + rounds));
    // Pages that were never written cost nothing to read, so all are written first.
    for server in &servers {
        step(format!("{} filling", server.name))?;
        fio.run(server, Load::Fill, (16, 1))?;
    }
    let outcome = |server, shape| Outcome { server, shape, sides: [Vec::new(), Vec::new()] };
    let of = |shape| servers.iter().map(move |server| outcome(server, shape));
    let mut outcomes: Vec<Outcome> = SHAPES.into_iter().flat_map(of).collect();
    for _ in 0..args.repeat {
        for Outcome { server, shape, sides } in &mut outcomes {
            for (load, figures) in [Load::Write, Load::Read].into_iter().zip(sides) {
                step(format!("{} random 4 KiB", server.name))?;
                figures.push(fio.run(server, load, *shape)?);
            }
        }
    }
    report(&version, args, &servers, &outcomes)
}

/// A server's figures under a load, of each round: of writes, and of reads.
struct Outcome<'a> {
    server: &'a Server,
    shape: (u32, u32),
    sides: [Vec<Figures>; 2],
}

fn each(figures: &[Figures], of: impl Fn(&Figures) -> f64) -> Vec<f64> {
    figures.iter().map(of).collect()
}

/// A side beside the same side of ours.
fn side(figures: &[Figures], ours: &[Figures]) -> Value {
    let rates = each(figures, |it| it.per_second);
    let times = ours.iter().zip(figures).map(|(ours, its)| ours.per_second / its.per_second);
    json!({
        "rounds": rates,
        "p50_us": each(figures, |it| it.p50_us),
        "server_cpu_us": each(figures, |it| it.server_cpu_us),
        "ours_times": times.collect::<Vec<f64>>(),
    })
}

/// All results, with the ratios of our requests a second to those of each server.
fn report(tool: &str, args: &NbdArgs, servers: &[Server], outcomes: &[Outcome]) -> Result<Value> {
    let row = |outcome: &Outcome| {
        let (depth, connections) = outcome.shape;
        let ours = outcomes.iter().find(|it| it.shape == outcome.shape).unwrap_or(outcome);
        json!({
            "name": outcome.server.name,
            "depth": depth,
            "connections": connections,
            "write": side(&outcome.sides[0], &ours.sides[0]),
            "read": side(&outcome.sides[1], &ours.sides[1]),
        })
    };
    let line = |server: &Server| {
        Ok(json!({
            "name": server.name,
            "version": server.version,
            "command": server.command,
            "resident_bytes": server.resident_bytes()?,
        }))
    };
    Ok(json!({
        "tool": tool,
        "size_bytes": args.size,
        "milliseconds": args.milliseconds,
        "rounds": args.repeat,
        "servers": servers.iter().map(line).collect::<Result<Vec<Value>>>()?,
        "loads": outcomes.iter().map(row).collect::<Vec<Value>>(),
    }))
}
