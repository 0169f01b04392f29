//! What `--resume` keeps: records of an earlier invocation, which may have been asked for another length.

use adverb_launch::Usage;
use adverb_report::format;
use adverb_results::Record;
use serde_json::Value;

use crate::args::LengthArgs;
use crate::terminal;

/// Factor between the times that were asked for and measured, above which a warning names them: a busy machine takes longer.
pub(crate) const TIME_NOISE: f64 = 1.5;

/// Warns that a record is kept that was `measured` differently from what is asked for now.
pub(crate) fn warn((record, measured): (&Record, &str), asked: &str) {
    terminal::warn(&format!(
        "{asked}: {} was measured with {measured} and is kept; to measure it again, choose another --out",
        record.cell
    ));
}

/// Compares the typed length of `ping` or `blast` with a record that is kept.
///
/// # Errors
/// More repetitions are asked for than the record has: all of a record are of one start of the program.
pub(crate) fn check_length(length: &LengthArgs, record: &Record) -> Result<(), Usage> {
    let count = record.repetition_count();
    if let Some(asked) = length.repetitions.filter(|asked| *asked as usize > count) {
        return Err(Usage(format!(
            "--repetitions {asked}: {} has {count} in the folder; leave it out, or choose another --out",
            record.cell
        )));
    }
    let counts = [
        ("--iters", length.iters, "iters"),
        ("--warmup", length.warmup, "warmup_iters"),
    ];
    for (flag, asked, name) in counts {
        let measured = record.params.get(name).and_then(Value::as_u64);
        if let (Some(asked), Some(measured)) = (asked, measured)
            && asked != measured
        {
            warn((record, &measured.to_string()), &format!("{flag} {asked}"));
        }
    }
    // A measurement may be longer than asked for, because a repetition has a minimum of messages.
    let elapsed = record.metric("elapsed_ns");
    if let (Some(asked), Some(elapsed)) = (length.duration, elapsed)
        && elapsed * TIME_NOISE < asked.as_ns_f64()
    {
        let measured = format::time(elapsed);
        warn((record, &measured), &format!("--duration {asked}"));
    }
    Ok(())
}
