//! The page: banner, findings, figures, table, colophon.

mod banner;
mod claims;
mod counters;
mod table;

use adverb_results::DeviceKind;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::claims::Assessment;
use crate::figure::Figure;
use crate::findings::{Finding, unbroken};
use crate::{Chapter, FigureSpec, Plots, Report, plot};

const CSS: &str = include_str!("../../assets/report.css");
const JS: &str = include_str!("../../assets/report.js");
const TITLE: &str = "How to use RDMA verbs";

pub(crate) fn html(report: &Report<'_>) -> Markup {
    let (chapters, mut left_out) = chapters(report);
    let findings = report.findings();
    let sweeps = crate::sweep::sweeps(report.others);
    let matrices = crate::matrix::matrices(report.others);
    if report.is_of_sweeps() {
        // Records of other programs need not be of a study: only figures that were asked for are named.
        left_out.retain(|figure| why_unfilled(report, figure.spec).is_some());
    }
    let title = title_of(report);
    let assessments = report.claims();
    let body = html! {
        header {
            h1 { (title) }
            (banner::measured_on(report))
            (notices(report))
            (crate::advice::section(report))
            (banner::what_it_does_not_tell(report))
        }
        (contents(report, &chapters, &assessments, &sweeps, &matrices))
        main {
            @for (chapter, figures) in &chapters {
                (chapter_head(chapter))
                (sentences(&chapter.sentences(report.others)))
                @for figure in figures { (figure_section(figure)) }
            }
            @if !report.is_of_sweeps() { (findings_section(report, &findings)) }
            (claims::section(&assessments))
            @for sweep in &sweeps { (sweep.section()) }
            @for (number, matrix) in matrices.iter().enumerate() { (matrix.section(number)) }
            (left_out_section(report, &left_out))
            (table::section(report))
            (counters::section(report))
            (banner::reproduce(report, chapters.iter().map(|(chapter, _)| *chapter)))
        }
        script { (PreEscaped(JS)) }
    };
    document(&format!("{title} · Adverb"), &body)
}

/// Returns the chapters with the figures that are shown, and the figures that are left out.
fn chapters<'r>(report: &'r Report<'_>) -> (Vec<(&'r Chapter, Vec<Figure>)>, Vec<Figure>) {
    let (mut chapters, mut left_out) = (Vec::new(), Vec::new());
    for chapter in &report.chapters {
        let figures = report.figures(chapter).into_iter();
        let (shown, others): (Vec<_>, Vec<_>) = figures.partition(Figure::is_shown);
        // Records of ping and blast do not concern a study of other programs.
        if chapter.sentences.is_none() || !shown.is_empty() {
            left_out.extend(others);
        }
        if !shown.is_empty() {
            chapters.push((chapter, shown));
        }
    }
    (chapters, left_out)
}

fn chapter_head(chapter: &Chapter) -> Markup {
    html! {
        header class="chapter" {
            h2 { (chapter.title) }
            @if !chapter.source.is_empty() { p class="about" { "Repeats " (chapter.source) "." } }
        }
    }
}

/// What records of any program show.
fn sentences(all: &[String]) -> Markup {
    html! {
        @if !all.is_empty() {
            ul class="findings" { @for sentence in all { li { (unbroken(sentence)) } } }
        }
    }
}

/// A page that needs no other file.
pub(crate) fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                // Without this line browsers ask the server for an icon.
                link rel="icon" href="data:,";
                style { (PreEscaped(CSS)) }
            }
            body { (body) }
        }
    }
}

/// Returns the title, which says whether the figures are measured or predicted.
fn title_of(report: &Report<'_>) -> String {
    let kinds = report.records.iter().map(|r| r.device.kind);
    let kinds = kinds.chain(report.others.iter().map(|r| r.device.kind));
    let (models, others): (Vec<_>, Vec<_>) = kinds.partition(|k| *k == DeviceKind::Model);
    let what = match (models.is_empty(), others.is_empty()) {
        (false, true) => "a prediction",
        (false, false) => "measurements and predictions",
        (true, _) => "a measurement",
    };
    format!("{TITLE}: {what}")
}

fn notices(report: &Report<'_>) -> Markup {
    let notices = report.notices();
    html! {
        @if !notices.is_empty() {
            div class="notice" role="note" {
                @for notice in &notices { p { (notice) } }
            }
        }
    }
}

fn contents(
    report: &Report<'_>,
    chapters: &[(&Chapter, Vec<Figure>)],
    assessments: &[Assessment<'_>],
    sweeps: &[crate::sweep::Sweep<'_>],
    matrices: &[crate::matrix::Matrix],
) -> Markup {
    html! {
        nav aria-label="Contents" {
            ol class="contents" {
                @for (chapter, figures) in chapters {
                    li class="chapter" { (chapter.title) }
                    @for figure in figures {
                        li { a href={ "#" (figure.spec.id) } { (title(figure.spec)) } }
                    }
                }
                @if !report.is_of_sweeps() { li { a href="#findings" { "Findings" } } }
                @if !assessments.is_empty() { li { a href="#claims" { (claims::TITLE) } } }
                @for sweep in sweeps { li { (sweep.link()) } }
                @for (number, matrix) in matrices.iter().enumerate() { li { (matrix.link(number)) } }
                @if table::is_shown(report) { li { a href="#cells" { "All cells" } } }
                li { a href="#reproduce" { "Measure it again" } }
            }
        }
    }
}

fn findings_section(report: &Report<'_>, findings: &[Finding]) -> Markup {
    let models = report
        .records
        .iter()
        .any(|r| r.device.kind == DeviceKind::Model);
    html! {
        section id="findings" {
            h2 { "Findings" }
            @if findings.is_empty() {
                p { "The measured cells do not suffice for any finding: cells that findings compare are missing, failed, or were not repeated." }
            } @else {
                p class="about" {
                    "Each sentence is computed from the cells of this report. “Faster” means that the medians "
                    "differ by at least 2 % and the 95 % confidence intervals do not overlap; smaller differences are called "
                    "noise. “Equal ways” are those whose ranges over the repetitions overlap. A sentence is left out if cells "
                    "that it needs are missing."
                    @if models {
                        " The model has no noise where no packets are lost: it is deterministic, and every difference "
                        "of at least 2 % is reported. That shows how the model ranks, not how sure it is."
                    }
                }
                @for of_device in findings.chunk_by(|a, b| a.device == b.device) {
                    @if let Some(device) = &of_device[0].device { h3 class="device" { (device) } }
                    div class="topics" {
                        @for topic in of_device.chunk_by(|a, b| a.topic == b.topic) { (findings_about(report, topic)) }
                    }
                }
            }
        }
    }
}

/// Findings of one topic; below a device's heading, where there is one.
fn findings_about(report: &Report<'_>, findings: &[Finding]) -> Markup {
    let (topic, has_device) = (findings[0].topic, findings[0].device.is_some());
    html! {
        @if has_device { h4 { (topic) } } @else { h3 { (topic) } }
        ul class="findings" {
            @for finding in findings {
                li id={ "finding-" (finding.id) } {
                    (unbroken(&finding.sentence)) " "
                    a href={ "#" (finding.figure) } { (report.name_of(finding.figure).replace(' ', "\u{a0}")) }
                }
            }
        }
    }
}

fn figure_section(figure: &Figure) -> Markup {
    html! {
        section class="figure" id=(figure.spec.id) {
            h3 { (title(figure.spec)) }
            p class="about" { (figure.spec.caption) }
            @if figure.panels.is_empty() {
                p class="empty" { "No cell of this figure could be measured." }
            }
            @if figure.has_published() {
                p class="about" {
                    "Crosses are published values of the hardware that the model represents, with the interval of "
                    "each: others measured them on that hardware; none was measured here."
                }
            }
            (plot::legend(&figure.panels))
            div class="panels" { (plot::panels(figure)) }
            @if !figure.panels.is_empty() { p class="readout" aria-live="polite" {} }
            @let hidden = figure.hidden();
            @if !hidden.is_empty() {
                p class="about coincide" { "Lines within 0.5 % of each other: " (hidden.join("; ")) "." }
            }
            (failures(figure))
        }
    }
}

/// Lists the figures without any cell, with the reason of each.
fn left_out_section(report: &Report<'_>, figures: &[Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            section id="left-out" {
                h2 { "Left out" }
                p class="about" { "Not measured:" }
                ul class="about" {
                    @for figure in figures { li { (title(figure.spec)) ": " (why_left_out(report, figure.spec)) } }
                }
            }
        }
    }
}

/// Returns why the device cannot fill a figure that was asked for.
fn why_unfilled<'r>(report: &'r Report<'_>, figure: &FigureSpec) -> Option<&'r str> {
    let mut unfilled = report.meta.unfilled.iter();
    let (_, reason) = unfilled.find(|(id, _)| id == figure.id)?;
    Some(reason)
}

/// Returns why a figure has no plot: because of the device, or of what was asked for.
fn why_left_out<'r>(report: &'r Report<'_>, figure: &FigureSpec) -> &'r str {
    match why_unfilled(report, figure) {
        Some(reason) => reason,
        None if matches!(figure.plots, Plots::Devices(_)) => {
            "it compares devices, and these records are of one; make a report of several folders, or name two devices"
        }
        None => "its cells are not among these records",
    }
}

/// Returns the place of a figure in its publication: `Figure 3` of `NUMA Figure 3`.
fn number(name: &str) -> Option<&str> {
    let place = ["Figure ", "Section "]
        .into_iter()
        .find_map(|word| name.find(word));
    place.map(|place| &name[place..])
}

fn title(figure: &FigureSpec) -> Markup {
    html! {
        @if let Some(number) = number(figure.name) { span class="number" { (number) } " " }
        (figure.title)
    }
}

fn failures(figure: &Figure) -> Markup {
    html! {
        @if !figure.failed.is_empty() {
            div class="failed" {
                h4 { "Failed cells" }
                ul {
                    @for (cell, reason) in &figure.failed { li { code { (cell) } ": " (reason) } }
                }
            }
        }
    }
}
