//! Shows results: every command makes one object, which is printed as JSON or as tables.
//!
//! In the tables, numbers and words of an object are columns, and a list of measurements is its
//! median with half of the distance from the least to the greatest. A list of objects is a table of
//! its own, whose rows begin with the columns of the object that has the list.

use std::borrow::Cow;
use std::sync::OnceLock;

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use crate::interrupt;
use crate::statistics::{median, spread};

/// Prints a result, as JSON or as tables. It may be null: then the command has printed all.
pub fn show(result: &Value, json: bool) -> Result<()> {
    match json {
        _ if result.is_null() => {}
        true => println!("{result:#}"),
        false => print!("{}", text(result)),
    }
    match result["failure"].as_str() {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

/// The progress of the command of this process.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// Begins a work of `steps` steps, and shows a bar.
pub fn begin(steps: u64) -> &'static ProgressBar {
    let bar = BAR.get_or_init(|| ProgressBar::new(steps));
    if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Begins the next step.
pub fn step(what: impl Into<Cow<'static, str>>) -> Result<()> {
    if let Some(bar) = BAR.get() {
        bar.set_message(what);
        bar.inc(1);
    }
    interrupt::check()
}

/// Takes the bar away.
pub fn end() {
    if let Some(bar) = BAR.get() {
        bar.finish_and_clear();
    }
}

/// More columns than this are too many for a screen.
const MANY: usize = 12;

/// The cells of a row: names of columns, and texts.
pub type Row = Vec<(String, String)>;

fn text(result: &Value) -> String {
    let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
    let Value::Object(object) = result else { return format!("{result}\n") };
    let head = split(object, "", &[], &mut tables);
    let mut text: String = head.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    for (name, rows) in tables {
        text += &format!("\n{name}\n\n{}", drawn(&rows));
    }
    text
}

/// The cells of an object. Its lists of objects become rows of tables, after the cells `above`.
fn split(
    object: &Map<String, Value>,
    path: &str,
    above: &[(String, String)],
    tables: &mut Vec<(String, Vec<Row>)>,
) -> Row {
    let mut cells = Row::new();
    let mut lists: Vec<(String, &Vec<Value>)> = Vec::new();
    collect(object, "", &mut cells, &mut lists);
    let own: Row = above.iter().chain(&cells).cloned().collect();
    // The head of everything stands once, above the tables.
    let own = if path.is_empty() { Row::new() } else { own };
    for (name, list) in lists {
        let name = if path.is_empty() { name } else { format!("{path}, {name}") };
        for item in list {
            let Value::Object(item) = item else { continue };
            let at = tables.len();
            let row = split(item, &name, &own, tables);
            let row: Row = own.iter().cloned().chain(row).collect();
            match tables.iter_mut().find(|(other, _)| *other == name) {
                Some((_, rows)) => rows.push(row),
                None => tables.insert(at, (name.clone(), vec![row])),
            }
        }
    }
    cells
}

fn collect<'a>(
    object: &'a Map<String, Value>,
    prefix: &str,
    cells: &mut Row,
    lists: &mut Vec<(String, &'a Vec<Value>)>,
) {
    for (name, value) in object {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inner) => collect(inner, &name, cells, lists),
            Value::Array(list) if list.iter().any(Value::is_object) => lists.push((name, list)),
            value => cells.push((name, short(value))),
        }
    }
}

/// A value in a cell: of measurements the median and, behind `±`, half of the distance from the
/// least to the greatest, in percent of it.
pub fn short(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number_of(number.as_f64().unwrap_or_default()),
        Value::Array(list) if list.iter().any(Value::is_f64) => {
            let values: Vec<f64> = list.iter().filter_map(Value::as_f64).collect();
            let (middle, [least, most]) = (median(values.iter().copied()), spread(&values));
            let text = number_of(middle);
            match values.len() {
                1 => text,
                _ => format!("{text} ±{:.0} %", 50.0 * (most - least) / middle.abs().max(1e-12)),
            }
        }
        Value::Array(list) => list.iter().map(short).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}

fn number_of(number: f64) -> String {
    let digits = match number.abs() {
        small if small < 10.0 => 4,
        large if large < 1e6 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

/// The names of all columns, in order.
pub fn names(rows: &[Row]) -> Vec<&String> {
    let mut names = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What a row has in a column.
pub fn cell<'a>(row: &'a Row, name: &str) -> &'a str {
    row.iter().find(|(other, _)| other == name).map_or("", |(_, text)| text)
}

/// A table of the rows for a screen. Of a few rows with many cells each is a column.
fn drawn(rows: &[Row]) -> String {
    let names = names(rows);
    let turned = names.len() > MANY && rows.len() < MANY;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if turned {
        for name in &names {
            table
                .add_row([name.as_str()].into_iter().chain(rows.iter().map(|row| cell(row, name))));
        }
    } else {
        // Long names would make wide columns of short numbers.
        table.set_header(names.iter().map(|name| name.replace(['_', '.'], "\n")));
        for row in rows {
            table.add_row(names.iter().map(|name| cell(row, name)));
        }
    }
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if number == 0 { (0, 0) } else { (2, 0) });
        let right = match turned {
            true => number > 0,
            false => rows.iter().all(|row| is_number(cell(row, names[number]))),
        };
        column.set_cell_alignment(match right {
            true => CellAlignment::Right,
            false => CellAlignment::Left,
        });
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_rows_and_lists_of_them_are_tables() {
        let result = json!({
            "command": "x",
            "rows": [
                { "name": "a", "ns": 12.34, "samples": [1.0, 3.0], "more": [{ "n": 1 }, { "n": 2 }] },
                { "name": "b", "ns": null, "samples": [], "more": [] },
            ],
        });
        let text = text(&result);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert!(text.starts_with("command: x\n\nrows\n\n"), "{text}");
        for row in [vec!["a", "12.3", "2.0000", "±50", "%"], vec!["b", "-"]] {
            assert!(lines.contains(&row), "{row:?} in {text}");
        }
        let more = lines.iter().position(|line| *line == ["rows,", "more"]).expect("a table");
        assert_eq!(lines[more + 3], ["a", "12.3", "2.0000", "±50", "%", "1"], "{text}");
        let wide: Map<String, Value> = (0..13).map(|n| (format!("n{n}"), n.into())).collect();
        let text = super::text(&json!({ "rows": [wide] }));
        assert!(text.contains("\nn0    0\n") && text.contains("\nn12  12\n"), "{text}");
    }
}
