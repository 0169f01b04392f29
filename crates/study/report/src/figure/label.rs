//! What a series is called and how it is drawn: the choices of a panel's declaration.

use adverb_results::{
    Completion, LinkRate, Opcode, PairRecord, Posting, Program, Signaling, Transport,
};

use adverb_units::Span;

use super::Style;
use crate::format;

/// A series' name, place and look.
pub struct Label {
    pub(crate) order: u64,
    pub(crate) name: String,
    pub(crate) short: String,
    /// None: the next free one.
    pub(crate) style: Option<Style>,
}

/// Markers of series that have no style of their own; the cross is for published values.
const MARKERS: usize = 5;
/// Series from which on a look is used again.
const LOOKS: usize = 40;

/// The look of the `index`th series. The first 20 differ without their colours, too.
pub(crate) fn by_order(index: usize) -> Style {
    let round = index / MARKERS;
    Style {
        color: (index % 8) as u8,
        marker: (index % MARKERS) as u8,
        dash: (round % 4) as u8,
        hollow: round % 2 == 1,
    }
}

/// The looks of the series of a figure: a series has the same look in all panels, and no other series has it.
#[derive(Default)]
pub(crate) struct Looks(Vec<(String, Style)>);

impl Looks {
    /// Returns the look of a series: `own`, unless another series has it.
    pub(crate) fn of(&mut self, name: &str, own: Option<Style>) -> Style {
        if let Some((_, style)) = self.0.iter().find(|(known, _)| known == name) {
            return *style;
        }
        let mut wanted = own.into_iter().chain((0..LOOKS).map(by_order));
        let free = wanted.find(|style| self.0.iter().all(|(_, other)| other != style));
        let style = free.unwrap_or_else(|| by_order(self.0.len()));
        self.0.push((name.to_owned(), style));
        style
    }
}

/// One series for each operation, inline or not.
pub fn by_operation(record: &PairRecord) -> Label {
    let params = &record.params;
    let op = params.op;
    let unsignaled = format::is_selective(record.program, params);
    let short = match op {
        Opcode::WriteRead => "W+READ",
        Opcode::Write => "WRITE",
        other => format::opcode(record.program, other),
    };
    Label {
        order: op as u64 * 100 + u64::from(params.inline) * 10 + u64::from(unsignaled),
        name: format::operation(record.program, params),
        short: short.to_owned(),
        style: Some(of_operation(record)),
    }
}

/// Colour and marker show the operation, dashes and hollow markers inline or unsignaled ones.
pub(crate) fn of_operation(record: &PairRecord) -> Style {
    let params = &record.params;
    let unsignaled = format::is_selective(record.program, params);
    let op = params.op as u8;
    Style {
        color: op,
        marker: if unsignaled { 5 } else { op },
        dash: u8::from(params.inline) + 2 * u8::from(unsignaled),
        hollow: params.inline,
    }
}

/// One series for each message size.
pub fn by_size(record: &PairRecord) -> Label {
    let bytes = record.params.size_bytes.get();
    let name = format::size(bytes);
    let verified = if record.params.verify {
        ", verified"
    } else {
        ""
    };
    Label {
        order: bytes,
        short: name.clone(),
        name: format!("{name}{verified}"),
        style: None,
    }
}

/// One series for each operation, inline or not, and each way of waiting for completions.
pub fn by_operation_and_completion(record: &PairRecord) -> Label {
    waiting(record, by_operation(record))
}

/// One series for each message size and each way of waiting for completions.
pub fn by_size_and_completion(record: &PairRecord) -> Label {
    waiting(record, by_size(record))
}

/// Divides a series by the way of waiting: the lines of events have other dashes, and no name at their end.
fn waiting(record: &PairRecord, label: Label) -> Label {
    let how = record.params.completion;
    let is_event = how.has_events();
    Label {
        order: 2 * label.order + u64::from(is_event),
        name: format!("{}, {}", label.name, completion(how)),
        short: if is_event { String::new() } else { label.short },
        style: label.style.map(|style| Style {
            dash: style.dash + 2 * u8::from(is_event),
            ..style
        }),
    }
}

/// One series for each operation at each rate of the link: colours of operations, markers and dashes of rates.
pub fn by_operation_and_rate(record: &PairRecord) -> Label {
    let label = by_operation(record);
    let place = |rate| LinkRate::ALL.iter().position(|each| *each == rate);
    let place = record.params.rate.and_then(place).unwrap_or_default();
    let rate = record.params.rate.map(|rate| rate.to_string());
    let name = format!(
        "{}, {}",
        label.name,
        rate.unwrap_or_default().to_uppercase()
    );
    let step = place as u8;
    Label {
        order: label.order * LinkRate::ALL.len() as u64 + place as u64,
        short: String::new(),
        style: label.style.map(|style| Style {
            marker: step % 6,
            dash: step % 4,
            ..style
        }),
        name,
    }
}

/// One series for each operation of each device.
pub fn by_operation_and_device(record: &PairRecord) -> Label {
    on_device(record, &by_operation(record))
}

/// One series for each message size on each device.
pub fn by_size_and_device(record: &PairRecord) -> Label {
    on_device(record, &by_size(record))
}

fn on_device(record: &PairRecord, label: &Label) -> Label {
    let device = by_device(record);
    Label {
        order: label.order,
        name: format!("{}, {}", label.name, device.name),
        ..device
    }
}

/// One series for each way of signaling and posting.
pub fn by_signal_and_post(record: &PairRecord) -> Label {
    match record.params.post {
        Posting::Single => by_signal(record, "single posts", Stroke::Solid),
        Posting::List => by_signal(record, "lists", Stroke::Dashed),
    }
}

/// One series for each way of signaling and of waiting for completions.
pub fn by_signal_and_completion(record: &PairRecord) -> Label {
    let stroke = match record.params.completion {
        Completion::Event | Completion::Hybrid(_) => Stroke::Dashed,
        Completion::Poll => Stroke::Solid,
    };
    by_signal(record, &completion(record.params.completion), stroke)
}

/// One series for each ACK timeout.
pub fn by_timeout(record: &PairRecord) -> Label {
    let name = format::timeout(&record.params);
    Label {
        order: record.params.ack_timeout.map_or(0, Span::as_ns),
        short: String::new(),
        name,
        style: None,
    }
}

/// One series for each delay of the path.
pub fn by_delay(record: &PairRecord) -> Label {
    let delay = record.params.impairment.unwrap_or_default().delay;
    Label {
        order: delay.as_ns(),
        name: format!("{delay} each way"),
        short: delay.to_string(),
        style: None,
    }
}

/// One series for each number of messages in flight on RC, and one for TCP.
pub fn by_window_or_tcp(record: &PairRecord) -> Label {
    let buffers = record.params.buffers;
    let (order, name) = match record.params.traffic.transport {
        Transport::Tcp => (0, "kernel TCP".to_owned()),
        transport => (
            u32::BITS - buffers.leading_zeros(),
            format!(
                "{}, {buffers} in flight",
                transport.to_string().to_uppercase()
            ),
        ),
    };
    Label {
        order: order.into(),
        short: String::new(),
        name,
        style: None,
    }
}

/// One series for each number of messages in flight and each ACK timeout.
pub fn by_window_and_timeout(record: &PairRecord) -> Label {
    let (buffers, timeout) = (record.params.buffers, by_timeout(record));
    Label {
        order: timeout.order + u64::from(buffers),
        name: format!("{buffers} in flight, {}", timeout.name),
        ..timeout
    }
}

/// How the lines of one colour are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    Solid,
    Dashed,
}

fn by_signal(record: &PairRecord, with: &str, stroke: Stroke) -> Label {
    let second = stroke == Stroke::Dashed;
    let signal = match record.params.signal {
        Signaling::All => 0,
        Signaling::Periodic => 1,
        Signaling::WriteUnsignaled => 2,
        Signaling::Every(n) => 3 + u64::from(n),
    };
    let color = match (record.program, signal) {
        (Program::Ping, 0) => 4,
        (_, signal) => signal.min(3) as u8,
    };
    Label {
        order: signal * 2 + u64::from(second),
        name: format!(
            "{}: {}, {with}",
            record.program,
            format::signaling(record.params.signal)
        ),
        short: String::new(),
        style: Some(Style {
            color,
            marker: color,
            dash: u8::from(second),
            hollow: second,
        }),
    }
}

/// A series named after its device and what that is.
fn by_device(record: &PairRecord) -> Label {
    Label {
        order: 0,
        name: format!("{} ({})", record.device, format::device_kind(record)),
        short: record.device.name.clone(),
        style: None,
    }
}

/// How completions are learned of, in words.
pub(crate) fn completion(completion: Completion) -> String {
    match completion {
        Completion::Poll => "busy polling".to_owned(),
        Completion::Event => "events".to_owned(),
        Completion::Hybrid(span) => format!("polling for {span}, then events"),
    }
}
