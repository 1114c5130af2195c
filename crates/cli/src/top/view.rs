//! Draws what `rampack top` knows. It fits into 80 columns and 24 lines: what does not fit is cut
//! off, and of many disks those around the chosen one are shown.

use host::printable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use units::{Human, PAGE_SIZE, human};

use super::model::{Disk, Model, Tier};
use crate::columns::algorithm;
use service::latency::Latency;
use service::protocol::{DaemonReport, DeviceReport};
use service::swap::report::{PoolReport, SwapReport};

/// Lines at the end: what was said, and the keys.
const FOOT: usize = 2;
/// The most swap devices that are shown.
const SWAPS: usize = 4;

/// Draws all of it.
pub(super) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    let height = usize::from(area.height);
    let mut lines = head(model);
    let disks = model.disks();
    let place = model.place(&disks);
    let mut below = Vec::new();
    let chosen = place.map(|place| disks[place].report);
    if let Some(report) = model.report() {
        below.extend(swaps(model, report));
        below.extend(chosen.into_iter().flat_map(|disk| tiers(&disk.name, &model.tiers(disk))));
        below.extend(times(report, chosen));
    }
    let room = height.saturating_sub(lines.len() + below.len() + FOOT + 1);
    lines.extend(disk_lines(&disks, place, room));
    lines.extend(below);
    lines.truncate(height.saturating_sub(FOOT));
    lines.resize(height.saturating_sub(FOOT), Line::default());
    lines.push(said(model));
    lines.push(Line::styled(keys(model), Style::new().add_modifier(Modifier::REVERSED)));
    for (line, y) in lines.iter().zip(0..area.height) {
        frame.render_widget(line, Rect { y: area.y + y, height: 1, ..area });
    }
}

fn bold(text: String) -> Line<'static> {
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn alarm(text: String) -> Line<'static> {
    Line::styled(text, Style::new().red().add_modifier(Modifier::BOLD))
}

fn rate(bytes: Option<f64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{}", human(bytes as u64)))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

fn pages(count: u64) -> Human {
    human(count * PAGE_SIZE as u64)
}

fn head(model: &Model) -> Vec<Line<'static>> {
    let Some(report) = model.report() else { return vec![Line::from("no report yet")] };
    let paused = if model.is_paused { "   PAUSED" } else { "" };
    let (root, pid) = (printable(&report.root), report.pid);
    let first = format!("rampack {}   {root}   process {pid}{paused}", report.rampack);
    let (data, memory) = model.saved();
    let saves = match data.checked_sub(memory) {
        Some(saved) => format!("saves {} now", human(saved)),
        None => format!("saves nothing now, takes {} more", human(memory - data)),
    };
    let of = (memory > 0).then(|| data as f64 / memory as f64);
    let saves =
        format!("{saves}: {} in {} of memory, ratio {}", human(data), human(memory), ratio(of));
    let pressure = match model.pressure {
        Some(it) => format!("some {:.2}%, full {:.2}% of 10 s", it.some, it.full),
        None => "not told by this kernel".into(),
    };
    let zone = &report.zone;
    let zone = format!(
        "zone {} of {} free",
        human(zone.free_bytes + zone.cached_bytes),
        human(zone.managed_bytes)
    );
    let pressure = format!("memory pressure: {pressure}   {zone}");
    let mut lines = vec![Line::from(first), bold(saves), Line::from(pressure)];
    if report.is_abandoned {
        lines.push(alarm("NOT KEPT: the devices end with this process".into()));
    }
    if report.zone.bad_frees > 0 {
        lines.push(alarm(format!("{} BAD FREES: please report this", report.zone.bad_frees)));
    }
    lines.push(Line::default());
    lines
}

/// The disks around the chosen one, in at most so many lines and a heading.
fn disk_lines(disks: &[Disk<'_>], place: Option<usize>, room: usize) -> Vec<Line<'static>> {
    let Some(place) = place else { return vec![Line::from("no disks"), Line::default()] };
    let mut lines = vec![bold(format!(
        "  {:<9}{:>7}{:>7}{:>7}{:>6}{:>8}{:>8}{:>8}  {:<9}{}",
        "DISK",
        "SIZE",
        "DATA",
        "MEMORY",
        "RATIO",
        "ON-DISK",
        "READ/s",
        "WRITE/s",
        "ALGORITHM",
        " USE"
    ))];
    let room = room.saturating_sub(1).max(1);
    let first = (place + 1).saturating_sub(room);
    for (n, disk) in disks.iter().enumerate().skip(first).take(room) {
        let mark = if n == place { '>' } else { ' ' };
        let name = &disk.report.name;
        if disk.report.refused.is_some() {
            lines.push(alarm(format!("{mark} {name:<9} could not be taken over")));
            continue;
        }
        let text = format!(
            "{mark} {name:<9}{:>7}{:>7}{:>7}{:>6}{:>8}{:>8}{:>8}  {:<9} {}",
            human(disk.size),
            human(disk.data),
            human(disk.memory),
            ratio(disk.ratio),
            human(disk.on_disk),
            rate(disk.reads),
            rate(disk.writes),
            algorithm(disk.report),
            printable(disk.report.mountpoints.join(","))
        );
        lines.push(if n == place { bold(text) } else { Line::from(text) });
    }
    let hidden = disks.len().saturating_sub(room);
    lines.push(match hidden {
        0 => Line::default(),
        hidden => Line::from(format!("  and {hidden} more")),
    });
    lines
}

fn swaps(model: &Model, report: &DaemonReport) -> Vec<Line<'static>> {
    let Some(first) = report.swaps.first() else { return Vec::new() };
    let mut lines = vec![bold(format!(
        "  {:<9}{:>7}{:>7}{:>7}{:>8}{:>8}  {:<15} {}",
        "SWAP", "SIZE", "USED", "CACHED", "ON-DISK", "FAULTS", "DEVICE", "STATE"
    ))];
    lines.extend(report.swaps.iter().take(SWAPS).map(swap_line));
    if let Some(more) = report.swaps.len().checked_sub(SWAPS).filter(|more| *more > 0) {
        lines.push(Line::from(format!("  and {more} more")));
    }
    if let Some(pool) = &report.swap_cache {
        lines.extend(cache(model, pool));
    }
    let missing: Vec<&str> =
        first.protections.iter().filter(|it| !it.had).map(|it| &*it.name).collect();
    if !missing.is_empty() {
        lines.push(alarm(format!("  NOT PROTECTED: {}", missing.join(", "))));
    }
    lines.push(Line::default());
    lines
}

fn swap_line(swap: &SwapReport) -> Line<'static> {
    Line::from(format!(
        "  {:<9}{:>7}{:>7}{:>7}{:>8}{:>8}  {:<15} {}",
        swap.name,
        human(swap.bytes),
        human(swap.used),
        pages(swap.cached_pages),
        pages(swap.disk_pages),
        swap.serving.minor_faults + swap.serving.major_faults,
        printable(&swap.block_device),
        if swap.active { "on" } else { "off" }
    ))
}

fn cache(model: &Model, pool: &PoolReport) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(format!(
        "  cache: {} in {} of {} memory, ratio {}, {}; recompressed {}",
        pages(pool.stored_pages),
        human(pool.pool_bytes),
        human(pool.limit_bytes),
        ratio(pool.ratio()),
        pool.compressor,
        pages(pool.warm_pages)
    ))];
    let rates = model.pool_rates();
    let of = |part: fn(&super::model::PoolRates) -> f64| rate(rates.as_ref().map(part));
    lines.push(Line::from(format!(
        "  per second: in {}, out {}, written back {}, read back {}, not taken {}",
        of(|it| it.stores),
        of(|it| it.loads),
        of(|it| it.written_back),
        of(|it| it.read_back),
        of(|it| it.refused)
    )));
    if pool.silent_seconds > 0 {
        let seconds = pool.silent_seconds;
        lines.push(alarm(format!("  BACKING DOES NOT ANSWER, for {seconds} seconds")));
    }
    lines
}

fn tiers(disk: &str, tiers: &[Tier<'_>]) -> Vec<Line<'static>> {
    if tiers.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![bold(format!(
        "  {:<16}{:>9}{:>8}{:>8}{:>9}{:>9}",
        format!("TIERS of {disk}"),
        "AGE",
        "PAGES",
        "SAVED",
        "MOVED/s",
        "USED/s"
    ))];
    lines.extend(tiers.iter().map(|tier| {
        let age = match tier.age {
            "-" => "-".into(),
            seconds => format!("{seconds} s"),
        };
        Line::from(format!(
            "  {:<16}{age:>9}{:>8}{:>8}{:>9}{:>9}",
            tier.name,
            pages(tier.pages),
            human(tier.saved),
            rate(tier.moved),
            rate(tier.raised)
        ))
    }));
    lines.push(Line::default());
    lines
}

/// How long requests to the chosen disk and to swap devices take, where they are timed.
fn times(report: &DaemonReport, chosen: Option<&DeviceReport>) -> Vec<Line<'static>> {
    let swaps = report.swaps.iter().take(SWAPS).map(|swap| &swap.name);
    let names = chosen.map(|disk| &disk.name).into_iter().chain(swaps);
    let line = |name: &String| {
        let mut of = report.latencies.iter().filter(|it| it.device == *name).peekable();
        of.peek()?;
        let times: Vec<String> = of.map(time).collect();
        Some(Line::from(format!("  {name:<9} {}", times.join("   "))))
    };
    names.filter_map(line).collect()
}

fn time(latency: &Latency) -> String {
    let within = |percent| match latency.percentile(percent) {
        Some(nanoseconds @ ..1_000_000) => format!("{} us", nanoseconds / 1_000),
        Some(nanoseconds) => format!("{} ms", nanoseconds / 1_000_000),
        None => "longer".into(),
    };
    format!("{}s: p50 {}, p99 {}", latency.operation, within(50), within(99))
}

fn said(model: &Model) -> Line<'static> {
    match &model.error {
        Some(error) => alarm(printable(error)),
        None => Line::from(printable(&model.said)),
    }
}

fn keys(model: &Model) -> String {
    format!(
        "q quit  s sort: {}  p pause  ↑↓ choose  w write back  c recompress  l times",
        model.sort.name()
    )
}
