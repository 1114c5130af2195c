//! The tables: all figures, and those of two proposals for zswap.

use std::fmt::Write;
use std::iter;

use units::PAGE_SIZE;

use super::report::{Report, Run, Setting};
use crate::statistics::spread;
use crate::table::{self, maybe_count};

/// A run's time, with a mark if the build did not end by itself.
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

/// The memory limit of the group at the end. It is higher than at first if the kernel was about to
/// give the group up and the limit was raised.
fn limit(run: &Run) -> String {
    match run.swap.as_str() {
        "none" => "-".to_owned(),
        _ => raised(run.setting.limit_bytes, run.measured.relieved_bytes),
    }
}

/// The limit at the end, and the bytes by which it was raised.
fn raised(bytes: u64, by: u64) -> String {
    match by {
        0 => mb(bytes),
        _ => format!("{} (raised by {})", mb(bytes + by), mb(by)),
    }
}

/// The range from the fastest to the slowest build of this kind that ended by itself.
fn spread_of_seconds(report: &Report, run: &Run) -> String {
    let same = |other: &&Run| other.setting == run.setting && other.swap == run.swap;
    let runs = report.runs.iter().filter(same).filter(|run| run.outcome == "done");
    let all: Vec<f64> = runs.map(|run| run.measured.seconds).collect();
    let [least, most] = spread(&all);
    if all.is_empty() { "-".to_owned() } else { format!("{least:.1}-{most:.1}") }
}

/// A run's result in one line, as progress.
pub fn in_a_line(run: &Run) -> String {
    let measured = &run.measured;
    format!(
        "-j{} {:22} {} s, CPU {:.0} %, limit {} MB, swap from and to disk {} and {} MB",
        run.setting.jobs,
        run.swap,
        seconds(run),
        measured.cpu_percent,
        limit(run),
        mb(measured.swap.disk_read_bytes),
        mb(measured.swap.disk_written_bytes)
    )
}

fn heading(setting: Setting) -> String {
    format!("\nmake -j{} in {}\n\n", setting.jobs, units::human(setting.limit_bytes))
}

/// The results as text.
pub fn text(report: &Report) -> String {
    let pool = report.max_pool_bytes.map_or(String::new(), |bytes| {
        format!(", compressed pages in {} at most", units::human(bytes))
    });
    let rounds = match report.repeat {
        1 => String::new(),
        many => format!(", of {many} builds the one with the median time"),
    };
    let mut text = format!(
        "{}\nLinux {}, {} CPUs, {} of swap{pool}, {} s at most{rounds}\n",
        report.source,
        report.kernel,
        report.cpus,
        units::human(report.swap_bytes),
        report.timeout_seconds
    );
    text.push_str(&figures(report));
    text.push_str(&input_output(report));
    text.push_str(&run_time(report));
    text.push_str(&cpu(report));
    text.push_str(&real_user_sys(report));
    for run in &report.runs {
        if let Some(message) = &run.message {
            let (jobs, swap) = (run.setting.jobs, &run.swap);
            text.push_str(&format!("\nmake -j{jobs} with {swap} failed: {message}\n"));
        }
        if let Some(shares) = &run.profile {
            let (jobs, swap) = (run.setting.jobs, &run.swap);
            text.push_str(&format!("\nCPU time of -j{jobs} with {swap}\n{}", shares.table()));
        }
    }
    text
}

/// All figures of all kinds of swap.
fn figures(report: &Report) -> String {
    let mut text = String::new();
    for &setting in &report.settings {
        let mut table = table::unnamed();
        let runs: Vec<&Run> =
            report.swaps.iter().filter_map(|swap| report.median(setting, swap)).collect();
        let mut row = |name: &str, of: &dyn Fn(&Run) -> String| {
            let cells = runs.iter().map(|run| of(run));
            table.add_row(iter::once(name.to_owned()).chain(cells));
        };
        row("", &|run| run.swap.clone());
        row("limit at the end, MB", &limit);
        row("runtime, s", &seconds);
        row("  of all builds", &|run| spread_of_seconds(report, run));
        row("user, s", &|run| format!("{:.1}", run.measured.user_seconds));
        row("sys, s", &|run| format!("{:.1}", run.measured.system_seconds));
        row("CPU, %", &|run| format!("{:.0}", run.measured.cpu_percent));
        row("major faults", &|run| run.measured.major_faults.to_string());
        row("  of the group", &|run| maybe_count(run.measured.group.major_faults));
        row("pswpin, pages", &|run| run.measured.vmstat.pswpin.to_string());
        row("pswpout, pages", &|run| run.measured.vmstat.pswpout.to_string());
        row("stored, pages", &|run| maybe_count(run.measured.swap.stored));
        row("loaded, pages", &|run| maybe_count(run.measured.swap.loaded));
        row("written back, pages", &|run| maybe_count(run.measured.swap.written_back));
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
                table.add_row(iter::once(name.to_owned()).chain(cells));
            };
            add("daemon user, s", daemon(&|daemon| format!("{:.1}", daemon.user_seconds)));
            add("daemon sys, s", daemon(&|daemon| format!("{:.1}", daemon.system_seconds)));
            add("daemon RSS, MB", daemon(&|daemon| mb(daemon.resident_bytes)));
            add("daemon RSS at most, MB", daemon(&|daemon| mb(daemon.resident_peak_bytes)));
        }
        text.push_str(&heading(setting));
        text.push_str(&table::text(table, &[0]));
    }
    text
}

/// Pages that swap read from a disk and wrote to it.
fn pages(run: &Run) -> (u64, u64) {
    let page = PAGE_SIZE as u64;
    (run.measured.swap.disk_read_bytes / page, run.measured.swap.disk_written_bytes / page)
}

/// The kinds of swap other than the base.
fn others<'a>(report: &'a Report, base: &'a str) -> impl Iterator<Item = &'a str> {
    report.swaps.iter().map(String::as_str).filter(move |swap| *swap != base && *swap != "none")
}

/// I/O in pages, as in the proposal of 2013: the pages that swap read and wrote on the disk, major
/// faults, their sum, and its change.
fn input_output(report: &Report) -> String {
    let mut text = String::new();
    let Some(base) = report.base() else { return text };
    for other in others(report, base) {
        let _ = writeln!(text, "\nI/O in pages, {base} against {other}\n");
        let mut table = table::table([
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
            table.add_row(row);
        }
        text.push_str(&table::text(table, &[0]));
    }
    text
}

fn against(report: &Report, title: &str, of: &dyn Fn(&Run) -> (String, f64)) -> String {
    let mut text = String::new();
    let Some(base) = report.base() else { return text };
    let _ = writeln!(text, "\n{title}\n");
    let mut names = vec!["N", base];
    names.extend(others(report, base).flat_map(|other| [other, "change"]));
    let unlimited = report.swaps.iter().any(|swap| swap == "none");
    if unlimited {
        names.push("none");
    }
    let mut table = table::table(names);
    for &setting in &report.settings {
        let Some(from) = report.median(setting, base) else { continue };
        let (shown, value) = of(from);
        let mut row = vec![setting.jobs.to_string(), shown];
        for other in others(report, base) {
            let Some(run) = report.median(setting, other) else { continue };
            let (shown, this) = of(run);
            // A build that was killed cannot be compared.
            let known = from.outcome == "done" && run.outcome == "done";
            row.extend([shown, if known { change(value, this) } else { "-".to_owned() }]);
        }
        if let Some(run) = report.median(setting, "none").filter(|_| unlimited) {
            row.push(of(run).0);
        }
        table.add_row(row);
    }
    text.push_str(&table::text(table, &[0]));
    text
}

/// Run times, as in the proposal of 2013.
fn run_time(report: &Report) -> String {
    against(report, "Runtime in seconds", &|run| (seconds(run), run.measured.seconds))
}

/// CPU time, as in the proposal of 2013.
fn cpu(report: &Report) -> String {
    let title = format!("CPU utilization in percent, out of {}", 100 * report.cpus);
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
fn real_user_sys(report: &Report) -> String {
    let mut text = String::new();
    for &setting in &report.settings {
        let runs: Vec<&Run> =
            report.swaps.iter().filter_map(|swap| report.median(setting, swap)).collect();
        let _ = writeln!(text, "\n-j{}, as time(1) tells it\n", setting.jobs);
        let mut table = table::unnamed();
        let mut row = |name: &str, of: &dyn Fn(&Run) -> String| {
            let cells = runs.iter().map(|run| of(run));
            table.add_row(iter::once(name.to_owned()).chain(cells));
        };
        row("", &|run| run.swap.clone());
        row("real", &|run| match run.outcome {
            "done" => clock(run.measured.seconds),
            _ => seconds(run),
        });
        row("user", &|run| clock(run.measured.user_seconds));
        row("sys", &|run| clock(run.measured.system_seconds));
        text.push_str(&table::text(table, &[0]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_changes_and_clocks() {
        assert_eq!(raised(256_000_000, 0), "256");
        assert_eq!(raised(256_000_000, 16_000_000), "272 (raised by 16)");
        assert_eq!(change(570.0, 267.0), "-53%");
        assert_eq!(change(107.0, 107.0), "+0%");
        assert_eq!(change(0.0, 1.0), "-");
        assert_eq!(clock(69.181), "1m9.181s");
        assert_eq!(clock(1064.036), "17m44.036s");
    }
}
