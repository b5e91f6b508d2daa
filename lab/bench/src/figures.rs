//! Medians and quantiles of a few thousand figures.

/// The figure below which the given share of the sorted figures lies. NaN for none.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// The figures in ascending order.
#[must_use]
pub fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle figure.
#[must_use]
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(figures), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let figures = sorted([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quantile(&figures, 0.0), 1.0);
        assert_eq!(quantile(&figures, 0.5), 2.5);
        assert_eq!(quantile(&figures, 1.0), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(median([1.0, 2.0, 3.0]), median([1.0, 2.0, 3000.0]));
    }
}
