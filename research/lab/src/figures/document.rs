//! `figures.md`: the tables of all measurements made so far.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::list::MEASUREMENTS;
use super::machine::Machine;
use super::taken::Taken;

/// The tables of all measurements in `out` that are of this commit and this size, in the order of
/// the list.
pub fn document(out: &Path, machine: &Machine, quick: bool) -> Result<String> {
    let mut text = machine.describe();
    if quick {
        text.push_str("\n**A quick run**: it shows that everything runs, and no figures.\n");
    }
    for measurement in MEASUREMENTS {
        let path = out.join(format!("{}.json", measurement.name));
        let Ok(file) = fs::read_to_string(&path) else { continue };
        let taken: Taken =
            serde_json::from_str(&file).with_context(|| path.display().to_string())?;
        if taken.commit != machine.commit || taken.quick != quick {
            continue;
        }
        text.push_str(&format!("\n## {}\n\n", measurement.title));
        if let Some(missing) = &taken.missing {
            text.push_str(&format!("Not measured: there was no {missing}.\n"));
            continue;
        }
        let first = taken.runs.first().map_or("", |run| run.line.trim_end());
        let seconds: f64 = taken.runs.iter().map(|run| run.seconds).sum();
        let more = match taken.runs.len() {
            1 => String::new(),
            runs => format!(", the first of {runs} runs"),
        };
        let date = taken.date.replace('T', " ");
        let head = format!("`{first}`{more}; {} UTC, {seconds:.0} s.", date.trim_end_matches('Z'));
        let body = format!("{head}\n\n{}", (measurement.tables)(&taken));
        text.push_str(body.trim_end());
        text.push('\n');
    }
    Ok(text)
}
