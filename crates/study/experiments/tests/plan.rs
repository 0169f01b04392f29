//! The plan of a study: which cells it has, and how long it takes.

mod common;

use std::collections::BTreeSet;

use adverb_experiments::{FigureId, Plan, Ports, Profile, figures};
use adverb_units::Span;
use adverb_verbs::DeviceCaps;
use adverb_workload::pair::CellSpec;

fn id(figure: &str) -> FigureId {
    figure.parse().unwrap()
}

/// A quick plan of these figures, or of all.
fn quick(only: &[FigureId], ports: Ports) -> Plan {
    Plan::study(Profile::Quick, only, (&DeviceCaps::MODEST, ports))
}

#[test]
fn ids_are_unique_and_every_cell_can_run() {
    for profile in [Profile::Quick, Profile::Full] {
        let plan = Plan::study(profile, &[], (&DeviceCaps::MODEST, Ports::Impairing));
        let mut ids: Vec<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), plan.cells.len());
        for cell in &plan.cells {
            assert_eq!(cell.validate(&DeviceCaps::MODEST), Ok(()), "{}", cell.id);
        }
    }
}

#[test]
fn every_figure_has_cells_alone_and_together() {
    let all = quick(&[], Ports::Impairing);
    for figure in figures().map(|figure| id(figure.spec.id)) {
        let alone = quick(&[figure], Ports::Impairing);
        assert!(!alone.cells.is_empty(), "{figure}");
        let ids = |plan: &Plan| -> BTreeSet<String> {
            let cells = plan.cells.iter();
            let shown = cells.filter(|c| c.figures.iter().any(|id| id == figure.as_str()));
            shown.map(|c| c.id.clone()).collect()
        };
        assert_eq!(ids(&alone), ids(&all), "{figure}");
    }
}

#[test]
fn quick_takes_about_three_minutes() {
    let passes = Profile::Quick.repetitions();
    let plan = quick(&[], Ports::Plain).in_passes(passes);
    assert!(plan.cells.iter().all(|cell| cell.params.repetitions == 1));
    let estimate = plan.estimate() * u64::from(passes);
    let three_minutes = Span::from_secs(120)..Span::from_secs(200);
    assert!(three_minutes.contains(&estimate), "{estimate}");
}

#[test]
fn loss_takes_seconds_and_only_where_ports_lose_packets() {
    assert_eq!(quick(&[id("loss")], Ports::Plain).cells, []);
    let plan = quick(&[id("loss")], Ports::Impairing);
    let is_lossy = |cell: &CellSpec| cell.params.path.impairment.is_some();
    assert!(plan.cells.iter().all(is_lossy));
    assert!(plan.estimate() < Span::from_secs(15));
    let id = "blast/write/65536/plain/poll/b16/single/all/timeout=14/loss=0.05";
    assert!(plan.cells.iter().any(|c| c.id == id), "{plan:?}");
}

#[test]
fn full_reaches_the_limits() {
    let plan = Plan::study(Profile::Full, &[], (&DeviceCaps::MODEST, Ports::Plain));
    for id in [
        "ping/send/1/plain/poll/all",
        "ping/write-imm/67108864/plain/event/all",
        "blast/read/268435456/plain/poll/b1/single/all",
        "blast/write/16/inline/poll/b256/list/periodic",
    ] {
        assert!(plan.cells.iter().any(|c| c.id == id), "{id}");
    }
}

#[test]
fn a_device_without_inline_gets_no_inline_cells() {
    let caps = DeviceCaps {
        max_inline_data: 0,
        ..DeviceCaps::MODEST
    };
    let plan = Plan::study(Profile::Quick, &[], (&caps, Ports::Plain));
    assert!(!plan.cells.is_empty());
    assert!(plan.cells.iter().all(|c| !c.params.inline));
}

#[test]
fn the_same_plan_twice_is_the_same() {
    assert_eq!(quick(&[], Ports::Plain), quick(&[], Ports::Plain));
}
