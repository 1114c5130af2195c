//! Tables of indexes, page allocators, simulations, and programs with too little memory.

use serde_json::Value;

use super::cells::{Table, cell, distinct, float, items, number, numbers, text};
use super::taken::Taken;
use crate::level::named;

/// A thread's nanoseconds for a call, one row for each index.
pub fn index(taken: &Taken) -> String {
    let mut all = String::new();
    for run in &taken.runs {
        let measured = items(&run.result, "/measured");
        let variants = distinct(&measured, "variant");
        let heads = [&["mix".to_owned(), "threads".to_owned()], &variants[..]].concat();
        let mut table = Table::new(&heads);
        for same in measured.chunks(variants.len().max(1)) {
            let mut row = vec![text(same[0], "/mix").to_owned(), same[0]["threads"].to_string()];
            row.extend(same.iter().map(|m| cell(&numbers(&m["samples"]), 1.0, 0)));
            table.row(&row);
        }
        let what = match text(&run.result, "/algorithm") {
            "" => "The index alone, ns of a thread for a call; no codec.".to_owned(),
            codec => format!("In the whole engine, {codec}: ns of a thread for a call."),
        };
        all.push_str(&table.after(&what));
    }
    all
}

/// The situations of `locks-sim` in the table.
const SHOWN: [(&str, &str, &str); 2] = [("spread", "pages", "store"), ("spread", "pages", "load")];

/// The simulation of more threads, after its error.
pub fn locks_sim(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let result = &run.result;
    let mut all = String::new();
    if let Some(errors) = items(result, "/errors").into_iter().find(|e| e["threads"] == 2) {
        all = format!(
            "Its error against two threads, over {} points it was not calibrated on: median {} %, \
             largest {} %, {} points above 25 %. What has a ~ is simulated; in brackets the band \
             if moving a line took half or twice as long. Thousands of pages a second, {}.\n\n",
            errors["points"],
            number(errors, "/median_absolute_error_percent", 1),
            number(errors, "/maximum_absolute_error_percent", 0),
            errors["above_25_percent"],
            named(zcomp::LZ4, None),
        );
    }
    let is = |value: &Value, (workload, content, op): (&str, &str, &str)| {
        value["workload"] == workload
            && text(value, "/content").starts_with(content)
            && value["op"] == op
            && value["streams"] == "percpu"
            && value["shared_counters"] == false
    };
    for shown in SHOWN {
        let checks: Vec<&Value> =
            items(result, "/validation").into_iter().filter(|v| is(v, shown)).collect();
        let predictions: Vec<&Value> =
            items(result, "/predictions").into_iter().filter(|v| is(v, shown)).collect();
        let threads = distinct(&predictions, "threads");
        if threads.is_empty() {
            continue;
        }
        let more = threads.iter().map(|threads| format!("~{threads}"));
        let heads: Vec<String> =
            ["", "1", "2", "error at 2"].map(str::to_owned).into_iter().chain(more).collect();
        let mut table = Table::new(&heads);
        for scheme in distinct(&predictions, "scheme") {
            let check = |threads: u64| {
                checks.iter().find(|v| v["scheme"] == *scheme && v["threads"] == threads)
            };
            let measured = |threads: u64| {
                let rate = |v: &&&Value| v.pointer("/measured/pages_per_s")?.as_f64();
                let rate = check(threads).as_ref().and_then(rate);
                rate.map_or("–".to_owned(), |rate| format!("{:.0}", rate / 1e3))
            };
            let error = check(2)
                .map_or("–".to_owned(), |v| format!("{:+.0} %", float(v, "error_percent")));
            let mut row = vec![scheme.clone(), measured(1), measured(2), error];
            for prediction in predictions.iter().filter(|v| v["scheme"] == *scheme) {
                let band = numbers(&prediction["band"]);
                let end = |n: usize| band.get(n).copied().unwrap_or(f64::NAN) / 1e3;
                row.push(format!(
                    "~{:.0} ({:.0}–{:.0})",
                    float(prediction, "pages_per_s") / 1e3,
                    end(0),
                    end(1)
                ));
            }
            table.row(&row);
        }
        let (workload, content, op) = shown;
        all.push_str(&table.after(&format!("{op}, {content}, {workload}:")));
    }
    all
}

/// Pairs of calls, and the state of the zone after them.
pub fn zone(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let runs = items(&run.result, "/runs");
    let (designs, workloads) = (distinct(&runs, "design"), distinct(&runs, "workload"));
    let find = |design: &str, workload: &str, threads: u64| {
        runs.iter().find(|run| {
            run["design"] == design && run["workload"] == workload && run["threads"] == threads
        })
    };
    let heads: Vec<String> = std::iter::once(String::new()).chain(workloads.clone()).collect();
    let mut pairs = Table::new(&heads);
    let mut locks = Table::new(&["", "held, ns", "waiting, %", "order 0, %", "unmerged"]);
    for design in &designs {
        let control = find(design, &workloads[0], 1).is_some_and(|run| run["control"] == true);
        let name = if control { format!("{design} (control)") } else { design.clone() };
        let mut row = vec![name.clone()];
        for workload in &workloads {
            let pair = |threads| {
                let samples =
                    find(design, workload, threads).map(|r| numbers(&r["pair_ns_samples"]));
                cell(&samples.unwrap_or_default(), 1.0, 1)
            };
            row.push(format!("{}, {}", pair(1), pair(2)));
        }
        pairs.row(&row);
        let both = |key: &str, scale: f64, digits: usize| {
            let one = |workload: &str| {
                let number = find(design, workload, 2).and_then(|run| run[key].as_f64());
                number.map_or("–".to_owned(), |number| format!("{:.digits$}", number * scale))
            };
            format!("{}, {}", one("cross-free"), one("page-fault1"))
        };
        if !control {
            locks.row(&[
                name,
                both("lock_held_ns_per_page", 1.0, 2),
                both("lock_wait_percent", 1.0, 1),
                both("order0_share", 100.0, 2),
                both("unmerged_buddies", 1.0, 0),
            ]);
        }
    }
    let line = number(&run.result, "/line_transfer_ns", 0);
    pairs.after(&format!(
        "ns of a thread for a frame allocated and given back, one thread and two. A line goes from \
         one CPU to the other in {line} ns. No codec."
    )) + &locks.after(
        "Two threads, cross-free and page-fault1: how long the lock is held for a page, how much \
         of the time is spent waiting for it, and what is left of free memory at rest.",
    )
}

/// The errors of the simulation, and its results.
pub fn zone_sim(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let result = &run.result;
    let mut errors = Table::new(&["curve or row of others", "largest error, %"]);
    for curve in items(result, "/errors") {
        errors.row(&[text(curve, "/curve").to_owned(), number(curve, "/worst_error_percent", 0)]);
    }
    for row in items(result, "/seed_rows").into_iter().filter(|row| row["given"] != true) {
        let name = format!("the seed's {}, 112 threads, pages a second", text(row, "/row"));
        errors.row(&[name, number(row, "/error_percent", 0)]);
    }
    let checks = items(result, "/this_machine");
    let of_two = checks.iter().filter(|check| check["threads"] == 2);
    let worst = of_two.map(|check| float(check, "error_percent").abs()).fold(0.0, f64::max);
    errors.row(&["this machine, 2 threads".to_owned(), format!("{worst:.0}")]);
    let predictions = items(result, "/predictions");
    let most = predictions.iter().filter_map(|p| p["threads"].as_u64()).max().unwrap_or(0);
    let mut table = Table::new(&[
        "",
        "demand, ns a page",
        "page-fault1, M pages/s",
        "waiting, %",
        "bare, M pages/s",
        "waiting, %",
    ]);
    for held in items(result, "/designs") {
        let design = text(held, "/design");
        let find = |around: &str| {
            predictions
                .iter()
                .find(|p| p["design"] == design && p["around"] == around && p["threads"] == most)
        };
        let mut row = vec![design.to_owned(), number(held, "/lock_demand_ns_per_page", 2)];
        for around in ["page-fault1", "bare"] {
            let Some(p) = find(around) else { continue };
            let band = numbers(&p["one_socket"]["pages_per_s"]);
            let band = match band[..] {
                [low, high] => format!(" ({:.2}–{:.2})", low / 1e6, high / 1e6),
                _ => String::new(),
            };
            row.push(format!("~{:.2}{band}", float(p, "pages_per_s") / 1e6));
            let waits = float(p, "lock_wait_percent") + float(p, "head_wait_percent");
            row.push(format!("~{waits:.1}"));
        }
        table.row(&row);
    }
    errors.after(
        "Its errors first. No constant was fitted; `rampack-lab zone-sim` prints each with its \
         source.",
    ) + &table.after(&format!(
        "Simulated, {most} threads on two zones, from times under the lock that were measured \
             here. Waiting is for the lock and for heads of lists."
    ))
}

/// Memory that stays behind in a pool.
pub fn churn(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let ratios: Vec<f64> =
        items(&run.result, "/rounds").iter().map(|round| float(round, "ratio")).collect();
    format!(
        "{} rounds, {}, {}: the pool takes {} of a fresh one; at worst {} times. RSS is at \
         worst {} of what the engine says it takes.\n",
        ratios.len(),
        text(&run.result, "/content"),
        named(text(&run.result, "/algorithm"), None),
        cell(&ratios, 1.0, 4),
        number(&run.result, "/worst_ratio", 4),
        number(&run.result, "/worst_rss_over_engine", 3)
    )
}

/// Builds, with the limit of the group at the end.
pub fn kernel_build(taken: &Taken) -> String {
    let Some(run) = taken.runs.first() else { return String::new() };
    let mut table = Table::new(&[
        "swap",
        "runtime, s",
        "user, s",
        "sys, s",
        "limit at the end, MB",
        "pages in",
        "pages out",
        "swap from and to disk, MB",
        "pool at the peak, MB",
    ]);
    let builds = items(&run.result, "/runs");
    for swap in distinct(&builds, "swap") {
        let of: Vec<&&Value> = builds.iter().filter(|b| b["swap"] == *swap).collect();
        let figure = |pointer: &str, scale: f64| {
            let values = of.iter().filter_map(|build| build.pointer(pointer)?.as_f64());
            cell(&values.collect::<Vec<f64>>(), scale, 0)
        };
        let limits: Vec<String> = of
            .iter()
            .map(|build| {
                let raised = build["measured"]["relieved_bytes"].as_f64().unwrap_or(0.0);
                format!("{:.0}", (float(build, "limit_bytes") + raised) / 1e6)
            })
            .collect();
        let late = of.iter().filter(|build| build["outcome"] != "done").count();
        let late = if late == 0 { String::new() } else { format!(", {late} not done") };
        table.row(&[
            swap.clone(),
            figure("/measured/seconds", 1.0) + &late,
            figure("/measured/user_seconds", 1.0),
            figure("/measured/system_seconds", 1.0),
            limits.join(", "),
            figure("/measured/vmstat/pswpin", 1.0),
            figure("/measured/vmstat/pswpout", 1.0),
            format!(
                "{}, {}",
                figure("/measured/swap/disk_read_bytes", 1e6),
                figure("/measured/swap/disk_written_bytes", 1e6)
            ),
            figure("/measured/swap/pool_peak_bytes", 1e6),
        ]);
    }
    table.after(&format!(
        "{}, {} CPUs. The limit is raised where the kernel would end a process.",
        text(&run.result, "/source"),
        run.result["cpus"]
    ))
}
