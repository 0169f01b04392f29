use std::collections::BTreeSet;

use super::*;
use crate::numa::STUDY;
use crate::programs::testing::{self, shown};

const MODEL: Abilities = Abilities {
    switches: 2,
    ..testing::MODEL
};

#[test]
fn a_model_fills_all_figures_and_measures_each_cell_once() {
    let points = plan(Profile::Full, MODEL);
    let all: BTreeSet<&str> = STUDY.figures.iter().map(|figure| figure.id).collect();
    assert_eq!(shown(&points), all);
    for (place, point) in points.iter().enumerate() {
        let same = |other: &Point| {
            other.job == point.job
                || other.params == point.params
                    && other.program == point.program
                    && other.job.path() == point.job.path()
        };
        assert!(!points[..place].iter().any(same), "{}", point.params);
    }
}

#[test]
fn a_machine_with_one_node_gets_no_cells_about_nodes() {
    let soft = Abilities {
        is_virtual: false,
        sockets: false,
        other_node: false,
        cpus: 2,
        ..MODEL
    };
    let points = plan(Profile::Quick, soft);
    let names_node = |point: &Point| {
        let params = point.params.as_object().unwrap();
        params.keys().any(|name| name.starts_with("numa_"))
    };
    assert!(!points.iter().any(names_node));
    assert!(shown(&points).contains(WORKERS.id));
    assert!(
        points
            .iter()
            .all(|point| point.params["clients"].as_u64() <= Some(2))
    );
}
