//! Output: the table, the scores, the worst rows, JSON Lines.

use crate::common::{RATIO, cells, with};
use adverb_validate::{Column as C, Experiment, Outcome, Refusal, Report};
use insta::assert_snapshot;

/// Rows of all kinds, with a model whose figure is the message size.
fn report() -> Report {
    let ratio = |text| with(RATIO, &cells(text));
    let rows = [
        cells("id=TIME size_bytes=2200"),
        cells(
            "id=RATE curve=Fig2 program=blast_outbound size_bytes=32100000 metric=ops_per_s unit=1/s \
             value=32000000 lo=31000000 hi=33000000",
        ),
        cells("id=GBPS size_bytes=54 metric=gbps unit=Gb/s value= lo= hi=50"),
        ratio("id=RATIO"),
        ratio("id=DELTA metric=delta_ns unit=ns value=-150 lo=-160 hi=-140"),
        cells("id=CPU size_bytes=100 metric=cpu_percent unit=% value=100 lo=99 hi=100 grade=0"),
        cells("id=NONE preset=cx33"),
        cells("id=STUCK preset=stuck"),
        cells("id=BAD qps=x mtu=y"),
    ];
    crate::common::report(&rows.each_ref().map(Vec::as_slice), model)
}

fn model(experiment: &Experiment) -> Result<f64, Refusal> {
    match experiment.preset.as_str() {
        "cx33" => Err(Refusal::UnknownPreset {
            name: "cx33".to_owned(),
            near: vec!["cx3".to_owned()],
        }),
        "stuck" => Err(Refusal::Deadlock(
            "client waits for a completion\nserver waits for a message".to_owned(),
        )),
        _ => {
            let size = experiment.parameters.operation.size;
            Ok(size.unwrap_or_default().get() as f64)
        }
    }
}

#[test]
fn rows_keep_their_order() {
    assert_snapshot!(report().rows_text(), @"
    id     program         preset  metric         published  lo..hi              predicted  ratio  error  status
    TIME   ping            cx3     round_trip_ns    2.00 µs  1.90 µs..2.10 µs      2.20 µs  1.100  0.047  outside
    RATE   blast_outbound  cx3     ops_per_s       32.0 M/s  31.0 M/s..33.0 M/s   32.1 M/s  1.003  0.000  inside
    GBPS   ping            cx3     gbps                   -  ..50.0 Gb/s         54.0 Gb/s      -  0.077  outside
    RATIO  ping            cx3     ratio              0.500  0.400..0.600            0.250  0.500  0.470  outside
    DELTA  ping            cx3     delta_ns         -150 ns  -160 ns..-140 ns      -192 ns  1.280  0.182  outside
    CPU    ping            cx3     cpu_percent        100 %  99.0 %..100 %           100 %  1.000  0.000  ungraded
    NONE   ping            cx33    round_trip_ns    2.00 µs  1.90 µs..2.10 µs            -      -      -  cannot: no preset 'cx33'; near: cx3
    STUCK  ping            stuck   round_trip_ns    2.00 µs  1.90 µs..2.10 µs            -      -      -  failed: deadlock: client waits for a completion; server waits for a message
    BAD    ping            cx3     round_trip_ns          -  -                           -      -      -  cannot: rows.csv, line 10, column qps: 'x' is not a whole number up to 4294967295; column mtu: 'y' is not a whole number of bytes from 1
    ");
}

#[test]
fn the_worst_rows_are_first() {
    assert_snapshot!(report().worst_text(4), @"
    worst 4 of 7 rows:
    id     program  preset  metric         published  lo..hi            predicted  ratio  error  status
    STUCK  ping     stuck   round_trip_ns    2.00 µs  1.90 µs..2.10 µs          -      -      -  failed: deadlock: client waits for a completion; server waits for a message
    RATIO  ping     cx3     ratio              0.500  0.400..0.600          0.250  0.500  0.470  outside
    DELTA  ping     cx3     delta_ns         -150 ns  -160 ns..-140 ns    -192 ns  1.280  0.182  outside
    GBPS   ping     cx3     gbps                   -  ..50.0 Gb/s       54.0 Gb/s      -  0.077  outside
    ");
}

#[test]
fn tiny_ratios_and_wrong_signs_keep_their_digits() {
    let tiny = cells("id=TINY size_bytes=1 value=1e7 hi=2e7");
    let sign = "id=SIGN size_bytes=512 metric=delta_ns unit=ns value=-150 lo=-160 hi=-140";
    let sign = with(RATIO, &cells(sign));
    let rows = crate::common::report(&[&tiny, &sign], model).rows_text();
    assert_snapshot!(rows, @"
    id    program  preset  metric         published  lo..hi            predicted   ratio  error  status
    TINY  ping     cx3     round_trip_ns    10.0 ms  1.90 µs..20.0 ms    1.00 ns  1.0e-7  4.605  outside
    SIGN  ping     cx3     delta_ns         -150 ns  -160 ns..-140 ns     256 ns  -1.707  4.605  outside
    ");
}

#[test]
fn no_row_is_worst_if_all_are_inside() {
    let report = crate::common::report(&[&[(C::SizeBytes, "2000")]], model);
    assert_snapshot!(report.worst_text(4), @"every row that counts is predicted, and inside lo..hi");
}

#[test]
fn scores_are_listed_by_program_preset_and_curve() {
    assert_snapshot!(report().scores().text(), @"
    score of                error  curves  inside  within 3 %  bounds  missing
    all rows                0.116       2     1/4         1/4     0/1        3
    file rows.csv           0.116       2     1/4         1/4     0/1        3
    program ping            0.233       1     0/3         0/3     0/1        3
    program blast_outbound  0.000       1     1/1         1/1       -        0
    preset cx3              0.116       2     1/4         1/4     0/1        1
    preset cx33                 -       0       -           -       -        1
    preset stuck                -       0       -           -       -        1
    curve Fig1 (cx3)        0.233       1     0/3         0/3     0/1        1
    curve Fig2 (cx3)        0.000       1     1/1         1/1       -        0
    curve Fig1 (cx33)           -       0       -           -       -        1
    curve Fig1 (stuck)          -       0       -           -       -        1

    error of curves: median 0.116, 90th percentile 0.233
    ");
}

#[test]
fn json_has_one_object_per_line() {
    let mut json = Vec::new();
    report().write_json(&mut json).unwrap();
    assert_snapshot!(String::from_utf8(json).unwrap(), @r#"
    {"id":"TIME","preset":"cx3","program":"ping","curve":"Fig1","metric":"round_trip_ns","published":2000.0,"lo":1900.0,"hi":2100.0,"predicted":2200.0,"error":0.04652001563489291,"status":"outside","reason":null}
    {"id":"RATE","preset":"cx3","program":"blast_outbound","curve":"Fig2","metric":"ops_per_s","published":32000000.0,"lo":31000000.0,"hi":33000000.0,"predicted":32100000.0,"error":0.0,"status":"inside","reason":null}
    {"id":"GBPS","preset":"cx3","program":"ping","curve":"Fig1","metric":"gbps","published":null,"lo":null,"hi":50.0,"predicted":54.0,"error":0.0769610411361284,"status":"outside","reason":null}
    {"id":"RATIO","preset":"cx3","program":"ping","curve":"Fig1","metric":"ratio","published":0.5,"lo":0.4,"hi":0.6,"predicted":0.25,"error":0.4700036292457356,"status":"outside","reason":null}
    {"id":"DELTA","preset":"cx3","program":"ping","curve":"Fig1","metric":"delta_ns","published":-150.0,"lo":-160.0,"hi":-140.0,"predicted":-192.0,"error":0.1823215567939546,"status":"outside","reason":null}
    {"id":"CPU","preset":"cx3","program":"ping","curve":"Fig1","metric":"cpu_percent","published":100.0,"lo":99.0,"hi":100.0,"predicted":100.0,"error":0.0,"status":"ungraded","reason":null}
    {"id":"NONE","preset":"cx33","program":"ping","curve":"Fig1","metric":"round_trip_ns","published":2000.0,"lo":1900.0,"hi":2100.0,"predicted":null,"error":null,"status":"cannot","reason":"no preset 'cx33'; near: cx3"}
    {"id":"STUCK","preset":"stuck","program":"ping","curve":"Fig1","metric":"round_trip_ns","published":2000.0,"lo":1900.0,"hi":2100.0,"predicted":null,"error":null,"status":"failed","reason":"deadlock: client waits for a completion\nserver waits for a message"}
    {"id":"BAD","preset":"cx3","program":"ping","curve":"Fig1","metric":"round_trip_ns","published":null,"lo":null,"hi":null,"predicted":null,"error":null,"status":"cannot","reason":"rows.csv, line 10, column qps: 'x' is not a whole number up to 4294967295; column mtu: 'y' is not a whole number of bytes from 1"}
    "#);
}

#[test]
fn headlines_list_the_rows_that_the_report_has() {
    let read = with(RATIO, &[(C::Id, "NEL-06"), (C::SizeBytes, "128")]);
    let report = crate::common::report(
        &[
            &[(C::Id, "MAC-04b"), (C::SizeBytes, "2000")],
            &read,
            &[(C::Id, "KN-06"), (C::Preset, "cx33")],
            &[(C::Id, "OTHER")],
        ],
        model,
    );
    assert_snapshot!(report.headlines_text(), @r"
                                id       published  lo..hi            predicted  ratio  status

    Small inline messages cost 300 ns each (blast of WRITEs; MacArthur & Russell 2012)
      16 B, 16 buffers          MAC-04b    2.00 µs  1.90 µs..2.10 µs    2.00 µs  1.000  inside

    A server's buffer on the other socket (there / on the NIC's; Nelson & Palmieri)
      READ of 64 B: round trip  NEL-06       0.500  0.400..0.600          0.500  1.000  inside

    A sequencer: 2.2, 7, 16.6, 27.4, 97.2, 122 M/s (Kalia et al. 2016)
      ... over 6 queue pairs    KN-06      2.00 µs  1.90 µs..2.10 µs          -      -  cannot: no preset 'cx33'; near: cx3
    ");
}

#[test]
fn an_outcome_can_be_a_sentence() {
    let report = report();
    let sentences: Vec<String> = report.outcomes()[..3]
        .iter()
        .map(Outcome::sentence)
        .collect();
    assert_snapshot!(sentences.join("\n"), @r"
    TIME, ping on cx3: round_trip_ns 2.20 µs, published 2.00 µs (1.90 µs..2.10 µs)
    RATE, blast_outbound on cx3: ops_per_s 32.1 M/s, published 32.0 M/s (31.0 M/s..33.0 M/s)
    GBPS, ping on cx3: gbps 54.0 Gb/s, published ..50.0 Gb/s
    ");
}
