//! Medians, and the means and deviations that other publications use.

use serde_json::{Value, json};

/// The median; of an even number of values, the mean of the middle two. 0 if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The median. `None` if a value is missing.
pub fn median_of(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values.filter(|values| !values.is_empty()).map(median)
}

/// The least and the greatest value. Zeroes if there are none.
pub fn spread(values: &[f64]) -> [f64; 2] {
    let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    [least, values.iter().copied().reduce(f64::max).unwrap_or(0.0)]
}

/// The times of single reads in microseconds: the median and the 99th percentile, null if there are
/// none.
pub fn percentiles(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
    json!({ "p50": at(50), "p99": at(99) })
}

/// The mean. 0 if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len().max(1) as f64)
}

/// The standard deviation of a sample (divided by n - 1). 0 for fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
        assert_eq!(median_of([Some(1.0), None]), None);
        assert_eq!(median_of([Some(1.0), Some(3.0)]), Some(2.0));
        assert_eq!(median_of([]), None);
    }

    #[test]
    fn spreads() {
        assert_eq!(spread(&[]), [0.0, 0.0]);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), [1.0, 3.0]);
    }

    #[test]
    fn means_and_deviations() {
        assert_eq!(mean(&[]), 0.0);
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(deviation(&[]), 0.0);
        assert_eq!(deviation(&[5.0]), 0.0);
        assert_eq!(deviation(&[1.0, 3.0]), 2.0_f64.sqrt());
        let seed = [1_690_170.94, 1_568_669.52, 1_669_000.0];
        assert!((deviation(&seed) / mean(&seed) - 0.0394).abs() < 1e-3);
    }
}
