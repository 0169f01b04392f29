//! How well published values support the presets that come with Adverb.

use std::fmt;

/// Lines of a preset's name, published values, fitted values, typical and worst deviation in percent, as `adverb
/// model validate --support` prints them. A test compares them with the model.
const TABLE: &str = include_str!("../../presets/support.csv");

/// Published values of a preset's hardware, and how far the predictions are from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Support {
    /// Published values to which no parameter was fitted.
    pub values: u32,
    /// Published values to which parameters were fitted.
    pub fitted: u32,
    /// Median of |prediction / published value - 1| over `values`, in percent.
    pub typical_percent: f64,
    /// The largest one.
    pub worst_percent: f64,
}

impl Support {
    /// Returns the support of a preset that comes with Adverb; of no values if none are published.
    pub fn of(preset: &str) -> Self {
        let mut lines = TABLE.lines().skip(1).map(|line| line.split(','));
        let found = lines.find_map(|mut cells| (cells.next() == Some(preset)).then_some(cells));
        let parsed = found.and_then(|mut cells| {
            Some(Support {
                values: cells.next()?.parse().ok()?,
                fitted: cells.next()?.parse().ok()?,
                typical_percent: cells.next()?.parse().ok()?,
                worst_percent: cells.next()?.parse().ok()?,
            })
        });
        parsed.unwrap_or_default()
    }
}

impl fmt::Display for Support {
    /// `19 published values, typically 1.7 % off, at worst 31 %; fitted to 4 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |n: u32| match n {
            0 => "no published value".to_owned(),
            1 => "1 published value".to_owned(),
            n => format!("{n} published values"),
        };
        let (typical, worst) = (self.typical_percent, self.worst_percent);
        write!(f, "{}", values(self.values))?;
        match self.values {
            0 => {}
            1 => write!(f, ", {worst} % off")?,
            _ => write!(f, ", typically {typical} % off, at worst {worst} %")?,
        }
        match self.fitted {
            0 => Ok(()),
            n => write!(f, "; fitted to {}", values(n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::names;

    #[test]
    fn the_table_names_presets_and_has_numbers() {
        for line in TABLE.lines().skip(1) {
            let name = line.split(',').next().unwrap();
            assert!(names().contains(&name), "{line}");
            let Support { values, fitted, .. } = Support::of(name);
            assert!(values + fitted > 0, "{line}");
        }
        assert_eq!(Support::of("mine").to_string(), "no published value");
    }
}
