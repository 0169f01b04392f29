//! Whether signaling fewer requests helps.

use adverb_results::{Completion, Opcode, Posting, Program, Signaling};

use super::buffers::gains;
use super::{Contest, Finding, Scope};
use crate::cells::{Quantity, Verdict};
use crate::format;

const FIGURE: &str = "fig6";

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    [
        blast(scope, Posting::Single, "periodic-single", "single posts"),
        blast(scope, Posting::List, "periodic-list", "lists"),
        ping(scope, Completion::Poll, "unsignaled-poll", "busy polling"),
        ping(scope, Completion::Event, "unsignaled-event", "events"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn blast(scope: &Scope<'_>, post: Posting, id: &str, posts: &str) -> Option<Finding> {
    let cells = scope.figure(FIGURE).program(Program::Blast).filter(|r| {
        let p = &r.params;
        p.op == Opcode::Write && p.post == post && p.completion == Completion::Poll && !p.verify
    });
    let size = cells.iter().map(|c| c.size()).min()?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let signaled = |signal: Signaling| {
        cells
            .filter(|r| r.params.signal == signal)
            .by(|c| c.params().buffers)
    };
    let contest = Contest::between(&signaled(Signaling::Periodic), &signaled(Signaling::All))?;
    let what = format!("a blast of {} WRITEs by {posts}", format::size(size));
    let sentence = gains(&contest, "Signaling one request in n/2", "makes", &what)?;
    Some(scope.finding(id, FIGURE, &sentence, contest.cells()))
}

fn ping(scope: &Scope<'_>, completion: Completion, id: &str, waiting: &str) -> Option<Finding> {
    let cells = scope.figure(FIGURE).program(Program::Ping).filter(|r| {
        let p = &r.params;
        p.op == Opcode::WriteRead && p.completion == completion && !p.inline && !p.verify
    });
    let signaled = |signal: Signaling| cells.filter(|r| r.params.signal == signal).by(|c| c.size());
    let contest = Contest::between(
        &signaled(Signaling::WriteUnsignaled),
        &signaled(Signaling::All),
    )?;
    let mut parts = Vec::new();
    for (verdict, word) in [(Verdict::First, "faster"), (Verdict::Second, "slower")] {
        let Some(places) = contest.places(verdict, format::size) else {
            continue;
        };
        let lead = contest.best_lead(verdict)?;
        parts.push(format!(
            "{word} at {places}, {}",
            lead.in_words(Quantity::OneWay, format::size)
        ));
    }
    let what = format!("a ping by WRITE then READ with {waiting}");
    let beyond = contest.noise().beyond();
    let sentence = match (parts.is_empty(), contest.places(Verdict::Tie, format::size)) {
        (true, _) => format!(
            "Leaving the WRITE unsignaled makes no difference {beyond} in {what} at {}.",
            contest.all_places(format::size)
        ),
        (false, Some(ties)) => format!(
            "Leaving the WRITE unsignaled makes {what} {}; at {ties} there is no difference \
             {beyond}.",
            parts.join(" and ")
        ),
        (false, None) => {
            format!(
                "Leaving the WRITE unsignaled makes {what} {}.",
                parts.join(" and ")
            )
        }
    };
    Some(scope.finding(id, FIGURE, &sentence, contest.cells()))
}
