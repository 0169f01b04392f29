//! Up to which size inline data pay.

use adverb_report::cells::Verdict;
use adverb_report::findings::{Contrast, Finding, Scale, Scope};
use adverb_report::format;
use adverb_results::{Completion, Opcode, Program, Signaling};

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let blast = Program::Blast;
    [
        (
            ("ping-send", "fig1", Program::Ping, Opcode::Send),
            "a ping by SEND",
        ),
        (
            ("blast-write-imm", "fig2", blast, Opcode::WriteImm),
            "a blast of WRITE_IMMs with one buffer",
        ),
        (
            ("blast-write", "fig2", blast, Opcode::Write),
            "a blast of WRITEs with one buffer",
        ),
    ]
    .into_iter()
    .filter_map(|((id, figure, program, op), of)| {
        let cells = scope.figure(figure).program(program).filter(|r| {
            let p = &r.params;
            let is_plain = p.signal == Signaling::All && !p.verify;
            p.op == op && p.completion == Completion::Poll && is_plain
        });
        let series = |inline: bool| cells.filter(|r| r.params.inline == inline).by(|c| c.size());
        let contrast = Contrast::new(Scale::SIZES, &series(true), &series(false))?;
        let (id, sentence) = (format!("inline-{id}"), sentence(&contrast, of));
        Some(scope.finding(id, figure, sentence, contrast.cells()))
    })
    .collect()
}

fn sentence(contrast: &Contrast<'_, u64>, of: &str) -> String {
    let wins = contrast.pairs().iter().filter(|p| p.3 == Verdict::First);
    let largest = wins.map(|p| p.0).max();
    let slower = contrast.claim("they make it slower", Verdict::Second);
    let faster = contrast.claim(&format!("Inline data make {of} faster"), Verdict::First);
    let first = match (faster, largest) {
        (Some(faster), Some(largest)) => {
            let is_last = contrast.pairs().last().is_some_and(|p| p.0 == largest);
            let limit = if is_last {
                "they still pay at the largest inline size measured".to_owned()
            } else {
                format!("beyond {} they no longer pay", format::size(largest))
            };
            format!("{faster}; {limit}")
        }
        _ if slower.is_none() => return contrast.effect("Inline data make", of),
        _ => format!("Inline data make {of} faster at no size"),
    };
    let slower = slower.map_or_else(String::new, |slower| format!("; {slower}"));
    format!("{first}{slower}.")
}
