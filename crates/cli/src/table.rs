//! Text tables of commands that run on their own.

use std::fmt::Write;

/// A table.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns from this one on hold numbers.
    numbers: usize,
}

/// An empty table with these column names. Columns from `first` on hold numbers.
pub(crate) fn table(names: Vec<String>, first: usize) -> Table {
    Table { rows: vec![names], numbers: first }
}

impl Table {
    /// Adds a row, with a cell for each column.
    pub(crate) fn add_row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }
}

/// Its text: a line for each row, with two spaces between columns.
pub(crate) fn text(table: &Table) -> String {
    let mut widths = Vec::new();
    for row in &table.rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &table.rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if n == 0 { "" } else { "  " };
            let _ = match n < table.numbers {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_on_the_left_and_numbers_on_the_right() {
        let mut table = super::table(["NAME", "SIZE"].map(String::from).to_vec(), 1);
        table.add_row(["längst".to_string(), "7".to_string()]);
        table.add_row(["x".to_string(), String::new()]);
        assert_eq!(super::text(&table), "NAME    SIZE\nlängst     7\nx\n");
    }
}
