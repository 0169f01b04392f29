//! What a study measures on each of its devices: the plan, and how often.

use std::collections::HashSet;

use adverb_experiments::{FigureId, Limits, Plan, Unfilled};
use adverb_launch::{DeviceChoice, DeviceInfo, Peer, Usage};
use adverb_measure::Meta;
use adverb_results::Impairment;
use adverb_units::Span;
use adverb_verbs::LinkRate;
use adverb_workload::pair::{CellSpec, Length};

use crate::args::{PlaceArgs, StudyArgs};
use crate::services::NO_NOISE;

/// Virtual time that a cell measures on a model, instead of the quick study's 0.27 s on a real device. It is one
/// repetition, because virtual time has no noise, unless chance decides which packets are lost.
const MODEL_DURATION: Span = Span::from_ms(1);

/// A device of a study, and where the two sides run.
pub(super) struct StudyDevice {
    pub(super) device: DeviceChoice,
    pub(super) info: DeviceInfo,
    pub(super) peer: Option<Peer>,
    pub(super) place: PlaceArgs,
}

impl StudyDevice {
    pub(super) fn is_model(&self) -> bool {
        matches!(self.device, DeviceChoice::Model(_))
    }
}

/// What is measured on a device.
pub(super) struct Planned {
    pub(super) at: StudyDevice,
    /// All cells of the study.
    pub(super) cells: Vec<CellSpec>,
    /// Ids of the cells that this invocation measures.
    pub(super) asked: HashSet<String>,
    /// Passes over the cells; `None` for a single pass with all repetitions.
    pub(super) numbers: Vec<Option<u32>>,
}

impl Planned {
    /// Whether another repetition of what is measured may give other figures.
    fn has_noise(&self) -> bool {
        let mut cells = self.cells.iter();
        let loses = |cell: &CellSpec| self.asked.contains(&cell.id) && cell.params.path.loses();
        !self.at.is_model() || cells.any(loses)
    }
}

/// Returns the plan of each device. The first device and models, which take seconds, measure all figures; other devices
/// only the figures that compare devices.
///
/// # Errors
/// No figure that was asked for can be measured on a device, or repetitions are asked for where they are all the same.
pub(super) fn plans(
    args: &StudyArgs,
    meta: &mut Meta,
    places: Vec<StudyDevice>,
) -> Result<Vec<Planned>, Usage> {
    let asked = match asked_figures(args)? {
        // Of a resumed study, all of its figures, which may be ones that have to be asked for.
        asked if asked.is_empty() => meta.only.clone(),
        asked => asked,
    };
    let mut places = places.into_iter();
    let first = places.next().map(|at| {
        let (planned, unfilled) = planned(args, meta, at, (&meta.only, &asked))?;
        meta.unfilled = unfilled;
        Ok(planned)
    });
    let mut plans: Vec<Planned> = first.into_iter().collect::<Result<_, Usage>>()?;
    let (only, asked_here) = (that_compare(&meta.only), that_compare(&asked));
    for at in places {
        if at.is_model() {
            plans.push(planned(args, meta, at, (&meta.only, &asked))?.0);
            continue;
        }
        if only.is_empty() {
            return Err(Usage(format!(
                "--device {}: further devices are for figures that compare devices (fig8), and none of these was asked for; leave it out",
                at.device
            )));
        }
        if !asked_here.is_empty() {
            plans.push(planned(args, meta, at, (&only, &asked_here))?.0);
        }
    }
    if args.repetitions.is_some() && !plans.iter().any(Planned::has_noise) {
        return Err(Usage(NO_NOISE.to_owned()));
    }
    Ok(plans)
}

/// Plans the cells of one device; returns also the figures that it cannot fill.
fn planned(
    args: &StudyArgs,
    meta: &Meta,
    at: StudyDevice,
    (only, asked): (&[FigureId], &[FigureId]),
) -> Result<(Planned, Vec<Unfilled>), Usage> {
    let caps = match &at.peer {
        None => at.info.caps.clone(),
        Some(peer) => peer.common_limits(&at.info.caps),
    };
    let no_faults = no_faults(&at, !asked.is_empty());
    let limits = Limits {
        caps: &caps,
        port: &at.info.port,
        no_faults: no_faults.as_deref(),
        rates: match meta.rates.is_empty() {
            true => &LinkRate::ALL,
            false => &meta.rates,
        },
        sockets: at.is_model(),
    };
    let plan = |only: &[FigureId]| Plan::study(meta.profile, only, limits).with_path(meta.path);
    let wanted = plan(asked);
    if let (true, Some(unfilled)) = (wanted.cells.is_empty(), wanted.unfilled.first()) {
        let only: Vec<&str> = asked.iter().map(|id| id.as_str()).collect();
        let (only, reason) = (only.join(","), &unfilled.reason);
        return Err(Usage(format!("--only {only}: {reason}")));
    }
    let asked = wanted.cells.into_iter().map(|cell| cell.id).collect();
    let mut plan = plan(only);
    let mut numbers = vec![None];
    if at.is_model() {
        for cell in &mut plan.cells {
            let params = &mut cell.params;
            params.length = Length::Duration(MODEL_DURATION);
            params.repetitions = match params.path.loses() {
                true => args.repetitions.unwrap_or(params.repetitions),
                false => 1,
            };
        }
    } else {
        let passes = meta.profile.repetitions();
        plan = plan.in_passes(passes);
        numbers = (1..=args.repetitions.unwrap_or(passes)).map(Some).collect();
    }
    let planned = Planned {
        at,
        cells: plan.cells,
        asked,
        numbers,
    };
    Ok((planned, plan.unfilled))
}

/// Returns the `figures` that compare devices; if `figures` is empty, all figures that do.
fn that_compare(figures: &[FigureId]) -> Vec<FigureId> {
    let compares = |id: &FigureId| id.figure().compares_devices();
    match figures.is_empty() {
        true => FigureId::all().filter(compares).collect(),
        false => figures.iter().copied().filter(compares).collect(),
    }
}

/// Returns the figures and panels that `--only` or `--study` names; empty for all.
///
/// # Errors
/// A figure is not one of the study.
pub(super) fn asked_figures(args: &StudyArgs) -> Result<Vec<FigureId>, Usage> {
    let Some(study) = args.study else {
        let mut of_programs = args
            .only
            .iter()
            .filter_map(|id| Some((id, id.of_programs()?)));
        return match of_programs.next() {
            Some((figure, study)) => Err(Usage(format!(
                "--only {figure}: a figure of another study; add --study {}",
                study.id
            ))),
            None => Ok(args.only.clone()),
        };
    };
    if let Some(figure) = args.only.iter().find(|figure| !study.has(**figure)) {
        let own: Vec<&str> = study.figures().map(FigureId::as_str).collect();
        return Err(Usage(format!(
            "--only {figure}: not a figure of --study {study}, which has {}",
            own.join(", ")
        )));
    }
    Ok(match args.only.is_empty() {
        true => study.figures().collect(),
        false => args.only.clone(),
    })
}

/// Returns why the ports of the two sides inject no faults; `None` if they do. Models do if figures are `asked` for by name.
fn no_faults(at: &StudyDevice, asked: bool) -> Option<String> {
    if matches!(at.device, DeviceChoice::Model(_)) && !asked {
        return Some("on a model it has to be asked for, with --only".to_owned());
    }
    let none = Impairment::default();
    let here = at.device.check_impairment(Some(&none));
    let there = || match &at.peer {
        Some(peer) => peer.check_impairment(&none).map_err(|Usage(reason)| reason),
        None => Ok(()),
    };
    here.and_then(|()| there()).err()
}
