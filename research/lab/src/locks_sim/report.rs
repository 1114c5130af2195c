//! The results of a study: as text and as JSON.

use std::fmt::Write;
use std::iter;

use serde_json::{Value, json};

use super::schemes::{Op, SCHEMES};
use super::study::{Check, Prediction, Row, Study};
use crate::args::LocksSimArgs;
use crate::statistics::median;
use crate::table;

/// A larger error, in percent, is pointed out.
const LARGE: f64 = 25.0;
/// A lock or line that is in use for less of the time is no bottleneck.
const IDLE: f64 = 0.2;

/// The errors of the simulation.
pub struct Errors {
    /// The median of the absolute errors, in percent.
    pub median: f64,
    /// The largest absolute error, in percent.
    pub maximum: f64,
    /// The row of the largest error.
    pub of: String,
    /// Number of errors.
    pub count: usize,
    /// Number of errors above 25 %.
    pub large: usize,
}

/// The errors at `threads` threads of the rows that `counts` accepts.
pub fn errors(study: &Study, threads: usize, counts: impl Fn(&Row) -> bool) -> Errors {
    let mut sizes = Vec::new();
    let (mut maximum, mut of) = (0.0, String::new());
    for row in study.rows.iter().filter(|row| counts(row)) {
        for check in row.checks.iter().filter(|check| check.threads == threads) {
            let size = check.error_percent.abs();
            sizes.push(size);
            if size >= maximum {
                (maximum, of) = (size, name(row));
            }
        }
    }
    let (count, large) = (sizes.len(), sizes.iter().filter(|size| **size > LARGE).count());
    Errors { median: median(sizes), maximum, of, count, large }
}

fn name(row: &Row) -> String {
    let cell = &row.cell;
    let mut name = format!(
        "{} {} {} {}",
        cell.workload.name(),
        cell.content.name(),
        cell.op.name(),
        cell.scheme.name
    );
    let variant = cell.variant();
    if !variant.is_empty() {
        let _ = write!(name, ", {variant}");
    }
    name
}

/// All results as one object.
pub fn json(study: &Study, args: &LocksSimArgs) -> Value {
    let of = |row: &Row| {
        let cell = &row.cell;
        json!({
            "workload": cell.workload.name(),
            "content": cell.content.name(),
            "op": cell.op.name(),
            "scheme": cell.scheme.name,
            "shared_counters": cell.shared_counters,
            "streams": cell.streams.name(),
        })
    };
    let with = |row: &Row, rest: Value| {
        let mut all = of(row);
        if let (Value::Object(all), Value::Object(rest)) = (&mut all, rest) {
            all.extend(rest);
        }
        all
    };
    let check = |row: &Row, check: &Check| {
        let measured = json!({
            "threads": check.threads,
            "measured": { "simulated": false, "pages_per_s": check.measured },
            "simulation": {
                "simulated": true,
                "pages_per_s": check.simulated_pages_per_s,
                "confidence": check.confidence,
            },
            "turns": check.turns,
            "error_percent": check.error_percent,
            "large_error": check.error_percent.abs() > LARGE,
        });
        with(row, measured)
    };
    let summary = |threads| {
        let errors = errors(study, threads, |_| true);
        json!({
            "threads": threads,
            "points": errors.count,
            "median_absolute_error_percent": errors.median,
            "maximum_absolute_error_percent": errors.maximum,
            "maximum_at": errors.of,
            "above_25_percent": errors.large,
        })
    };
    let validation: Vec<Value> =
        study.rows.iter().flat_map(|row| row.checks.iter().map(|c| check(row, c))).collect();
    let predictions: Vec<Value> = study
        .rows
        .iter()
        .flat_map(|row| row.predictions.iter().map(|p| with(row, json!(p))))
        .collect();
    json!({
        "seed": args.seed,
        "contents": study.contents,
        "mean_object_bytes": study.mean_length,
        "primitives": study.primitives,
        "sections": study.sections,
        "two_threads_on_devices_of_their_own": study.beside,
        "errors": [summary(1), summary(2)],
        "validation": validation,
        "predictions": predictions,
    })
}

/// The results as text: the errors first, then the simulation.
pub fn text(study: &Study, args: &LocksSimArgs) -> String {
    let mut text = String::new();
    let _ = measured(&mut text, study, args);
    let _ = validation(&mut text, study);
    let _ = predictions(&mut text, study);
    text
}

fn measured(text: &mut String, study: &Study, args: &LocksSimArgs) -> std::fmt::Result {
    let cost = &study.primitives;
    writeln!(text, "Pages: {}; objects of {:.0} bytes", study.contents, study.mean_length)?;
    writeln!(text, "Seed {}, {} round(s); medians, in ns\n", args.seed, args.repeat)?;
    let mut table = table::unnamed();
    for (what, ns) in [
        ("atomic instruction on a line one has", cost.rmw_local_ns),
        ("on a line the other CPU has changed", cost.rmw_remote_ns),
        ("on a line both CPUs have", cost.rmw_shared_ns),
        ("on a line just read, that it has changed", cost.rmw_after_read_ns),
        ("reading a line the other CPU has changed", cost.read_remote_ns),
        ("reading a line that the other has read since", cost.reread_ns),
        ("one of many in a row, read", cost.read_row_ns),
        ("one of many in a row, written", cost.write_row_ns),
        ("a turn of a spinning loop", cost.pause_ns),
        ("a system call", cost.system_call_ns),
        ("cpu, reader and counter of an operation", study.sections.outside_ns),
        ("a slot of the pool taken", study.sections.pool_store_ns),
        ("and left", study.sections.pool_free_ns),
    ] {
        table.add_row([what.to_owned(), format!("{ns:.1}")]);
    }
    for wake in &cost.wakes {
        let what = format!("waking after {:.1} us: the waker, then latency", wake.asleep_ns / 1e3);
        table.add_row([what, format!("{:.0}", wake.waker_ns), format!("{:.0}", wake.latency_ns)]);
    }
    for slots in &study.sections.tables {
        let what = format!("slot table {}: load, update", slots.scheme);
        table.add_row([what, format!("{:.1}", slots.load_ns), format!("{:.1}", slots.update_ns)]);
    }
    for beside in &study.beside {
        let what = format!("{} {}, two devices: longer by", beside.content, beside.op);
        table.add_row([what, format!("{:.2}x", beside.factor)]);
    }
    text.push_str(&table::text(table, &[0]));
    Ok(())
}

fn validation(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(text, "\nThe simulation beside the engine; thousands of pages a second")?;
    writeln!(
        text,
        "(simulated numbers have a ~; one thread is what it is calibrated by, two test it)\n"
    )?;
    for threads in [1, 2] {
        let Errors { median, maximum, of, count, large } = errors(study, threads, |_| true);
        writeln!(
            text,
            "{threads} thread(s), {count} points: median error {median:.1} %, largest \
             {maximum:.1} % ({of}), above {LARGE:.0} %: {large}"
        )?;
    }
    for op in Op::ALL {
        let Errors { median, maximum, count, .. } = errors(study, 2, |row| row.cell.op == op);
        let name = op.name();
        writeln!(
            text,
            "  2 threads, {name:5}: {count} points, median {median:.1} %, largest {maximum:.1} %"
        )?;
    }
    let one_and_two =
        ["1 thread", "simulated", "error", "2 threads", "simulated", "error"].into_iter();
    let mut table = table::table(iter::once("").chain(one_and_two));
    for row in study.rows.iter().filter(|row| !row.checks.is_empty()) {
        let cells = row.checks.iter().flat_map(|check| {
            let (measured, simulated) = (check.measured / 1e3, check.simulated_pages_per_s / 1e3);
            let mark = if check.error_percent.abs() > LARGE { "% !" } else { "%  " };
            let error = format!("{:+.1}{mark}", check.error_percent);
            [format!("{measured:.0}"), format!("~{simulated:.0}"), error]
        });
        table.add_row(iter::once(name(row)).chain(cells));
    }
    writeln!(text, "\n{}", table::text(table, &[0]).trim_end())?;
    writeln!(text, "!: off by more than {LARGE:.0} %: do not build on what is simulated of it")
}

fn predictions(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(
        text,
        "\nSimulated, all of it: thousands of pages a second on as many CPUs as threads, of one \
         socket.\nIn brackets with transfers of lines at half and at twice their cost; two sockets \
         would make\nthem dearer than that for half of the threads. Then by {}, and the busiest \
         lock or line.\n",
        SCHEMES[0].name
    )?;
    for row in &study.rows {
        let doubtful =
            row.checks.iter().any(|check| check.threads == 2 && check.error_percent.abs() > LARGE);
        let remark = match (doubtful, row.checks.is_empty()) {
            (true, _) => " (see the error above)",
            (_, true) => " (not measured: nothing tells how right this is)",
            _ => "",
        };
        writeln!(text, "{}{remark}", name(row))?;
        let mut table = table::unnamed();
        for prediction in &row.predictions {
            table.add_row(cells(prediction));
        }
        text.push_str(&table::text(table, &[5]));
    }
    Ok(())
}

fn cells(prediction: &Prediction) -> [String; 6] {
    let Prediction { threads, band: [low, high], .. } = prediction;
    let rate = format!("~{:.0}", prediction.pages_per_s / 1e3);
    let margin = 100.0 * prediction.confidence / prediction.pages_per_s.max(1.0);
    let band = format!("[~{:.0} ~{:.0}]", low / 1e3, high / 1e3);
    let ratio = prediction.over_base.map_or("-".to_owned(), |ratio| format!("~{ratio:.2}x"));
    let bottleneck = if prediction.utilisation < IDLE {
        "none: the CPUs".to_owned()
    } else {
        format!("{} ({:.0} % busy)", prediction.bottleneck, prediction.utilisation * 100.0)
    };
    let asleep = match prediction.asleep {
        asleep if asleep >= 0.01 => format!(", asleep {:.0} %", asleep * 100.0),
        _ => String::new(),
    };
    let (threads, margin) = (format!("  {threads:4}"), format!("±{margin:.1}%"));
    [threads, rate, margin, band, ratio, bottleneck + &asleep]
}
