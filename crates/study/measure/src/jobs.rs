//! Runs programs with several members and makes their records.

use std::ops::RangeInclusive;
use std::time::Duration;

use adverb_host::{PcieBytes, PcieCounters, now_rfc3339};
use adverb_launch::{
    DeviceInfo, Hardware, HardwareUsage, Interrupt, MMIO, RoleRun, Run, RunError, Stop, Usage,
    VirtualLimits, in_order,
};
use adverb_patterns::{Job, JobReport};
use adverb_results::{Outcome, Record, SCHEMA, Values};
use adverb_units::Span;
use adverb_verbs::{AckTimeout, PathMtu, PathOptions, RetryCount};
use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use crate::backend::{Backend, failed};

/// One point of a program: the job, and the parameters for its record.
pub struct JobCell {
    /// Name of the program.
    pub program: &'static str,
    /// Parameters of its record, by name.
    pub params: Values,
    /// Description for the table's title.
    pub title: String,
    /// The program to run.
    pub job: Job,
    /// The figures that show it.
    pub figures: Vec<String>,
}

impl JobCell {
    /// Returns the point, with the options of the job's path among its parameters.
    pub fn new(program: &'static str, params: &Value, title: String, job: Job) -> Self {
        let mut params = params.as_object().cloned().unwrap_or_default();
        params.extend(of_path(job.path()));
        JobCell {
            program,
            params,
            title: title + &path_words(job.path()),
            job,
            figures: Vec::new(),
        }
    }

    /// Returns the id, equal for equal programs and parameters: `kv/by=rpc/value_bytes=32/…`.
    pub fn id(&self) -> String {
        let faults = self.job.path().impairment;
        let faults = faults.map(|faults| faults.id()).unwrap_or_default();
        let params = self.params.iter().filter(|(name, _)| *name != "impairment");
        let words =
            params.filter_map(|(name, value)| Some((name, adverb_results::word(Some(value))?)));
        let id = words.fold(self.program.to_owned(), |id, (name, word)| {
            format!("{id}/{name}={word}")
        });
        id + &faults
    }
}

/// Returns the chosen options of a path that change results, as the end of a title.
pub fn path_words(path: &PathOptions) -> String {
    let words = [
        path.path_mtu.map(|mtu| format!("path MTU {}", mtu.bytes())),
        path.ack_timeout.map(|time| format!("ACK timeout {time}")),
        path.retries.map(|count| format!("{} retries", count.get())),
        path.impairment.map(|faults| faults.to_string()),
    ];
    let words = words.into_iter().flatten();
    words.map(|words| format!(", {words}")).collect()
}

/// Returns the chosen options of the path by their names in records.
pub(crate) fn of_path(path: &PathOptions) -> Values {
    let all = json!({
        "path_mtu_bytes": path.path_mtu.map(PathMtu::bytes),
        "ack_timeout_ns": path.ack_timeout.and_then(AckTimeout::span).map(Span::as_ns),
        "retry_cnt": path.retries.map(RetryCount::get),
        "rnr_retry_cnt": path.rnr_retries.map(RetryCount::get),
        "traffic_class": path.traffic_class,
        "service_level": path.service_level,
        "rate": path.rate,
        "api": path.api,
        "impairment": path.impairment,
        "routed": path.routed.then_some(true),
    });
    let mut asked = all.as_object().cloned().unwrap_or_default();
    asked.retain(|_, value| !value.is_null());
    asked
}

/// Returns what was used of modelled machines: the busiest resource of all, which limits the rate of a closed loop, and of
/// machine 0 the share of the measured time of each resource, and lines over PCIe for each request. Empty for real
/// devices, where it is not known.
fn of_hardware(all: &[(u32, HardwareUsage)], requests_per_s: Option<f64>) -> Values {
    let percent = |share: f64| (1000.0 * share).round() / 10.0;
    let each = all.iter().flat_map(|(host, usage)| {
        let limits = usage.utilization.iter().filter(|of| of.resource != MMIO);
        limits.map(move |of| (host, of))
    });
    let Some((host, busiest)) = each.max_by(|a, b| a.1.share.total_cmp(&b.1.share)) else {
        return Values::new();
    };
    let first = all.iter().find(|(host, _)| *host == 0);
    let utilization = first.map(|(_, usage)| {
        let all = usage.utilization.iter();
        let all = all.map(|of| (of.resource.to_owned(), percent(of.share).into()));
        Value::Object(all.collect())
    });
    let pcie = first.zip(requests_per_s).map(|((_, usage), rate)| {
        let all = usage.pcie_lines_per_s.iter();
        let all = all.map(|(name, lines)| ((*name).to_owned(), (lines / rate).into()));
        Value::Object(all.collect())
    });
    let metrics = json!({
        "busiest": {
            "resource": busiest.resource,
            "host": format!("machine {host}"),
            "percent": percent(busiest.share),
        },
        "utilization_percent": utilization,
        "pcie_lines_per_request": pcie,
    });
    metrics.as_object().cloned().unwrap_or_default()
}

/// Returns the bytes over PCIe of all devices of this host for each request.
fn of_pcie(bytes: PcieBytes, requests: f64) -> Values {
    let each = |bytes: Option<f64>| bytes.map(|bytes| bytes / requests);
    let metrics = json!({ "pcie_bytes_per_request": {
        "from_devices": each(bytes.from_devices),
        "to_devices": each(bytes.to_devices),
    }});
    metrics.as_object().cloned().unwrap_or_default()
}

/// What a job measured.
struct Measured {
    roles: Vec<RoleRun>,
    usage: Vec<(u32, HardwareUsage)>,
    reports: Vec<JobReport>,
    outcome: adverb_patterns::Outcome,
}

impl Measured {
    /// Takes the reports of a run's roles together.
    fn of(job: &Job, run: Run<JobReport>) -> anyhow::Result<Self> {
        let reports = run.reports.map_err(|failure| match failure.is_usage {
            true => Usage(failure.reason).into(),
            false => anyhow!(failure.reason),
        })?;
        Ok(Measured {
            outcome: job.outcome(&reports)?,
            roles: run.roles,
            usage: run.usage,
            reports,
        })
    }

    /// Requests per second.
    fn rate(&self) -> Option<f64> {
        self.outcome.metrics.get("requests_per_s")?.as_f64()
    }
}

/// A point failed or was interrupted after some of its runs.
#[derive(Debug, thiserror::Error)]
#[error("{cause:#}")]
pub struct Unfinished {
    /// The records of the runs that had ended.
    pub records: Vec<Record>,
    /// The error of the run that had not.
    pub cause: anyhow::Error,
}

/// Returns the records of all runs of a point.
fn all_runs(
    passes: RangeInclusive<u32>,
    mut run: impl FnMut(u32) -> anyhow::Result<Record>,
) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for pass in passes {
        match run(pass) {
            Ok(record) => records.push(record),
            Err(cause) if records.is_empty() => return Err(cause),
            Err(cause) => return Err(Unfinished { records, cause }.into()),
        }
    }
    Ok(records)
}

/// Returns a job for one of several runs on real devices, from 1 on. Each run loses other packets, and its clients have other
/// random times and keys; otherwise the interval of the mean would lack the differences that these make.
fn of_run(job: &Job, pass: u32) -> Job {
    let mut job = job.in_pass(pass);
    let seed = match &mut job {
        Job::Rpc(rpc, _) => &mut rpc.clients.seed,
        Job::Echo(echo, _) => &mut echo.clients.seed,
        Job::OneSided(program, _) => &mut program.clients.seed,
        Job::Store(store) => &mut store.seed,
        _ => return job,
    };
    *seed = seed.wrapping_add(u64::from(pass) - 1);
    job
}

/// Runs points and makes their records.
pub struct JobRecorder {
    backend: Backend,
    info: DeviceInfo,
    /// The local port, if all members share memory.
    local: Option<DeviceInfo>,
    timeout: Duration,
    counts_pcie: bool,
    keeps_duration: bool,
}

impl JobRecorder {
    /// Returns a recorder for programs on the device of `info`, with the timeout `timeout` for each run.
    pub fn new(backend: Backend, info: DeviceInfo, timeout: Duration) -> Self {
        JobRecorder {
            backend,
            info,
            local: None,
            timeout,
            counts_pcie: false,
            keeps_duration: false,
        }
    }

    /// Sets the local port, which members use that share memory.
    #[must_use]
    pub fn within_memory(self, local: Option<DeviceInfo>) -> Self {
        JobRecorder { local, ..self }
    }

    /// Whether the members of a job use the local port of a device with a UDP port. Faults are injected into UDP
    /// packets, and multicast is always sent over UDP.
    pub fn is_within_memory(&self, job: &Job) -> bool {
        self.local.is_some() && job.is_connected() && job.path().impairment.is_none()
    }

    /// Returns the device on which a job is measured.
    fn measured_on(&self, job: &Job) -> &DeviceInfo {
        let local = self.local.as_ref();
        let local = local.filter(|_| self.is_within_memory(job));
        local.unwrap_or(&self.info)
    }

    /// Counts the bytes over PCIe of this host, from the counters of its processor.
    #[must_use]
    pub fn counting_pcie(self, counts_pcie: bool) -> Self {
        JobRecorder {
            counts_pcie,
            ..self
        }
    }

    /// Measures for as long as the jobs say. Without this, a closed loop on a model that is not yet in steady state then is
    /// measured again, for longer.
    #[must_use]
    pub fn keeping_duration(self, keeps_duration: bool) -> Self {
        JobRecorder {
            keeps_duration,
            ..self
        }
    }

    /// Returns what the programs run on.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Whether a record is of this point on this device; for a model, also with the same parameters.
    pub fn is_of(&self, cell: &JobCell, record: &Record) -> bool {
        let device = self.measured_on(&cell.job);
        record.cell == cell.id()
            && self
                .backend
                .is_of(record, (&device.reference, &device.site))
    }

    /// Returns how often a point is run if `repetitions` are asked for: a model that loses no packets is deterministic.
    pub fn repetitions(&self, cell: &JobCell, repetitions: u32) -> u32 {
        match self.backend {
            Backend::Model(_) if !cell.job.path().loses() => 1,
            _ => repetitions,
        }
    }

    /// Runs points, each for the numbers of its runs: on real devices one after another, on a model ahead of `body` and on
    /// all cores. Each call of the function that `body` gets returns the records of the next point's runs.
    ///
    /// # Errors
    /// Errors of `body`. The function that it gets fails if the point failed or was interrupted; with [`Unfinished`] if some
    /// of the runs had ended.
    pub fn in_order<T>(
        &mut self,
        cells: &[(&JobCell, RangeInclusive<u32>)],
        interrupt: &Interrupt,
        body: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<Vec<Record>>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Backend::Model(hardware) = &self.backend {
            let work = |(cell, passes): &(&JobCell, RangeInclusive<u32>), stop: &Stop| {
                let is_over = || interrupt.raised() || stop.is_set();
                let predict = |pass| self.predict(hardware, (cell, pass), &is_over);
                all_runs(passes.clone(), predict)
            };
            return in_order(cells, work, body);
        }
        let mut cells = cells.iter();
        body(&mut || {
            let (cell, passes) = cells.next().context("all points have been run")?;
            all_runs(passes.clone(), |pass| self.measure((cell, pass), interrupt))
        })
    }

    /// Runs a point on the hosts.
    fn measure(
        &mut self,
        (cell, pass): (&JobCell, u32),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Record> {
        let Backend::Hosts(launcher) = &mut self.backend else {
            bail!("{} has no processes", self.info.reference);
        };
        let started = now_rfc3339();
        let counters = self.counts_pcie.then(PcieCounters::open).transpose()?;
        let log = counters.map(PcieCounters::log).transpose()?;
        let run = launcher.run(&of_run(&cell.job, pass), self.timeout, interrupt);
        let mut measured = Measured::of(&cell.job, run.map_err(failed)?)?;
        if let (Some(log), Some(rate)) = (log, measured.rate()) {
            let here = measured.roles.iter().zip(&measured.reports);
            let mut here = here.filter(|(role, _)| role.host == 0);
            if let Some(window) = here.find_map(|(_, report)| report.window())
                && let Some(bytes) = log.end(window)?
            {
                let requests = rate * (window[1] - window[0]).as_secs_f64();
                measured.outcome.metrics.extend(of_pcie(bytes, requests));
            }
        }
        Ok(self.record(cell, (pass, started), measured))
    }

    /// Runs a point on a model, and runs it again for longer if it was not in steady state.
    fn predict(
        &self,
        hardware: &Hardware,
        (cell, pass): (&JobCell, u32),
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Record> {
        let started = now_rfc3339();
        let mut job = cell.job.in_pass(pass);
        loop {
            let run = hardware.run(&job, VirtualLimits::default(), is_over);
            let run = run.ok_or(RunError::Interrupted).map_err(failed)?;
            let mut measured = Measured::of(&job, run)?;
            let metric = |name| measured.outcome.metrics.get(name);
            let drift = metric("drift_percent").and_then(Value::as_f64);
            let requests = metric("requests").and_then(Value::as_u64);
            let requests = requests.filter(|_| !self.keeps_duration);
            if let Some(longer) = requests.and_then(|requests| job.lengthened(requests, drift)) {
                job = longer;
                continue;
            }
            let used = of_hardware(&measured.usage, measured.rate());
            measured.outcome.metrics.extend(used);
            return Ok(self.record(cell, (pass, started), measured));
        }
    }

    fn record(&self, cell: &JobCell, (pass, started): (u32, String), measured: Measured) -> Record {
        let Measured { roles, outcome, .. } = measured;
        let measured_on = self.measured_on(&cell.job);
        let opened = &self.info.reference;
        let of_role =
            |(role, done): (&RoleRun, adverb_patterns::RoleOutcome)| adverb_results::RoleRun {
                name: role.name.clone(),
                host: self.backend.host_name(role.host),
                device: (role.device != *opened).then(|| role.device.to_string()),
                core: role.core,
                numa_node: role.numa_node,
                cpu: done.cpu,
                metrics: done.metrics,
            };
        let of_roles = roles.iter().zip(outcome.roles).map(of_role).collect();
        let counted = roles.into_iter();
        let counted = counted.filter(|role| !role.counters.is_empty());
        let peer = self.backend.peers().first();
        let passive = peer.map(|peer| peer.welcome().site.clone());
        Record {
            schema: SCHEMA,
            cell: cell.id(),
            label: None,
            pass: Some(pass),
            figures: cell.figures.clone(),
            program: cell.program.to_owned(),
            device: measured_on.reference.clone(),
            params: cell.params.clone(),
            outcome: Outcome::Ok,
            metrics: Some(outcome.metrics),
            roles: of_roles,
            counters: counted.map(|role| (role.name, role.counters)).collect(),
            provenance: self
                .backend
                .provenance(started, measured_on.site.clone(), passive),
        }
    }
}

#[cfg(test)]
mod tests {
    use adverb_patterns::{Clients, Posting, RequestBy, Rpc, Schedule, Service, Serving};
    use adverb_verbs::Impairment;

    use super::*;

    fn record() -> Record {
        let record = json!({
            "schema": SCHEMA, "cell": "sequencer", "figures": [], "status": "ok",
            "program": "sequencer", "device": { "kind": "soft", "name": "soft" },
            "params": {}, "metrics": {},
            "provenance": {
                "adverb": "0.1.0", "revision": null, "started": "2026-01-02T03:04:05Z",
                "virtual_time": false, "host": "testbed", "kernel": "6.1", "cpu": "Some CPU",
                "cores": 2, "device": {},
            },
        });
        serde_json::from_value(record).expect("it has all fields of a record")
    }

    #[test]
    fn an_interrupt_leaves_the_runs_that_have_ended() {
        let interrupted = |last| {
            all_runs(1..=5, move |pass| match pass <= last {
                true => Ok(record()),
                false => bail!("interrupted"),
            })
        };
        let unfinished: Unfinished = interrupted(3).unwrap_err().downcast().unwrap();
        assert_eq!(unfinished.records.len(), 3);
        assert_eq!(unfinished.to_string(), "interrupted");
        assert!(!interrupted(0).unwrap_err().is::<Unfinished>());
        assert_eq!(interrupted(5).unwrap().len(), 5);
    }

    #[test]
    fn each_run_loses_other_packets_and_has_other_arrivals() {
        let rpc = Rpc {
            service: Service::Sequencer(RequestBy::Write),
            serving: Serving {
                cores: 1,
                qps_per_port: 1,
                posting: Posting::Single,
                signaled_every: 16,
            },
            clients: Clients::new([1, 1, 1], Some(1000.0)),
            path: PathOptions {
                impairment: Some(Impairment {
                    seed: 7,
                    ..Impairment::default()
                }),
                ..PathOptions::default()
            },
        };
        let schedule = Schedule {
            warm_up: Span::ZERO,
            measured: Span::from_secs(1),
        };
        let job = Job::Rpc(rpc, schedule);
        assert_eq!(of_run(&job, 1), job);
        let Job::Rpc(third, _) = of_run(&job, 3) else {
            panic!("another program");
        };
        assert_eq!(third.path.impairment.unwrap().seed, 9);
        assert_ne!(third.clients.seed, rpc.clients.seed);
    }
}
