//! The study's findings: sentences over its records, for each device, with the records that each follows from.

use std::cell::RefCell;
use std::collections::BTreeMap;

use adverb_report::findings::{EQUAL, keeps_up};
use adverb_report::format;
use adverb_results::{DeviceKind, Record};

use super::figures::{
    ANSWERS, ATOMICS, CORES, FIGURES, HERD, KV, OFFERED, QUEUES, SENDS, by_queues, by_store,
    by_way, counted,
};
use super::ladder::{MMIO, Step, limits, steps};
use crate::programs::{of_device, parameter, with_caution, word};

/// A sentence, and its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the records show.
    pub sentence: String,
    /// The cells of the records that the sentence follows from: it is the same if there are no others.
    pub evidence: Vec<String>,
}

/// A step that gains less than this factor does not pay.
const PAYS: f64 = 1.05;

/// The four guidelines, which are about a NIC.
const GUIDELINES: [Find; 4] = [contention, mmio, parallelism, dma];
const OF_ALL_DEVICES: [Find; 7] = [
    ladder,
    too_many_cores,
    offered,
    answers,
    store,
    herd,
    unsteady,
];

/// Whether a record is of hardware or of a model of it.
fn has_nic(record: &Record) -> bool {
    match record.device.kind {
        DeviceKind::Model => true,
        DeviceKind::Verbs => !record.provenance.has_software_driver(),
        DeviceKind::Soft | DeviceKind::Tcp => false,
    }
}

/// Returns what the records of the study show, device by device.
pub fn findings(records: &[Record]) -> Vec<Finding> {
    let of_each = of_device(&FIGURES, records).into_iter();
    let of_each = of_each.flat_map(|(device, records)| {
        let guidelines: &[Find] = match records.iter().all(|record| has_nic(record)) {
            true => &GUIDELINES,
            false => &[],
        };
        let all = guidelines.iter().chain(&OF_ALL_DEVICES);
        let found = all.filter_map(|find| {
            let evidence = Evidence {
                records: &records,
                used: RefCell::default(),
            };
            let sentence = find(&evidence)?;
            Some(Finding {
                sentence: format!("On {}, {sentence}", with_caution(&device, &records)),
                evidence: evidence.cells(),
            })
        });
        found.collect::<Vec<_>>()
    });
    of_each.collect()
}

/// Returns the sentences alone.
pub(super) fn sentences(records: &[Record]) -> Vec<String> {
    findings(records).into_iter().map(|f| f.sentence).collect()
}

/// A sentence about the records of one device, if they show it.
type Find = fn(&Evidence<'_>) -> Option<String>;

/// The records of a device. The ones that a finding uses are its evidence.
struct Evidence<'r> {
    records: &'r [&'r Record],
    used: RefCell<Vec<&'r str>>,
}

impl<'r> Evidence<'r> {
    /// Returns all records of a figure that `is` wants; of several records of a cell, the newest.
    fn all(&self, figure: &str, is: impl Fn(&Record) -> bool) -> Vec<&'r Record> {
        let mut found: Vec<&Record> = Vec::new();
        for record in self.records.iter().copied().rev() {
            let is_shown = record.figures.iter().any(|id| id == figure);
            if is_shown && is(record) && !found.iter().any(|other| other.cell == record.cell) {
                found.push(record);
            }
        }
        found.reverse();
        found.iter().for_each(|record| self.uses(record));
        found
    }

    /// Returns a step of the ladder.
    fn step(&self, step: Step) -> Option<&'r Record> {
        let all = steps(self.records);
        let (_, record) = all.into_iter().find(|(own, _)| *own == step)?;
        self.uses(record);
        Some(record)
    }

    fn uses(&self, record: &'r Record) {
        let mut used = self.used.borrow_mut();
        if !used.contains(&record.cell.as_str()) {
            used.push(&record.cell);
        }
    }

    fn cells(&self) -> Vec<String> {
        let used = self.used.borrow();
        used.iter().map(|cell| (*cell).to_owned()).collect()
    }
}

fn rate(record: &Record) -> Option<f64> {
    record.metric("requests_per_s")
}

fn fastest<'r>(records: &[&'r Record]) -> Option<&'r Record> {
    let rate = |record: &Record| rate(record).unwrap_or(0.0);
    records
        .iter()
        .copied()
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// `from 6.54 M/s to 15.8 M/s (2.42×)`.
fn change(from: &Record, to: &Record) -> Option<(f64, String)> {
    let (from, to) = (rate(from)?, rate(to)?);
    let gain = to / from;
    let (from, to) = (format::rate(from), format::rate(to));
    let factor = format::factor(gain);
    Some((gain, format!("from {from} to {to} ({factor})")))
}

/// Whether a guideline holds, in words.
fn verdict(gain: f64) -> &'static str {
    match gain {
        gain if gain >= PAYS => "pays",
        gain if gain > 1.0 / PAYS => "changes nothing",
        _ => "makes it slower",
    }
}

/// `; the limit is now the NIC transmit side of the server (98 %)`; empty for a real device.
fn limited(record: &Record) -> String {
    limits(record).map_or_else(String::new, |(limits, are_several)| {
        let are = if are_several {
            "resources are"
        } else {
            "resource is"
        };
        format!("; the busiest {are} then the {limits}")
    })
}

fn ladder(evidence: &Evidence<'_>) -> Option<String> {
    let first = evidence.step(Step::FetchAdd)?;
    let last = evidence.step(Step::HeaderOnly)?;
    let later = Step::LADDER[1..].iter();
    let later = later.filter_map(|step| Some((*step, evidence.step(*step)?)));
    let rated = later.filter_map(|(step, record)| Some((rate(record)?, step, record)));
    let (highest, step, best) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (_, change) = change(first, best)?;
    let rate = rate(last).filter(|rate| rate * PAYS <= highest);
    let loss = rate.map_or_else(String::new, |rate| {
        let (rate, cores) = (format::rate(rate), counted(parameter(last, "server_cores")));
        format!(
            "; the last step, without payload and with more cores, is slower: {rate} with {cores}"
        )
    });
    Some(format!(
        "the steps from FETCH_ADD to {} take a sequencer {change}{}{loss}.",
        described(step, best),
        limited(best)
    ))
}

/// Returns a step of the ladder after FETCH_ADD in words.
fn described(step: Step, record: &Record) -> String {
    match step {
        Step::Tcp | Step::FetchAdd | Step::Rpc => "RPCs to one core".to_owned(),
        Step::Lists => "batched RPCs".to_owned(),
        Step::Queues => "batched RPCs from several queue pairs".to_owned(),
        Step::Cores => format!(
            "batched RPCs to {}",
            counted(parameter(record, "server_cores"))
        ),
        Step::HeaderOnly => "batched RPCs without payload".to_owned(),
    }
}

fn contention(evidence: &Evidence<'_>) -> Option<String> {
    let words = evidence.all(ATOMICS.id, |_| true);
    let count = |record: &&&Record| parameter(record, "words");
    let (one, many) = (
        words.iter().min_by_key(count)?,
        words.iter().max_by_key(count)?,
    );
    let (_, apart) = change(one, many)?;
    let (atomics, rpc) = (evidence.step(Step::FetchAdd)?, evidence.step(Step::Rpc)?);
    let (gain, change) = change(atomics, rpc)?;
    Some(format!(
        "avoiding contention in the NIC {}: RPCs to one core instead of FETCH_ADD on one word take a sequencer {change}; {} words instead of {} take the rate of FETCH_ADD {apart}.",
        verdict(gain),
        parameter(many, "words"),
        parameter(one, "words"),
    ))
}

fn mmio(evidence: &Evidence<'_>) -> Option<String> {
    let (single, lists) = (evidence.step(Step::Rpc)?, evidence.step(Step::Lists)?);
    let (gain, change) = change(single, lists)?;
    let share = |record: &Record| record.metric(&format!("utilization_percent.{MMIO}"));
    let shares = share(single).zip(share(lists));
    let shares = shares.map_or_else(String::new, |(before, after)| {
        let (before, after) = (format::percent(before), format::percent(after));
        format!("; it wrote to the NIC {before} of its time before, and {after} then")
    });
    Some(format!(
        "reducing MMIO {}: a doorbell for {:.1} answers on average instead of each takes one core {change}{shares}.",
        verdict(gain),
        lists.metric("batch_mean")?,
    ))
}

fn parallelism(evidence: &Evidence<'_>) -> Option<String> {
    let (few, many) = (evidence.step(Step::Lists)?, evidence.step(Step::Queues)?);
    let (gain, of_queues) = change(few, many)?;
    let cores = evidence.step(Step::Cores);
    let cores = cores.and_then(|cores| Some((cores, change(many, cores)?)));
    let cores = cores.map_or_else(String::new, |(record, (gain, change))| {
        let (cores, limit) = (parameter(record, "server_cores"), limited(record));
        let verdict = verdict(gain);
        let other = other_queues(evidence, record).unwrap_or_default();
        format!("; using {cores} cores then {verdict}: {change}{limit}{other}")
    });
    Some(format!(
        "using the NIC's parallelism {}: {} queue pairs at each port instead of {} take one core {of_queues}{cores}.",
        verdict(gain),
        parameter(many, "qps"),
        parameter(few, "qps"),
    ))
}

/// Returns the number of queue pairs with which the cores of the ladder are faster, if there is one.
fn other_queues(evidence: &Evidence<'_>, ladder: &Record) -> Option<String> {
    let cores = |record: &Record| parameter(record, "server_cores");
    let best = fastest(&evidence.all(QUEUES.id, |record| cores(record) == cores(ladder)))?;
    let (gain, _) = change(ladder, best)?;
    let queues = match parameter(best, "qps") {
        1 => "1 queue pair".to_owned(),
        n => format!("{n} queue pairs"),
    };
    (gain > EQUAL).then(|| {
        let rate = format::rate(rate(best).unwrap_or_default());
        format!("; with {queues} at each port these cores reach {rate}")
    })
}

fn in_lists(record: &Record) -> bool {
    parameter(record, "batch") > 1
}

/// Answers of 8 B and none on equal cores: where leaving out the payload pays and where not, and the best of each.
fn dma(evidence: &Evidence<'_>) -> Option<String> {
    let of = |by: &'static str| {
        evidence.all(CORES.id, |record| {
            in_lists(record) && word(record, "by") == by
        })
    };
    let (payload, header_only) = (of("rpc"), of("rpc-imm"));
    let cores = |record: &Record| parameter(record, "server_cores");
    let same = |of: &Record| {
        let mut others = header_only.iter().copied();
        others.find(|other| cores(other) == cores(of))
    };
    let pairs = payload.iter().filter_map(|of| Some((*of, same(of)?)));
    let mut pairs: Vec<(&Record, &Record)> = pairs.collect();
    pairs.sort_by_key(|(of, _)| cores(of));
    let pays =
        |(of, to): &&(&Record, &Record)| change(of, to).is_some_and(|(gain, _)| gain >= PAYS);
    let (paying, others): (Vec<_>, Vec<_>) = pairs.iter().partition(pays);
    let named = |pairs: &[&(&Record, &Record)]| {
        let all: Vec<String> = pairs.iter().map(|(of, _)| cores(of).to_string()).collect();
        format!(
            "{} core{}",
            format::and(&all),
            if all == ["1"] { "" } else { "s" }
        )
    };
    let verdict = match (&paying[..], &others[..]) {
        ([], _) => "does not pay".to_owned(),
        (_, []) => "pays".to_owned(),
        (paying, others) => format!("pays with {}, not with {}", named(paying), named(others)),
    };
    let (of, to) = pairs.last()?;
    let (_, change_of_most) = change(of, to)?;
    let (best_of, best_to) = (fastest(&payload)?, fastest(&header_only)?);
    let (_, change_of_best) = change(best_of, best_to)?;
    let best = match (cores(best_of), cores(best_to)) {
        (of, to) if of == to => format!("{change_of_best} with {}", counted(of)),
        (of, to) => format!("{change_of_best}, with {to} instead of {}", counted(of)),
    };
    let lines = send_lines(evidence).map_or_else(String::new, |lines| format!("; {lines}"));
    let saved = saved(of, to).map_or_else(String::new, |saved| {
        format!("; for an RPC to {}, {saved}", counted(cores(to)))
    });
    Some(format!(
        "reducing DMA {verdict}: requests and answers by SEND without payload, instead of requests by WRITE and answers of \
         8 B, take {} in lists {change_of_most}, and the best rate {best}{lines}{saved}{}.",
        counted(cores(to)),
        limited(to)
    ))
}

/// Returns what the NIC reads for a SEND of the smallest payload and for one of none.
fn send_lines(evidence: &Evidence<'_>) -> Option<String> {
    let lines = |op: &'static str| {
        let of = evidence.all(SENDS.id, |record| {
            in_lists(record) && word(record, "op") == op
        });
        let size = |record: &Record| parameter(record, "size_bytes");
        let record = of.into_iter().min_by_key(|record| size(record))?;
        let lines = record.metric("pcie_lines_per_request.dma_reads")?;
        Some((size(record), lines))
    };
    let ((size, some), (_, none)) = (lines("send")?, lines("send-imm")?);
    Some(format!(
        "for a SEND in a list the NIC reads {some:.2} cache lines with {size} B and {none:.2} without payload"
    ))
}

/// Returns in which directions a design takes fewer cache lines over PCIe for a request than another one; `None` on a real
/// device.
fn saved(from: &Record, to: &Record) -> Option<String> {
    let directions = [
        ("the CPU writes", &["wqe_writes", "doorbells"][..]),
        ("the NIC reads", &["dma_reads"]),
        ("the NIC writes", &["data_writes", "completions"]),
    ];
    let (mut fewer, mut others) = (Vec::new(), Vec::new());
    for (who, kinds) in directions {
        let lines = |record: &Record| -> Option<f64> {
            let lines = |kind| record.metric(&format!("pcie_lines_per_request.{kind}"));
            kinds.iter().map(lines).sum()
        };
        let (from, to) = (lines(from)?, lines(to)?);
        let words = format!("{who} {to:.2} lines instead of {from:.2}");
        match to * EQUAL < from {
            true => fewer.push(words),
            false => others.push(words),
        }
    }
    Some(match (&fewer[..], &others[..]) {
        ([], others) => format!("no line is saved: {}", format::and(others)),
        (fewer, []) => format!("what is saved: {}", format::and(fewer)),
        (fewer, others) => format!(
            "what is saved: {}; what is not: {}",
            format::and(fewer),
            format::and(others)
        ),
    })
}

fn too_many_cores(evidence: &Evidence<'_>) -> Option<String> {
    let all = evidence.all(CORES.id, |record| {
        in_lists(record) && word(record, "by") == "rpc"
    });
    let cores = |record: &Record| parameter(record, "server_cores");
    let last = all.iter().max_by_key(|record| cores(record))?;
    let best = fastest(&all)?;
    let first = all.iter().min_by_key(|record| cores(record))?;
    let (best_rate, last_rate, first_rate) = (rate(best)?, rate(last)?, rate(first)?);
    let [peak, end, begin] = [best_rate, last_rate, first_rate].map(format::rate);
    let (most, fewest) = (cores(last), counted(cores(first)));
    (all.len() > 2).then(|| match () {
        () if last_rate * PAYS < best_rate => format!(
            "with doorbell batching more cores are slower after a point: {peak} with {}, {end} with {most}.",
            counted(cores(best)),
        ),
        () if last_rate < PAYS * first_rate => format!(
            "with doorbell batching more cores do not add to the rate of answers of 8 B: {begin} with {fewest}, {end} with \
             {most}."
        ),
        () => format!(
            "with doorbell batching the rate of answers of 8 B does not fall as cores are added: {begin} with {fewest}, \
             {end} with {most}."
        ),
    })
}

fn offered(evidence: &Evidence<'_>) -> Option<String> {
    let of = |is_list: bool| {
        let all = evidence.all(OFFERED.id, |record| in_lists(record) == is_list);
        let load = |record: &Record| parameter(record, "offered_per_s");
        let kept = all.into_iter().filter(|record| keeps_up(record));
        let most = kept.max_by_key(|record| load(record))?;
        Some((load(most) as f64, most.metric("latency_ns.mean")?))
    };
    let ((single, single_ns), (lists, lists_ns)) = (of(false)?, of(true)?);
    Some(format!(
        "of the offered loads a header-only sequencer keeps up with {} by single answers (mean latency {}) and with {} by lists ({}).",
        format::rate(single),
        format::time(single_ns),
        format::rate(lists),
        format::time(lists_ns)
    ))
}

/// Returns the fastest of some records and those that equal it, and the slowest, if there are several: `HERD (26.0 M/s) and
/// 1 READ (25.6 M/s), equal within 2 %, the slowest …`.
fn extremes(records: Vec<&Record>, name: fn(&Record) -> String) -> Option<String> {
    let rated = records.into_iter();
    let rated = rated.filter_map(|record| Some((rate(record)?, record)));
    let mut rated: Vec<(f64, &Record)> = rated.collect();
    rated.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(most, _), .., (least, _)] = rated[..] else {
        return None;
    };
    let named = |is: &dyn Fn(f64) -> bool| {
        let meant = rated.iter().filter(|(rate, _)| is(*rate));
        let meant =
            meant.map(|(rate, record)| format!("{} ({})", name(record), format::rate(*rate)));
        let meant: Vec<String> = meant.collect();
        let equal = if meant.len() > 1 {
            ", equal within 2 %"
        } else {
            ""
        };
        format!("{}{equal}", format::and(&meant))
    };
    let fastest = named(&|rate| EQUAL * rate >= most);
    Some(match EQUAL * least >= most {
        true => fastest,
        false => format!(
            "{fastest}, the slowest {}",
            named(&|rate| rate <= EQUAL * least)
        ),
    })
}

fn answers(evidence: &Evidence<'_>) -> Option<String> {
    let clients = |record: &Record| parameter(record, "clients");
    let all = evidence.all(ANSWERS.id, |_| true);
    let most = all.iter().map(|record| clients(record)).max()?;
    let of_most = all.into_iter().filter(|record| clients(record) == most);
    let (reads, answered): (Vec<_>, Vec<_>) = of_most.partition(|r| word(r, "by") == "read");
    let named = extremes(answered, by_way)?;
    let reads = reads.first().and_then(|record| rate(record));
    let reads = reads.map_or_else(String::new, |rate| {
        let rate = format::rate(rate);
        format!("; by READs, in which the core takes no part, the clients fetch {rate}")
    });
    Some(format!(
        "the fastest way in which one core answers {most} clients is {named}{reads}."
    ))
}

fn with_cores(record: &Record) -> String {
    match word(record, "by") {
        "rpc" => format!("HERD on {}", counted(parameter(record, "server_cores"))),
        _ => by_store(record),
    }
}

fn store(evidence: &Evidence<'_>) -> Option<String> {
    let best = |share: f64| {
        let has_share = |record: &Record| {
            let found = record.params.get("put_ratio");
            found.and_then(serde_json::Value::as_f64) == Some(share)
        };
        extremes(evidence.all(KV.id, has_share), with_cores)
    };
    let (gets, mixed) = (best(0.0)?, best(0.5)?);
    let all = evidence.all(KV.id, |_| true);
    let (herd, reads): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| word(r, "by") == "rpc");
    let sizes = herd.first().zip(reads.first()).map(|(herd, read)| {
        format!(
            " HERD's queue pairs of each core and port: {}; its values have {} B, a READ fetches {} B.",
            parameter(herd, "qps"),
            parameter(herd, "value_bytes"),
            parameter(read, "value_bytes")
        )
    });
    Some(format!(
        "the fastest store for GETs alone is {gets}; with as many PUTs as GETs it is {mixed}.{}",
        sizes.unwrap_or_default()
    ))
}

fn herd(evidence: &Evidence<'_>) -> Option<String> {
    let all = evidence.all(HERD.id, |_| true);
    let cores = |record: &Record| parameter(record, "server_cores");
    let most = all.iter().map(|record| cores(record)).max()?;
    let in_lists = all.iter().filter(|record| in_lists(record));
    let mut of_most: Vec<&&Record> = in_lists.filter(|record| cores(record) == most).collect();
    of_most.sort_by_key(|record| parameter(record, "qps"));
    let (few, many) = (of_most.first()?, of_most.last()?);
    let (_, change) = change(few, many)?;
    let best = fastest(&all)?;
    (of_most.len() > 1).then_some(format!(
        "{} queue pairs of each core and port instead of {} take HERD in lists on {} {change}; the highest rate of all is {} \
         with {} and {}.",
        parameter(many, "qps"),
        parameter(few, "qps"),
        counted(most),
        format::rate(rate(best)?),
        counted(cores(best)),
        by_queues(best)
    ))
}

/// Halves of the measured time whose rates differ by more than this, in percent, are not of a steady state.
const UNSTEADY: f64 = 10.0;

/// Returns how many cells of a model are not of a steady state, and the worst. A model has no noise.
fn unsteady(evidence: &Evidence<'_>) -> Option<String> {
    let drift = |record: &Record| {
        let drift = record.metric("drift_percent")?.abs();
        let is_unsteady = record.device.kind == DeviceKind::Model && drift > UNSTEADY;
        is_unsteady.then_some(drift)
    };
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    for figure in FIGURES {
        let all = evidence.all(figure.id, |record| drift(record).is_some());
        worst.extend(
            all.iter()
                .filter_map(|of| Some((of.cell.as_str(), drift(of)?))),
        );
    }
    let (cell, percent) = worst.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let percent = format::percent(*percent);
    Some(match worst.len() {
        1 => format!(
            "the rates of the two halves of the measured time differ by {percent} in {cell}, which is not of a steady state."
        ),
        n => format!(
            "the rates of the two halves of the measured time differ by more than 10 % in {n} cells, which are not of a \
             steady state; most by {percent}, in {cell}."
        ),
    })
}
