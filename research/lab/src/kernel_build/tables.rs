//! The tables: everything, and those of two proposals for zswap.

use std::fmt::Write;

use units::PAGE_SIZE;

use super::report::Report;
use super::{Run, Setting};

/// A run's time, with a mark if it did not end by itself.
fn seconds(run: &Run) -> String {
    match run.outcome {
        "done" => format!("{:.1}", run.measured.seconds),
        "timeout" => format!(">{:.0}", run.measured.seconds),
        outcome => outcome.to_owned(),
    }
}

fn mb(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

fn some(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn some_mb(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), mb)
}

/// A change in percent.
fn change(from: f64, to: f64) -> String {
    if from <= 0.0 {
        return "-".to_owned();
    }
    format!("{:+.0}%", 100.0 * (to / from - 1.0))
}

/// What a run did, for whoever waits.
pub fn in_a_line(run: &Run) -> String {
    let measured = &run.measured;
    format!(
        "-j{} {:22} {} s, CPU {:.0} %, swap from and to disk {} and {} MB",
        run.setting.jobs,
        run.swap,
        seconds(run),
        measured.cpu_percent,
        mb(measured.swap.disk_read_bytes),
        mb(measured.swap.disk_written_bytes)
    )
}

/// Columns with their names, right-aligned but for the first.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(names: &[&str]) -> Table {
        Table(vec![names.iter().map(|name| (*name).to_owned()).collect()])
    }

    fn write(&self, text: &mut String) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(line, "{cell:width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
}

fn heading(setting: Setting) -> String {
    format!("\nmake -j{} in {}\n\n", setting.jobs, units::human(setting.limit_bytes))
}

/// Every figure of every kind of swap.
pub fn figures(report: &Report) -> String {
    let mut text = String::new();
    for &setting in &report.settings {
        let mut table = Table(Vec::new());
        let runs: Vec<&Run> =
            report.swaps.iter().filter_map(|swap| report.median(setting, swap)).collect();
        let mut row = |name: &str, of: &dyn Fn(&Run) -> String| {
            let cells = runs.iter().map(|run| of(run));
            table.0.push(std::iter::once(name.to_owned()).chain(cells).collect());
        };
        row("", &|run| run.swap.clone());
        row("runtime, s", &seconds);
        row("user, s", &|run| format!("{:.1}", run.measured.user_seconds));
        row("sys, s", &|run| format!("{:.1}", run.measured.system_seconds));
        row("CPU, %", &|run| format!("{:.0}", run.measured.cpu_percent));
        row("major faults", &|run| run.measured.major_faults.to_string());
        row("  of the group", &|run| some(run.measured.group.major_faults));
        row("pswpin, pages", &|run| run.measured.vmstat.pswpin.to_string());
        row("pswpout, pages", &|run| run.measured.vmstat.pswpout.to_string());
        row("stored, pages", &|run| some(run.measured.swap.stored));
        row("loaded, pages", &|run| some(run.measured.swap.loaded));
        row("written back, pages", &|run| some(run.measured.swap.written_back));
        row("compressed at most, MB", &|run| some_mb(run.measured.swap.pool_peak_bytes));
        row("swap from disk, MB", &|run| mb(run.measured.swap.disk_read_bytes));
        row("swap to disk, MB", &|run| mb(run.measured.swap.disk_written_bytes));
        row("all from disk, MB", &|run| mb(run.measured.disk_read_bytes));
        row("all to disk, MB", &|run| mb(run.measured.disk_written_bytes));
        if runs.iter().any(|run| run.measured.swap.daemon.is_some()) {
            let daemon = |of: &dyn Fn(&crate::swap::Daemon) -> String| {
                let of: Vec<String> = runs
                    .iter()
                    .map(|run| run.measured.swap.daemon.as_ref().map_or("-".to_owned(), of))
                    .collect();
                of
            };
            let mut add = |name: &str, cells: Vec<String>| {
                table.0.push(std::iter::once(name.to_owned()).chain(cells).collect());
            };
            add("daemon user, s", daemon(&|daemon| format!("{:.1}", daemon.user_seconds)));
            add("daemon sys, s", daemon(&|daemon| format!("{:.1}", daemon.system_seconds)));
            add("daemon RSS, MB", daemon(&|daemon| mb(daemon.resident_bytes)));
            add("daemon RSS at most, MB", daemon(&|daemon| mb(daemon.resident_peak_bytes)));
        }
        text.push_str(&heading(setting));
        table.write(&mut text);
    }
    text
}

/// Pages that swap moved from and to a disk.
fn pages(run: &Run) -> (u64, u64) {
    let page = PAGE_SIZE as u64;
    (run.measured.swap.disk_read_bytes / page, run.measured.swap.disk_written_bytes / page)
}

/// The kinds that are compared with the base.
fn others<'a>(report: &'a Report, base: &'a str) -> impl Iterator<Item = &'a str> {
    report.swaps.iter().map(String::as_str).filter(move |swap| *swap != base && *swap != "none")
}

/// I/O in pages, as in the proposal of 2013: what swap read and wrote on the disk, and major
/// faults; and the sum's change.
pub fn input_output(report: &Report) -> String {
    let mut text = String::new();
    let Some(base) = report.base() else { return text };
    for other in others(report, base) {
        let _ = writeln!(text, "\nI/O in pages, {base} against {other}\n");
        let mut table = Table::new(&[
            "N", "in", "out", "majflt", "I/O sum", "in", "out", "majflt", "I/O sum", "I/O", "MB",
            "swap",
        ]);
        for &setting in &report.settings {
            let runs = (report.median(setting, base), report.median(setting, other));
            let (Some(from), Some(to)) = runs else { continue };
            let mut row = vec![setting.jobs.to_string()];
            let mut sums = [0u64; 2];
            let mut swaps = [0u64; 2];
            for (number, run) in [from, to].into_iter().enumerate() {
                let (read, written) = pages(run);
                let faults = run.measured.major_faults;
                sums[number] = read + written + faults;
                swaps[number] = read + written;
                row.extend([read, written, faults, sums[number]].map(|pages| pages.to_string()));
            }
            row.push(change(sums[0] as f64, sums[1] as f64));
            let less = (sums[0] as f64 - sums[1] as f64) * PAGE_SIZE as f64 / 1e6;
            row.push(format!("{less:.0}"));
            row.push(change(swaps[0] as f64, swaps[1] as f64));
            table.0.push(row);
        }
        table.write(&mut text);
    }
    text
}

fn against(report: &Report, title: &str, of: &dyn Fn(&Run) -> (String, f64)) -> String {
    let mut text = String::new();
    let Some(base) = report.base() else { return text };
    let _ = writeln!(text, "\n{title}\n");
    let mut table = Table(vec![vec!["N".to_owned(), base.to_owned()]]);
    for other in others(report, base) {
        table.0[0].extend([other.to_owned(), "change".to_owned()]);
    }
    let unlimited = report.swaps.iter().any(|swap| swap == "none");
    if unlimited {
        table.0[0].push("none".to_owned());
    }
    for &setting in &report.settings {
        let Some(from) = report.median(setting, base) else { continue };
        let (shown, value) = of(from);
        let mut row = vec![setting.jobs.to_string(), shown];
        for other in others(report, base) {
            let Some(run) = report.median(setting, other) else { continue };
            let (shown, this) = of(run);
            // Against a build that was killed there is no telling.
            let known = from.outcome == "done" && run.outcome == "done";
            row.extend([shown, if known { change(value, this) } else { "-".to_owned() }]);
        }
        if let Some(run) = report.median(setting, "none").filter(|_| unlimited) {
            row.push(of(run).0);
        }
        table.0.push(row);
    }
    table.write(&mut text);
    text
}

/// Run times, as in the proposal of 2013.
pub fn run_time(report: &Report) -> String {
    against(report, "Runtime in seconds", &|run| (seconds(run), run.measured.seconds))
}

/// Time on CPUs, as in the proposal of 2013.
pub fn cpu(report: &Report) -> String {
    let title = format!("CPU utilization in percent, out of {}", 100 * report.cpus());
    let of = |run: &Run| {
        let percent = run.measured.cpu_percent;
        (format!("{percent:.0}"), percent)
    };
    against(report, &title, &of)
}

/// Minutes and seconds, as time(1) prints them.
fn clock(seconds: f64) -> String {
    let minutes = (seconds / 60.0).floor();
    format!("{minutes:.0}m{:.3}s", seconds - 60.0 * minutes)
}

/// real, user and sys, as in the proposal of 2024.
pub fn real_user_sys(report: &Report) -> String {
    let mut text = String::new();
    for &setting in &report.settings {
        let runs: Vec<&Run> =
            report.swaps.iter().filter_map(|swap| report.median(setting, swap)).collect();
        let _ = writeln!(text, "\n-j{}, as time(1) tells it\n", setting.jobs);
        let mut table = Table(Vec::new());
        let mut row = |name: &str, of: &dyn Fn(&Run) -> String| {
            let cells = runs.iter().map(|run| of(run));
            table.0.push(std::iter::once(name.to_owned()).chain(cells).collect());
        };
        row("", &|run| run.swap.clone());
        row("real", &|run| match run.outcome {
            "done" => clock(run.measured.seconds),
            _ => seconds(run),
        });
        row("user", &|run| clock(run.measured.user_seconds));
        row("sys", &|run| clock(run.measured.system_seconds));
        table.write(&mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_clocks() {
        assert_eq!(change(570.0, 267.0), "-53%");
        assert_eq!(change(107.0, 107.0), "+0%");
        assert_eq!(change(0.0, 1.0), "-");
        assert_eq!(clock(69.181), "1m9.181s");
        assert_eq!(clock(1064.036), "17m44.036s");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table::new(&["N", "in", "out"]);
        table.0.push(vec!["8".to_owned(), "12345".to_owned(), "1".to_owned()]);
        table.0.push(vec!["12".to_owned(), "1".to_owned()]);
        let mut text = String::new();
        table.write(&mut text);
        assert_eq!(text, "N      in  out\n8   12345    1\n12      1\n");
    }
}
