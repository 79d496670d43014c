//! Minimum, median and maximum.

use std::collections::BTreeMap;

/// Values of one manager in one variant, by name.
pub(crate) type Group = BTreeMap<String, Vec<f64>>;

/// A summary of the runs of one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) minimum: f64,
    pub(crate) median: f64,
    pub(crate) maximum: f64,
    pub(crate) count: usize,
}

impl Summary {
    /// `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            minimum: *sorted.first()?,
            median: quantile(&sorted, 0.5)?,
            maximum: *sorted.last()?,
            count: sorted.len(),
        })
    }
}

/// The value below which this part of the sorted values lies, interpolated.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a position in a short list"
    )]
    let (position, below) = {
        let position = part * last as f64;
        (position, position as usize)
    };
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_odd_even_and_no_values() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]).expect("values");
        assert_eq!((summary.minimum, summary.median, summary.maximum, summary.count), (1.0, 2.0, 3.0, 3));
        assert_eq!(Summary::of(&[1.0, 2.0]).map(|summary| summary.median), Some(1.5));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(quantile(&[0.0, 10.0], 0.99), Some(9.9));
    }
}
