//! `adverb mcast`: one publisher and its subscribers.

use std::net::IpAddr;

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{Job, Multicast};
use adverb_results::{Record, Values};
use adverb_units::Span;
use adverb_verbs::Gid;
use anyhow::Result;
use serde_json::{Value, json};

use super::start::{Setting, measure_as};
use super::words::counted;
use crate::args::{McastArgs, McastSide};
use crate::sink::Table;
use crate::table::per_second;

/// `adverb mcast`.
pub(crate) fn mcast(points: &[McastArgs]) -> Result<()> {
    let args = &points[0];
    let setting = Setting::new(&args.on, 1);
    measure_as(points.iter().map(cell), &setting, |title| Rows { title }).map(drop)
}

/// Time from one message to the next.
fn interval(args: &McastArgs) -> Option<Span> {
    args.rate.map(|rate| Span::from_secs_f64(1.0 / rate))
}

/// Refuses what no device can do. Returns the group.
fn checked_group(args: &McastArgs) -> Result<Gid, Usage> {
    let device = args.on.device.choice();
    if let DeviceChoice::Tcp(_) = device {
        return Err(Usage(format!(
            "{device}: TCP connects two ends and has no multicast; use soft@ADDR, verbs:NAME or model:PRESET"
        )));
    }
    if args.subscribers == 0 {
        let reason = "--subscribers 0: a publisher without subscribers; expected 1 to 64";
        return Err(Usage(reason.to_owned()));
    }
    for (what, given, least, most) in [
        ("--subscribers", args.subscribers.into(), 1, 64),
        ("--receives", args.receives.into(), 1, 1024),
        ("--messages", args.messages, 1, 100_000_000),
        ("--churn", args.churn.into(), 0, args.subscribers.into()),
    ] {
        if !(least..=most).contains(&given) {
            return Err(Usage(format!("{what} {given}: expected {least} to {most}")));
        }
    }
    if args.size < Multicast::LEAST_SIZE {
        let (size, least) = (args.size, Multicast::LEAST_SIZE);
        let reason = format!(
            "--size {size}: a message carries its number and its publisher's key in {least}; use at least that"
        );
        return Err(Usage(reason));
    }
    let group = args.group();
    let gid = match group {
        IpAddr::V4(ip) => Gid::from_ipv4(ip),
        IpAddr::V6(ip) => Gid(ip.octets()),
    };
    if !gid.is_multicast() {
        return Err(Usage(format!(
            "--group {group}: not a multicast address; expected 224.0.0.0 to 239.255.255.255 or ff00::/8, such as 239.193.77.1"
        )));
    }
    Ok(gid)
}

fn cell(args: &McastArgs) -> Result<JobCell, Usage> {
    let gid = checked_group(args)?;
    let group = args.group();
    let job = Multicast {
        group: gid,
        subscribers: args.subscribers,
        machines: args.other_hosts(),
        churn: args.churn,
        messages: args.messages,
        size: args.size,
        receives: args.receives,
        interval: interval(args),
        completion: args.completion,
        home: match args.side {
            McastSide::Publish => 0,
            McastSide::Subscribe => 1,
        },
        path: args.on.path.options()?,
    };
    let params = json!({
        "group": group.to_string(), "subscribers": args.subscribers, "size_bytes": args.size,
        "receives": args.receives, "messages": args.messages, "offered_per_s": args.rate,
        "completion": args.completion, "churn": args.churn,
    });
    let mut title = format!(
        "{} of {} to {group}, {}, {} posted, completions by {}",
        counted_long(args.messages),
        args.size,
        counted(args.subscribers, "subscriber"),
        counted(args.receives, "receive"),
        args.completion,
    );
    if let Some(rate) = args.rate.and_then(per_second) {
        title += &format!(", {rate} offered");
    }
    if args.churn > 0 {
        let some = counted(args.churn, "subscriber");
        title += &format!(", {some} away for a quarter of the messages");
    }
    Ok(JobCell::new("mcast", &params, title, Job::Multicast(job)))
}

fn counted_long(messages: u64) -> String {
    let plural = if messages == 1 { "" } else { "s" };
    format!("{messages} message{plural}")
}

/// A row for each role below the title.
struct Rows {
    title: String,
}

/// Width of the names of roles.
const ROLE: usize = 13;

fn row(name: &str, metrics: &Values) -> Vec<Option<String>> {
    let number = |name: &str| metrics.get(name).and_then(Value::as_f64);
    let count = |name: &str| number(name).map(|count| count.to_string());
    vec![
        Some(format!("{name:<ROLE$}")),
        count("messages"),
        number("messages_per_s").and_then(per_second),
        count("lost"),
        number("lost_percent").map(|share| format!("{share:.2} %")),
        count("away"),
        count("reordered"),
        count("duplicates"),
        number("join_ns").map(crate::table::ns),
    ]
}

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        format!("{} on {}: {}", record.program, record.device, self.title)
    }

    fn columns(&self, _: &Record) -> Vec<(&'static str, usize)> {
        vec![
            ("role         ", ROLE),
            ("messages", 9),
            ("rate", 9),
            ("lost", 9),
            ("lost %", 9),
            ("away", 9),
            ("reordered", 9),
            ("duplicates", 10),
            ("join", 9),
        ]
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let roles = record.roles.iter();
        roles.map(|role| row(&role.name, &role.metrics)).collect()
    }
}
