//! Text tables.

use comfy_table::{CellAlignment, Table};

/// An empty table with these column names. A name may have several lines.
pub fn table(names: impl IntoIterator<Item = impl ToString>) -> Table {
    let mut table = unnamed();
    table.set_header(names.into_iter().map(|name| name.to_string()));
    table
}

/// An empty table without column names.
pub fn unnamed() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

/// One line for each row, with two spaces between columns. The columns in `left` are left-aligned,
/// all others right-aligned.
pub fn text(mut table: Table, left: &[usize]) -> String {
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if number == 0 { (0, 0) } else { (2, 0) });
        column.set_cell_alignment(match left.contains(&number) {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        });
    }
    table.trim_fmt() + "\n"
}

/// An optional number, with `digits` digits after the point.
pub fn maybe(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
}

/// An optional count.
pub fn maybe_count(count: Option<u64>) -> String {
    count.map_or("-".to_owned(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut some = table(["N", "in", "out"]);
        some.add_row(["8", "12345", "1"]).add_row(["12", "1"]).add_row(["  of it", "", "2"]);
        let expected =
            "N           in  out\n8        12345    1\n12           1\n  of it           2\n";
        assert_eq!(text(some, &[0]), expected);
        let mut some = table(["\nof", "two,\nlines"]);
        some.add_row([maybe(None, 1), maybe(Some(1.0), 3)]);
        assert_eq!(text(some, &[]), "     two,\nof  lines\n -  1.000\n");
    }
}
