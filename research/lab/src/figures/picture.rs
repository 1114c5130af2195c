//! Pictures of a table: bars of its numbers.

use serde::Deserialize;

use crate::plot::Bars;
use crate::report::{Row, cell};

/// What of a table is drawn.
#[derive(Deserialize)]
pub struct Picture {
    /// What the bars show, and their unit.
    unit: String,
    /// The columns of which each value has a picture of its own.
    #[serde(default)]
    each: Vec<String>,
    /// The columns whose values stand below the bars.
    groups: Vec<String>,
    /// The columns whose values have a color.
    #[serde(default)]
    series: Vec<String>,
    /// The columns of numbers.
    values: Vec<String>,
}

impl Picture {
    /// The pictures of these rows. A cell that is no number has no bar, and a row
    /// without a group has none.
    pub fn of(&self, rows: &[Row]) -> Vec<Bars> {
        let mut all: Vec<Bars> = Vec::new();
        for row in rows {
            let words = |names: &[String]| {
                let words = names.iter().map(|name| cell(row, name));
                words.filter(|word| !["", "-"].contains(word)).collect::<Vec<_>>().join(" ")
            };
            // A number says nothing without its name.
            let named = |names: &[String]| {
                let words = names.iter().map(|name| match cell(row, name) {
                    number if number.parse::<f64>().is_ok() => format!("{name} {number}"),
                    word => word.to_owned(),
                });
                words.collect::<Vec<_>>().join(" ")
            };
            let (title, group) = (named(&self.each), words(&self.groups));
            if group.is_empty() {
                continue;
            }
            for value in &self.values {
                let number = cell(row, value).split(' ').next().and_then(|it| it.parse().ok());
                let Some(number) = number else { continue };
                let name = match (self.values.len(), named(&self.series)) {
                    (1, name) if !name.is_empty() => name,
                    (_, name) => format!("{name} {value}").trim_start().to_owned(),
                };
                let at = all.iter().position(|bars| bars.title == title).unwrap_or_else(|| {
                    all.push(Bars {
                        title: title.clone(),
                        axis: self.axis(),
                        unit: self.unit.clone(),
                        ..Bars::default()
                    });
                    all.len() - 1
                });
                all[at].add(group.clone(), name, number);
            }
        }
        all
    }

    /// What the groups are. Names of runs say it themselves.
    fn axis(&self) -> String {
        let names: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        names.join(", ").trim_start_matches("of").trim_start_matches(", ").to_owned()
    }
}
