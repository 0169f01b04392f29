//! The conformance suite on the model, in virtual time.
//!
//! ```console
//! $ cargo test -p adverb-hwmodel --test conformance
//! $ cargo test -p adverb-hwmodel --test conformance -- --preset cx3 rnr::
//! ```
//!
//! The two ends of a connection are on two machines. What the model lacks, and where it departs from
//! the rules, is listed in `known`; anything else that fails, and anything listed that passes, fails
//! the run.

mod known;

use std::cell::{Cell, RefCell};
use std::panic;
use std::process::ExitCode;
use std::rc::Rc;

use adverb_conformance::known::{Judgement, Outcome};
use adverb_conformance::{Board, Fixture, NotSupported, case, helpers, names};
use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_sim::{Budget, Outcome as Ending};
use adverb_units::{Span, Time};
use adverb_verbs::RoleId;
use known::KNOWN;

/// InfiniBand of three generations, RoCE, and iWARP.
const PRESETS: [&str; 5] = [
    "cx3",
    "mt26428_qdr",
    "connect_ib",
    "cx5_skylake",
    "ammasso_gige",
];

/// More than any case needs.
const BUDGET: Budget = Budget {
    until: Some(Time::from_ps(300_000_000_000_000)),
    events: None,
    real: Some(Span::from_secs(120)),
};

fn main() -> ExitCode {
    let (mut presets, mut filters) = (Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--preset" => presets.extend(args.next()),
            "--list" => return ExitCode::SUCCESS,
            option if option.starts_with('-') => {}
            filter => filters.push(filter.to_owned()),
        }
    }
    if presets.is_empty() {
        presets = PRESETS.map(str::to_owned).to_vec();
    }
    panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|first| {
            first.get_or_insert_with(|| info.to_string());
        });
    }));
    let failed = std::thread::scope(|scope| {
        let runs = presets
            .iter()
            .map(|name| scope.spawn(|| run(name, &filters)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().any(|run| run.join().unwrap_or(true))
    });
    ExitCode::from(u8::from(failed))
}

/// Runs the cases whose names have one of `filters`, all where there is none; whether one ended otherwise
/// than is known.
fn run(preset: &str, filters: &[String]) -> bool {
    let device = Preset::built_in(preset).unwrap_or_else(|error| panic!("{error}"));
    let (mut passed, mut departing, mut failed) = (0, 0, 0);
    let wanted =
        |name: &&'static str| filters.is_empty() || filters.iter().any(|f| name.contains(f));
    for name in names().into_iter().filter(wanted) {
        let of_case = KNOWN.iter().find(|known| known.case == name);
        let judgement = Judgement::of(outcome(&device, name), of_case);
        match &judgement {
            Judgement::Passed => passed += 1,
            it if it.is_failure() => failed += 1,
            _ => departing += 1,
        }
        if !matches!(judgement, Judgement::Passed) {
            println!("model:{preset} {name}: {judgement}");
        }
    }
    for known in KNOWN.iter().filter(|known| !names().contains(&known.case)) {
        println!(
            "model:{preset}: FAILED: {} is listed, but there is no such case",
            known.case
        );
        failed += 1;
    }
    let counts = format!("{passed} passed, {departing} known departures");
    match failed {
        0 => eprintln!("ok: conformance on model:{preset}: {counts}"),
        _ => eprintln!("FAILED: conformance on model:{preset}: {counts}, {failed} failed"),
    }
    failed > 0
}

thread_local! {
    /// What the first panic of a case said.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one case on two machines.
fn outcome(preset: &Preset, name: &'static str) -> Outcome {
    let mut cluster = Cluster::new(preset, &[Placement::Cached; 2]);
    let machines = [cluster.machine(0), cluster.machine(1)];
    let (opened, board) = (Rc::new(Cell::new(0)), Board::new());
    PANIC.take();
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
    match cluster.run(&BUDGET) {
        Ending::Finished => match roles[0].take() {
            Some(Err(NotSupported(what))) => Outcome::Lacks(what.into()),
            _ => Outcome::Passed,
        },
        Ending::Panicked { .. } => Outcome::Failed(PANIC.take().unwrap_or_default()),
        other => Outcome::Failed(other.to_string()),
    }
}
