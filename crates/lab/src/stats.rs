//! Medians and spreads.

use serde::Serialize;

/// What several runs of one measure come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// Every value, in the order of the runs.
    pub runs: Vec<f64>,
}

impl Summary {
    /// Sums up `runs`; none if there is no run.
    pub fn of(runs: Vec<f64>) -> Option<Self> {
        let sorted = sorted(&runs);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Summary {
            median: quantile(&sorted, 0.5)?,
            min,
            max,
            runs,
        })
    }

    /// Half the distance between the extremes, as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / 2.0 / self.median.abs()
        }
    }
}

/// The values in rising order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The `q`-quantile of sorted values, linear between neighbours.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
}

/// The value at each percent of sorted values, as a plot's points.
pub fn curve(sorted: &[f64]) -> Vec<(f64, f64)> {
    (0..=100)
        .filter_map(|percent| {
            let percent = f64::from(percent);
            Some((percent, quantile(sorted, percent / 100.0)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_middle_and_the_ends() {
        let summary = Summary::of(vec![3.0, 1.0, 10.0]).unwrap();
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 3.0, 10.0));
        assert_eq!(Summary::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Summary::of(Vec::new()), None);
        assert!((summary.spread() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = sorted(&[4.0, 1.0, 2.0, 3.0, 5.0]);
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.875), Some(4.5));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
