//! Estimators over few repetitions. What is undefined is `None`, never zero.

/// Returns the arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the sample standard deviation (n - 1); `None` for fewer than two values.
pub fn std_dev(values: &[f64]) -> Option<f64> {
    let center = mean(values).filter(|_| values.len() >= 2)?;
    let squares: f64 = values.iter().map(|v| (v - center).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Returns the half-width of the 95 % confidence interval of the mean (Student's t); `None` for fewer than two
/// values. It assumes independent, roughly normal values: use it on means of repetitions, not on
/// single latencies.
pub fn ci95_half_width(values: &[f64]) -> Option<f64> {
    let deviation = std_dev(values)?;
    Some(t_975(values.len() - 1) * deviation / (values.len() as f64).sqrt())
}

/// Half-width of the 95 % confidence interval of the difference of two means (Welch's t); `None` of fewer
/// than two values on either side.
pub fn welch_half_width(one: &[f64], other: &[f64]) -> Option<f64> {
    let part = |values: &[f64]| Some(std_dev(values)?.powi(2) / values.len() as f64);
    let (a, b) = (part(one)?, part(other)?);
    let degrees = |part: f64, n: usize| part.powi(2) / (n - 1) as f64;
    let spread = degrees(a, one.len()) + degrees(b, other.len());
    // Without any noise the number of degrees does not matter.
    let freedom = if spread > 0.0 {
        (a + b).powi(2) / spread
    } else {
        1.0
    };
    Some(t_975((freedom.floor() as usize).max(1)) * (a + b).sqrt())
}

/// The `p` quantile, 0 <= p <= 1, interpolated between the neighbours (type 7 of Hyndman & Fan, the
/// default of R and NumPy); `None` without values, or if a value or `p` is not a number.
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&p) || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = p * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + (place - place.floor()) * (sorted[above] - sorted[below]))
}

/// Returns the median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Median and range of the repetitions of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Summarizes values; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Spread {
            min: quantile(values, 0.0)?,
            median: quantile(values, 0.5)?,
            max: quantile(values, 1.0)?,
        })
    }
}

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom (any statistics textbook).
const T_975: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, //
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, //
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

/// 97.5 % quantile of Student's t with `df` >= 1 degrees of freedom; beyond the table by the
/// Cornish-Fisher expansion (Abramowitz & Stegun 26.7.5), good to four digits there.
fn t_975(df: usize) -> f64 {
    if let Some(t) = df.checked_sub(1).and_then(|i| T_975.get(i)) {
        return *t;
    }
    let (z, n) = (1.959_964_f64, df as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / n + second / (n * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn undefined_is_none() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(std_dev(&[3.0]), None);
        assert_eq!(ci95_half_width(&[3.0]), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
    }

    #[test]
    fn student_t_as_published() {
        let small = [(1, 12.7062), (4, 2.7764), (30, 2.0423)];
        let large = [(40, 2.0211), (60, 2.0003), (120, 1.9799)];
        for (df, t) in small.into_iter().chain(large) {
            assert!((t_975(df) - t).abs() < 1e-4, "{df}: {}", t_975(df));
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // mean 12, s = 2, t(2) = 4.3027: 4.3027 * 2 / sqrt(3)
        let half = ci95_half_width(&[10.0, 12.0, 14.0]).unwrap();
        assert!((half - 4.968).abs() < 1e-3, "{half}");
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.0..1e9_f64, 1..40)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
    }

    proptest! {
        #[test]
        fn mean_and_deviation_agree_with_the_naive_sums(v in values()) {
            let n = v.len() as f64;
            let mut sum = 0.0;
            for x in &v { sum += x; }
            prop_assert!(close(mean(&v).unwrap(), sum / n));
            if v.len() >= 2 {
                // Mean of squared differences of all pairs is twice the variance.
                let mut pairs = 0.0;
                for (i, a) in v.iter().enumerate() {
                    for b in &v[i + 1..] { pairs += (a - b) * (a - b); }
                }
                let naive = (pairs / (n * (n - 1.0))).sqrt();
                prop_assert!(close(std_dev(&v).unwrap(), naive));
            }
        }

        #[test]
        fn the_median_has_half_on_either_side(v in values()) {
            let m = median(&v).unwrap();
            let below = v.iter().filter(|x| **x < m).count();
            let above = v.iter().filter(|x| **x > m).count();
            prop_assert!(2 * below <= v.len() && 2 * above <= v.len());
        }

        #[test]
        fn the_spread_is_in_order_and_reaches_the_ends(v in values()) {
            let s = Spread::of(&v).unwrap();
            prop_assert!(s.min <= s.median && s.median <= s.max);
            prop_assert_eq!(s.min, v.iter().copied().fold(f64::INFINITY, f64::min));
            prop_assert_eq!(s.max, v.iter().copied().fold(0.0, f64::max));
        }

        #[test]
        fn a_quantile_of_a_ramp_is_its_place(n in 2_usize..50, p in 0.0..=1.0_f64) {
            let ramp: Vec<f64> = (0..n).rev().map(|i| i as f64).collect();
            prop_assert!(close(quantile(&ramp, p).unwrap(), p * (n - 1) as f64));
        }
    }
}
