//! An estimate as a picture.

use std::error::Error;

use plotters::prelude::*;

use crate::estimate::{ByCodec, ByTier, Report, Stored};

const WIDTH: u32 = 960;
/// The height of a source, and of what is around all of them.
const ROW: u32 = 80;
const AROUND: u32 = 120;
/// The sources with the most memory that have a row.
const ROWS: usize = 20;
const MIB: f64 = (1 << 20) as f64;

/// Draws an SVG: for each source the memory it has now, and what it would take with each codec
/// and, once it is idle, in the tiers `warm` and `cold` of a disk with tiers.
/// The line at the end of a bar is the interval in which the truth is, 95 times of 100. The sum
/// comes first, then the twenty sources with the most memory.
///
/// # Errors
/// The error of the drawing library.
pub fn svg(report: &Report) -> Result<String, Box<dyn Error + '_>> {
    let mut rows = vec![(
        "all".to_owned(),
        report.sum.resident_bytes,
        forms(&report.sum.codecs, &report.sum.tiers),
    )];
    let mut sources: Vec<_> = report.sources.iter().collect();
    sources.sort_by_key(|it| std::cmp::Reverse(it.resident_bytes));
    rows.extend(sources.iter().take(ROWS).map(|it| {
        let name = match it.pid {
            Some(pid) => format!("{} {pid}", it.name),
            None => it.name.rsplit('/').next().unwrap_or(&it.name).to_owned(),
        };
        (name, it.resident_bytes, forms(&it.codecs, &it.tiers))
    }));
    let mut text = String::new();
    draw(&rows, &mut text)?;
    Ok(text)
}

/// The name of a row, its memory, and what that takes in each form.
type Row<'a> = (String, u64, Vec<(String, &'a Stored)>);

fn forms<'a>(codecs: &'a [ByCodec], tiers: &'a [ByTier]) -> Vec<(String, &'a Stored)> {
    let codecs = codecs.iter().map(|it| (it.codec.clone(), &it.stored));
    // The hot tier is the first codec.
    let tiers = tiers.iter().skip(1).map(|it| (format!("idle, {}", it.tier), &it.stored));
    codecs.chain(tiers).collect()
}

fn draw(rows: &[Row<'_>], text: &mut String) -> Result<(), Box<dyn Error>> {
    let height = ROW * rows.len() as u32 + AROUND;
    let area = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = rows.iter().map(|row| row.1).max().unwrap_or(0) as f64 / MIB;
    let count = rows.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption("Memory now, and compressed", ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(170)
        .build_cartesian_2d(0.0..most * 1.25 + 0.1, count..0.0)?;
    let label = |place: &f64| {
        let middle = (place.fract() - 0.5).abs() < 1e-6;
        rows.get(*place as usize).filter(|_| middle).map(|row| row.0.clone()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("MiB")
        .y_labels(rows.len() * 2 + 1)
        .y_label_formatter(&label)
        .draw()?;
    let names: Vec<&str> = rows[0].2.iter().map(|form| form.0.as_str()).collect();
    let bars = names.len() + 1;
    let thick = 0.8 / bars as f64;
    for bar in 0..bars {
        let style = Palette99::pick(bar).filled();
        let of = |row: &Row<'_>| match bar {
            0 => (row.1 as f64, Some(0)),
            n => (row.2[n - 1].1.stored_bytes as f64, row.2[n - 1].1.error_bytes),
        };
        let place = |n: usize| n as f64 + 0.1 + thick * bar as f64;
        let shape = rows.iter().enumerate().map(|(n, row)| {
            let end = of(row).0 / MIB;
            Rectangle::new([(0.0, place(n)), (end, place(n) + thick * 0.92)], style)
        });
        let name = if bar == 0 { "now" } else { names[bar - 1] };
        chart
            .draw_series(shape)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
        chart.draw_series(rows.iter().enumerate().map(|(n, row)| {
            let (bytes, error) = of(row);
            let (end, error) = (bytes / MIB, error.unwrap_or(0) as f64 / MIB);
            let middle = place(n) + thick * 0.46;
            PathElement::new(vec![((end - error).max(0.0), middle), (end + error, middle)], BLACK)
        }))?;
        chart.draw_series(rows.iter().enumerate().map(|(n, row)| {
            let (bytes, error) = of(row);
            let end = (bytes + error.unwrap_or(0) as f64) / MIB + most * 0.01;
            let text = format!("{:.1}", bytes / MIB);
            Text::new(text, (end, place(n)), ("sans-serif", 12))
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.4))
        .label_font(("sans-serif", 14))
        .draw()?;
    area.present()?;
    Ok(())
}
