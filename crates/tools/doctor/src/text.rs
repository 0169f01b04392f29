//! Formats findings as text.

use std::fmt::Write;

use crate::finding::{Finding, Remedy, Subject, Verdict};

/// Widths of the verdicts and of the names of checks.
const VERDICT_WIDTH: usize = 9;
const NAME_WIDTH: usize = 24;
/// Column of a finding's further lines: below the name.
const BELOW: usize = 2 + VERDICT_WIDTH;
/// Column of the result.
const RESULT: usize = BELOW + NAME_WIDTH;

/// Colours a padded text.
pub type Paint<'a> = &'a dyn Fn(Verdict, &str) -> String;

/// Formats findings by subject, with reasons and fixes if something is wrong. Text is wrapped at `width`
/// columns; commands stay on one line, so that they can be copied. The last line is a summary.
pub fn text(findings: &[Finding], width: usize, paint: Paint<'_>) -> String {
    let mut out = String::new();
    let mut last: Option<&Subject> = None;
    for finding in findings {
        if last != Some(&finding.subject) {
            let gap = if last.is_some() { "\n" } else { "" };
            let _ = writeln!(out, "{gap}{}", finding.subject);
            last = Some(&finding.subject);
        }
        write_finding(&mut out, finding, width, paint);
    }
    let _ = write!(out, "\n{}\n", summary(findings));
    out
}

fn write_finding(out: &mut String, finding: &Finding, width: usize, paint: Paint<'_>) {
    let verdict = paint(
        finding.verdict,
        &format!("{:VERDICT_WIDTH$}", finding.verdict),
    );
    let head = format!("{:NAME_WIDTH$}", finding.check.id());
    let found = wrapped(&finding.found, RESULT, width);
    let _ = writeln!(out, "  {verdict}{head}{}", found.trim_start());
    if finding.verdict == Verdict::Ok {
        return;
    }
    let _ = writeln!(out, "{}", wrapped(finding.check.why(), BELOW, width));
    for remedy in &finding.remedies {
        let _ = match remedy {
            Remedy::Run { command, system } => {
                let system = system.map_or(String::new(), |system| format!("   # {system}"));
                writeln!(out, "{:BELOW$}$ {command}{system}", "")
            }
            Remedy::Advice(advice) => {
                writeln!(out, "{}", wrapped(&format!("({advice})"), BELOW, width))
            }
        };
    }
}

fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let indent = " ".repeat(indent);
    let options = textwrap::Options::new(width.max(RESULT + 20))
        .initial_indent(&indent)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// Returns the number of findings with a verdict.
pub fn counted(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|f| f.verdict == verdict).count()
}

fn summary(findings: &[Finding]) -> String {
    let count = |verdict| counted(findings, verdict);
    let (broken, warnings) = (count(Verdict::Broken), count(Verdict::Warning));
    let counts = format!(
        "{broken} broken, {warnings} {}, {} {}, {} ok",
        if warnings == 1 { "warning" } else { "warnings" },
        count(Verdict::Note),
        if count(Verdict::Note) == 1 {
            "note"
        } else {
            "notes"
        },
        count(Verdict::Ok),
    );
    format!("{counts}; {}", conclusion(findings, broken))
}

/// Returns which devices can be used.
fn conclusion(findings: &[Finding], broken: usize) -> String {
    if broken > 0 {
        return "fix what is broken first".to_owned();
    }
    let mut devices: Vec<String> = Vec::new();
    for finding in findings {
        let name = match &finding.subject {
            Subject::Machine => continue,
            Subject::Soft => "soft".to_owned(),
            Subject::Device { device } | Subject::Port { device, .. } => format!("verbs:{device}"),
        };
        if devices.last() != Some(&name) {
            devices.push(name);
        }
    }
    format!("ready: {}", devices.join(", "))
}
