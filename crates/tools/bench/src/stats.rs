//! Medians, and how sure they are.

use adverb_results::stats;

/// Values in order.
pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median; NaN of no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    stats::median(values).unwrap_or(f64::NAN)
}

/// The interval of order statistics that holds the true median with 90 % or more, whatever the
/// distribution (the sign test's); the whole range where there are too few values.
pub(crate) fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len();
    // Leaving out k values at either end misses the median with 2 · P(Binomial(n, ½) ≤ k).
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let (mut at_most, mut left_out) = (term, 0);
    for k in 1..n.div_ceil(2) {
        term *= (n - k + 1) as f64 / k as f64;
        at_most += term;
        if 2.0 * at_most <= 0.10 {
            left_out = k;
        }
    }
    (sorted[left_out], sorted[n - 1 - left_out])
}

/// Mean and standard deviation (of a sample: n - 1); NaN where there are too few values.
pub(crate) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let known = |figure: Option<f64>| figure.unwrap_or(f64::NAN);
    (known(stats::mean(values)), known(stats::std_dev(values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_follows_the_sign_test() {
        let values = |n: u32| sorted((1..=n).map(f64::from));
        // 5 values: P(all on one side) = 2/32 = 6 %, so the whole range holds it with 94 %.
        assert_eq!(median_interval(&values(5)), (1.0, 5.0));
        // 9 values: leaving out one at either end misses with 2 · 10/512 = 4 %; two: 18 %.
        assert_eq!(median_interval(&values(9)), (2.0, 8.0));
        // 25 values: seven with 4.3 %, eight with 10.8 %.
        assert_eq!(median_interval(&values(25)), (8.0, 18.0));
        assert_eq!(median_interval(&values(1)), (1.0, 1.0));
    }

    #[test]
    fn medians_and_deviations() {
        assert_eq!(median(&sorted([3.0, 1.0, 2.0])), 2.0);
        assert_eq!(median(&sorted([4.0, 1.0, 2.0, 3.0])), 2.5);
        let (mean, deviation) = mean_and_deviation(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(mean, 2.5);
        assert!((deviation - 1.290_994).abs() < 1e-6);
    }
}
