//! What `adverb place` prints.

use std::io::{self, Write};

use adverb_host::{Moved, Resident};
use adverb_units::{Bytes, MessageRate, Span};
use serde_json::json;

use super::Sample;
use super::advice::Advice;
use crate::args::{Format, PlacementArgs};
use crate::terminal;

/// What is printed after an evaluation.
pub(super) struct Found<'a> {
    pub(super) args: &'a PlacementArgs,
    pub(super) sample: &'a Sample,
    pub(super) advice: &'a Advice,
    /// Share of READs, and whether the device counted it.
    pub(super) reads: (f64, bool),
}

impl Found<'_> {
    /// Prints the evaluation, or as a text only that it is the same as the `last` one.
    pub(super) fn print(&self, process: &Resident, last: &mut String) -> io::Result<()> {
        let mut out = terminal::stdout();
        if self.args.format == Format::Json {
            return writeln!(out, "{}", self.json());
        }
        let text = self.text(process);
        if *last == text {
            return writeln!(out, "The same as before.");
        }
        if !last.is_empty() {
            writeln!(out)?;
        }
        *last = text;
        out.write_all(last.as_bytes())
    }

    fn text(&self, process: &Resident) -> String {
        let (args, sample) = (self.args, self.sample);
        let mut lines = vec![
            format!(
                "process {} ({}), NIC on node {}",
                args.pid,
                process.name(),
                self.advice.nic
            ),
            "  node      memory  threads".to_owned(),
        ];
        lines.extend(sample.memory.iter().map(|(node, bytes)| {
            let threads = sample.threads.get(node).copied().unwrap_or_default();
            let bytes = Bytes::new(*bytes).rounded();
            format!("  {node:>4}  {bytes:>10}  {threads:>7}")
        }));
        let sentences = self.sentences().into_iter();
        lines.extend(sentences.map(|sentence| terminal::wrapped(&sentence)));
        lines.join("\n") + "\n"
    }

    fn json(&self) -> serde_json::Value {
        let (node, gain) = self.advice.better();
        json!({
            "pid": self.args.pid,
            "nic_node": self.advice.nic,
            "memory_bytes": self.sample.memory,
            "threads": self.sample.threads,
            "reads": self.reads.0,
            "reads_counted": self.reads.1,
            "model": self.args.preset.to_string(),
            "accesses": self.args.accesses,
            "near_per_s": self.advice.near.per_s,
            "far_per_s": self.advice.far.per_s,
            "near_load_ns": self.advice.near.load_ns,
            "far_load_ns": self.advice.far.load_ns,
            "equal_accesses": self.advice.break_even(),
            "node": node,
            "gain": gain,
            "move_to": self.advice.wanted(self.sample),
        })
    }

    /// Returns the evidence and the advice.
    fn sentences(&self) -> Vec<String> {
        let (args, sample, advice) = (self.args, self.sample, self.advice);
        let (reads, counted) = self.reads;
        let mut pattern = format!(
            "Peers: {:.0} % READs of {} ({}), {} clients with {} outstanding",
            100.0 * reads,
            args.size,
            if counted {
                "counted by the device"
            } else {
                "assumed"
            },
            args.clients,
            args.outstanding
        );
        if args.workers > 0 {
            pattern += &format!(
                ", {} threads of the program on the same words",
                args.workers
            );
        }
        let per_s = |rate: f64| {
            let rate = MessageRate::over(rate.round() as u64, Span::from_secs(1));
            rate.map_or_else(String::new, |rate| rate.to_string())
        };
        let evidence = format!(
            "{pattern}. model:{} predicts {} with the memory on the NIC's node and {} with it on another one.",
            args.preset,
            per_s(advice.near.per_s),
            per_s(advice.far.per_s)
        );
        let (node, gain) = advice.better();
        let (home, share) = sample.home();
        let there = format!("{:.0} % of it is on node {home}", 100.0 * share);
        let percent = format!("{:.1} %", 100.0 * gain);
        let what = match args.accesses > 0.0 {
            true => "requests with their accesses",
            false => "requests",
        };
        let advised = match advice.wanted(sample) {
            Some(to) => format!(
                "The accessible memory should be on node {to}: {what} are {percent} faster there ({there})."
            ),
            None if gain < advice.least_gain => format!(
                "The node makes no difference worth moving: on node {node} {what} are {percent} faster, less than --gain {} % ({there}).",
                args.gain
            ),
            None => format!(
                "The accessible memory is where it should be, on node {home}: on the other side of the interconnect {what} are {percent} slower."
            ),
        };
        vec![evidence, self.own_accesses(), advised]
    }

    /// Returns what an access of the program's own threads costs, and how many would change the advice.
    fn own_accesses(&self) -> String {
        let (args, advice) = (self.args, self.advice);
        let [(_, near), (_, far)] = self.sample.threads_by_nic(advice.nic);
        if near + far == 0 {
            return "No thread of the program was seen on a CPU, so what the node means for them is not known.".to_owned();
        }
        let time = |ns: f64| Span::from_ps((ns * 1e3).round() as u64);
        let price = format!(
            "Threads of the program ({near} on the NIC's node, {far} on others) load a line of it in {} with the memory on the NIC's node and in {} with it on another one, on average",
            time(advice.near.load_ns),
            time(advice.far.load_ns)
        );
        let taken = format!("{} of these for each request (--accesses)", args.accesses);
        match advice.break_even() {
            None => format!("{price}; the advice is for {taken}."),
            Some(equal) => format!(
                "{price}. With {equal:.1} for each request that they cannot find in their own caches both nodes would be equal; the advice is for {taken}."
            ),
        }
    }
}

/// Says that pages do not move yet.
pub(super) fn report_waiting(args: &PlacementArgs, missing: u32) -> io::Result<()> {
    if args.format == Format::Json {
        return Ok(());
    }
    let results = if missing == 1 { "result" } else { "results" };
    let text = format!("Its pages move after {missing} more equal {results} in a row.");
    writeln!(terminal::stdout(), "{}", terminal::wrapped(&text))
}

pub(super) fn report_moved(args: &PlacementArgs, moved: Moved, node: u32) -> io::Result<()> {
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        let Moved {
            there,
            busy,
            shared,
            failed,
        } = moved;
        return writeln!(
            out,
            "{}",
            json!({ "pid": args.pid, "moved_to": node, "pages": there, "pinned": busy, "shared": shared, "failed": failed })
        );
    }
    let mut text = format!("{} pages are on node {node} now", moved.there);
    for (count, why) in [
        (moved.busy, "stayed: pinned by hardware or in use"),
        (
            moved.shared,
            "stayed: other processes have mapped them, too",
        ),
        (moved.failed, "could not be moved"),
    ] {
        if count > 0 {
            text += &format!("; {count} {why}");
        }
    }
    writeln!(out, "{}", terminal::wrapped(&(text + ".")))
}
