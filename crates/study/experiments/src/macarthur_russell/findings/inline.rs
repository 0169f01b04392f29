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
        let (inline, plain) = (series(true), series(false));
        let (inline, plain) = (("inline", &inline), ("without", &plain));
        let contrast = Contrast::new(Scale::SIZES, inline, plain)?;
        let (id, sentence) = (format!("inline-{id}"), sentence(&contrast, of));
        Some(scope.finding(id, figure, sentence, contrast.cells()))
    })
    .collect()
}

fn sentence(contrast: &Contrast<'_, u64>, of: &str) -> String {
    let wins = contrast.pairs().iter().filter(|p| p.3 == Verdict::First);
    let largest = wins.map(|p| p.0).max();
    let slower = contrast.claim("inline is slower", Verdict::Second);
    let faster = contrast.claim(&format!("Inlining makes {of} faster"), Verdict::First);
    let first = match (faster, largest) {
        (Some(faster), Some(largest)) => {
            let mut larger = contrast.pairs().iter().filter(|p| p.0 > largest);
            let limit = larger.next().map_or_else(
                || "it still pays at the largest inline size measured".to_owned(),
                |next| {
                    let (last, next) = (format::size(largest), format::size(next.0));
                    format!("it ceases to pay between {last} and {next}")
                },
            );
            format!("{faster}; {limit}")
        }
        _ if slower.is_none() => return contrast.effect("Inlining makes", of),
        _ => format!("Inlining does not make {of} faster at any size"),
    };
    let slower = slower.map_or_else(String::new, |slower| format!("; {slower}"));
    format!("{first}{slower}.")
}
