//! Whether signaling fewer requests helps.

use adverb_report::findings::{Contrast, Finding, Scale, Scope};
use adverb_report::format;
use adverb_results::{Completion, Opcode, Posting, Program, Signaling};

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
        let is_polled = p.completion == Completion::Poll && !p.verify;
        p.op == Opcode::Write && p.inline && p.post == post && is_polled
    });
    let size = cells.iter().map(|c| c.size()).min()?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let signaled = |signal: Signaling| {
        cells
            .filter(|r| r.params.signal == signal)
            .by(|c| c.params().buffers)
    };
    let (periodic, all) = (signaled(Signaling::Periodic), signaled(Signaling::All));
    let periodic = ("with one in n/2 signaled", &periodic);
    let contrast = Contrast::new(Scale::BUFFERS, periodic, ("with all signaled", &all))?;
    let of = format!("a blast of inline {} WRITEs by {posts}", format::size(size));
    let sentence = contrast.effect("Signaling one request in n/2 makes", &of);
    Some(scope.finding(id, FIGURE, sentence, contrast.cells()))
}

fn ping(scope: &Scope<'_>, completion: Completion, id: &str, waiting: &str) -> Option<Finding> {
    let cells = scope.figure(FIGURE).program(Program::Ping).filter(|r| {
        let p = &r.params;
        p.op == Opcode::WriteRead && p.completion == completion && !p.inline && !p.verify
    });
    let signaled = |signal: Signaling| cells.filter(|r| r.params.signal == signal).by(|c| c.size());
    let (unsignaled, all) = (
        signaled(Signaling::WriteUnsignaled),
        signaled(Signaling::All),
    );
    let has_no_events = all
        .values()
        .any(|cell| cell.record.device.is_shared_memory());
    if completion == Completion::Event && has_no_events {
        return None;
    }
    let unsignaled = ("with the WRITE unsignaled", &unsignaled);
    let contrast = Contrast::new(Scale::SIZES, unsignaled, ("with both signaled", &all))?;
    let of = format!("a ping by WRITE then READ with {waiting}");
    let sentence = contrast.effect("Leaving the WRITE unsignaled makes", &of);
    Some(scope.finding(id, FIGURE, sentence, contrast.cells()))
}
