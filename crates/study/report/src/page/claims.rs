//! The chapter about the claims of the studies.

use maud::{Markup, html};

use super::unbroken;
use crate::claims::{Answer, Assessment, Judgement};

pub(super) const TITLE: &str = "What the studies found, and here";

/// The section; empty if the records answer no claim.
pub(super) fn section(assessments: &[Assessment<'_>]) -> Markup {
    html! {
        @if !assessments.is_empty() {
            section id="claims" {
                h2 { (TITLE) }
                p class="about" {
                    "Statements of the published studies, each judged by the records of one device. A statement holds "
                    "if its condition is true at every size and number of buffers that was measured; "
                    code { "adverb claims" } " prints the conditions. Values are medians, and differences below 2 % "
                    "count as none. What a model or a user-space device cannot answer is not counted for or against a "
                    "study."
                }
                @for assessment in assessments { (of_device(assessment)) }
            }
        }
    }
}

fn of_device(assessment: &Assessment<'_>) -> Markup {
    html! {
        h3 { (assessment.ledger.source) ", on " (assessment.device) }
        p { (assessment.summary()) }
        @for answer in Answer::ALL { (with_answer(assessment, answer)) }
    }
}

/// Lists the claims that have an answer; those that failed are not folded.
fn with_answer(assessment: &Assessment<'_>, answer: Answer) -> Markup {
    let judgements = assessment.judgements.iter();
    let judgements: Vec<_> = judgements.filter(|j| j.answer == answer).collect();
    html! {
        @if !judgements.is_empty() {
            details open[answer == Answer::Fails] {
                summary { (answer.words()) " (" (judgements.len()) ")" }
                ul class="claims" { @for judgement in judgements { (item(judgement)) } }
            }
        }
    }
}

fn item(judgement: &Judgement<'_>) -> Markup {
    let claim = judgement.claim;
    html! {
        li {
            span class="number" { (claim.at.replace(' ', "\u{a0}")) } " "
            (claim.says) " "
            span class="about" { "[" (unbroken(&judgement.explanation())) "]" }
            " " code { (claim.id) }
        }
    }
}
