//! Names that were perhaps meant.

/// At most this many are named.
const NEAR: usize = 3;
/// Jaro-Winkler similarity from which a name is near; 0.7 finds one typing error in four letters.
const SIMILAR: f64 = 0.7;

/// The names most like `name`, best first: at most three, none if none is alike.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let mut alike: Vec<(f64, &str)> = known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&lower, &k.to_lowercase()), k))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    alike.truncate(NEAR);
    alike.into_iter().map(|(_, k)| k).collect()
}

/// `; near: a, b`, or nothing.
pub(crate) fn suffix(near: &[impl AsRef<str>]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = near.iter().map(AsRef::as_ref).collect();
    format!("; near: {}", names.join(", "))
}
