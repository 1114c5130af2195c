//! Medians and spreads in cells of Markdown tables.
//!
//! A cell shows the median, and behind `±` half of the distance from the least to the greatest
//! round, in percent of the median.

use serde_json::Value;

use crate::statistics::{median, spread};

/// The numbers of an array. Empty if `value` is no array.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The numbers at `pointer` in all `values`, in order.
pub fn all_numbers(values: &[&Value], pointer: &str) -> Vec<f64> {
    values.iter().filter_map(|value| value.pointer(pointer)).flat_map(numbers).collect()
}

/// A median with its spread; `scale` divides both.
pub fn cell(values: &[f64], scale: f64, digits: usize) -> String {
    if values.is_empty() {
        return "–".to_owned();
    }
    let middle = median(values.iter().copied());
    let value = middle / scale;
    if values.len() == 1 {
        return format!("{value:.digits$}");
    }
    let [least, most] = spread(values);
    format!("{value:.digits$} ±{:.0} %", 50.0 * (most - least) / middle.abs().max(1e-12))
}

/// Ratios of the values at the same index.
pub fn ratios(part: &[f64], whole: &[f64]) -> Vec<f64> {
    part.iter().zip(whole).map(|(part, whole)| part / whole).collect()
}

/// The number at `pointer` with `digits` digits. A dash if it is missing.
pub fn number(value: &Value, pointer: &str, digits: usize) -> String {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.map_or("–".to_owned(), |number| format!("{number:.digits$}"))
}

/// The text at `pointer`, or an empty one.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of an array.
pub fn items<'a>(value: &'a Value, pointer: &str) -> Vec<&'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten().collect()
}

/// The texts at `key` in all `values`, each once, in order.
pub fn distinct(values: &[&Value], key: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        let word = match &value[key] {
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

/// The number at `key`, or one that is none.
pub fn float(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(f64::NAN)
}

/// A Markdown table: a row of names and the rows below it.
pub struct Table {
    text: String,
}

impl Table {
    /// A table with these column names.
    pub fn new<S: AsRef<str>>(names: &[S]) -> Table {
        let mut table = Table { text: String::new() };
        table.row(names);
        table.text.push_str(&format!("|{}\n", "---|".repeat(names.len())));
        table
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }

    /// The whole table as text, after this sentence.
    pub fn after(self, sentence: &str) -> String {
        format!("{sentence}\n\n{}\n", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cell_has_a_median_and_a_spread() {
        assert_eq!(cell(&[1000.0, 1200.0, 900.0], 1.0, 0), "1000 ±15 %");
        assert_eq!(cell(&[1.5], 1.0, 2), "1.50");
        assert_eq!(cell(&[], 1.0, 2), "–");
        assert_eq!(ratios(&[2.0, 9.0], &[1.0, 3.0]), [2.0, 3.0]);
        let value = json!({ "a": { "b": [1, 2] }, "c": 2.25 });
        assert_eq!(all_numbers(&[&value, &value], "/a/b"), [1.0, 2.0, 1.0, 2.0]);
        assert_eq!((number(&value, "/c", 1), number(&value, "/d", 1)), ("2.2".into(), "–".into()));
    }

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["1", "2"]);
        assert_eq!(table.after("Of that."), "Of that.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n");
    }
}
