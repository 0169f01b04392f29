//! Suggestions for misspelled names.

/// Largest number of suggestions.
const NEAR: usize = 3;
/// Smallest Jaro-Winkler similarity of a suggestion; 0.7 finds one typing error in four letters.
const SIMILAR: f64 = 0.7;

/// Returns up to three names that are most similar to `name`, best first.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let lower = name.to_lowercase();
    let mut alike: Vec<(f64, &str)> = known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&lower, &k.to_lowercase()), k))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    alike.truncate(NEAR);
    alike.into_iter().map(|(_, k)| k.to_owned()).collect()
}

/// `; near: a, b`, or nothing.
pub(crate) fn suffix(near: &[String]) -> String {
    match near {
        [] => String::new(),
        _ => format!("; near: {}", near.join(", ")),
    }
}
