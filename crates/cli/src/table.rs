//! Text tables of commands that run on their own.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// An empty table with these column names. Columns from `first` on hold numbers.
pub(crate) fn table(names: Vec<String>, first: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(names);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if number == 0 { (0, 0) } else { (2, 0) });
        if number >= first {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Its text: a line for each row.
pub(crate) fn text(table: &Table) -> String {
    table.trim_fmt() + "\n"
}
