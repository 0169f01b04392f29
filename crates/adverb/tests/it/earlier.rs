//! A record that an earlier version wrote, with schema 1.

use crate::common::{Place, records};
use serde_json::Value;

/// As `adverb ping --op send --size 64 --json` printed it at f43aa847940b, without the histogram and four of the
/// five repetitions.
const RECORD: &str = include_str!("../data/schema-1.jsonl");

#[test]
fn a_record_of_schema_1_is_read_resumed_and_compared() {
    let place = Place::new();
    std::fs::create_dir(place.path("old")).unwrap();
    std::fs::write(place.path("old/results.jsonl"), RECORD).unwrap();
    let old: Value = serde_json::from_str(RECORD).unwrap();
    assert_eq!(old["schema"], 1);
    let cell = old["cell"].as_str().unwrap();

    let read = place.run("report old").ok();
    assert_eq!(read.talk, "");
    let table = std::fs::read_to_string(place.path("old/results.csv")).unwrap();
    assert_eq!(table.matches(cell).count(), 1, "{table}");

    let more = place.run("ping --op send --size 64,128 --iters 100 --out old --resume");
    assert_eq!(
        more.ok().out.lines().count(),
        3,
        "title, columns and one row"
    );
    let kept = records(&place.path("old"));
    let what = |record: &Value| {
        (
            record["schema"].as_u64(),
            record["params"]["size_bytes"].as_u64(),
        )
    };
    let expected = [(Some(1), Some(64)), (Some(2), Some(128))];
    assert_eq!(kept.iter().map(what).collect::<Vec<_>>(), expected);
    assert_eq!(kept[0], old);

    let new = place
        .run("ping --op send --size 64 --iters 100 --json")
        .ok();
    std::fs::write(place.path("new"), new.out).unwrap();
    let compared = place.run("compare old new --all").ok();
    assert!(compared.out.contains(cell), "{}", compared.out);
}
