//! `adverb connect`: the life of connections.

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{Connect, Job, Step};
use adverb_results::{DeviceKind, Record, Transport};
use adverb_units::{MessageRate, Span};
use adverb_verbs::{PageKind, PathOptions, RetryCount};
use serde_json::json;

use super::start::{Setting, measure_as};
use super::words::counted;
use crate::args::ConnectArgs;
use crate::request;
use crate::sink::Table;

/// `adverb connect`.
pub(crate) fn connect(points: &[ConnectArgs]) -> anyhow::Result<()> {
    let args = &points[0];
    let setting = Setting {
        on: &args.on,
        repetitions: 1,
        duration: Span::ZERO,
    };
    measure_as(points.iter().map(cell), &setting, |title| Life { title })
}

fn cell(args: &ConnectArgs) -> anyhow::Result<JobCell> {
    if args.rnr_retry == Some(RetryCount::MAX) {
        let reason = "--rnr-retry 7: 7 means without end, so that nothing fails; expected 0 to 6";
        return Err(Usage(reason.to_owned()).into());
    }
    let transport = transport(args)?;
    let region = args.size.unwrap_or(Connect::LEAST_REGION);
    let pages = args.pages;
    let job = Connect {
        transport,
        connections: args.connections,
        agents: args.agents,
        messages: args.messages,
        region,
        pages,
        path: PathOptions {
            rnr_retries: args.rnr_retry,
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
    if let Some(agents) = args.agents {
        params["agents"] = agents.into();
        title = format!("{title}, a listener and {}", counted(agents, "agent"));
    }
    let messages = match args.rnr_retry {
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
fn transport(args: &ConnectArgs) -> Result<Transport, Usage> {
    let device = args.on.device.choice();
    let transport = request::transport(&device, args.transport)?;
    if transport != Transport::Tcp {
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

/// Median, 99th percentile and mean at the active and at the passive side; `None` if not measured.
fn times(record: &Record, step: Step) -> Vec<Option<String>> {
    let sides = ["active", "passive"].into_iter();
    let paths = sides.flat_map(|side| {
        ["p50", "p99", "mean"].map(|value| format!("{side}.{}.{value}", step.name()))
    });
    let values = paths.map(|path| record.metric(&path).map(crate::table::ns));
    values.collect()
}

impl Table for Life {
    fn title(&self, record: &Record) -> String {
        format!("{} on {}: {}", record.program, record.device, self.title)
    }

    fn columns(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("step                  ", STEP),
            ("active p50", 10),
            ("p99", 9),
            ("mean", 9),
            ("passive p50", 11),
            ("p99", 9),
            ("mean", 9),
        ]
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let measured = Step::ALL.iter().map(|step| (step, times(record, *step)));
        let measured = measured.filter(|(_, times)| times.iter().any(Option::is_some));
        let rows = measured.map(|(step, times)| {
            let indent = if step.is_sum() { "" } else { "  " };
            let label = format!("{:<STEP$}", format!("{indent}{}", step.label()));
            [vec![Some(label)], times].concat()
        });
        rows.collect()
    }

    fn remark(&self, record: &Record) -> Option<String> {
        let per_second = record.metric("connections_per_s")?;
        let rate = MessageRate::over((per_second * 1e3).round() as u64, Span::from_secs(1000))?;
        let mut lines = vec![format!("Connections set up per second: {rate}.")];
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
