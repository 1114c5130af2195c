//! Text tables.

use std::fmt::Write;

/// The text of `rows`: a line for each, with `gap` between columns. Columns that hold numbers are
/// flush on the right.
pub(crate) fn text(rows: &[Vec<String>], gap: &str, is_number: impl Fn(usize) -> bool) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if n == 0 { "" } else { gap };
            let _ = match is_number(n) {
                true => write!(line, "{gap}{cell:>width$}"),
                false => write!(line, "{gap}{cell:<width$}"),
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
        let rows = [["NAME", "SIZE"], ["längst", "7"], ["x", ""]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let text = super::text(&rows, "  ", |n| n > 0);
        assert_eq!(text, "NAME    SIZE\nlängst     7\nx\n");
    }
}
