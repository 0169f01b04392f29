//! Where inline data stop paying.

use adverb_results::{Completion, Opcode, Program, Signaling};

use super::{Contest, Finding, Scope};
use crate::cells::{Quantity, Verdict};
use crate::format;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    [
        (
            "inline-ping-send",
            "fig1",
            Program::Ping,
            Opcode::Send,
            "a ping by SEND",
        ),
        (
            "inline-blast-send",
            "fig2",
            Program::Blast,
            Opcode::Send,
            "a blast of SENDs with one buffer",
        ),
        (
            "inline-blast-write",
            "fig2",
            Program::Blast,
            Opcode::Write,
            "a blast of WRITEs with one buffer",
        ),
    ]
    .into_iter()
    .filter_map(|(id, figure, program, op, what)| {
        let cells = scope.figure(figure).program(program).filter(|r| {
            let p = &r.params;
            p.op == op
                && p.completion == Completion::Poll
                && p.signal == Signaling::All
                && !p.verify
        });
        let series = |inline: bool| cells.filter(|r| r.params.inline == inline).by(|c| c.size());
        let contest = Contest::between(&series(true), &series(false))?;
        let sentence = sentence(&contest, what)?;
        Some(scope.finding(id, figure, &sentence, contest.cells()))
    })
    .collect()
}

fn sentence(contest: &Contest<'_, u64>, what: &str) -> Option<String> {
    let all = contest.all_places(format::size);
    let wins = contest
        .pairs
        .iter()
        .filter(|p| p.3 == Verdict::First)
        .map(|p| p.0)
        .max();
    let loses = contest.places(Verdict::Second, format::size);
    let mut sentence = match wins {
        Some(largest) => {
            let places = contest.places(Verdict::First, format::size)?;
            let lead = contest.best_lead(Verdict::First)?;
            let largest = match contest.pairs.last() {
                Some((last, ..)) if *last == largest => {
                    "it still pays at the largest inline size measured".to_owned()
                }
                _ => format!("beyond {} it no longer pays", format::size(largest)),
            };
            format!(
                "Inline data make {what} faster at {places}, {}; {largest}",
                lead.in_words(Quantity::OneWay, format::size)
            )
        }
        None if loses.is_none() => {
            let beyond = contest.noise().beyond();
            format!("Inline data make no difference {beyond} in {what} at {all}")
        }
        None => format!("Inline data make {what} faster at none of the sizes {all}"),
    };
    if let Some(places) = loses {
        let lead = contest.best_lead(Verdict::Second)?;
        sentence.push_str(&format!(
            "; at {places} they make it slower, {}",
            lead.in_words(Quantity::OneWay, format::size)
        ));
    }
    sentence.push('.');
    Some(sentence)
}
