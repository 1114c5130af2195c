//! Runs fio with its NBD engine.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::server::Server;
use crate::programs::{Running, text_of};

/// The settings of a fio run.
pub struct Fio {
    pub program: PathBuf,
    /// Bytes of the export.
    pub bytes: u64,
    /// Milliseconds of a measurement.
    pub milliseconds: u32,
}

/// A load for fio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Writes the whole export once, in large requests.
    Fill,
    /// Random writes of 4 KiB.
    Write,
    /// Random reads of 4 KiB.
    Read,
}

/// The results of fio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Requests a second.
    pub per_second: f64,
    /// CPU time of the server a request, in microseconds.
    pub server_cpu_us: f64,
    /// Median time of a request, in microseconds.
    pub p50_us: f64,
    pub requests: u64,
}

impl Fio {
    /// The arguments for a load. The data is half compressible, page by page, and new in each
    /// request. Without `buffer_compress_chunk` fio makes whole pages of zeroes; without
    /// `refill_buffers` it sends the same data again and again.
    fn arguments(&self, uri: &str, load: Load, (depth, connections): (u32, u32)) -> Vec<String> {
        let of_load = match load {
            Load::Fill => "--rw=write --bs=128k".to_owned(),
            Load::Write | Load::Read => {
                let pattern = if load == Load::Write { "randwrite" } else { "randread" };
                let time = self.milliseconds;
                format!("--rw={pattern} --bs=4k --time_based --runtime={time}ms")
            }
        };
        let line = format!(
            "--name=lab --ioengine=nbd --size={} --iodepth={depth} --numjobs={connections} \
             --group_reporting --buffer_compress_percentage=50 --buffer_compress_chunk=4096 \
             --refill_buffers --randrepeat=1 --output-format=json {of_load}",
            self.bytes
        );
        let words = line.split_ascii_whitespace().map(str::to_owned);
        // What an engine takes stands behind the engine.
        words.chain([format!("--uri={uri}")]).collect()
    }

    /// Runs a load on a server, with so many requests under way of each of so many connections.
    pub fn run(&self, server: &Server, load: Load, shape: (u32, u32)) -> Result<Figures> {
        let on = || format!("fio on {}", server.name);
        let mut output = tempfile::tempfile().context("cannot make a temporary file")?;
        let mut command = Command::new(&self.program);
        command.args(self.arguments(&server.uri, load, shape)).stdout(output.try_clone()?);
        let before = server.cpu_seconds()?;
        let limit = Duration::from_millis(u64::from(self.milliseconds)) + Duration::from_secs(120);
        Running::start(&mut command, false)?.finish(limit).with_context(on)?;
        let text = text_of(&mut output);
        let parsed = parse(&text, load).with_context(|| format!("{}: {}", on(), text.trim()))?;
        let spent = server.cpu_seconds()? - before;
        Ok(Figures { server_cpu_us: spent * 1e6 / parsed.requests as f64, ..parsed })
    }
}

/// Parses the figures in fio's output, which may begin with messages.
fn parse(text: &str, load: Load) -> Result<Figures> {
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    // Messages may follow the object, too.
    let value: Value =
        serde_json::Deserializer::from_str(json).into_iter().next().context("no figures")??;
    let job = &value["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        bail!("error {}", job["error"]);
    }
    let side = &job[if load == Load::Read { "read" } else { "write" }];
    let number = |value: &Value| value.as_f64().context("a figure is missing");
    let figures = Figures {
        per_second: number(&side["iops"])?,
        server_cpu_us: 0.0,
        p50_us: side["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap_or(0.0) / 1e3,
        requests: side["total_ios"].as_u64().context("a figure is missing")?,
    };
    if figures.requests == 0 {
        bail!("no request was made");
    }
    Ok(figures)
}

#[cfg(test)]
mod tests;
