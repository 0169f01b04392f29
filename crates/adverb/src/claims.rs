//! `adverb claims`: what the studies claim, and whether records support it.

use std::io::Write;

use adverb_experiments::{EXPERIMENTS, Experiment, PROGRAM_STUDIES, ledgers};
use adverb_launch::Usage;
use adverb_measure::{pair_records, read};
use adverb_report::claims::{Answer, Assessment, Claim, Judgement, Ledger, assess, markdown};
use adverb_results::{PairRecord, Record, merged};
use serde_json::{Value, json};

use crate::args::{ClaimsArgs, Format};
use crate::failure::one_of;
use crate::terminal;

/// Prints the ledger, or judges records by it.
pub(crate) fn run(args: &ClaimsArgs) -> anyhow::Result<()> {
    if args.dirs.is_empty() {
        return print_ledger(args);
    }
    let mut records = Vec::new();
    for dir in &args.dirs {
        let (found, warnings) = read(dir, &dir.display().to_string())?;
        warnings.iter().for_each(|warning| terminal::warn(warning));
        records.extend(found);
    }
    let records = merged(records);
    let pairs: Vec<PairRecord> = pair_records(&records);
    let pairs: Vec<&PairRecord> = pairs.iter().collect();
    let mut assessments = Vec::new();
    for ledger in asked(args) {
        let of_ledger = assess(ledger, &pairs, &records);
        // Cells that were measured for the figures of one study answer claims of others, too.
        let has_answers = of_ledger.iter().any(Assessment::has_answers);
        let is_named = !args.only.is_empty() && ledger.claims.iter().any(|c| is_asked(args, c));
        if has_answers || is_named || records.iter().any(|record| is_of(ledger, record)) {
            assessments.extend(of_ledger);
        }
    }
    if assessments.is_empty() {
        return Err(no_claims(args, &records).into());
    }
    for assessment in &mut assessments {
        assessment
            .judgements
            .retain(|judgement| is_asked(args, judgement.claim));
    }
    assessments.retain(|assessment| !assessment.judgements.is_empty());
    match args.format {
        Format::Json => print_json(&assessments),
        Format::Text => print(&assessments),
    }
}

/// Returns the ledgers that were asked for.
fn asked(args: &ClaimsArgs) -> impl Iterator<Item = &'static Ledger> {
    ledgers().filter(|ledger| args.study.is_none_or(|study| study.study == ledger.study))
}

fn is_asked(args: &ClaimsArgs, claim: &Claim) -> bool {
    args.only.is_empty() || args.only.iter().any(|only| only.id == claim.id)
}

fn print_ledger(args: &ClaimsArgs) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if args.format == Format::Text && args.only.is_empty() {
        write!(out, "{}", markdown(asked(args)))?;
        return Ok(out.flush()?);
    }
    for ledger in asked(args) {
        for claim in ledger.claims.iter().filter(|claim| is_asked(args, claim)) {
            match args.format {
                Format::Text => writeln!(out, "{}", terminal::item(&claim.to_string()))?,
                Format::Json => {
                    let mut object = json!({ "study": ledger.study });
                    extend(&mut object, serde_json::to_value(claim)?);
                    writeln!(out, "{object}")?;
                }
            }
        }
    }
    Ok(out.flush()?)
}

fn extend(object: &mut Value, other: Value) {
    if let (Value::Object(object), Value::Object(other)) = (object, other) {
        object.extend(other);
    }
}

/// Whether a study could have made a record.
fn is_of(ledger: &Ledger, record: &Record) -> bool {
    let is_own = |experiment: &&Experiment| {
        let own = experiment.ledger();
        own.is_some_and(|own| own.study == ledger.study)
    };
    let experiments = EXPERIMENTS.iter().filter(is_own);
    let figures = experiments.flat_map(|experiment| experiment.figures);
    let figures = figures.map(|figure| figure.spec.id);
    let programs = PROGRAM_STUDIES
        .iter()
        .filter(|study| study.id == ledger.study);
    let of_programs = programs.flat_map(|study| study.figures);
    let mut figures = figures.chain(of_programs.map(|figure| figure.id));
    // Records outside a study belong to no figure: those of `ping` and `blast` may be any cell.
    ledger.is_about(&record.program)
        && (record.figures.is_empty()
            || figures.any(|id| record.figures.iter().any(|own| own == id)))
}

/// The error if no claim of the studies that were asked for is about the records.
fn no_claims(args: &ClaimsArgs, records: &[Record]) -> Usage {
    let what = match records.first() {
        None => "no records".to_owned(),
        Some(record) if record.figures.is_empty() => format!("records of {}", record.program),
        Some(record) => format!("records of figure {}", record.figures.join(", ")),
    };
    let dirs = args.dirs.iter().map(|dir| dir.display().to_string());
    let studies = asked(args).map(|ledger| ledger.study.as_str());
    Usage(format!(
        "{}: {what}, which no claim of {} is about: name a folder that `adverb study` wrote for it",
        dirs.collect::<Vec<_>>().join(", "),
        one_of(&studies.collect::<Vec<_>>()),
    ))
}

fn print(assessments: &[Assessment<'_>]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    for (n, assessment) in assessments.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", terminal::wrapped(&assessment.summary()))?;
        for answer in Answer::ALL {
            let judgements = assessment.judgements.iter();
            let judgements: Vec<_> = judgements.filter(|j| j.answer == answer).collect();
            if !judgements.is_empty() {
                writeln!(out, "\n{} ({}):", answer.words(), judgements.len())?;
            }
            for judgement in judgements {
                let text = format!("{} [{}]", judgement.claim, judgement.explanation());
                writeln!(out, "{}", terminal::item(&text))?;
            }
        }
    }
    Ok(out.flush()?)
}

fn print_json(assessments: &[Assessment<'_>]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    for assessment in assessments {
        for judgement in &assessment.judgements {
            writeln!(out, "{}", in_json(assessment, judgement))?;
        }
    }
    Ok(out.flush()?)
}

fn in_json(assessment: &Assessment<'_>, judgement: &Judgement<'_>) -> Value {
    let claim = judgement.claim;
    json!({
        "study": assessment.ledger.study,
        "id": claim.id,
        "at": claim.at,
        "says": claim.says,
        "device": assessment.device,
        "answer": judgement.answer.words(),
        "why": judgement.why,
        "stated_of_device": judgement.stated_of_device,
        "by_construction": judgement.by_construction,
        "cause": judgement.cause,
    })
}
