//! `adverb connect`: the life of connections.

use std::io::Write;

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{Connect, Job, Step};
use adverb_results::{DeviceKind, Record, Transport};
use adverb_verbs::{PageKind, PathOptions, RetryCount};
use serde_json::json;

use super::start::{Setting, measure_as};
use super::words::counted;
use crate::args::{ConnectArgs, DeviceArgs, Format, OutArgs, TargetArgs};
use crate::sink::Table;
use crate::{request, terminal};

/// `adverb connect`.
pub(crate) fn connect(points: &[ConnectArgs]) -> anyhow::Result<()> {
    let args = &points[0];
    let mut measured = Vec::new();
    for (number, device) in args.on.device.each().iter().enumerate() {
        // The first device has begun the folder.
        let out = OutArgs {
            resume: args.on.out.resume || number > 0,
            ..args.on.out.clone()
        };
        let on = TargetArgs {
            device: device.clone(),
            out,
            ..args.on.clone()
        };
        let setting = Setting::new(&on, 1);
        let cells = points.iter().map(|point| cell(point, device));
        let points = measure_as(cells, &setting, |title| Life { title })?;
        measured.push(points.records);
    }
    if let [first, rest @ ..] = &measured[..]
        && !rest.is_empty()
        && args.on.format == Format::Text
    {
        for (point, record) in first.iter().enumerate() {
            let others = rest.iter().filter_map(|records| records.get(point));
            print_side_by_side(&[record].into_iter().chain(others).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Prints the steps of the active side on several devices: median and system calls.
fn print_side_by_side(records: &[&Record]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    writeln!(out, "\nside by side, active side: p50 and system calls")?;
    let names = records.iter().map(|record| record.device.to_string());
    let names: Vec<_> = names.collect();
    let width = |name: &String| name.chars().count().max(9);
    let mut line = format!("{:<STEP$}", "step");
    for name in &names {
        line += &format!("  {name:>0$}  {1:>6}", width(name), "calls");
    }
    writeln!(out, "{line}")?;
    for step in Step::ALL {
        let values = records.iter().map(|record| {
            let side = (SIDES[0], *step);
            [time(record, side, "p50"), calls(record, side)]
        });
        let values: Vec<_> = values.collect();
        if values.iter().flatten().all(Option::is_none) {
            continue;
        }
        let mut line = label(*step);
        for ([time, calls], name) in values.iter().zip(&names) {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            line += &format!("  {:>2$}  {:>6}", shown(time), shown(calls), width(name));
        }
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// The name of a step at the beginning of a row; sums are not indented.
fn label(step: Step) -> String {
    let indent = if step.is_sum() { "" } else { "  " };
    format!("{:<STEP$}", format!("{indent}{}", step.label()))
}

fn cell(args: &ConnectArgs, device: &DeviceArgs) -> Result<JobCell, Usage> {
    if args.rnr_retry == Some(RetryCount::MAX) {
        let reason = "--rnr-retry 7: 7 means without end, so that nothing fails; expected 0 to 6";
        return Err(Usage(reason.to_owned()));
    }
    let transport = transport(args, &device.choice())?;
    let region = args.size.unwrap_or(Connect::LEAST_REGION);
    // What TCP does not have was refused, unless other devices have it.
    let is_tcp = transport == Transport::Tcp;
    let agents = args.agents.filter(|_| !is_tcp);
    let rnr_retry = args.rnr_retry.filter(|_| !is_tcp);
    let pages = args.pages.filter(|_| !is_tcp);
    let job = Connect {
        transport,
        connections: args.connections,
        agents,
        messages: args.messages,
        region,
        pages,
        path: PathOptions {
            rnr_retries: rnr_retry,
            ..args.on.path.options()?
        },
    };
    let mut params = json!({
        "connections": args.connections, "messages": args.messages,
    });
    match transport {
        Transport::Tcp => params["transport"] = json!(transport),
        _ => params["size_bytes"] = json!(region),
    }
    if let Some(pages) = pages {
        params["pages"] = json!(pages);
    }
    let mut title = counted(args.connections, "connection");
    if let Some(agents) = agents {
        params["agents"] = agents.into();
        title = format!("{title}, a listener and {}", counted(agents, "agent"));
    }
    let messages = match rnr_retry {
        Some(retries) => format!("no receives and {retries} RNR retries"),
        None => counted(args.messages, "further message"),
    };
    let memory = match transport {
        Transport::Tcp => "polling sockets, TCP_NODELAY".to_owned(),
        _ => match pages {
            Some(PageKind::Small) => format!("regions of {region} on small pages"),
            Some(PageKind::Huge) => format!("regions of {region} on huge pages"),
            None => format!("regions of {region}"),
        },
    };
    let title = format!("{title}, {messages}, {memory}");
    Ok(JobCell::new("connect", &params, title, Job::Connect(job)))
}

/// Returns RC, or TCP if that is asked for or the device has nothing else. Refuses what TCP does not have.
fn transport(args: &ConnectArgs, device: &DeviceChoice) -> Result<Transport, Usage> {
    let transport = request::transport(device, args.transport)?;
    // Next to other devices, TCP leaves out what it does not have.
    if transport != Transport::Tcp || args.on.device.each().len() > 1 {
        return Ok(transport);
    }
    let device = match device {
        DeviceChoice::Tcp(_) => device.to_string(),
        _ => format!("TCP on {device}"),
    };
    let refused = [
        (
            args.size.map(|size| format!("--size {size}")),
            "registers no memory",
        ),
        (
            args.pages.map(|_| "--pages".to_owned()),
            "registers no memory",
        ),
        (
            args.agents.map(|agents| format!("--agents {agents}")),
            "has one listener, which accepts its connections itself",
        ),
        (
            args.rnr_retry
                .map(|retries| format!("--rnr-retry {}", retries.get())),
            "posts no receives",
        ),
    ];
    match refused
        .into_iter()
        .find_map(|(given, why)| Some((given?, why)))
    {
        Some((given, why)) => Err(Usage(format!("{given}: {device} {why}; leave it out"))),
        None => Ok(transport),
    }
}

/// A row for each step below the title.
struct Life {
    title: String,
}

/// Width of the names of steps.
const STEP: usize = 22;

impl Life {
    /// Steps that a record of a model lacks because the model does not charge for them.
    fn not_modelled(record: &Record) -> Option<String> {
        let is_rdma = !record.params.contains_key("transport");
        let is_free = |step: &&Step| {
            is_rdma
                && step.is_of_all_queue_pairs()
                && times(record, **step).iter().all(Option::is_none)
        };
        let free: Vec<_> = Step::ALL
            .iter()
            .filter(is_free)
            .map(|s| s.label())
            .collect();
        let is_model = record.device.kind == DeviceKind::Model && !free.is_empty();
        is_model.then(|| format!("Not modelled: {}.", free.join(", ")))
    }
}

/// The two sides of a connection, as records name them.
const SIDES: [&str; 2] = ["active", "passive"];

/// Median, 99th percentile and mean at the active and at the passive side, and their system calls; `None` if not
/// measured.
fn times(record: &Record, step: Step) -> Vec<Option<String>> {
    let of_side = |side| {
        let times = ["p50", "p99", "mean"].map(|value| time(record, (side, step), value));
        times.into_iter().chain([calls(record, (side, step))])
    };
    SIDES.into_iter().flat_map(of_side).collect()
}

fn time(record: &Record, (side, step): (&str, Step), value: &str) -> Option<String> {
    let path = format!("{side}.{}.{value}", step.name());
    record.metric(&path).map(crate::table::ns)
}

/// Mean number of system calls.
fn calls(record: &Record, (side, step): (&str, Step)) -> Option<String> {
    let path = format!("{side}.{}.system_calls", step.name());
    let calls = format!("{:.1}", record.metric(&path)?);
    Some(calls.strip_suffix(".0").unwrap_or(&calls).to_owned())
}

impl Table for Life {
    fn title(&self, record: &Record) -> String {
        format!("{} on {}: {}", record.program, record.device, self.title)
    }

    fn columns(&self, _: &Record) -> Vec<(&'static str, usize)> {
        vec![
            ("step                  ", STEP),
            ("active p50", 10),
            ("p99", 9),
            ("mean", 9),
            ("calls", 6),
            ("passive p50", 11),
            ("p99", 9),
            ("mean", 9),
            ("calls", 6),
        ]
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let measured = Step::ALL.iter().map(|step| (step, times(record, *step)));
        let measured = measured.filter(|(_, times)| times.iter().any(Option::is_some));
        let rows = measured.map(|(step, times)| [vec![Some(label(*step))], times].concat());
        rows.collect()
    }

    fn remark(&self, record: &Record) -> Option<String> {
        let per_second = record.metric("connections_per_s")?;
        let rate = crate::table::per_second(per_second)?;
        let mut lines = vec![format!("Connections set up per second: {rate}.")];
        let metrics = record.metrics.as_ref();
        let not_counted = metrics.and_then(|metrics| metrics.get("system_calls_not_counted"));
        let not_counted = not_counted.and_then(serde_json::Value::as_str);
        // A model has none to count.
        if let Some(why) = not_counted.filter(|_| record.device.kind != DeviceKind::Model) {
            lines.push(format!("System calls not counted: {why}."));
        }
        if let Some(retries) = record.params.get("rnr_retry_cnt") {
            lines.push(format!(
                "Each first message failed after {retries} RNR retries ({}); what was posted after it was flushed.",
                adverb_verbs::WcStatus::RnrRetryExcErr
            ));
        }
        lines.extend(Life::not_modelled(record));
        Some(lines.join("\n"))
    }
}
