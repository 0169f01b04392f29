//! Reading valid files.

use adverb_validate::{Column as C, Data, Only, Plan, PostList, Program};
use proptest::prelude::*;

use crate::common::{RATIO, data, file, file_of, with};

fn plan(changes: crate::common::Changes<'_>) -> Plan {
    let data = data(&[changes]);
    let row = data.entries()[0].row.clone();
    row.unwrap().plan.unwrap()
}

#[test]
fn columns_may_have_any_order() {
    let mut columns = C::ALL.to_vec();
    columns.reverse();
    let mut reversed = Data::default();
    reversed
        .read("rows.csv", file_of(&columns, &[&[]]).as_bytes())
        .unwrap();
    let usual = data(&[&[]]);
    assert_eq!(reversed.entries()[0].row, usual.entries()[0].row);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let text = format!("\u{feff}{}", file(&[&[]]).replace('\n', "\r\n"));
    let mut data = Data::default();
    data.read("rows.csv", text.as_bytes()).unwrap();
    assert_eq!(data.refused().count(), 0);
    assert_eq!(data.entries()[0].labels.id, "R-1");
}

#[test]
fn unknown_columns_are_ignored_and_reported() {
    let text = file(&[&[]]).replace('\n', ",more\n");
    let mut data = Data::default();
    data.read("rows.csv", text.as_bytes()).unwrap();
    let ignored: Vec<String> = data
        .ignored_columns()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        ignored,
        ["rows.csv: column 'more' is not one of the schema's and is ignored"]
    );
    assert_eq!(data.refused().count(), 0);
}

#[test]
fn a_file_that_is_refused_adds_no_row() {
    let mut data = data(&[&[]]);
    assert!(data.read("bad.csv", &b"id,source\nR-2,x\n"[..]).is_err());
    assert_eq!(data.entries().len(), 1);
    data.read("good.csv", file(&[&[(C::Id, "R-2")]]).as_bytes())
        .unwrap();
    assert_eq!(data.refused().count(), 0);
}

#[test]
fn a_faulty_row_does_not_affect_others() {
    let data = data(&[&[(C::Opcode, "?")], &[(C::Id, "R-2")]]);
    assert_eq!(data.refused().count(), 1);
    assert!(data.entries()[1].row.is_ok());
    assert_eq!(data.entries()[0].labels.preset, "cx3");
    assert_eq!(data.entries()[1].place.to_string(), "rows.csv, line 3");
}

#[test]
fn unknown_hardware_and_programs_keep_their_names() {
    let data = data(&[&[(C::Preset, "cx99"), (C::Program, "pings")]]);
    let labels = &data.entries()[0].labels;
    assert_eq!((&*labels.preset, &*labels.program), ("cx99", "pings"));
    let row = data.entries()[0].row.clone().unwrap();
    assert_eq!(
        row.plan.unwrap_err().to_string(),
        "no program 'pings'; near: ping"
    );
}

#[test]
fn an_empty_end_is_the_value_or_open() {
    let of = |changes: crate::common::Changes<'_>| {
        let data = data(&[changes]);
        let published = data.entries()[0].row.clone().unwrap().published;
        let interval = published.interval();
        (published.value(), interval.lo(), interval.hi())
    };
    let (lo, hi, value) = ((C::Lo, ""), (C::Hi, ""), (C::Value, ""));
    assert_eq!(of(&[lo, hi]), (Some(2000.0), 2000.0, 2000.0));
    assert_eq!(of(&[value, lo]), (None, f64::NEG_INFINITY, 2100.0));
    assert_eq!(of(&[value, hi]), (None, 1900.0, f64::INFINITY));
}

#[test]
fn a_post_list_of_0_posts_all_free_slots() {
    let Plan::Plain(experiment) = plan(&[(C::PostList, "0")]) else {
        panic!("a plain row")
    };
    assert_eq!(
        experiment.parameters.posting.post_list,
        Some(PostList::AllFree)
    );
}

#[test]
fn overrides_may_clear_cells_and_change_program_and_hardware() {
    let base = " inline = ; program=closed_loop;preset=cx;peers=0; ";
    let Plan::Ratio(pair) = plan(&with(RATIO, &[(C::Base, base)])) else {
        panic!("a ratio")
    };
    assert_eq!(pair.of.parameters.operation.inline, Some(true));
    assert_eq!(pair.base.parameters.operation.inline, None);
    assert_eq!(pair.base.program, Program::ClosedLoop);
    assert_eq!(pair.base.preset, "cx");
    assert_eq!(pair.base.parameters.parties.peers, Some(0));
}

#[test]
fn the_reference_may_have_an_unknown_program() {
    let data = data(&[&with(RATIO, &[(C::Base, "program=pingg")])]);
    let row = data.entries()[0].row.clone().unwrap();
    assert_eq!(row.plan.unwrap_err().name, "pingg");
}

#[test]
fn rows_are_selected_by_program_preset_curve_or_file() {
    let count = |only: &str| {
        let mut data = Data::shipped();
        only.parse::<Only>().unwrap().apply(&mut data).unwrap();
        data.entries().len()
    };
    assert_eq!(count("ping"), 17);
    assert_eq!(count("program=ping"), 17);
    assert_eq!(count("cx3"), 23);
    assert_eq!(count("preset=cx3"), 23);
    assert_eq!(count("curve=Fig3a"), 10);
    assert_eq!(count("ping-pong table"), 12);
    assert_eq!(count("file=calibration.csv"), 29);
    assert_eq!(count("visible.csv"), 130);
}

proptest! {
    #[test]
    fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Data::default().read("any", &bytes[..]);
    }

    /// Any text of a cell is read, or its column has a fault.
    #[test]
    fn a_cell_is_read_or_has_a_fault(column in prop::sample::select(C::ALL), text in "[ -~]{0,12}") {
        let data = data(&[&with(RATIO, &[(column, &text)])]);
        let faults = data.refused().flat_map(|refused| &refused.faults);
        let columns: Vec<C> = faults.map(|fault| fault.column).collect();
        // Another column may have the fault: an end of the interval may exclude the value, and a unit or a
        // reference must fit the metric.
        let also: &[C] = match column {
            C::Lo | C::Hi => &[C::Value, C::Lo],
            C::Metric => &[C::Unit, C::Of, C::Base],
            C::Of => &[C::Base],
            _ => &[],
        };
        for fault in columns {
            prop_assert!(fault == column || also.contains(&fault), "{column}: {fault}");
        }
    }

    /// Overriding a cell with its own text changes nothing.
    #[test]
    fn overriding_a_cell_with_itself_changes_nothing(
        column in prop::sample::select(C::ALL),
        id in prop::sample::select(vec!["MAC-24", "NEL-19", "AMM-03", "KN-05", "PB-8-64"]),
    ) {
        prop_assume!(column.describes_the_experiment());
        let shipped = Data::shipped();
        let row = shipped.entries().iter().find(|entry| entry.labels.id == id).unwrap();
        let Plan::Ratio(pair) = row.row.clone().unwrap().plan.unwrap() else {
            panic!("{id} is a ratio")
        };
        let cells = shipped_cells(id);
        let same = format!("{column}={}", cells[column as usize]);
        let changes: Vec<(C, &str)> = C::ALL
            .iter()
            .zip(&cells)
            .map(|(column, text)| (*column, &**text))
            .chain([(C::Base, &*same)])
            .collect();
        let Plan::Ratio(again) = plan(&changes) else {
            panic!("{id} is a ratio")
        };
        prop_assert_eq!(&again.of, &pair.of);
        prop_assert_eq!(&again.base, &pair.of);
    }
}

/// The cells of a shipped row.
fn shipped_cells(id: &str) -> Vec<String> {
    let files = [
        include_str!("../../data/calibration.csv"),
        include_str!("../../data/visible.csv"),
    ];
    let rows = files.into_iter().flat_map(|text| {
        let mut table = csv::Reader::from_reader(text.as_bytes());
        table.records().map(Result::unwrap).collect::<Vec<_>>()
    });
    let mut of_id = rows.filter(|row| &row[0] == id);
    of_id.next().unwrap().iter().map(str::to_owned).collect()
}
