//! Published values that come with Adverb, as points next to a study of the same hardware on the model.

use std::collections::BTreeSet;

use adverb_hwmodel::{Placement, Preset};
use adverb_results::{DeviceKind, PairRecord, Program, PublishedPoint, PublishedQuantity};
use adverb_units::Bytes;
use adverb_validate::{Data, Entry, Experiment, Grade, Metric, Plan, Side};
use adverb_workload::pair::CellSpec;

use super::experiment::{cell, placements, preset};

/// Returns the published points of the hardware that any of these records was predicted for.
pub fn published_points(records: &[PairRecord]) -> Vec<PublishedPoint> {
    let models = records.iter().map(|record| &record.device);
    let models = models.filter(|device| device.kind == DeviceKind::Model);
    let presets: BTreeSet<&str> = models.map(|device| device.name.as_str()).collect();
    if presets.is_empty() {
        return Vec::new();
    }
    let data = Data::shipped();
    let entries = data.entries().iter();
    entries
        .filter(|entry| presets.contains(entry.labels.preset.as_str()))
        .filter_map(point)
        .collect()
}

/// Converts a row that publishes an absolute value of a cell of a study.
fn point(entry: &Entry) -> Option<PublishedPoint> {
    let row = entry.row.as_ref().ok()?;
    let Ok(Plan::Plain(experiment)) = &row.plan else {
        return None;
    };
    if row.grade != Grade::Counted || !is_plain(experiment) {
        return None;
    }
    let spec = cell(experiment)?.ok()?;
    let (quantity, convert) = conversion(experiment, &spec)?;
    let interval = row.published.interval();
    let (one, other) = (convert(interval.lo()), convert(interval.hi()));
    Some(PublishedPoint {
        id: entry.labels.id.clone(),
        source: row.source.clone(),
        preset: experiment.preset.clone(),
        program: spec.program,
        params: spec.params(None, None),
        quantity,
        value: row.published.value().map(&convert),
        low: one.min(other),
        high: one.max(other),
    })
}

/// Whether hosts and network are as in the preset, without other load, as a study measures them.
fn is_plain(experiment: &Experiment) -> bool {
    let p = &experiment.parameters;
    let unchanged = |preset: Preset| {
        let base = Preset::built_in(&experiment.preset);
        base.is_ok_and(|base| base.params == preset.params)
    };
    let places = placements(experiment, 2);
    preset(experiment).is_ok_and(unchanged)
        && p.host.iommu != Some(true)
        && p.load.threads.unwrap_or(0) == 0
        && p.interferer.is_none()
        && places.iter().all(|place| *place == Placement::Cached)
}

/// Returns the quantity of a record that corresponds to the metric, and the conversion to its unit.
fn conversion(
    experiment: &Experiment,
    spec: &CellSpec,
) -> Option<(PublishedQuantity, impl Fn(f64) -> f64 + use<>)> {
    let metric = experiment.metric;
    let quantity = match (metric, experiment.parameters.measured_at) {
        (
            Metric::OneWayNs
            | Metric::RoundTripNs
            | Metric::NsPerOp
            | Metric::OpsPerS
            | Metric::Gbps,
            _,
        ) => PublishedQuantity::OneWay,
        (Metric::CpuPercent, Some(Side::Responder)) => PublishedQuantity::CpuPassive,
        (Metric::CpuPercent, _) => PublishedQuantity::CpuActive,
        (Metric::CpuNsPerOp, None | Some(Side::Requester)) if spec.program == Program::Ping => {
            PublishedQuantity::CpuActivePerRound
        }
        _ => return None,
    };
    let bits = bits(spec.params.size);
    Some((quantity, move |published: f64| match metric {
        Metric::RoundTripNs => published / 2.0,
        Metric::OpsPerS => 1e9 / published,
        Metric::Gbps => bits / published,
        _ => published,
    }))
}

fn bits(size: Bytes) -> f64 {
    size.get() as f64 * 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<PublishedPoint> {
        Data::shipped().entries().iter().filter_map(point).collect()
    }

    #[test]
    fn absolute_values_of_cells_become_points() {
        let points = points();
        let named = |id: &str| points.iter().find(|point| point.id == id);
        // 300 ns per message of a blast of inline WRITEs of 64 B with 8 buffers.
        let blast = named("MAC-04").unwrap();
        assert_eq!(blast.program, Program::Blast);
        assert_eq!((blast.params.buffers, blast.params.inline), (8, true));
        assert_eq!(
            (blast.value, blast.low, blast.high),
            (Some(300.0), 270.0, 330.0)
        );
        let cpu = named("MAC-23").unwrap();
        assert_eq!(cpu.quantity, PublishedQuantity::CpuActive);
        let ping = named("SV-WR-10").unwrap();
        assert_eq!(ping.value, Some(1320.0));
        let round = named("RUS-04").unwrap();
        assert_eq!(round.quantity, PublishedQuantity::CpuActivePerRound);
        assert_eq!(round.value, Some(3819.0));
        assert!(named("RUS-06").is_none(), "it is of the passive side");
    }

    #[test]
    fn a_rate_becomes_a_time_with_reversed_bounds() {
        let text = include_str!("../../../model/validate/data/calibration.csv");
        let rate = text.replacen(
            ",ns_per_op,300,ns,270,330,",
            ",ops_per_s,4000000,1/s,2000000,5000000,",
            1,
        );
        let mut data = Data::default();
        data.read("rate.csv", rate.as_bytes()).unwrap();
        let entry = data.entries().iter().find(|e| e.labels.id == "MAC-04");
        let rate = point(entry.unwrap()).unwrap();
        assert_eq!(rate.quantity, PublishedQuantity::OneWay);
        assert_eq!(
            (rate.value, rate.low, rate.high),
            (Some(250.0), 200.0, 500.0)
        );
    }

    #[test]
    fn ratios_differences_and_uncounted_values_do_not() {
        let points = points();
        for id in ["MAC-12a", "RUS-03", "RUS-01", "AMM-01"] {
            assert!(points.iter().all(|point| point.id != id), "{id}");
        }
    }
}
