//! `figures.md`: the tables of all measurements made so far.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::list::MEASUREMENTS;
use super::machine::Machine;
use super::taken::Taken;

/// Characters in a line.
const WIDTH: usize = 100;

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
        text.push_str(&wrapped(body.trim_end()));
    }
    Ok(text)
}

/// Wraps paragraphs at a hundred characters. Tables stay unchanged.
fn wrapped(text: &str) -> String {
    let mut all = String::new();
    let mut column = 0;
    for line in text.lines() {
        if line.is_empty() || line.starts_with('|') {
            all.push_str(if column > 0 { "\n" } else { "" });
            all.push_str(line);
            all.push('\n');
            column = 0;
            continue;
        }
        for word in line.split_ascii_whitespace() {
            let length = word.chars().count();
            if column > 0 {
                let fits = column + 1 + length <= WIDTH;
                all.push(if fits { ' ' } else { '\n' });
                column = if fits { column + 1 } else { 0 };
            }
            all.push_str(word);
            column += length;
        }
    }
    all.push_str(if column > 0 { "\n" } else { "" });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_tables_are_not() {
        let long = "word ".repeat(30);
        let text = wrapped(&format!("{long}\n{long}\n\n| {long}|\nend"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[..3].iter().all(|line| line.len() <= WIDTH));
        assert!(lines[3].is_empty() && lines[4].len() > WIDTH && lines[5] == "end");
    }
}
