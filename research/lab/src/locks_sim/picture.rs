//! The study as a picture: a panel for each situation, a curve for each scheme.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::schemes::{Content, Op, SCHEMES, Workload};
use super::study::{Row, Study};

const SIZE: (u32, u32) = (1500, 1480);

/// Draws pages a second over threads: filled marks are measured, dashed lines simulated.
///
/// # Errors
/// The file cannot be written.
pub fn write(study: &Study, path: &Path) -> Result<()> {
    let mut text = String::new();
    draw(study, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn draw(study: &Study, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let title = "Pages a second over threads: marks are measured, dashed curves are simulated";
    let area = area.titled(title, ("sans-serif", 22))?;
    let panels = area.split_evenly((4, 3));
    let kinds = Workload::ALL.iter().flat_map(|workload| {
        Content::ALL.iter().flat_map(move |content| Op::ALL.map(|op| (*workload, *content, op)))
    });
    for ((workload, content, op), panel) in kinds.zip(&panels) {
        let rows: Vec<&Row> = study
            .rows
            .iter()
            .filter(|row| row.cell.variant().is_empty())
            .filter(|row| (row.cell.workload, row.cell.content) == (workload, content))
            .filter(|row| row.cell.op == op)
            .collect();
        let curves: Vec<Vec<(f64, f64)>> = rows.iter().map(|row| curve(row)).collect();
        let points = || curves.iter().flatten();
        let most_threads = points().map(|point| point.0).fold(2.0, f64::max);
        let (low, high) = points()
            .fold((f64::MAX, 1.0), |(low, high), point| (point.1.min(low), point.1.max(high)));
        let low = low.clamp(1.0, high);
        let title = format!("{}, {}, {}", workload.name(), content.name(), op.name());
        let mut chart = ChartBuilder::on(panel)
            .caption(title, ("sans-serif", 17))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (0.9..most_threads * 1.15).log_scale(),
                (low * 0.7..high * 1.4).log_scale(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|threads| format!("{threads:.0}"))
            .y_label_formatter(&|rate| format!("{:.0}k", rate / 1e3))
            .draw()?;
        for (row, curve) in rows.iter().zip(curves) {
            let number = SCHEMES.iter().position(|scheme| *scheme == row.cell.scheme).unwrap_or(0);
            let color = Palette99::pick(number).to_rgba();
            let dashes = DashedLineSeries::new(curve.clone(), 6, 4, color.stroke_width(2));
            chart.draw_series(dashes)?.label(row.cell.scheme.name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 4), (x + 10, y + 4)], color.filled())
            });
            let simulated = curve.iter().map(|&point| Circle::new(point, 3, color));
            chart.draw_series(simulated)?;
            let measured = row.checks.iter().map(|check| (check.threads as f64, check.measured));
            chart.draw_series(measured.map(|point| Circle::new(point, 5, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.7))
            .label_font(("sans-serif", 11))
            .draw()?;
    }
    area.present()?;
    Ok(())
}

/// The simulated points of a row.
fn curve(row: &Row) -> Vec<(f64, f64)> {
    let checks = row.checks.iter().map(|check| (check.threads, check.simulated_pages_per_s));
    let beyond = row.predictions.iter().map(|other| (other.threads, other.pages_per_s));
    let mut points: Vec<(usize, f64)> = checks.chain(beyond).collect();
    points.sort_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    points.into_iter().map(|(threads, rate)| (threads as f64, rate.max(1.0))).collect()
}
