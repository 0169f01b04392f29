//! `adverb rpc`: ways to answer requests, compared.

mod answer;

use std::collections::BTreeMap;
use std::io::Write;

use adverb_launch::{DeviceChoice, DeviceInfo, Usage};
use adverb_measure::{JobCell, path_words};
use adverb_patterns::{Clients, Echo, EchoBy, Job, Reply, needs_retransmission};
use adverb_results::{Completion, Record, Transport, Word};
use adverb_units::{Bytes, Span};
use adverb_verbs::{PortCaps, QpType};

use super::check::{check_cores, check_duration, check_memory};
use super::result::remark;
use super::start::{Setting, measure_each, schedule_on};
use super::words::counted;
use super::{asking, refusal};
use crate::args::{DeviceArgs, Format, RpcArgs, TargetArgs};
use crate::sink::Table;
use crate::table::{ns, per_second};
use crate::terminal;

/// `adverb rpc`.
pub(crate) fn rpc(points: &[RpcArgs]) -> anyhow::Result<()> {
    let args = &points[0].clients;
    let devices = args.on.device.each();
    refuse_transport(points, &devices)?;
    let targets = devices.iter().map(|device| TargetArgs {
        device: device.clone(),
        ..args.on.clone()
    });
    let targets: Vec<TargetArgs> = targets.collect();
    let (mut left_out, mut remaining) = (Vec::new(), Vec::new());
    let mut all = Vec::new();
    for on in &targets {
        let setting = Setting { on, ..args.into() };
        let device = on.device.choice();
        let port = DeviceInfo::query(&device)?.port;
        let mut impossible = BTreeMap::new();
        let mut cells = Vec::new();
        for args in points {
            for way in ways(args, (&on.device, &port), &mut impossible)? {
                cells.push(cell(args, way, &on.device)?);
                remaining.push(way);
            }
        }
        left_out.extend(impossible.iter().map(|(what, why)| match targets.len() {
            1 => format!("{what}: {why}"),
            _ => format!("{what} on {device}: {why}"),
        }));
        if !cells.is_empty() {
            all.push((setting, cells));
        }
    }
    if all.is_empty() {
        return Err(Usage(format!("--by {}", left_out.join("; "))).into());
    }
    left_out
        .iter()
        .for_each(|line| terminal::say(&format!("left out: {line}")));
    let measured = all.iter();
    let measured = measured.map(|(setting, _)| setting.on.device.choice().to_string());
    let rows = Rows {
        title: title(points, &remaining) + &path_words(&args.on.path.options()?),
        devices: measured.collect(),
    };
    let all: Vec<_> = all.iter().map(|(on, cells)| (on, &cells[..])).collect();
    let records = measure_each(&all, rows)?.records;
    if args.on.format == Format::Text {
        print_answers(&records)?;
    }
    Ok(())
}

/// Refuses a transport of queue pairs if only sockets are measured.
fn refuse_transport(points: &[RpcArgs], devices: &[DeviceArgs]) -> Result<(), Usage> {
    let mut choices = devices.iter().map(DeviceArgs::choice);
    let has_no_other = choices.all(|device| matches!(device, DeviceChoice::Tcp(_)));
    let mut ways = points.iter().map(|args| args.by);
    let is_tcp = ways.all(|by| match by {
        Some(by) => by == EchoBy::Tcp,
        None => has_no_other,
    });
    match points.iter().find_map(|args| args.transport) {
        Some(transport) if is_tcp => Err(Usage(format!(
            "--transport {transport}: TCP sockets have no queue pairs; leave it out"
        ))),
        _ => Ok(()),
    }
}

/// Returns the ways that a point asks for on a device, and notes those that cannot exist, with the reason.
fn ways(
    args: &RpcArgs,
    (device, port): (&DeviceArgs, &PortCaps),
    left_out: &mut BTreeMap<String, String>,
) -> Result<Vec<(EchoBy, Transport)>, Usage> {
    let device = device.choice();
    let bad_path = needs_retransmission(&args.clients.on.path.options()?);
    let each = |by: EchoBy| {
        let transports = match (by, args.transport) {
            (EchoBy::Tcp, _) => vec![Transport::Tcp],
            (_, Some(one)) => vec![one],
            (_, None) => vec![Transport::Rc, Transport::Uc, Transport::Ud],
        };
        transports.into_iter().map(move |transport| (by, transport))
    };
    let is_tcp = matches!(device, DeviceChoice::Tcp(_));
    let all = match args.by {
        Some(one) => vec![one],
        None if is_tcp => vec![EchoBy::Tcp],
        None => EchoBy::ALL
            .into_iter()
            .filter(|by| *by != EchoBy::Tcp)
            .collect(),
    };
    let mut ways = Vec::new();
    for (by, transport) in all.into_iter().flat_map(each) {
        let refused = refusal(by == EchoBy::Tcp, &device).map(str::to_owned);
        let messages = [args.request, args.reply];
        let of_way = || why_not((by, transport), args.completion, (messages, port));
        let of_path = || {
            let option = bad_path.as_ref()?;
            let is_out = !transport.is_reliable() && args.transport.is_none();
            is_out.then(|| format!("{option}: UC and UD send nothing again"))
        };
        let why = refused.clone().or_else(of_way);
        match why.or_else(of_path) {
            None => ways.push((by, transport)),
            Some(why) => {
                let completion = match args.completion {
                    Completion::Poll => String::new(),
                    other => format!(" with --completion {other}"),
                };
                let what = match by {
                    _ if refused.is_some() => by.word().to_owned(),
                    EchoBy::Tcp => format!("tcp{completion}"),
                    _ => format!("{} over {transport}{completion}", by.word()),
                };
                left_out.insert(what, why);
            }
        }
    }
    Ok(ways)
}

/// Returns why requests and replies of these sizes cannot be sent that way over a port; `None` if they can.
pub(crate) fn why_not(
    (by, transport): (EchoBy, Transport),
    completion: Completion,
    (messages, port): ([Bytes; 2], &PortCaps),
) -> Option<String> {
    if let Some(why) = by.refusal(queue_pair(transport), completion) {
        return Some(why.to_owned());
    }
    if !transport.is_reliable() && !port.link_layer.has_all_transports() {
        return Some("the device has only RC queue pairs".to_owned());
    }
    let [request, reply] = messages.map(|size| u32::try_from(size.get()).unwrap_or(u32::MAX));
    let longest = Bytes::new(by.longest_datagram(request, reply).into());
    let mtu = port.active_mtu.bytes();
    let is_long = transport == Transport::Ud && longest > mtu;
    is_long.then(|| format!("a message of {longest} exceeds the path MTU of {mtu}"))
}

pub(crate) fn queue_pair(transport: Transport) -> QpType {
    match transport {
        Transport::Uc => QpType::Uc,
        Transport::Ud => QpType::Ud,
        Transport::Rc | Transport::Tcp => QpType::Rc,
    }
}

fn cell(
    args: &RpcArgs,
    (by, transport): (EchoBy, Transport),
    device: &DeviceArgs,
) -> Result<JobCell, Usage> {
    let clients = &args.clients;
    check_duration(&clients.runs)?;
    check_cores(args.cores, clients.clients)?;
    let sizes = [("--request", args.request), ("--reply", args.reply)];
    for (flag, size) in sizes {
        let (least, most) = (Bytes::new(8), Bytes::mib(1));
        if !(least..=most).contains(&size) {
            return Err(Usage(format!("{flag} {size}: expected {least} to {most}")));
        }
    }
    let messages = u64::from(clients.clients) * u64::from(clients.outstanding);
    let message = args.request.get() + args.reply.get() + 256;
    check_memory("these messages", &[messages, message, 2])?;
    let machines = clients.machines_of_clients(device);
    let echo = Echo {
        by,
        content: Reply::Digest,
        transport: queue_pair(transport),
        request: args.request.get() as u32,
        reply: args.reply.get() as u32,
        cores: args.cores,
        clients: Clients {
            machines,
            ..asking(clients, args.rate)
        },
        think: args.think,
        wait: args.completion,
        path: clients.on.path.options()?,
    };
    let (program, params) = echo.parameters(args.rate);
    let job = Job::Echo(echo, schedule_on(&clients.runs, device));
    Ok(JobCell::new(
        program,
        &params,
        title(std::slice::from_ref(args), &[(by, transport)]),
        job,
    ))
}

/// Describes what all points have in common, with the way if only one is measured.
fn title(points: &[RpcArgs], ways: &[(EchoBy, Transport)]) -> String {
    let (by, transport) = ways[0];
    let by = ways.iter().all(|way| way.0 == by).then_some(by);
    let transport = ways
        .iter()
        .all(|way| way.1 == transport)
        .then_some(transport);
    let transport = transport.filter(|transport| *transport != Transport::Tcp);
    let way = [
        by.map(|by| format!("by {}", by.word())),
        transport.map(|transport| format!("over {transport}")),
    ];
    let parts: [fn(&RpcArgs) -> Option<String>; 8] = [
        |args| Some(format!("requests of {}", args.request)),
        |args| Some(format!("replies of {}", args.reply)),
        |args| Some(counted(args.clients.clients, "client")),
        |args| Some(format!("{} outstanding", args.clients.outstanding)),
        |args| Some(counted(args.cores, "server core")),
        |args| Some(format!("completions by {}", args.completion)),
        |args| Some(format!("{} offered", per_second(args.rate?)?)),
        |args| (args.think > Span::ZERO).then(|| format!("{} of computation each", args.think)),
    ];
    let shared = parts.iter().filter_map(|part| {
        let first = part(&points[0])?;
        let mut all = points.iter();
        all.all(|args| part(args).as_ref() == Some(&first))
            .then_some(first)
    });
    let all = way.into_iter().flatten().chain(shared);
    all.collect::<Vec<_>>().join(", ")
}

/// A row for each way on each device.
struct Rows {
    title: String,
    devices: Vec<String>,
}

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        format!(
            "{} on {}: {}",
            record.program,
            self.devices.join(", "),
            self.title
        )
    }

    fn columns(&self, _: &Record) -> Vec<(&'static str, usize)> {
        let mut columns: Vec<_> = ["rate", "mean", "p50", "p99"].map(|name| (name, 9)).into();
        columns.extend([
            ("client CPU", 10),
            ("server CPU", 10),
            ("least", 9),
            ("most", 9),
        ]);
        if self.devices.len() > 1 {
            let widths = self.devices.iter().map(|name| name.chars().count());
            columns.insert(0, ("device", widths.max().unwrap_or(0).max(6)));
        }
        columns
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let rate = |name| record.metric(name).and_then(per_second);
        let latency = |name| record.metric(name).map(ns);
        let cpu = |name| record.metric(name).map(|percent| format!("{percent:.0} %"));
        let mut row = vec![
            rate("requests_per_s"),
            latency("latency_ns.mean"),
            latency("latency_ns.p50"),
            latency("latency_ns.p99"),
            cpu("client_cpu_percent"),
            cpu("server_cpu_percent"),
            rate("client_least_per_s"),
            rate("client_most_per_s"),
        ];
        if self.devices.len() > 1 {
            row.insert(0, Some(record.device.to_string()));
        }
        vec![row]
    }

    fn remark(&self, record: &Record) -> Option<String> {
        remark(record)
    }
}

/// Prints what was checked, and the answer of each device.
fn print_answers(records: &[Record]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    let checked = records
        .iter()
        .filter_map(|record| record.metric("checked.replies"));
    writeln!(out, "Checked: {} replies, each byte.", checked.sum::<f64>())?;
    let mut devices: Vec<&Record> = Vec::new();
    for record in records {
        if devices.iter().all(|seen| seen.device != record.device) {
            devices.push(record);
        }
    }
    for device in devices {
        let of_device = records.iter().filter(|other| other.device == device.device);
        if let Some(answer) = answer::sentence(&of_device.collect::<Vec<_>>()) {
            writeln!(out, "{answer}")?;
        }
    }
    if let Some(answer) = answer::of_devices(records) {
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}
