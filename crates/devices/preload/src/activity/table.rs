//! The table of `adverb run --stats`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use adverb_results::{Activity, Posts, QueuePairActivity};
use adverb_verbs::Counters;

/// Returns the table of a process.
pub(super) fn table(
    program: &str,
    id: u32,
    activity: &Activity,
    ports: &BTreeMap<String, Counters>,
) -> String {
    let mut text = format!(
        "adverb: {program} (process {id}), {:.1} s until {}\n",
        activity.elapsed_s, activity.written_at
    );
    for ((device, qp_type), group) in &groups(activity) {
        queue_pairs(&mut text, (device, qp_type), group);
    }
    line(
        &mut text,
        2,
        "SRQ receives",
        &posts(&activity.shared_receives),
    );
    line(&mut text, 2, "polls", &waits(activity));
    let memory = activity.memory;
    let registered = format!(
        "{} registered at most, in {}",
        bytes(memory.max_registered_bytes),
        number(memory.registrations, "call")
    );
    if memory.registrations > 0 {
        line(&mut text, 2, "memory", &registered);
    }
    for (device, counters) in ports {
        line(
            &mut text,
            2,
            &format!("UDP port of {device}"),
            &counted(counters),
        );
    }
    text
}

/// Queue pairs by device and type.
type Groups<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a QueuePairActivity>>;

fn groups(activity: &Activity) -> Groups<'_> {
    let mut groups = Groups::new();
    for qp in &activity.queue_pairs {
        let key = (qp.device.as_str(), qp.qp_type.as_str());
        groups.entry(key).or_default().push(qp);
    }
    groups
}

fn queue_pairs(text: &mut String, (device, qp_type): (&str, &str), group: &[&QueuePairActivity]) {
    let device = match device {
        "" => "more queue pairs",
        device => device,
    };
    let count: u64 = group.iter().map(|qp| qp.queue_pairs).sum();
    let qps = number(count, &format!("{qp_type} queue pair"));
    let _ = writeln!(text, "  {device}: {qps}");
    line(text, 4, "path", &counted(&sum(group, |qp| &qp.paths)));
    operations(text, group);
    line(text, 4, "posts", &posts(&sum_posts(group, |qp| &qp.sends)));
    line(
        text,
        4,
        "receives",
        &posts(&sum_posts(group, |qp| &qp.receives)),
    );
    let messages: u64 = group.iter().map(|qp| qp.received.messages).sum();
    let received: u64 = group.iter().map(|qp| qp.received.bytes).sum();
    if messages > 0 {
        line(
            text,
            4,
            "received",
            &format!("{}, {}", number(messages, "message"), bytes(received)),
        );
    }
    line(
        text,
        4,
        "completions",
        &counted(&sum(group, |qp| &qp.completions)),
    );
}

fn operations(text: &mut String, group: &[&QueuePairActivity]) {
    let mut rows: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for (name, operation) in group.iter().flat_map(|qp| &qp.operations) {
        let row = rows.entry(name).or_default();
        let counts = [
            operation.requests,
            operation.bytes,
            operation.inline,
            operation.signaled,
        ];
        for (sum, count) in row.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "    {:<22} {:>11} {:>11} {:>8} {:>9}",
        "operation", "requests", "bytes", "inline", "signaled"
    );
    for (name, [requests, size, inline, signaled]) in rows {
        let _ = writeln!(
            text,
            "    {name:<22} {requests:>11} {:>11} {:>8} {:>9}",
            bytes(size),
            percent(inline, requests),
            percent(signaled, requests)
        );
    }
}

/// Writes a line with a name, unless it is empty.
fn line(text: &mut String, indent: usize, name: &str, content: &str) {
    if !content.is_empty() {
        let _ = writeln!(text, "{:indent$}{name}: {content}", "");
    }
}

fn sum<'a>(
    group: &[&'a QueuePairActivity],
    counters: impl Fn(&'a QueuePairActivity) -> &'a Counters,
) -> Counters {
    let mut sums = Counters::new();
    for (name, count) in group.iter().flat_map(|qp| counters(qp)) {
        *sums.entry(name.clone()).or_default() += count;
    }
    sums
}

fn sum_posts<'a>(
    group: &[&'a QueuePairActivity],
    posts: impl Fn(&'a QueuePairActivity) -> &'a Posts,
) -> Posts {
    let mut sums = Posts::default();
    for posts in group.iter().map(|qp| posts(qp)) {
        sums.calls += posts.calls;
        sums.requests += posts.requests;
    }
    sums
}

fn posts(posts: &Posts) -> String {
    match posts.calls {
        0 => String::new(),
        calls => {
            let each = posts.requests as f64 / calls as f64;
            let (requests, calls) = (number(posts.requests, "request"), number(calls, "call"));
            format!("{requests} in {calls} ({each:.1} each)")
        }
    }
}

fn waits(activity: &Activity) -> String {
    let of = |count: fn(&adverb_results::CompletionQueueActivity) -> u64| -> u64 {
        activity.completion_queues.iter().map(count).sum()
    };
    let polls = of(|cq| cq.polls);
    if polls == 0 {
        return String::new();
    }
    let empty = percent(of(|cq| cq.empty_polls), polls);
    format!(
        "{polls}, {empty} of them empty; {} events taken, {} requested",
        of(|cq| cq.events),
        of(|cq| cq.notify_requests)
    )
}

fn counted(counters: &Counters) -> String {
    let all = counters
        .iter()
        .map(|(name, count)| format!("{count} {name}"));
    all.collect::<Vec<_>>().join(", ")
}

/// Returns a number of things, `2 calls`.
fn number(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn bytes(count: u64) -> String {
    adverb_units::Bytes::new(count).to_string()
}
