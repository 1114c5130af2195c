//! The page of a machine: every table with its pictures, in one file.

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::list::{Measurement, Table, command};
use super::machine::Machine;
use super::taken::Taken;
use crate::report::{Row, cell, names};

/// The page of these measurements.
pub fn page(machine: &Machine, quick: bool, parts: &[(Measurement, Taken)]) -> Result<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "rampack on this machine" }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                h1 { "rampack on this machine" }
                @if quick {
                    p.quick { "A quick run: it shows that everything runs, and no figures." }
                }
                table {
                    @for (name, value) in machine.lines() { tr { th { (name) } td { (value) } } }
                }
                p {
                    "A cell is the median of all rounds; behind ± is half of the difference "
                    "between least and most. Compare numbers of one table with each other only."
                }
                ul {
                    @for (it, _) in parts { li { a href={ "#" (it.name) } { (it.title) } } }
                }
                @for (measurement, taken) in parts {
                    h2 id=(measurement.name) { (measurement.title) }
                    @if let Some(missing) = &taken.missing {
                        p { "Not measured: there was no " (missing) "." }
                    } @else {
                        (section(measurement, taken)?)
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn section(measurement: &Measurement, taken: &Taken) -> Result<Markup> {
    let name = &measurement.name;
    let seconds: f64 = taken.runs.iter().map(|run| run.seconds).sum();
    Ok(html! {
        p {
            a href={ (name) ".json" } { (name) ".json" } ", " (taken.date) ", "
            (format!("{seconds:.0} s:"))
        }
        pre { @for run in &taken.runs { (command(&run.line)) "\n" } }
        @for (number, table) in measurement.tables.iter().enumerate() {
            @let rows = taken.rows(table);
            p { (table.about) }
            (pictures(table, &rows)?)
            details {
                summary { "All figures, and " a href=(file(name, number)) { (file(name, number)) } }
                (cells(&rows))
            }
        }
    })
}

fn pictures(table: &Table, rows: &[Row]) -> Result<Markup> {
    Ok(html! {
        @for bars in table.pictures.iter().flat_map(|picture| picture.of(rows)) {
            figure { (PreEscaped(bars.svg()?)) }
        }
    })
}

fn cells(rows: &[Row]) -> Markup {
    let names = names(rows);
    html! {
        table {
            tr { @for name in &names { th { (name) } } }
            @for row in rows { tr { @for name in &names { td { (cell(row, name)) } } } }
        }
    }
}

/// The file of a table.
pub fn file(measurement: &str, number: usize) -> String {
    format!("{measurement}-{}.csv", number + 1)
}

/// The rows as values with commas between them.
pub fn csv(rows: &[Row]) -> String {
    let names = names(rows);
    let line = |cells: Vec<&str>| {
        let quoted = cells.iter().map(|it| format!("\"{}\"", it.replace('"', "\"\"")));
        quoted.collect::<Vec<_>>().join(",") + "\r\n"
    };
    let head = line(names.iter().map(|name| name.as_str()).collect());
    rows.iter()
        .fold(head, |all, row| all + &line(names.iter().map(|name| cell(row, name)).collect()))
}
