//! Sets of CPUs in the kernel's notation: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    /// Returns the CPUs that are in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the set of its `n` lowest CPUs.
    pub fn lowest(&self, n: usize) -> CpuSet {
        CpuSet(self.0.iter().take(n).copied().collect())
    }

    /// Whether all of them are in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuSet(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = std::num::ParseIntError;

    /// Parses `0-3,8`. An empty text is the empty set: a node without CPUs.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut cpus = BTreeSet::new();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse()?, last.parse()?);
            cpus.extend(first..=last);
        }
        Ok(CpuSet(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let ranges = ranges.iter().map(|&(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        f.pad(&ranges.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written_as_the_kernel_does() {
        let set: CpuSet = "0-3,8\n".parse().unwrap();
        assert_eq!(set.0.len(), 5);
        assert_eq!(set.to_string(), "0-3,8");
        assert_eq!(set.lowest(2).to_string(), "0-1");
        assert!("".parse::<CpuSet>().unwrap().is_empty());
        assert!("x".parse::<CpuSet>().is_err());
    }
}
