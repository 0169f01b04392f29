//! Refusals of invalid input, word for word.

use crate::common::{RATIO, data, faults, file, file_of, with};
use adverb_validate::{Column as C, Data, Only};
use insta::assert_snapshot;

fn refusal(text: &[u8]) -> String {
    Data::default()
        .read("rows.csv", text)
        .unwrap_err()
        .to_string()
}

fn ratio(changes: crate::common::Changes<'_>) -> String {
    faults(&with(RATIO, changes))
}

#[test]
fn the_rows_of_these_tests_are_valid() {
    assert_eq!(faults(&[]), "");
    assert_eq!(faults(RATIO), "");
}

#[test]
fn a_missing_column_refuses_the_file() {
    let without: Vec<C> = C::ALL
        .iter()
        .copied()
        .filter(|c| !matches!(c, C::Lo | C::Mtu))
        .collect();
    let text = file_of(&without, &[&[]]);
    assert_snapshot!(refusal(text.as_bytes()), @"rows.csv has no column 'mtu', 'lo'; a data file has all 62 columns of the schema, with empty cells where they do not apply");
}

#[test]
fn a_misspelled_column_is_suggested() {
    let text = file(&[&[]]).replacen("size_bytes", "Size_Byte", 1);
    assert_snapshot!(refusal(text.as_bytes()), @"rows.csv has no column 'size_bytes' (is 'Size_Byte' it?); a data file has all 62 columns of the schema, with empty cells where they do not apply");
}

#[test]
fn a_repeated_column_refuses_the_file() {
    let columns: Vec<C> = C::ALL.iter().copied().chain([C::Lo]).collect();
    let text = file_of(&columns, &[&[]]);
    assert_snapshot!(refusal(text.as_bytes()), @"rows.csv has column 'lo' twice; name each column once");
}

#[test]
fn a_row_with_missing_cells_refuses_the_file() {
    let text = format!("{}R-2,short\n", file(&[&[]]));
    assert_snapshot!(refusal(text.as_bytes()), @"rows.csv, line 3 has 2 cells where the header has 62; quote a cell that holds a comma");
}

#[test]
fn a_file_that_is_not_utf_8_is_refused() {
    let mut text = file(&[&[]]).into_bytes();
    let id = text.windows(3).position(|id| id == b"R-1").unwrap();
    text[id] = 0xff;
    assert_snapshot!(refusal(&text), @"rows.csv, line 2 is not UTF-8");
}

#[test]
fn an_empty_file_is_refused() {
    let text = refusal(b"");
    assert_snapshot!(&text[..80], @"rows.csv is empty; its first line must name the columns: id,source,exactness,cur");
}

#[test]
fn an_unreadable_file_is_refused() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let error = Data::default().read("rows.csv", Broken).unwrap_err();
    assert_snapshot!(error, @"cannot read rows.csv: the disk is gone");
}

#[test]
fn unknown_words() {
    assert_snapshot!(faults(&[(C::Opcode, "SENDD")]), @"rows.csv, line 2, row 'R-1', column opcode: 'SENDD' is not one of SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, CAS, WRITE+READ, READ+FETCH_ADD, READ+WRITE, pcie_read, pcie_write");
    assert_snapshot!(faults(&[(C::Metric, "latency")]), @"rows.csv, line 2, row 'R-1', column metric: 'latency' is not one of ops_per_s, ns_per_op, one_way_ns, round_trip_ns, dma_ns, gbps, cpu_percent, cpu_ns_per_op, pcie_reads_per_s, hit_percent, batch_mean, ratio, delta_ns");
    assert_snapshot!(faults(&[(C::Unit, "1/s")]), @"rows.csv, line 2, row 'R-1', column unit: '1/s' does not fit metric round_trip_ns; its unit is ns");
    assert_snapshot!(faults(&[(C::Unit, "us")]), @"rows.csv, line 2, row 'R-1', column unit: 'us' is not one of 1/s, ns, Gb/s, %, 1");
}

#[test]
fn invalid_numbers() {
    assert_snapshot!(faults(&[(C::SizeBytes, "64 B")]), @"rows.csv, line 2, row 'R-1', column size_bytes: '64 B' is not a whole number of bytes");
    assert_snapshot!(faults(&[(C::Peers, "-1")]), @"rows.csv, line 2, row 'R-1', column peers: '-1' is not a whole number up to 4294967295");
    assert_snapshot!(faults(&[(C::SignaledEvery, "0")]), @"rows.csv, line 2, row 'R-1', column signaled_every: '0' is not a whole number from 1");
    assert_snapshot!(faults(&[(C::Counters, "0")]), @"rows.csv, line 2, row 'R-1', column counters: '0' is not a whole number from 1");
    assert_snapshot!(faults(&[(C::Inline, "yes")]), @"rows.csv, line 2, row 'R-1', column inline: 'yes' is not 0 or 1");
    assert_snapshot!(faults(&[(C::LoadWriteRatio, "1.5")]), @"rows.csv, line 2, row 'R-1', column load_write_ratio: '1.5' is not a number from 0 to 1");
    assert_snapshot!(faults(&[(C::GetReads, "-1")]), @"rows.csv, line 2, row 'R-1', column get_reads: '-1' is not a number from 0");
    assert_snapshot!(faults(&[(C::GetReadBytes, "64 and 32")]), @"rows.csv, line 2, row 'R-1', column get_read_bytes: '64 and 32' is not a list of sizes in bytes such as 64 or 16+1024");
    assert_snapshot!(faults(&[(C::OfferedOpsPerS, "0")]), @"rows.csv, line 2, row 'R-1', column offered_ops_per_s: '0' is not a rate from 1 operation per second");
    assert_snapshot!(faults(&[(C::LinkGbps, "fast")]), @"rows.csv, line 2, row 'R-1', column link_gbps: 'fast' is not a data rate in Gb/s, above 0");
    assert_snapshot!(faults(&[(C::LinkDelayUs, "-1")]), @"rows.csv, line 2, row 'R-1', column link_delay_us: '-1' is not a time in microseconds, 0 to an hour");
    assert_snapshot!(faults(&[(C::Mtu, "0")]), @"rows.csv, line 2, row 'R-1', column mtu: '0' is not a whole number of bytes from 1");
    assert_snapshot!(faults(&[(C::Value, "NaN")]), @"rows.csv, line 2, row 'R-1', column value: 'NaN' is not a number");
}

#[test]
fn cells_that_must_not_be_empty() {
    let empty = [
        C::Id,
        C::Curve,
        C::Preset,
        C::Program,
        C::Metric,
        C::Unit,
        C::Grade,
    ];
    let empty = empty.map(|column| (column, ""));
    assert_snapshot!(faults(&empty), @"
    rows.csv, line 2, row '', column id: empty; write a name that is unique over all files
    rows.csv, line 2, row '', column curve: empty; write the curve that the point belongs to
    rows.csv, line 2, row '', column grade: empty; write 0 or 1
    rows.csv, line 2, row '', column unit: empty; write the metric's unit
    rows.csv, line 2, row '', column metric: empty; write what was published
    rows.csv, line 2, row '', column preset: empty; write the name of the hardware
    rows.csv, line 2, row '', column program: empty; write the program's name
    ");
}

#[test]
fn duplicate_ids() {
    let mut data = data(&[&[], &[]]);
    data.read("more.csv", file(&[&[(C::Inline, "2")]]).as_bytes())
        .unwrap();
    let refused: Vec<String> = data.refused().map(ToString::to_string).collect();
    assert_snapshot!(refused.join("\n"), @"
    rows.csv, line 3, row 'R-1', column id: 'R-1' is also the id of rows.csv, line 2; ids are unique over all files
    more.csv, line 2, row 'R-1', column id: 'R-1' is also the id of rows.csv, line 2; ids are unique over all files
    more.csv, line 2, row 'R-1', column inline: '2' is not 0 or 1
    ");
}

#[test]
fn invalid_intervals() {
    assert_snapshot!(faults(&[(C::Value, "2200")]), @"rows.csv, line 2, row 'R-1', column value: 2200 is outside lo..hi, 1900..2100");
    assert_snapshot!(faults(&[(C::Lo, "2200")]), @"rows.csv, line 2, row 'R-1', column lo: 2200 is above hi 2100; lo..hi is the interval of the published value");
    assert_snapshot!(faults(&[(C::Value, ""), (C::Lo, ""), (C::Hi, "")]), @"rows.csv, line 2, row 'R-1', column value: value, lo and hi are all empty; a row has a value, or a bound by lo or hi");
}

#[test]
fn a_comparison_without_a_reference() {
    assert_snapshot!(ratio(&[(C::Of, ""), (C::Base, "")]), @"
    rows.csv, line 2, row 'R-1', column of: empty, and metric ratio compares with a reference; write the metric to compare
    rows.csv, line 2, row 'R-1', column base: empty, and metric ratio compares with a reference; write COLUMN=VALUE;… of the reference
    ");
}

#[test]
fn a_plain_metric_with_a_reference() {
    assert_snapshot!(faults(&[(C::Of, "gbps"), (C::Base, "inline=0")]), @"
    rows.csv, line 2, row 'R-1', column of: 'gbps' has no meaning with metric round_trip_ns; leave it empty, or use ratio or delta_ns
    rows.csv, line 2, row 'R-1', column base: 'inline=0' has no meaning with metric round_trip_ns; leave it empty, or use ratio or delta_ns
    ");
}

#[test]
fn a_difference_of_rates() {
    let changes = [(C::Metric, "delta_ns"), (C::Unit, "ns"), (C::Of, "gbps")];
    assert_snapshot!(ratio(&changes), @"rows.csv, line 2, row 'R-1', column of: delta_ns needs a metric in ns, which 'gbps' is not; use ratio");
}

#[test]
fn invalid_overrides() {
    assert_snapshot!(ratio(&[(C::Base, "inline")]), @"rows.csv, line 2, row 'R-1', column base: invalid override 'inline': expected COLUMN=VALUE, several with ';' between them");
    assert_snapshot!(ratio(&[(C::Base, "sizebytes=8;mtu=256")]), @"rows.csv, line 2, row 'R-1', column base: there is no column 'sizebytes'; near: size_bytes, window_bytes");
    assert_snapshot!(ratio(&[(C::Base, "value=1")]), @"rows.csv, line 2, row 'R-1', column base: 'value' cannot be overridden: it describes the publication, not the experiment");
    assert_snapshot!(ratio(&[(C::Base, "inline=0;inline=1")]), @"rows.csv, line 2, row 'R-1', column base: 'inline' is overridden twice");
    assert_snapshot!(ratio(&[(C::Base, "opcode=RAED;peers=two")]), @"
    rows.csv, line 2, row 'R-1', column base: opcode: 'RAED' is not one of SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, CAS, WRITE+READ, READ+FETCH_ADD, READ+WRITE, pcie_read, pcie_write
    rows.csv, line 2, row 'R-1', column base: peers: 'two' is not a whole number up to 4294967295
    ");
    assert_snapshot!(ratio(&[(C::Base, "preset=")]), @"rows.csv, line 2, row 'R-1', column base: preset: empty; write the name of the hardware");
}

#[test]
fn all_faults_of_a_row_are_reported() {
    let changes = [
        (C::Metric, "latency"),
        (C::Opcode, "SENDD"),
        (C::Qps, "x"),
        (C::Grade, "2"),
    ];
    assert_snapshot!(faults(&changes), @"
    rows.csv, line 2, row 'R-1', column grade: '2' is not 0 or 1
    rows.csv, line 2, row 'R-1', column metric: 'latency' is not one of ops_per_s, ns_per_op, one_way_ns, round_trip_ns, dma_ns, gbps, cpu_percent, cpu_ns_per_op, pcie_reads_per_s, hit_percent, batch_mean, ratio, delta_ns
    rows.csv, line 2, row 'R-1', column opcode: 'SENDD' is not one of SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, CAS, WRITE+READ, READ+FETCH_ADD, READ+WRITE, pcie_read, pcie_write
    rows.csv, line 2, row 'R-1', column qps: 'x' is not a whole number up to 4294967295
    ");
}

#[test]
fn a_selection_without_rows() {
    let mut data = Data::shipped();
    let refusal = |text: &str, data: &mut Data| {
        let only: Only = text.parse().unwrap();
        only.apply(data).unwrap_err().to_string()
    };
    assert_snapshot!(refusal("pign", &mut data), @"no row has program, preset, curve or file 'pign'; near: ping");
    assert_snapshot!(refusal("preset=ping", &mut data), @"no row has preset 'ping'");
    assert_snapshot!(refusal("curve=Fig99x", &mut data), @"no row has curve 'Fig99x'; near: Fig1, Fig4, Fig7");
    assert_eq!(data.entries().len(), 159);
}
