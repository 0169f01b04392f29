//! The conformance suite on the model, in virtual time. Each case is a test, which runs on all [`PRESETS`]; on iWARP, if
//! it needs nothing that iWARP lacks.
//! The two ends of a connection are on two machines.

use std::cell::Cell;
use std::rc::Rc;

use adverb_conformance::{Board, Fixture, NotSupported, Verdict, case, helpers, judge};
use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_sim::Budget;
use adverb_units::{Span, Time};
use adverb_verbs::RoleId;

/// InfiniBand of three generations, RoCE, and iWARP.
const PRESETS: [&str; 5] = [
    "cx3",
    "mt26428_qdr",
    "connect_ib",
    "cx5_skylake",
    "ammasso_gige",
];

/// What iWARP lacks (RFC 5040).
const NOT_OF_IWARP: [&str; 3] = ["UC queue pairs", "UD queue pairs", "atomic operations"];

/// A budget that no case exhausts.
const BUDGET: Budget = Budget {
    until: Some(Time::from_ps(300_000_000_000_000)),
    events: None,
    real: Some(Span::from_secs(120)),
};

fn run(name: &'static str) {
    for preset in PRESETS {
        let verdict = verdict(preset, name);
        let lacks = matches!(verdict, Err(NotSupported(what)) if NOT_OF_IWARP.contains(&what));
        let lacking = if preset == "ammasso_gige" && lacks {
            &[name][..]
        } else {
            &[]
        };
        judge(name, lacking, verdict);
    }
}

/// Runs a case on two machines of a preset.
fn verdict(preset: &str, name: &'static str) -> Verdict {
    let device = Preset::built_in(preset).expect("a preset");
    let mut cluster = Cluster::new(&device, &[Placement::Cached; 2]);
    let machines = [cluster.machine(0), cluster.machine(1)];
    let (opened, board) = (Rc::new(Cell::new(0)), Board::new());
    let roles = (0..=helpers(name)).map(|number| {
        let (opened, board) = (opened.clone(), board.clone());
        let at = machines[number as usize % 2];
        cluster.spawn(at, &format!("role {number}"), move |station| {
            let open = || {
                let count = opened.replace(opened.get() + 1);
                Ok(station.open(machines[count % 2]))
            };
            let role = RoleId(number);
            (case(name).run)(Fixture::new((station, role), &open, &board))
        })
    });
    let roles: Vec<_> = roles.collect();
    let outcome = cluster.run(&BUDGET);
    assert!(outcome.is_finished(), "{name} on {preset}: {outcome}");
    roles[0].take().expect("the role has ended")
}

adverb_conformance::conformance_tests!(super::run);
