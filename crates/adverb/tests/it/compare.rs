//! `adverb compare`: measurements of a model, which has no noise.

use crate::common::Place;
use serde_json::Value;

fn measure(place: &Place, name: &str, device: &str) {
    std::fs::write(
        place.path(name),
        place
            .run(&format!(
                "ping --op send --size 8,64 --json --device {device}"
            ))
            .ok()
            .out,
    )
    .unwrap();
}

#[test]
fn the_same_is_unchanged_and_another_device_is_refused() {
    let place = Place::new();
    measure(&place, "a", "model:cx3");
    measure(&place, "b", "model:cx3");
    let args = "compare a b --all --fail-on-regression 5 --out page.html";
    let ended = place.run(args).ok();
    assert!(
        ended
            .out
            .contains("2 cells: 0 faster, 0 slower, 2 unchanged"),
        "{}",
        ended.out
    );
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("times as fast"));

    measure(&place, "c", "model:connect_ib");
    let ended = place.run("compare a c");
    assert!(
        ended
            .refused(2)
            .contains("model:cx3 and model:connect_ib are different devices")
    );
    let ended = place.run("compare a nowhere");
    assert!(ended.refused(1).contains("nowhere"));
}

/// `connect` has no repetitions.
#[test]
fn programs_are_compared_by_their_rates() {
    let place = Place::new();
    for side in ["before", "after"] {
        let line = format!("connect --device model:cx3 --json --out {side}");
        place.run(&line).ok();
    }
    let compared = place.run("compare before after --all").ok().out;
    assert!(compared.contains("1.00  unchanged"), "{compared}");
}

#[test]
fn a_regression_fails_and_names_the_worst_cell() {
    let place = Place::new();
    measure(&place, "fast", "model:cx3");
    let slower = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        for repetition in record["metrics"]["repetitions"].as_array_mut().unwrap() {
            let ns = repetition["one_way_ns"].as_f64().unwrap();
            repetition["one_way_ns"] = (2.0 * ns).into();
        }
        format!("{record}\n")
    };
    let fast = std::fs::read_to_string(place.path("fast")).unwrap();
    let slow: String = fast.lines().map(slower).collect();
    std::fs::write(place.path("slow"), slow).unwrap();
    let ended = place.run("compare fast slow --fail-on-regression 10");
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("0.50  slower"), "{}", ended.out);
    assert!(
        ended
            .talk
            .contains("2 of 2 cells became slower by more than 10 %"),
        "{}",
        ended.talk
    );
}

/// A file is replaced at once, which must not happen to what is not a file.
#[test]
fn a_page_goes_through_links_and_into_pipes() {
    let place = Place::new();
    place.run("ping --op send --device model:cx3 --out s").ok();
    let (page, link, pipe) = (
        place.path("page.html"),
        place.path("link"),
        place.path("pipe"),
    );
    std::fs::write(&page, "old").unwrap();
    std::os::unix::fs::symlink("page.html", &link).unwrap();
    place.run("compare s s --out link").ok();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let linked = std::fs::read_to_string(&page).unwrap();
    assert!(linked.contains("<html"));

    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    place.run("compare s s --out pipe").ok();
    assert_eq!(reader.join().unwrap(), linked);
}
