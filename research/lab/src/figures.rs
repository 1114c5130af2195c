//! `rampack-lab figures`: every measurement of docs/measuring/figures.md, one after the other,
//! and its tables.
//!
//! Each measurement is one or several runs of this program as a child process, alone on the machine
//! as far as we can ensure it. The JSON output goes to `NAME.json`, with the commit. `report.html`
//! and the tables `NAME-N.csv` come from these files only.
//!
//! * [`list`]: the measurements: names, arguments, what they need, tables of results, and each
//!   [`picture`] of them.
//! * [`taken`]: the results of runs, in files. [`machine`]: the commit, the day and the machine.
//! * [`page`]: the report.

mod list;
mod machine;
mod page;
mod picture;
mod taken;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::FiguresArgs;
use crate::interrupt;
use crate::programs::text_of;
use list::{Measurement, Sizes, measurements, missing};
use machine::Machine;
use taken::{Run, Taken};

/// The directory of dumps, inside that of the figures.
const DUMPS: &str = "dumps";
/// The part of the full time that a quick run takes.
const QUICK_PACE: f64 = 0.03;

/// Runs the command.
pub fn run(args: &FiguresArgs) -> Result<()> {
    if args.list {
        for measurement in measurements() {
            let long = if measurement.long { ", only if it is named" } else { "" };
            println!(
                "{:12} {:4} s{long}: {}",
                measurement.name, measurement.seconds, measurement.title
            );
        }
        return Ok(());
    }
    let out = args.out.as_deref().context("--out DIR is missing")?;
    let chosen = choose(&args.only)?;
    let machine = Machine::now(args.commit.as_deref())?;
    let dumps = out.join(DUMPS);
    fs::create_dir_all(&dumps)
        .with_context(|| format!("cannot make the directory {}", dumps.display()))?;
    let begun = Instant::now();
    if chosen.iter().any(Measurement::has_dumps) {
        make_dumps(out, args.quick)?;
    }
    let sizes = Sizes::new(args.quick, &dumps);
    let mut failed = Vec::new();
    let measuring = Instant::now();
    for (number, measurement) in chosen.iter().enumerate() {
        interrupt::check()?;
        let left = seconds(&chosen[number..]) * pace(args.quick, &chosen[..number], measuring);
        eprintln!(
            "[{}/{}] {}: {}; about {:.0} min left",
            number + 1,
            chosen.len(),
            measurement.name,
            measurement.title,
            (left / 60.0).ceil()
        );
        match measure(measurement, out, &sizes, &machine) {
            Ok(taken) => taken.write(out)?,
            Err(error) => {
                interrupt::check()?;
                eprintln!("{}: {error:#}", measurement.name);
                failed.push(measurement.name.clone());
            }
        }
    }
    let path = out.join("report.html");
    write(&path, page::page(&machine, args.quick, &parts(out, &machine, args.quick)?)?)?;
    eprintln!("{} after {} s", path.display(), begun.elapsed().as_secs());
    if !failed.is_empty() {
        bail!("these failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Draws the pictures of a command's result.
pub fn plot(command: &str, result: &Value, path: &Path) -> Result<()> {
    let list = measurements();
    let tables = list.iter().find(|it| it.name == command).map_or(&[][..], |it| &it.tables);
    let bars = tables.iter().flat_map(|table| {
        let rows = table.rows_of(command, result);
        table.pictures.iter().flat_map(move |picture| picture.of(&rows))
    });
    let mut count = 0;
    for bars in bars {
        count += 1;
        let next = path.with_extension(format!("{count}.svg"));
        write(if count == 1 { path } else { &next }, bars.svg()?)?;
    }
    if count == 0 {
        bail!("--plot: {command} has no picture");
    }
    Ok(())
}

fn write(path: &Path, text: String) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// All measurements in `out` that are of this commit and this size, in the order of the list. Their
/// tables are written.
fn parts(out: &Path, machine: &Machine, quick: bool) -> Result<Vec<(Measurement, Taken)>> {
    let mut parts = Vec::new();
    for measurement in measurements() {
        let path = out.join(format!("{}.json", measurement.name));
        let Ok(file) = fs::read_to_string(&path) else { continue };
        let taken: Taken =
            serde_json::from_str(&file).with_context(|| path.display().to_string())?;
        if taken.commit == machine.commit && taken.quick == quick {
            for (number, table) in measurement.tables.iter().enumerate() {
                let path = out.join(page::file(&measurement.name, number));
                write(&path, page::csv(&taken.rows(table)))?;
            }
            parts.push((measurement, taken));
        }
    }
    Ok(parts)
}

/// The measurements of these names, or all that are not long.
fn choose(names: &[String]) -> Result<Vec<Measurement>> {
    let mut all = measurements();
    if names.is_empty() {
        all.retain(|measurement| !measurement.long);
        return Ok(all);
    }
    for name in names {
        if !all.iter().any(|measurement| measurement.name == *name) {
            let known: Vec<&str> = all.iter().map(|measurement| &*measurement.name).collect();
            bail!("--only {name}: there are {}", known.join(", "));
        }
    }
    all.retain(|measurement| names.contains(&measurement.name));
    Ok(all)
}

/// Sum of the measurements' times at full size.
fn seconds(measurements: &[Measurement]) -> f64 {
    measurements.iter().map(|measurement| f64::from(measurement.seconds)).sum()
}

/// Ratio of the real time to the expected time, from the measurements made so far.
fn pace(quick: bool, done: &[Measurement], since: Instant) -> f64 {
    match seconds(done) {
        0.0 if quick => QUICK_PACE,
        0.0 => 1.0,
        expected => since.elapsed().as_secs_f64() / expected,
    }
}

/// Makes dumps of the installed programs, and half-compressible pages. Existing dumps are kept, so
/// another run on the same directory sees the same pages.
fn make_dumps(out: &Path, quick: bool) -> Result<()> {
    let pages = if quick { "2048" } else { "25600" };
    let dumps = out.join(DUMPS);
    if !dumps.join("half.pages").is_file() {
        child(out, &format!("corpus --out {DUMPS} --half --pages {pages}"))?;
    }
    for program in list::DUMPED {
        if !dumps.join(format!("{program}.pages")).is_file() {
            eprintln!("a dump of {program}");
            let line = format!("corpus --out {DUMPS} --pages {pages} --program {program}");
            // A program that is not installed gets a message, and is left out of the tables.
            if let Err(error) = child(out, &line) {
                interrupt::check()?;
                eprintln!("no dump of {program}: {error:#}");
            }
        }
    }
    Ok(())
}

/// Makes all runs of a measurement.
fn measure(
    measurement: &Measurement,
    out: &Path,
    sizes: &Sizes,
    machine: &Machine,
) -> Result<Taken> {
    let mut taken = Taken::new(&measurement.name, sizes.quick, machine);
    taken.missing = measurement.needs.iter().find_map(|need| missing(need));
    if let Some(missing) = &taken.missing {
        eprintln!("{}: left out, there is no {missing}", measurement.name);
        return Ok(taken);
    }
    let runs = measurement.runs(sizes);
    if runs.is_empty() {
        taken.missing = Some("dump of a program".to_owned());
    }
    for (label, line) in runs {
        interrupt::check()?;
        eprintln!("  {line}");
        let begun = Instant::now();
        let text = child(out, &format!("{line} --json"))?;
        let result = serde_json::from_str(&text).with_context(|| line.clone())?;
        let seconds = begun.elapsed().as_secs_f64();
        taken.runs.push(Run { label, line, seconds, result });
    }
    Ok(taken)
}

/// Runs the program of `line` in `directory`. Returns its output.
fn child(directory: &Path, line: &str) -> Result<String> {
    let (program, arguments) = list::program(line)?;
    // A file, not a pipe: no process has to read while the child measures.
    let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut command = Command::new(program);
    command.args(arguments.split_ascii_whitespace()).current_dir(directory);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    // A Ctrl-C at a terminal reaches the child too. The child ends and cleans up.
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        let words = text_of(&mut errors);
        // Behind an error of the command line stands a hint.
        let is_error = |line: &&str| line.starts_with("rampack") || line.starts_with("error");
        let words = words.lines().rev().find(is_error).unwrap_or(words.trim_end());
        bail!("{}: {status}: {words}", list::command(line));
    }
    Ok(text_of(&mut output))
}
