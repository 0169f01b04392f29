//! Lists of experiments: `adverb study --list`, and the first lines of a study.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use adverb_experiments::{EXPERIMENTS, Experiment, Figure, PROGRAM_STUDIES, ProgramStudy, StudyId};
use adverb_report::FigureSpec;
use adverb_workload::pair::CellSpec;
use serde_json::{Value, json};

use crate::args::Format;
use crate::terminal;

/// Prints the experiments with their figures: all, or the one that `--study` names.
pub(crate) fn list(format: Format, asked: Option<StudyId>) -> anyhow::Result<ExitCode> {
    let mut stdout = terminal::stdout();
    let is_asked = |id: &str| asked.is_none_or(|asked| asked.to_string() == id);
    let own = EXPERIMENTS.iter().filter(|own| is_asked(own.id));
    let of_programs = PROGRAM_STUDIES.iter().filter(|study| is_asked(study.id));
    if format == Format::Json {
        let all = own.map(in_json);
        let all: Vec<Value> = all.chain(of_programs.map(study_in_json)).collect();
        writeln!(stdout, "{}", json!({ "experiments": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for experiment in own {
        writeln!(stdout, "{}", heading(experiment))?;
        for figure in experiment.figures {
            writeln!(stdout, "  {:8}  {}", figure.spec.id, figure.spec.title)?;
        }
    }
    for study in of_programs {
        let ProgramStudy {
            id, title, source, ..
        } = study;
        writeln!(stdout, "{title} ({source}); --study {id}")?;
        for figure in study.figures {
            writeln!(stdout, "  {:8}  {}", figure.id, figure.title)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Title and source of an experiment.
fn heading(experiment: &Experiment) -> String {
    match experiment.source {
        "" => experiment.title.to_owned(),
        source => format!("{} ({source})", experiment.title),
    }
}

fn in_json(experiment: &Experiment) -> Value {
    let figures = experiment
        .figures
        .iter()
        .map(|figure| of_figure(&figure.spec));
    let figures: Vec<Value> = figures.collect();
    json!({
        "id": experiment.id,
        "title": experiment.title,
        "source": Some(experiment.source).filter(|source| !source.is_empty()),
        "figures": figures,
    })
}

fn study_in_json(study: &ProgramStudy) -> Value {
    let figures = study.figures.iter().map(|spec| of_figure(spec));
    let figures: Vec<Value> = figures.collect();
    json!({ "id": study.id, "title": study.title, "source": study.source, "figures": figures })
}

fn of_figure(spec: &FigureSpec) -> Value {
    json!({ "id": spec.id, "title": spec.title, "caption": spec.caption })
}

/// Prints the experiments that these cells belong to.
pub(crate) fn announce<'c>(cells: impl Iterator<Item = &'c CellSpec>) {
    let ids = cells.flat_map(|cell| &cell.figures);
    let ids: BTreeSet<&str> = ids.map(String::as_str).collect();
    let is_asked_for = |figure: &Figure| ids.contains(figure.spec.id);
    for experiment in &EXPERIMENTS {
        if experiment.figures.iter().any(is_asked_for) {
            terminal::say(&heading(experiment));
        }
    }
}
