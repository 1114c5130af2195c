//! Tables of the measurements that store and load pages.

use serde_json::Value;

use super::cells::{Table, all_numbers, cell, distinct, items, number, numbers, ratios, text};
use super::taken::Taken;
use crate::level::named;
use crate::statistics::median;

/// The results of one target in all rounds of the runs.
struct Side<'a> {
    of: Vec<&'a Value>,
}

impl<'a> Side<'a> {
    /// The target of this name in runs of `pages`.
    fn new(runs: &[&'a Value], target: &str) -> Side<'a> {
        let find = |run: &&'a Value| match text(run, "/target") == target {
            true => Some(*run),
            false => items(run, "/compare").into_iter().find(|o| text(o, "/target") == target),
        };
        Side { of: runs.iter().filter_map(find).collect() }
    }

    fn samples(&self, name: &str) -> Vec<f64> {
        all_numbers(&self.of, &format!("/samples/{name}"))
    }

    fn ns(&self, name: &str) -> String {
        cell(&self.samples(name), 1.0, 0)
    }

    fn over(&self, name: &str, codec: &str) -> String {
        cell(&ratios(&self.samples(name), &self.samples(codec)), 1.0, 3)
    }

    fn codec(&self) -> String {
        let level = |run: &&Value| run.pointer("/level").and_then(Value::as_i64);
        self.of.first().map_or("–".to_owned(), |run| {
            named(text(run, "/algorithm"), level(run).and_then(|level| i32::try_from(level).ok()))
        })
    }
}

/// The content whose pages are half noise: no program's pages.
pub const HALF: &str = "half";
const KERNEL: &str = "/dev/zram0";

/// Stores and loads compared with the kernel's, first writes, two threads, memory.
pub fn pages(taken: &Taken) -> String {
    let mut names: Vec<&str> = Vec::new();
    for label in taken.labels() {
        let name = label.split('/').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of = |name: &str, what: &str| taken.of(&format!("{name}/{what}"));

    let mut speed = Table::new(&[
        "pages",
        "codec",
        "store",
        "kernel",
        "load",
        "kernel",
        "store / codec",
        "load / codec",
        "kernel's",
    ]);
    for &name in names.iter().filter(|name| **name != HALF) {
        let (ours, kernel) =
            (Side::new(&of(name, "1"), "engine"), Side::new(&of(name, "1"), KERNEL));
        speed.row(&[
            name.to_owned(),
            ours.codec(),
            ours.ns("overwrite"),
            kernel.ns("overwrite"),
            ours.ns("reload"),
            kernel.ns("reload"),
            ours.over("overwrite", "compress"),
            ours.over("reload", "decompress"),
            format!(
                "{}, {}",
                kernel.over("overwrite", "compress"),
                kernel.over("reload", "decompress")
            ),
        ]);
    }

    let mut first = Table::new(&[
        "pages",
        "codec",
        "threads",
        "rampack, MB/s",
        "kernel, MB/s",
        "rampack / kernel",
        "ns / codec",
    ]);
    for name in &names {
        for threads in ["1", "2"] {
            let runs = of(name, threads);
            let (ours, kernel) = (Side::new(&runs, "engine"), Side::new(&runs, KERNEL));
            let (us, them) = (ours.samples("store_mb_per_s"), kernel.samples("store_mb_per_s"));
            first.row(&[
                (*name).to_owned(),
                ours.codec(),
                threads.to_owned(),
                cell(&us, 1.0, 0),
                cell(&them, 1.0, 0),
                cell(&ratios(&us, &them), 1.0, 2),
                ours.over("store", "compress"),
            ]);
        }
    }

    let columns = ["pages", "codec", "bit-spinlock", "epoch", "kernel", "codec alone"];
    let mut two = Table::new(&columns);
    for name in &names {
        let (alone, both) = (of(name, "1"), of(name, "2"));
        let times = |target: &str, pass: &str| {
            let (alone, both) = (Side::new(&alone, target), Side::new(&both, target));
            // A thread's time for a page: twice as much in all, if it takes no longer.
            let pairs = ratios(&alone.samples(pass), &both.samples(pass));
            cell(&pairs.iter().map(|ratio| 2.0 * ratio).collect::<Vec<f64>>(), 1.0, 2)
        };
        two.row(&[
            (*name).to_owned(),
            Side::new(&alone, "engine").codec(),
            format!("{}, {}", times("engine", "overwrite"), times("engine", "reload")),
            format!("{}, {}", times("engine:epoch", "overwrite"), times("engine:epoch", "reload")),
            format!("{}, {}", times(KERNEL, "overwrite"), times(KERNEL, "reload")),
            format!("{}, {}", times("engine", "compress"), times("engine", "decompress")),
        ]);
    }

    speed.after(
        "One pinned thread, ns a page: each page stored over, and loaded for the second time. The \
         codec is the bare one on the same pages in the same round. The kernel's times include a \
         system call a page.",
    ) + &first.after(
        "First writes: each page into an empty place. MB/s of all threads; in the last column a \
         thread's time for a page by the bare codec's.",
    ) + &two.after("What two threads do, times what one does: pages stored over, and loaded again.")
        + &memory(taken, &names)
}

fn memory(taken: &Taken, names: &[&str]) -> String {
    let mut table = Table::new(&[
        "pages",
        "codec",
        "compressed, bytes",
        "pool / compressed",
        "with churn",
        "kernel",
        "metadata a page",
        "RSS / (pool + metadata)",
    ]);
    for name in names {
        let (runs, churned) = (taken.of(&format!("{name}/1")), taken.of(&format!("{name}/churn")));
        let over = |side: &Side<'_>| -> Vec<f64> {
            let ratio = |run: &&Value| run.pointer("/pool_over_compressed")?.as_f64();
            side.of.iter().filter_map(ratio).collect()
        };
        let (ours, kernel) = (Side::new(&runs, "engine"), Side::new(&runs, KERNEL));
        let Some(run) = ours.of.first() else { continue };
        let count = |key: &str| run.pointer(key).and_then(Value::as_f64).unwrap_or(0.0);
        let rss: Vec<f64> = ours
            .of
            .iter()
            .filter_map(|run| run.pointer("/rss_over_pool_and_metadata")?.as_f64())
            .collect();
        table.row(&[
            (*name).to_owned(),
            ours.codec(),
            number(run, "/compressed_bytes", 0),
            cell(&over(&ours), 1.0, 4),
            cell(&over(&Side::new(&churned, "engine")), 1.0, 4),
            cell(&over(&kernel), 1.0, 4),
            format!("{:.2} B", count("/metadata_bytes") / count("/pages").max(1.0)),
            cell(&rss, 1.0, 4),
        ]);
    }
    table.after(
        "Memory when every page was stored over: frames of the pool as the kernel counts them; its \
         own by `mem_used_total`. With churn each place first held another page.",
    )
}

/// Nanoseconds for a page and ratios, one row for each codec.
pub fn codecs(taken: &Taken) -> String {
    let labels = taken.labels();
    let mut table = Table::new(&[&["codec"], &labels[..]].concat());
    let Some(first) = taken.runs.first() else { return String::new() };
    let title = |row: &Value| {
        let level = row.pointer("/level").and_then(Value::as_i64);
        let level = level.and_then(|level| i32::try_from(level).ok());
        named(text(row, "/name"), level)
    };
    let mut kernels = Vec::new();
    for row in items(&first.result, "/codecs") {
        let mut cells = vec![title(row)];
        for run in &taken.runs {
            let all = items(&run.result, "/codecs");
            let Some(same) = all.into_iter().find(|other| title(other) == cells[0]) else {
                continue;
            };
            let ns = |key: &str| cell(&numbers(&same["samples"][key]), 1.0, 0);
            let ratio = number(same, "/ratio", 2);
            cells.push(format!("{}, {}, {ratio}", ns("compress_cpu_ns"), ns("decompress_cpu_ns")));
            if let Some(over) = same.pointer("/kernel/ours_over_kernel").and_then(Value::as_f64) {
                kernels.push((cells[0].clone(), over));
            }
        }
        table.row(&cells);
    }
    let mut said = String::new();
    kernels.sort_by(|one, other| one.0.cmp(&other.0));
    for group in kernels.chunk_by(|one, other| one.0 == other.0) {
        let bytes = cell(&group.iter().map(|(_, over)| *over).collect::<Vec<f64>>(), 1.0, 3);
        said.push_str(&format!("Bytes of {} over the kernel's: {bytes}.\n", group[0].0));
    }
    table.after(
        "Each codec at its default level: ns of CPU time a page to compress, to decompress, and \
         the ratio.",
    ) + &said
}

/// Ratios of slot schemes or stream policies to the first of them, for each content: the median of
/// all modes. The JSON file has the results of each mode.
pub fn in_short(taken: &Taken) -> String {
    let Some(first) = taken.runs.first() else { return String::new() };
    let subjects = distinct(&items(&first.result, "/subjects"), "name");
    let base = format!("{}, 1000 KB/s", subjects[0]);
    let head = ["content".to_owned(), "threads".to_owned(), base];
    let mut table = Table::new(&[&head, &subjects[1..]].concat());
    for run in &taken.runs {
        let cells = items(&run.result, "/cells");
        for of in cells.chunk_by(|one, other| one["threads"] == other["threads"]) {
            // A row for each mode, with a cell of each subject.
            let modes = of.chunks(subjects.len()).map(|row| {
                row.iter().map(|cell| numbers(&cell["samples"])).collect::<Vec<Vec<f64>>>()
            });
            let modes: Vec<_> = modes.collect();
            let over = |subject: usize| {
                let ratio = |mode: &Vec<Vec<f64>>| median(ratios(&mode[subject], &mode[0]));
                cell(&modes.iter().map(ratio).collect::<Vec<f64>>(), 1.0, 2)
            };
            let rates: Vec<f64> =
                modes.iter().map(|mode| median(mode[0].iter().copied())).collect();
            let threads = of[0]["threads"].to_string();
            let mut row = vec![run.label.clone(), threads, cell(&rates, 1000.0, 0)];
            row.extend((1..subjects.len()).map(over));
            table.row(&row);
        }
    }
    let kernel = text(&first.result, "/kernel_algorithm");
    let kernel = match kernel.is_empty() {
        true => String::new(),
        false => format!(", the kernel's {}", named(kernel, None)),
    };
    table.after(&format!(
        "{}{kernel}. Times {}, within the same repetition: the median of all modes, and how far \
         modes lie apart.",
        named(text(&first.result, "/algorithm"), None),
        subjects[0],
    ))
}

/// Requests a second, one row for each server.
pub fn nbd(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let columns =
        ["server", "writes/s", "reads/s", "p99 write, read, us", "writes, ours times", "reads"];
    let mut table = Table::new(&[&columns[..], &["RSS, MB"]].concat());
    let servers = items(&run.result, "/servers");
    let rounds = |server: &Value, side: &str| numbers(&server[side]["rounds"]);
    for server in &servers {
        let over = |side: &str| {
            let ours = rounds(servers[0], side);
            cell(&ratios(&ours, &rounds(server, side)), 1.0, 2)
        };
        table.row(&[
            text(server, "/name").to_owned(),
            cell(&rounds(server, "write"), 1.0, 0),
            cell(&rounds(server, "read"), 1.0, 0),
            format!(
                "{}, {}",
                number(server, "/write/p99_us", 0),
                number(server, "/read/p99_us", 0)
            ),
            over("write"),
            over("read"),
            format!("{:.0}", server["resident_bytes"].as_f64().unwrap_or(0.0) / 1e6),
        ]);
    }
    table.after(&format!(
        "{}, its nbd engine, 4 KiB random, {} at a time, half-compressible pages. rampack has {}.",
        text(&run.result, "/tool"),
        number(&run.result, "/queue_depth", 0),
        named(rampack::DEFAULT_ALGORITHM, None)
    ))
}

/// Pages a second, one row for each batch size.
pub fn backing(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let mut table = Table::new(&["thousands a second", "one by one", "8", "32", "128"]);
    for rows in items(&run.result, "/rows").chunks(4) {
        let mut cells = vec![format!("{} {}s", text(rows[0], "/way"), text(rows[0], "/direction"))];
        cells.extend(rows.iter().map(|row| cell(&numbers(&row["samples"]), 1000.0, 1)));
        table.row(&cells);
    }
    table.after("4 KiB random direct I/O of crate `backing` on a file, in batches. No codec.")
}
