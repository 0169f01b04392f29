//! Figures in words. Units and multiples come from `adverb-units`.

use adverb_results::{DeviceKind, Opcode, PairRecord, Params, Program, Signaling, word};
use adverb_units::{Bytes, MessageRate, Span, Throughput, three_digits};
use serde_json::Value;

/// `1.25 µs`.
pub fn time(ns: f64) -> String {
    Span::from_secs_f64(ns / 1e9).to_string()
}

/// `1.25 µs`, the half-width of the interval of a measured mean; `<1 ns` below the resolution of the clock.
pub fn half_width(ns: f64) -> String {
    if ns < 1.0 {
        "<1 ns".to_owned()
    } else {
        time(ns)
    }
}

/// `9.80 GB/s`.
pub fn throughput(bytes_per_s: f64) -> String {
    Throughput::over(Bytes::new(bytes_per_s.round() as u64), Span::from_secs(1))
        .map_or_else(String::new, |t| t.to_string())
}

/// `25600 Mb/s`: in the unit of MacArthur & Russell's figures, if it is one at least.
pub fn megabits(value: f64) -> String {
    match value {
        ..0.995 => format!("{} kb/s", three_digits(1e3 * value)),
        _ => format!("{} Mb/s", three_digits(value)),
    }
}

/// `12.3 M/s`.
pub fn rate(messages_per_s: f64) -> String {
    MessageRate::over(messages_per_s.round() as u64, Span::from_secs(1))
        .map_or_else(String::new, |r| r.to_string())
}

/// Returns a parameter of a record in words, a time or a rate with its unit; `None` without a value.
pub fn parameter(name: &str, value: Option<&Value>) -> Option<String> {
    let number = value.and_then(Value::as_f64);
    let has_unit = |unit| name.ends_with(unit);
    match number {
        Some(ns) if has_unit("_ns") => Some(time(ns)),
        Some(per_s) if has_unit("_per_s") => Some(rate(per_s)),
        _ => word(value),
    }
}

/// `64 B`, `4 KiB`.
pub fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// `64`, `4K`, `1M`: a size on an axis.
pub fn size_tick(bytes: u64) -> String {
    size(bytes)
        .replace(" B", "")
        .replace("iB", "")
        .replace(' ', "")
}

/// `23 %`; below 10, one decimal.
pub fn percent(value: f64) -> String {
    if value < 9.95 && value != 0.0 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

/// `4.20×`, `57.7×`: three significant digits; two of `0.74×`, and of `0.0074×`.
pub fn factor(value: f64) -> String {
    match value {
        small if small > 0.0 && small < 0.0995 => format!("{small:.4}×"),
        usual => format!("{}×", three_digits(usual)),
    }
}

/// Returns a parameter's name without its unit, which is at the values: `offered_per_s` is `offered`.
pub fn without_unit(name: &str) -> &str {
    let units = ["_ns", "_per_s"];
    let without = units.iter().find_map(|unit| name.strip_suffix(unit));
    without.unwrap_or(name)
}

/// `a`, `a and b`, `a, b and c`.
pub fn and(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [many @ .., last] => format!("{} and {last}", many.join(", ")),
    }
}

/// What a record's device is: `shared memory`, `RoCE over UDP, in software`.
pub fn device_kind(record: &PairRecord) -> String {
    let detail = |name: &str| record.provenance.active.device.get(name);
    match record.device.kind {
        DeviceKind::Soft if record.device.has_udp_port() => "RoCE over UDP, in software".to_owned(),
        DeviceKind::Soft => "shared memory".to_owned(),
        DeviceKind::Model => "prediction".to_owned(),
        DeviceKind::Tcp => "kernel TCP".to_owned(),
        DeviceKind::Verbs => match (detail("driver"), detail("link layer")) {
            (Some(driver), Some(layer)) => format!("{layer}, driver {driver}"),
            (Some(driver), None) => format!("driver {driver}"),
            (None, Some(layer)) => layer.clone(),
            (None, None) => "behind libibverbs".to_owned(),
        },
    }
}

/// `1 buffer`, `2 buffers`.
pub fn buffers(n: u32) -> String {
    if n == 1 {
        "1 buffer".to_owned()
    } else {
        format!("{n} buffers")
    }
}

/// `ACK timeout 67.1 ms`.
pub fn timeout(params: &Params) -> String {
    let timeout = params.ack_timeout.map(|timeout| timeout.to_string());
    format!("ACK timeout {}", timeout.as_deref().unwrap_or("unknown"))
}

/// The operation as the specification spells it.
pub fn opcode(program: Program, op: Opcode) -> &'static str {
    match (program, op) {
        (_, Opcode::Send) => "SEND",
        (_, Opcode::SendImm) => "SEND_IMM",
        (_, Opcode::WriteImm) => "WRITE_IMM",
        (Program::Ping, Opcode::Write) => "WRITE to polled memory",
        (Program::Blast, Opcode::Write) => "WRITE",
        (_, Opcode::Read) => "READ",
        (_, Opcode::WriteRead) => "WRITE then READ",
        (_, Opcode::FetchAdd) => "FETCH_ADD",
        (_, Opcode::Cas) => "CMP_SWAP",
    }
}

/// The operation with what else distinguishes two lines of one plot.
pub fn operation(program: Program, params: &Params) -> String {
    let mut words = vec![opcode(program, params.op).to_owned()];
    words.extend(attributes(program, params));
    words.join(", ")
}

/// Returns whether a run signals its requests in another way than its operation always does. WRITEs into the
/// memory that a `ping` polls are never all signaled.
pub fn is_selective(program: Program, params: &Params) -> bool {
    params.signal != Signaling::All && (program, params.op) != (Program::Ping, Opcode::Write)
}

/// What else distinguishes two cells of one operation.
pub fn attributes(program: Program, params: &Params) -> Vec<String> {
    let mut words = Vec::new();
    if params.inline {
        words.push("inline".to_owned());
    }
    if is_selective(program, params) {
        words.push(signaling(params.signal));
    }
    if params.verify {
        words.push("verified".to_owned());
    }
    words
}

/// Which requests are signaled.
pub fn signaling(signal: Signaling) -> String {
    match signal {
        Signaling::All => "all signaled".to_owned(),
        Signaling::Periodic => "one in n/2 signaled".to_owned(),
        Signaling::Every(n) => format!("one in {n} signaled"),
        Signaling::WriteUnsignaled => "WRITE unsignaled".to_owned(),
    }
}

/// Places of an ordered scale as runs: `1 B to 4 KiB and 1 MiB`. `all` are the places measured,
/// `these` a part of them, both in order.
pub fn runs<T: Ord + Copy>(all: &[T], these: &[T], show: impl Fn(T) -> String) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut run: Vec<T> = Vec::new();
    for place in all {
        if these.contains(place) {
            run.push(*place);
        } else {
            words.extend(one_run(&run, &show));
            run.clear();
        }
    }
    words.extend(one_run(&run, &show));
    and(&words)
}

fn one_run<T: Copy>(run: &[T], show: impl Fn(T) -> String) -> Option<String> {
    match run {
        [] => None,
        [one] => Some(show(*one)),
        [first, .., last] => Some(format!("{} to {}", show(*first), show(*last))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        assert_eq!(time(48.04), "48.0 ns");
        assert_eq!(time(1234.0), "1.23 µs");
        assert_eq!(
            [0.482, 1.4, 801.2].map(half_width),
            ["<1 ns", "1.40 ns", "801 ns"]
        );
        assert_eq!(throughput(9.8e9), "9.80 GB/s");
        assert_eq!([2.5, 25_600.4].map(megabits), ["2.50 Mb/s", "25600 Mb/s"]);
        assert_eq!(rate(2.5e6), "2.50 M/s");
        let factors = [23.58, 57.7, 0.74, 0.0074].map(factor);
        assert_eq!(factors, ["23.6×", "57.7×", "0.74×", "0.0074×"]);
        assert_eq!(
            [1, 64, 4096, 1 << 20].map(size_tick),
            ["1", "64", "4K", "1M"]
        );
        assert_eq!([0.0, 3.21, 99.7].map(percent), ["0 %", "3.2 %", "100 %"]);
    }

    #[test]
    fn runs_are_joined_only_over_neighbours_that_were_measured() {
        let all = [1, 2, 4, 8, 16];
        let show = |n: i32| n.to_string();
        assert_eq!(runs(&all, &[1, 2, 4], show), "1 to 4");
        assert_eq!(runs(&all, &[1, 4, 8], show), "1 and 4 to 8");
        assert_eq!(runs(&all, &[2, 8, 16], show), "2 and 8 to 16");
        assert_eq!(runs(&all, &[], show), "");
    }
}
