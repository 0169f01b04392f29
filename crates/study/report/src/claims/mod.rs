//! Claims: statements of published studies, as predicates over records.
//!
//! A [`Ledger`] is the data of an experiment. Whether its claims hold on a device is a pure function of the
//! device's records.

mod pick;
mod predicate;
mod reading;
mod words;

use std::collections::BTreeMap;
use std::{fmt, slice};

use adverb_results::{DeviceKind, DeviceRef, PairRecord, Provenance, Record};
use serde::{Deserialize, Serialize};

pub use pick::{Link, ParsePlacesError, Pick, Places};
pub use predicate::{Bounds, Predicate, Value};
pub use reading::Reading;
pub use words::markdown;

use crate::cells::Cells;
use crate::format;
use predicate::Check;

/// The claims of one study.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ledger {
    /// Name of the study on the command line: `macarthur`.
    pub study: String,
    /// Authors, title and publication.
    pub source: String,
    /// Preset of the model that represents the study's hardware.
    pub testbed: String,
    /// The claims, in the order of the study's figures.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

impl Ledger {
    /// Returns the presets that represent a claim's hardware.
    fn testbeds<'l>(&'l self, claim: &'l Claim) -> &'l [String] {
        match claim.testbeds.as_slice() {
            [] => slice::from_ref(&self.testbed),
            own => own,
        }
    }

    /// Returns whether a claim is about records of this program.
    pub fn is_about(&self, program: &str) -> bool {
        let mut conditions = self.claims.iter().map(|claim| &claim.holds_if);
        conditions.any(|condition| match condition {
            Predicate::Records(reading) => reading.is_about(program),
            _ => ["ping", "blast"].contains(&program),
        })
    }
}

/// A statement of a study that records can support or contradict.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Unique over all studies.
    pub id: String,
    /// Where the study makes it: `Figure 1b`.
    pub at: String,
    /// The statement, in our words.
    pub says: String,
    /// Ids of the published values that it was taken from; empty if only its direction is known.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Where else it was found, if the study's text was not at hand.
    #[serde(default)]
    pub found: Option<String>,
    /// Presets of the model that represent its hardware; empty if it is the study's.
    #[serde(default)]
    pub testbeds: Vec<String>,
    /// Whether it is one statement about all of its testbeds: it is judged once, by the records of all of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// What it is about, as far as not every device has it.
    #[serde(default)]
    pub about: Vec<Aspect>,
    /// Parameters of the cells of `ping` and `blast` that it needs, as far as all have them.
    #[serde(default)]
    pub cells: Pick,
    /// The quantity of those cells that the condition is about.
    #[serde(default)]
    pub value: Value,
    /// The condition under which it holds.
    pub holds_if: Predicate,
    /// Why a model of its hardware contradicts it, if it does and the reason is known.
    #[serde(default)]
    pub model: Option<String>,
}

impl Claim {
    /// Returns where the study makes it, with the hardware if it is not the study's.
    fn place(&self) -> String {
        let testbeds = self.testbeds.iter();
        let testbeds: Vec<String> = testbeds.map(|name| format!("model:{name}")).collect();
        match testbeds.as_slice() {
            [] => self.at.clone(),
            names => format!("{}, of {}", self.at, names.join(" and ")),
        }
    }

    /// Returns whether it compares an InfiniBand device with a RoCE device.
    fn compares_links(&self) -> bool {
        let series = self.holds_if.series();
        let mut picks = series.into_iter().chain([&self.cells]);
        picks.any(|pick| pick.link.is_some())
    }
}

impl fmt::Display for Claim {
    /// `mac-3a-300ns (Figure 3a): An inline WRITE of 64 B takes about 300 ns with 8 or 16 buffers.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.id, self.place(), self.says)
    }
}

/// What a claim is about, if some kinds of devices lack it or have it by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// A NIC that fetches work requests and payload over PCIe.
    Nic,
    /// An absolute figure of the study's hardware.
    Testbed,
    /// One-sided requests that complete some time after they were posted.
    Pending,
    /// A NIC that works without the passive side's CPU.
    Offload,
    /// A CPU that polls without a pause.
    Polling,
    /// A value that a parameter of the model is fitted to.
    Fitted,
    /// A figure that depends on what the source does not state.
    Unstated,
    /// A link of a known speed.
    Link,
    /// A rate that a link cannot exceed.
    Rate,
    /// Parts of a machine that nothing in the model connects.
    Apart,
}

/// Kinds of devices, as far as claims distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    SharedMemory,
    /// RoCE in software: `soft@ADDR`, or a driver such as rdma_rxe.
    Software,
    Hardware,
    Model,
    /// No RDMA: it answers nothing.
    Tcp,
}

impl Class {
    fn of((device, provenance): (&DeviceRef, &Provenance)) -> Self {
        match device.kind {
            DeviceKind::Soft if device.has_udp_port() => Class::Software,
            DeviceKind::Soft => Class::SharedMemory,
            DeviceKind::Verbs if provenance.has_software_driver() => Class::Software,
            DeviceKind::Verbs => Class::Hardware,
            DeviceKind::Model => Class::Model,
            DeviceKind::Tcp => Class::Tcp,
        }
    }
}

impl Aspect {
    /// Returns why a device cannot answer; `None` if it can.
    fn obstacle(self, class: Class, device: &DeviceRef, testbeds: &[String]) -> Option<String> {
        let is_other = class == Class::Model && !testbeds.contains(&device.name);
        match (self, class) {
            (Aspect::Nic, Class::SharedMemory | Class::Software) => {
                Some("this device has no NIC that fetches work requests and payload by DMA".into())
            }
            (Aspect::Testbed, Class::SharedMemory | Class::Software) => {
                Some("the figure is of a hardware NIC".into())
            }
            (Aspect::Testbed, _) if is_other => Some(format!(
                "the figure is of the study's hardware: use model:{}",
                testbeds.join(" or model:")
            )),
            (Aspect::Pending, Class::SharedMemory) => {
                Some("one-sided requests complete while they are posted here".into())
            }
            (Aspect::Unstated, _) => Some(
                "it depends on the host and the message size, which the source does not state"
                    .into(),
            ),
            (Aspect::Link, Class::SharedMemory | Class::Software) => {
                Some("this device has no link of a known speed".into())
            }
            (Aspect::Offload, Class::Software) => {
                Some("the passive side's CPU does the work of its NIC here".into())
            }
            _ => None,
        }
    }

    /// Returns why a claim holds without any measurement; `None` if it may fail.
    fn tautology(self, class: Class) -> Option<&'static str> {
        match (self, class) {
            (Aspect::Offload, Class::Model) => Some("the model runs no program there"),
            (Aspect::Fitted, Class::Model) => Some("a parameter of the model is fitted to it"),
            (Aspect::Polling, Class::Model) => Some("a modelled CPU polls without a pause"),
            (Aspect::Apart, Class::Model) => Some("nothing in the model connects the two"),
            (Aspect::Rate, Class::Model) => Some("a modelled link sends no faster"),
            _ => None,
        }
    }
}

/// What records say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It does not hold.
    Fails,
    /// It holds.
    Holds,
    /// Cells that it needs are missing.
    NotMeasured,
    /// The device cannot answer it, or the noise of its cells is too large.
    CannotTell,
}

impl Answer {
    /// All answers, in the order in which they are listed.
    pub const ALL: [Answer; 4] = [
        Answer::Fails,
        Answer::Holds,
        Answer::NotMeasured,
        Answer::CannotTell,
    ];

    /// Returns the answer in words.
    pub const fn words(self) -> &'static str {
        match self {
            Answer::Fails => "does not hold",
            Answer::Holds => "holds",
            Answer::NotMeasured => "not measured",
            Answer::CannotTell => "this device cannot tell",
        }
    }
}

/// A claim, judged by the records of one device.
#[derive(Clone, Debug)]
pub struct Judgement<'l> {
    /// The claim.
    pub claim: &'l Claim,
    /// What the records say.
    pub answer: Answer,
    /// The figures that led to the answer, or why there is none.
    pub why: String,
    /// Whether the device is a model of the claim's hardware.
    pub stated_of_device: bool,
    /// Why the claim holds on this device whatever is measured; `None` if it may fail.
    pub by_construction: Option<&'static str>,
    /// Why the model of its hardware contradicts it; `None` on other devices, or if the reason is unknown.
    pub cause: Option<&'l str>,
}

impl Judgement<'_> {
    /// Returns the figures, with what the ledger adds to them.
    pub fn explanation(&self) -> String {
        let why = &self.why;
        match (self.by_construction, self.cause) {
            (Some(reason), _) => format!("{why}; by construction: {reason}"),
            (None, Some(cause)) => format!("{why}; {cause}"),
            (None, None) => why.clone(),
        }
    }
}

/// All claims of a study, judged by the records of one device.
#[derive(Clone, Debug)]
pub struct Assessment<'l> {
    /// The study.
    pub ledger: &'l Ledger,
    /// The device.
    pub device: DeviceRef,
    /// One judgement for each claim, in order.
    pub judgements: Vec<Judgement<'l>>,
}

impl Assessment<'_> {
    /// Returns how many claims have this answer.
    pub fn count(&self, answer: Answer) -> usize {
        let judgements = self.judgements.iter();
        judgements.filter(|j| j.answer == answer).count()
    }

    /// Returns whether records support or contradict any claim.
    pub fn has_answers(&self) -> bool {
        self.count(Answer::Holds) + self.count(Answer::Fails) > 0
    }

    /// Returns the counts in sentences.
    pub fn summary(&self) -> String {
        let of = |answer| self.count(answer);
        let (answered, holds) = (of(Answer::Holds) + of(Answer::Fails), of(Answer::Holds));
        let trivial = self
            .judgements
            .iter()
            .filter(|j| j.by_construction.is_some());
        let trivial = match trivial.count() {
            0 => String::new(),
            n => format!(" ({n} of them by construction)"),
        };
        let untested = [
            (of(Answer::NotMeasured), "without measurements"),
            (of(Answer::CannotTell), "that this device cannot answer"),
        ];
        let untested = untested.iter().filter(|(count, _)| *count > 0);
        let untested: Vec<_> = untested.map(|(n, which)| format!("{n} {which}")).collect();
        let untested = match &untested[..] {
            [] => String::new(),
            all => format!(" Not tested: {}.", all.join(", ")),
        };
        format!(
            "Of {} claims of {}, {answered} could be tested on {}: {holds} held{trivial}, {} failed.{untested}{}",
            self.judgements.len(),
            self.ledger.source,
            self.device,
            of(Answer::Fails),
            self.of_own_hardware(answered),
        )
    }

    /// Returns how many of the answered claims the study states of the hardware that a model represents, if these are
    /// not all.
    fn of_own_hardware(&self, answered: usize) -> String {
        let own = self.judgements.iter().filter(|j| j.stated_of_device);
        let of = |answer| own.clone().filter(|j| j.answer == answer).count();
        let (holds, fails) = (of(Answer::Holds), of(Answer::Fails));
        match holds + fails {
            _ if self.device.kind != DeviceKind::Model => String::new(),
            0 => " The study makes none of the tested claims about this hardware.".to_owned(),
            own if own == answered => String::new(),
            own => format!(
                " The study makes {own} of the tested claims about this hardware: {holds} held, {fails} failed."
            ),
        }
    }
}

/// Judges the claims of a study on each device that has records: cells of `ping` and `blast`, and records of any
/// program.
pub fn assess<'l>(
    ledger: &'l Ledger,
    records: &[&PairRecord],
    any: &[Record],
) -> Vec<Assessment<'l>> {
    let has_enough = |record: &PairRecord| record.metrics.as_ref().is_some_and(|m| !m.few_messages);
    let cells = Cells::of(records).filter(has_enough);
    let of_cells = cells
        .iter()
        .map(|c| (&c.record.device, &c.record.provenance));
    let of_any = any.iter().filter(|record| record.is_ok());
    let of_any = of_any.map(|record| (&record.device, &record.provenance));
    let devices: BTreeMap<&DeviceRef, &Provenance> = of_cells.chain(of_any).collect();
    let assessments = devices.into_iter().map(|(device, provenance)| {
        let evidence = Evidence {
            device,
            class: Class::of((device, provenance)),
            own: cells.filter(|r| r.device == *device),
            all: &cells,
            any,
        };
        let claims = ledger.claims.iter();
        Assessment {
            ledger,
            device: device.clone(),
            judgements: claims
                .map(|claim| judge(claim, ledger.testbeds(claim), &evidence))
                .collect(),
        }
    });
    assessments.collect()
}

/// The records by which the claims are judged on one device.
struct Evidence<'a> {
    device: &'a DeviceRef,
    class: Class,
    /// Cells of the device.
    own: Cells<'a>,
    /// Cells of all devices.
    all: &'a Cells<'a>,
    /// Records of any program on all devices.
    any: &'a [Record],
}

/// Judges a claim on one device.
fn judge<'l>(claim: &'l Claim, testbeds: &[String], evidence: &Evidence<'_>) -> Judgement<'l> {
    let (class, device) = (evidence.class, evidence.device);
    let judged = |answer, why| Judgement {
        claim,
        answer,
        why,
        stated_of_device: class == Class::Model && testbeds.contains(&device.name),
        by_construction: None,
        cause: None,
    };
    if class == Class::Tcp {
        return judged(Answer::CannotTell, "the claim is about RDMA".to_owned());
    }
    let mut obstacles = claim
        .about
        .iter()
        .filter_map(|a| a.obstacle(class, device, testbeds));
    if let Some(reason) = obstacles.next() {
        return judged(Answer::CannotTell, reason);
    }
    let checks = match &claim.holds_if {
        Predicate::Records(reading) => match claim.together {
            true => of_testbeds(reading, testbeds, evidence),
            false => reading.checks(device, evidence.any).map_err(unmeasured),
        },
        condition => of_cells(claim, condition, evidence),
    };
    let checks = match checks {
        Ok(checks) => checks,
        Err((answer, reason)) => return judged(answer, reason),
    };
    let (good, bad): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.is_true);
    let shown = if bad.is_empty() { &good } else { &bad };
    let figures = shown.iter().map(|check| check.figures.as_str());
    let why = abridged(&figures.collect::<Vec<_>>());
    let mut certain = shown.iter().map(|check| check.is_certain);
    let is_certain = match bad.is_empty() {
        true => certain.all(|is| is),
        false => certain.any(|is| is),
    };
    if !is_certain {
        return judged(Answer::CannotTell, format!("the noise is too large: {why}"));
    }
    if bad.is_empty() {
        let by_construction = claim.about.iter().find_map(|a| a.tautology(class));
        return Judgement {
            by_construction,
            ..judged(Answer::Holds, why)
        };
    }
    let failed = judged(Answer::Fails, why);
    Judgement {
        cause: claim.model.as_deref().filter(|_| failed.stated_of_device),
        ..failed
    }
}

fn unmeasured(missing: String) -> (Answer, String) {
    (Answer::NotMeasured, missing)
}

/// Checks a condition on the records of all testbeds, once: on the first of them.
///
/// # Errors
/// The answer on another device or without the records of a testbed, and the reason.
fn of_testbeds(
    reading: &Reading,
    testbeds: &[String],
    Evidence { device, any, .. }: &Evidence<'_>,
) -> Result<Vec<Check>, (Answer, String)> {
    let models: Vec<DeviceRef> = testbeds
        .iter()
        .map(|name| DeviceRef {
            kind: DeviceKind::Model,
            name: name.clone(),
        })
        .collect();
    let names: Vec<String> = models.iter().map(ToString::to_string).collect();
    if models.first() != Some(*device) {
        let reason = format!(
            "it is one claim about {}: it is judged once, on {}",
            format::and(&names),
            names[0]
        );
        return Err((Answer::CannotTell, reason));
    }
    let mut all = Vec::new();
    for (model, name) in models.iter().zip(&names) {
        let checks = reading.checks(model, any).map_err(|missing| {
            unmeasured(format!(
                "it needs the records of {}: {name}: {missing}",
                format::and(&names)
            ))
        })?;
        all.extend(checks.into_iter().map(|check| Check {
            figures: format!("{name}: {}", check.figures),
            ..check
        }));
    }
    Ok(all)
}

/// Checks a condition on cells of `ping` and `blast`.
///
/// # Errors
/// The answer without such cells, and the reason.
fn of_cells(
    claim: &Claim,
    condition: &Predicate,
    Evidence { own, all, .. }: &Evidence<'_>,
) -> Result<Vec<Check>, (Answer, String)> {
    let Some(first) = own.iter().next() else {
        return Err((Answer::NotMeasured, "no cell was measured".to_owned()));
    };
    let cells = match claim.compares_links() {
        true => with_roce(first.record, own, all)?,
        false => own.clone(),
    };
    let checks = condition.checks(claim.value, &claim.cells, &cells);
    checks.map_err(|missing| (Answer::NotMeasured, missing))
}

/// Returns the cells of an InfiniBand device and of the only RoCE device of the same kind that is the same adapter: other
/// adapters differ in more than their links.
///
/// # Errors
/// The answer without such a pair, and the reason.
fn with_roce<'a>(
    record: &PairRecord,
    own: &Cells<'a>,
    all: &Cells<'a>,
) -> Result<Cells<'a>, (Answer, String)> {
    match Link::of(record) {
        Some(Link::InfiniBand) => {}
        Some(Link::Ethernet) => {
            let reason =
                "the claim compares InfiniBand with RoCE: it is judged on the InfiniBand device";
            return Err((Answer::CannotTell, reason.to_owned()));
        }
        None => {
            let reason = "the records do not name the link layer";
            return Err((Answer::NotMeasured, reason.to_owned()));
        }
    }
    let Some(adapter) = record.adapter() else {
        let reason = "the records do not name the adapter";
        return Err((Answer::NotMeasured, reason.to_owned()));
    };
    let roce = all.filter(|r| {
        let is_alike = r.device.kind == record.device.kind && r.adapter() == Some(adapter);
        is_alike && Link::of(r) == Some(Link::Ethernet)
    });
    match &roce.devices()[..] {
        [] => {
            let reason = format!("no record of a RoCE port of the same adapter ({adapter})");
            Err((Answer::NotMeasured, reason))
        }
        [_] => Ok(own.and(&roce)),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            let reason = format!("records of several RoCE devices: {}", format::and(&names));
            Err((Answer::NotMeasured, reason))
        }
    }
}

/// Joins figures; of more than three the first and the last.
fn abridged(figures: &[&str]) -> String {
    match figures {
        [first, middle @ .., last] if middle.len() > 1 => {
            format!("{first}; …; {last} ({} places)", figures.len())
        }
        _ => figures.join("; "),
    }
}

/// Formats a factor, or says that the denominator is zero.
fn factor(value: f64) -> String {
    match value.is_finite() {
        true => format::factor(value),
        false => "∞".to_owned(),
    }
}
