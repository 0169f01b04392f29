use std::collections::BTreeSet;

use super::*;
use crate::numa::STUDY;
use crate::programs::testing::shown;

const MODEL: Abilities = Abilities {
    switches: 2,
    ..Abilities::MODEL
};

#[test]
fn a_model_fills_all_figures_and_measures_each_cell_once() {
    let points = plan(Profile::Full, MODEL);
    let all = STUDY.figures.iter().map(|figure| figure.id);
    // That one is of this machine.
    let all: BTreeSet<&str> = all.filter(|id| *id != NODES.id).collect();
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

#[test]
fn memory_is_measured_from_each_node_and_atomics_only_where_there_are_some() {
    let verbs = Abilities {
        is_virtual: false,
        atomics: false,
        nodes: &[0, 2],
        ..MODEL
    };
    let pairs = |profile| -> Vec<(u64, u64)> {
        let points = plan(profile, verbs).into_iter();
        let nodes = points.filter(|point| point.program == "nodes");
        let of = |point: Point| ["cpu_node", "memory_node"].map(|name| point.params[name].as_u64());
        nodes
            .map(|point| match of(point) {
                [Some(cpus), Some(memory)] => (cpus, memory),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(pairs(Profile::Quick), [(0, 0), (0, 2)]);
    assert_eq!(pairs(Profile::Full), [(0, 0), (0, 2), (2, 0), (2, 2)]);
    assert!(!shown(&plan(Profile::Quick, verbs)).contains(SYNC.id));
    let left_out: Vec<String> = STUDY
        .left_out(&verbs)
        .map(|part| part.what.to_string())
        .collect();
    assert_eq!(left_out, [format!("Beyond ({})", SYNC.title)]);
}
