//! Draws groups of bars as an SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 440);
/// The colors of series, in red, green and blue.
const COLORS: [[u8; 3]; 6] =
    [[42, 111, 151], [224, 159, 62], [158, 42, 43], [106, 153, 78], [123, 94, 167], [150; 3]];

/// A bar chart: each group has one bar of each series.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Bars {
    /// What these bars are of, if there are pictures of others.
    pub title: String,
    /// What the groups are.
    pub axis: String,
    /// The unit of the bars.
    pub unit: String,
    /// The groups, from left to right.
    pub groups: Vec<String>,
    /// Names, with one value for each group: no number where there is none.
    pub series: Vec<(String, Vec<f64>)>,
}

impl Bars {
    /// Adds a bar.
    pub fn add(&mut self, group: String, series: String, value: f64) {
        let group = self.groups.iter().position(|it| *it == group).unwrap_or_else(|| {
            self.groups.push(group);
            self.groups.len() - 1
        });
        let series = self.series.iter().position(|(it, _)| *it == series).unwrap_or_else(|| {
            self.series.push((series, Vec::new()));
            self.series.len() - 1
        });
        for (_, values) in &mut self.series {
            values.resize(self.groups.len(), f64::NAN);
        }
        self.series[series].1[group] = value;
    }

    /// The picture.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
        Ok(text)
    }

    fn caption(&self) -> String {
        let of = if self.title.is_empty() { "" } else { ": " };
        format!("{}{of}{}", self.unit, self.title)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let values = self.series.iter().flat_map(|(_, values)| values.iter().copied());
        // The names stand above the bars.
        let above = 1.15 + 0.08 * self.series.len() as f64;
        let top = values.fold(0.0, f64::max) * above + 1e-9;
        let groups = self.groups.len().max(1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.caption(), ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(if self.axis.is_empty() { 32 } else { 48 })
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..groups, 0.0..top)?;
        let label = |place: &f64| {
            // Labels stand in the middle of a group, at half numbers.
            let group = *place as usize;
            let middle = (place.fract() - 0.5).abs() < 1e-6;
            self.groups.get(group).filter(|_| middle).cloned().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .x_labels(self.groups.len() * 2 + 1)
            .x_label_formatter(&label)
            .x_desc(&self.axis)
            .y_label_formatter(&|value| brief(*value).trim_end_matches(".00").to_owned())
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 16))
            .draw()?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (number, (name, values)) in self.series.iter().enumerate() {
            let [red, green, blue] = COLORS[number % COLORS.len()];
            let style = RGBColor(red, green, blue).filled();
            let from = |group: usize| group as f64 + 0.1 + width * number as f64;
            let there = || values.iter().enumerate().filter(|(_, value)| value.is_finite());
            let bars = there().map(|(group, &value)| {
                Rectangle::new([(from(group), 0.0), (from(group) + width * 0.94, value)], style)
            });
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
            // More numbers than these would cover each other.
            if self.series.len() * self.groups.len() <= 28 {
                chart.draw_series(there().map(|(group, &value)| {
                    let place = (from(group), value + top * 0.04);
                    Text::new(brief(value), place, ("sans-serif", 14))
                }))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.4))
            .label_font(("sans-serif", 14))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// A number with two or three digits.
fn brief(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        it if it < 10.0 => format!("{value:.2}"),
        it if it < 1e4 => format!("{value:.0}"),
        it if it < 1e6 => format!("{:.0}k", value / 1e3),
        it if it < 1e9 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_every_series() {
        let bars = Bars {
            title: "a title".to_owned(),
            axis: "fruit".to_owned(),
            unit: "apples".to_owned(),
            groups: vec!["one".to_owned(), "two".to_owned()],
            series: vec![
                ("ours".to_owned(), vec![1.0, 2.0]),
                ("theirs".to_owned(), vec![3.0, 44.0]),
            ],
        };
        let mut text = String::new();
        bars.draw(&mut text).expect("a picture");
        for word in ["apples: a title", "fruit", "one", "two", "ours", "theirs", "44", "</svg>"] {
            assert!(text.contains(word), "{word:?} is missing in {text}");
        }
    }
}
