//! perftest's programs: a server and a client on this host, and what they print.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::parameters::Parameters;
use crate::child::{Ended, free_port, spawn_on};
use crate::stats::{mean_and_deviation, median, sorted};

/// How a pair of programs is started.
#[derive(Clone, Debug)]
pub(crate) struct Start<'a> {
    /// Cores of client and server.
    pub(crate) cores: [u32; 2],
    pub(crate) device: &'a str,
    /// Command lines of client and server that run the program that is their last argument; empty to run it directly.
    pub(crate) through: [Vec<String>; 2],
    /// Variables of both programs.
    pub(crate) env: &'a [(&'a str, &'a str)],
}

/// What a latency test printed. All figures in µs, as it defines them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latency {
    /// Median of all samples but the two largest.
    pub(crate) typical: f64,
    /// Mean of all samples but the two largest.
    pub(crate) average: f64,
    /// Second largest sample, which it calls the maximum.
    pub(crate) max: f64,
    /// Deviations truncated to whole µs before they are squared.
    pub(crate) deviation: f64,
    /// All of its samples, in order of size.
    pub(crate) samples: Vec<f64>,
    pub(crate) parameters: Parameters,
}

/// What a bandwidth test printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bandwidth {
    /// Its average. It prints `MB/sec` and divides by 2^20.
    pub(crate) mebibytes_per_s: f64,
    pub(crate) messages_per_s: f64,
    pub(crate) parameters: Parameters,
}

impl Bandwidth {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        const MEBIBYTE: f64 = (1 << 20) as f64;
        self.mebibytes_per_s * MEBIBYTE
    }
}

impl Latency {
    /// Mean and standard deviation of its samples, none left out, nothing truncated.
    pub(crate) fn plain(&self) -> (f64, f64) {
        mean_and_deviation(&self.samples)
    }

    /// Median of its samples, none left out.
    pub(crate) fn median(&self) -> f64 {
        median(&self.samples)
    }

    /// The largest sample.
    pub(crate) fn largest(&self) -> f64 {
        self.samples.last().copied().unwrap_or(f64::NAN)
    }
}

/// Runs a latency test.
pub(crate) fn latency(start: &Start<'_>, program: &str, args: &str) -> Result<Latency> {
    // -U: all samples are printed after the measurement.
    let text = run(start, program, &format!("{args} -U"))?;
    parse_latency(&text).with_context(|| format!("{program} printed no result: {text}"))
}

/// Runs a bandwidth test.
pub(crate) fn bandwidth(start: &Start<'_>, program: &str, args: &str) -> Result<Bandwidth> {
    let text = run(start, program, args)?;
    parse_bandwidth(&text).with_context(|| format!("{program} printed no result: {text}"))
}

/// Runs server and client; what the client printed.
fn run(start: &Start<'_>, program: &str, args: &str) -> Result<String> {
    let port = free_port()?;
    let [client_core, server_core] = start.cores;
    let [client_through, server_through] = &start.through;
    let number = port.to_string();
    // -F: do not stop if the CPU frequency varies, which affects both programs.
    let common = ["-d", start.device, "-p", &number, "-F"];
    let command = |through: &[String], tail: &[&str]| {
        let mut line = through.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(line.next().expect("the program is last"));
        command
            .args(line)
            .args(common)
            .args(args.split(' '))
            .args(tail);
        command.envs(start.env.iter().copied());
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut server = command(server_through, &[]);
    // It prints all samples, too: nobody reads a pipe while the client runs.
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Ended(spawn_on(server_core, server)?);
    server.wait_until_it_listens(port, program)?;
    let client = spawn_on(client_core, command(client_through, &["127.0.0.1"]))?;
    let output = client
        .wait_with_output()
        .with_context(|| format!("{program} did not end"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let talk = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed ({}): {text} {talk}", output.status);
    }
    let _ = server.0.wait();
    Ok(text)
}

/// The columns `#bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%`, after lines
/// `number, sample`.
fn parse_latency(text: &str) -> Option<Latency> {
    let samples = text.lines().filter_map(|line| {
        let (number, sample) = line.split_once(',')?;
        number.trim().parse::<u64>().ok()?;
        sample.trim().parse::<f64>().ok()
    });
    let samples = sorted(samples);
    let columns = last_numbers(text, 9)?;
    (!samples.is_empty()).then_some(Latency {
        parameters: parse_parameters(text, &columns)?,
        typical: columns[4],
        average: columns[5],
        max: columns[3],
        deviation: columns[6],
        samples,
    })
}

/// The columns `#bytes #iterations BW peak, BW average, MsgRate`.
fn parse_bandwidth(text: &str) -> Option<Bandwidth> {
    let columns = last_numbers(text, 5)?;
    Some(Bandwidth {
        mebibytes_per_s: columns[3],
        messages_per_s: columns[4] * 1e6,
        parameters: parse_parameters(text, &columns)?,
    })
}

/// The banner's lines ` TX depth        : 16`, and the first two columns of the results.
fn parse_parameters(text: &str, columns: &[f64]) -> Option<Parameters> {
    let reported = |name: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| {
            let (left, right) = line.split_once(':')?;
            (left.trim() == name).then_some(right.trim())
        })?;
        value.trim_end_matches("[B]").parse().ok()
    };
    Some(Parameters {
        size: columns[0] as u64,
        iterations: columns[1] as u64,
        in_flight: reported("TX depth")?,
        // Told where it is another one.
        signaled_every: reported("CQ Moderation").unwrap_or(1),
        path_mtu: reported("Mtu"),
    })
}

/// Returns the last line with exactly `count` numbers.
fn last_numbers(text: &str, count: usize) -> Option<Vec<f64>> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let words: Option<Vec<f64>> = line.split_whitespace().map(|w| w.parse().ok()).collect();
        words.filter(|numbers| numbers.len() == count)
    };
    text.lines().rev().find_map(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ib_read_lat -s 64 -n 6 -U` of perftest 4.5 printed on Soft-RoCE, with part of its banner.
    const LATENCY: &str = "\
 TX depth        : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 local address: LID 0000 QPN 0x0022 PSN 0xf028ca OUT 0x80 RKey 0x0012da VAddr 0x0055d5ce5a9000
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
#, usec
1, 1299.26
2, 69.1342
3, 33.4045
4, 28.3031
5, 24.7497
---------------------------------------------------------------------------------------
 64      6          24.75          69.13        30.85    	       28.82       	1.53   		69.13   		69.13
";

    #[test]
    fn latency_tests_and_their_samples_are_parsed() {
        let latency = parse_latency(LATENCY).unwrap();
        assert_eq!((latency.max, latency.largest()), (69.13, 1299.26));
        assert_eq!((latency.typical, latency.median()), (30.85, 33.4045));
        let (mean, deviation) = latency.plain();
        assert!((mean - 290.97).abs() < 0.01 && (deviation - 563.93).abs() < 0.01);
        assert_eq!((latency.average, latency.deviation), (28.82, 1.53));
        let parameters = Parameters {
            size: 64,
            iterations: 6,
            in_flight: 1,
            signaled_every: 1,
            path_mtu: Some(4096),
        };
        assert_eq!(latency.parameters, parameters);
    }

    #[test]
    fn the_average_of_a_bandwidth_test_is_its_fourth_column() {
        let text = " TX depth        : 16
 CQ Moderation   : 8
 Mtu             : 4096[B]
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             39.87              39.42  \t\t   0.000631
";
        let bandwidth = parse_bandwidth(text).unwrap();
        assert_eq!(bandwidth.mebibytes_per_s, 39.42);
        assert_eq!(bandwidth.messages_per_s, 631.0);
        let parameters = Parameters {
            size: 65536,
            iterations: 1000,
            in_flight: 16,
            signaled_every: 8,
            path_mtu: Some(4096),
        };
        assert_eq!(bandwidth.parameters, parameters);
        assert_eq!(parse_bandwidth("Couldn't connect"), None);
    }
}
