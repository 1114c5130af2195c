//! The study as a picture: rates and waiting over threads, a curve for each design.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::study::{Around, Prediction, Study};

const SIZE: (u32, u32) = (1500, 560);

/// A part of the picture.
struct Panel {
    title: &'static str,
    around: Around,
    of: fn(&Prediction) -> f64,
    /// Whether the measurements of this machine belong there.
    measured: bool,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "page-fault1: M pages/s",
        around: Around::PageFault1,
        of: |prediction| prediction.pages_per_s / 1e6,
        measured: false,
    },
    Panel {
        title: "page-fault1: % waiting for lock and heads",
        around: Around::PageFault1,
        of: |prediction| prediction.lock_wait_percent + prediction.head_wait_percent,
        measured: false,
    },
    Panel {
        title: "bare: M pages/s",
        around: Around::Bare,
        of: |prediction| prediction.pages_per_s / 1e6,
        measured: true,
    },
];

/// Writes the picture.
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
    let title = "Zones over threads: dashed curves are simulated, filled marks are measured";
    let area = area.titled(title, ("sans-serif", 22))?;
    for (panel, place) in PANELS.iter().zip(area.split_evenly((1, PANELS.len()))) {
        draw_panel(study, panel, &place)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel(
    study: &Study,
    panel: &Panel,
    place: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let curve = |design: &str| -> Vec<(f64, f64)> {
        let is = |p: &&Prediction| p.design == design && p.around == panel.around;
        let all = study.predictions.iter().filter(is);
        let mut points: Vec<_> = all.map(|p| (p.threads as f64, (panel.of)(p))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let curves: Vec<_> = study.held.iter().map(|held| (held, curve(&held.design))).collect();
    let points = || curves.iter().flat_map(|(_, curve)| curve);
    let most = points().map(|point| point.0).fold(2.0, f64::max);
    let top = points().map(|point| point.1).fold(0.01, f64::max);
    let mut chart = ChartBuilder::on(place)
        .caption(panel.title, ("sans-serif", 17))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(52)
        .build_cartesian_2d((0.9..most * 1.15).log_scale(), 0.0..top * 1.25)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|threads| format!("{threads:.0}"))
        .draw()?;
    for (number, (held, curve)) in curves.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let dashes = DashedLineSeries::new(curve.clone(), 6, 4, color.stroke_width(2));
        chart
            .draw_series(dashes)?
            .label(held.design.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], color.filled()));
        chart.draw_series(curve.iter().map(|&point| Circle::new(point, 3, color)))?;
        let measured = held.measured.iter().filter(|_| panel.measured);
        let marks = measured.map(|point| (point.threads as f64, point.pages_per_s / 1e6));
        chart.draw_series(marks.map(|point| Circle::new(point, 5, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.7))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}
