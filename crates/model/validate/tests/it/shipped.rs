//! The shipped values are readable and match the schema.

use std::num::NonZeroU32;

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use adverb_validate::{
    Column, Completion, Data, Entry, Experiment, Grade, HEADLINES, Metric, Opcode, Operation, Plan,
    PostList, Program, Row, Transport,
};

fn row(id: &str) -> Row {
    let data = Data::shipped();
    let entry = data.entries().iter().find(|entry| entry.labels.id == id);
    entry.unwrap().row.clone().unwrap()
}

fn plain(id: &str) -> Experiment {
    match row(id).plan.unwrap() {
        Plan::Plain(experiment) => *experiment,
        other => panic!("{id} is {other:?}"),
    }
}

#[test]
fn every_shipped_row_can_be_read() {
    let data = Data::shipped();
    let refused: Vec<String> = data.refused().map(ToString::to_string).collect();
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(data.entries().len(), 159);
    assert!(data.ignored_columns().is_empty());
    for entry in data.entries() {
        let row = entry.row.as_ref().unwrap();
        assert!(row.plan.is_ok(), "{}: {:?}", entry.place, row.plan);
    }
}

#[test]
fn the_shipped_files_hold_values_bounds_comparisons_and_repetitions() {
    let data = Data::shipped();
    let rows = || data.entries().iter().map(|e| e.row.as_ref().unwrap());
    assert_eq!(rows().filter(|r| r.published.value().is_none()).count(), 21);
    assert_eq!(rows().filter(|r| r.grade == Grade::Shown).count(), 8);
    let kinds = |kind: fn(&Plan) -> bool| rows().filter(|r| kind(r.plan.as_ref().unwrap())).count();
    assert_eq!(kinds(|p| matches!(p, Plan::Ratio(_))), 54);
    assert_eq!(kinds(|p| matches!(p, Plan::Delta(_))), 5);
}

#[test]
fn every_headline_is_made_of_shipped_rows_that_are_graded() {
    let data = Data::headlines();
    let named: Vec<&str> = HEADLINES
        .iter()
        .flat_map(|h| h.rows)
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(data.entries().len(), named.len());
    for id in named {
        let entry = data.entries().iter().find(|entry| entry.labels.id == id);
        assert!(entry.is_some_and(Entry::counts), "{id}");
    }
}

#[test]
fn the_schema_has_62_columns_and_documents_each() {
    assert_eq!(Column::ALL.len(), 62);
    let schema = include_str!("../../data/schema.md");
    for column in Column::ALL {
        assert!(schema.contains(column.name()), "{column}");
    }
    for program in Program::ALL {
        let stem = program.as_str();
        assert!(schema.contains(stem), "{stem}");
    }
    for metric in Metric::ALL {
        let documented = format!("| {metric} | {} |", metric.unit());
        // One line documents ratio and delta_ns, the others one metric each.
        assert!(schema.contains(&documented), "{documented}");
    }
}

#[test]
fn an_outbound_blast_has_its_published_parameters() {
    let experiment = plain("K16-093");
    assert_eq!(experiment.preset, "connect_ib");
    assert_eq!(experiment.program, Program::BlastOutbound);
    assert_eq!(experiment.metric, Metric::OpsPerS);
    let parameters = &experiment.parameters;
    let expected = Operation {
        opcode: Some(Opcode::Send),
        transport: Some(Transport::Ud),
        size: Some(Bytes::new(60)),
        inline: Some(true),
        inline_recv: None,
        header_only: Some(false),
    };
    assert_eq!(parameters.operation, expected);
    let sixteen = NonZeroU32::new(16).unwrap();
    assert_eq!(parameters.posting.post_list, Some(PostList::Of(sixteen)));
    let queueing = &parameters.queueing;
    assert_eq!(
        (queueing.qps, queueing.outstanding),
        (Some(1), NonZeroU32::new(127))
    );
    let parties = &parameters.parties;
    assert_eq!((parties.cores, parties.offered), (Some(1), None));
}

#[test]
fn quantities_have_their_units() {
    let offered = plain("K16-060").parameters.parties.offered;
    assert_eq!(offered.map(MessageRate::per_second), Some(97e6));
    let Plan::Ratio(pair) = row("AMM-03").plan.unwrap() else {
        panic!("AMM-03 is a ratio")
    };
    let network = &pair.of.parameters.network;
    assert_eq!(network.added_delay, Some(Span::from_ms(4)));
    assert_eq!(network.mtu, Some(Bytes::new(1500)));
    let rate = network.rate.map(Throughput::bytes_per_second);
    assert_eq!(rate, Some(125e6));
}

#[test]
fn a_reference_differs_by_its_overrides_only() {
    let Plan::Delta(pair) = row("RUS-03").plan.unwrap() else {
        panic!("RUS-03 is a difference")
    };
    assert_eq!(pair.of.metric, Metric::RoundTripNs);
    assert_eq!(
        pair.of.parameters.posting.completion,
        Some(Completion::Event)
    );
    let mut base = pair.base.clone();
    assert_eq!(base.parameters.posting.completion, Some(Completion::Poll));
    base.parameters.posting.completion = Some(Completion::Event);
    assert_eq!(base, pair.of);
}

#[test]
fn a_reference_may_be_another_program_with_cells_cleared() {
    let Plan::Ratio(pair) = row("KN-04").plan.unwrap() else {
        panic!("KN-04 is a ratio")
    };
    assert_eq!(pair.of.program, Program::SequencerRpc);
    assert_eq!(pair.of.parameters.operation.inline, Some(true));
    assert_eq!(pair.base.program, Program::SequencerAtomics);
    assert_eq!(pair.base.parameters.operation.inline, None);
    assert_eq!(
        pair.base.parameters.operation.opcode,
        Some(Opcode::FetchAdd)
    );
    assert_eq!(pair.base.preset, "connect_ib");
}
