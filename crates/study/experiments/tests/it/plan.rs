//! The plan of a study: which cells it has, and how long it takes.

use std::collections::BTreeSet;

use crate::common::{caps, plan, port};
use adverb_experiments::{FigureId, Limits, Plan, Profile, StudyId, figures};
use adverb_results::Posting;
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, LinkLayer, LinkRate, PortCaps};
use adverb_workload::pair::CellSpec;

const PROFILES: [Profile; 3] = [Profile::Quick, Profile::Paper, Profile::Full];

fn id(figure: &str) -> FigureId {
    figure.parse().unwrap()
}

/// A quick plan of these figures, or of all.
fn quick(only: &[FigureId]) -> Plan {
    plan(Profile::Quick, only, &caps())
}

/// The same on ports that lose no packets.
fn without_faults(only: &[FigureId]) -> Plan {
    let limits = Limits {
        caps: &caps(),
        port: &port(),
        no_faults: Some("it sends no packets"),
        rates: &LinkRate::ALL,
        sockets: false,
    };
    Plan::study(Profile::Quick, only, limits)
}

/// Limits of the device that the paper measured.
fn paper_caps() -> DeviceCaps {
    DeviceCaps {
        max_inline_data: 912,
        ..caps()
    }
}

/// Cells of figures and panels in the profiles quick, paper and full on that device.
const CELLS: [(&str, [usize; 3]); 21] = [
    // 11 sizes (10 of them inline) by 2 operations and 2 ways of waiting.
    ("fig1", [44, 84, 148]),
    ("fig1b", [44, 84, 148]),
    // 11 sizes by 4 operations and 2 ways of waiting, and 10 inline sizes by 2 operations.
    ("fig2", [58, 108, 252]),
    ("fig2a", [48, 88, 232]),
    ("fig2c", [22, 42, 78]),
    // 4 sizes over 1 to 64 buffers, singly and in lists.
    ("fig3", [32, 56, 72]),
    ("fig3b", [16, 28, 36]),
    // 4 sizes over 1 to 128 buffers and 5, by 2 ways of waiting.
    ("fig4", [48, 72, 80]),
    // 1 KiB to 256 MiB by 4 operations and 2 ways of waiting.
    ("fig5", [48, 152, 232]),
    // 1 to 256 buffers, inline or not, by 2 ways of signaling and of posting; and 10 sizes by 4 ways.
    ("fig6", [48, 112, 180]),
    ("fig6a", [32, 72, 72]),
    ("fig6c", [16, 40, 108]),
    // 4 operations at 8 speeds with 1 to 16 buffers.
    ("table1", [96, 160, 160]),
    ("fig7", [96, 160, 160]),
    ("fig7b", [96, 160, 160]),
    // 11 sizes by 4 operations, and 4 sizes over the buffers of Figure 4.
    ("fig8", [48, 80, 84]),
    ("fig8d", [24, 36, 40]),
    ("rank-rtt", [18, 18, 18]),
    ("latency", [18, 18, 18]),
    ("loss", [45, 45, 45]),
    // Windows by 4 delays; 4 losses by 2 delays, 2 windows and TCP, and a ping of each; 3 queues by 3 windows and TCP.
    ("path", [60, 76, 76]),
];

#[test]
fn figures_have_the_cells_of_the_publications() {
    for (figure, counts) in CELLS {
        let count = |profile| plan(profile, &[id(figure)], &paper_caps()).cells.len();
        assert_eq!(PROFILES.map(count), counts, "{figure}");
    }
    let named: Vec<&str> = figures().map(|figure| figure.spec.id).collect();
    let listed = |id: &&str| CELLS.iter().any(|(figure, _)| figure == id);
    let rest: Vec<&str> = named.into_iter().filter(|id| !listed(id)).collect();
    assert_eq!(rest, ["rank-cpu"], "the same cells as rank-rtt");
}

/// The values of a figure's cells in the paper profile.
fn values<T: Ord>(figure: &str, of: impl Fn(&CellSpec) -> T) -> Vec<T> {
    let plan = plan(Profile::Paper, &[id(figure)], &paper_caps());
    let values: BTreeSet<T> = plan.cells.iter().map(of).collect();
    values.into_iter().collect()
}

#[test]
fn panels_have_the_sizes_buffers_and_posting_of_the_paper() {
    let sizes = |figure| values(figure, |c| c.params.size.get());
    let buffers = |figure| values(figure, |c| c.params.buffers);
    let ends = |sizes: Vec<u64>| (sizes[0], sizes[sizes.len() - 1]);
    assert_eq!(ends(sizes("fig1")), (1, 1024));
    assert_eq!(ends(sizes("fig2")), (1, 1024));
    assert_eq!(buffers("fig2"), [1]);
    assert_eq!(sizes("fig3"), [16, 64, 256, 912]);
    assert_eq!(buffers("fig3"), [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(sizes("fig4"), [1, 8, 32, 64].map(|kib| kib << 10));
    assert_eq!(buffers("fig4"), [1, 2, 4, 5, 8, 16, 32, 64, 128]);
    assert_eq!(ends(sizes("fig5")), (1 << 10, 256 << 20));
    assert_eq!(buffers("fig5"), [4]);
    assert_eq!((sizes("fig6a"), ends(sizes("fig6c"))), (vec![16], (1, 512)));
    assert_eq!(buffers("fig6a").last(), Some(&256));
    for figure in ["fig4", "fig5", "fig8c"] {
        assert_eq!(values(figure, |c| c.params.post), [Posting::List]);
    }
}

#[test]
fn the_largest_inline_message_is_that_of_the_device_if_it_is_below_the_papers() {
    let largest = |max_inline_data| {
        let caps = DeviceCaps {
            max_inline_data,
            ..caps()
        };
        let plan = plan(Profile::Paper, &[id("fig3")], &caps);
        plan.cells.iter().map(|c| c.params.size).max()
    };
    assert_eq!(largest(2048), Some(Bytes::new(912)));
    assert_eq!(largest(220), Some(Bytes::new(220)));
    assert_eq!(largest(256), Some(Bytes::new(256)));
}

#[test]
fn speeds_are_those_that_the_port_has() {
    let fig7 = |port: PortCaps, rates: &[LinkRate]| {
        let limits = Limits {
            caps: &caps(),
            port: &port,
            no_faults: None,
            rates,
            sockets: false,
        };
        Plan::study(Profile::Paper, &[id("fig7")], limits)
    };
    let rates = |plan: &Plan| -> BTreeSet<LinkRate> {
        let rates = plan.cells.iter().filter_map(|c| c.params.path.rate);
        rates.collect()
    };
    let qdr = PortCaps {
        max_rate_mbps: Some(40_000),
        ..port()
    };
    let own = rates(&fig7(qdr, &LinkRate::ALL));
    assert_eq!(own, [LinkRate::Sdr, LinkRate::Ddr, LinkRate::Qdr].into());
    let asked = fig7(port(), &[LinkRate::Edr]);
    assert_eq!(rates(&asked), [LinkRate::Edr].into());
    assert!(asked.cells[0].id.ends_with("/rate=edr"), "{asked:?}");
    let memory = PortCaps {
        link_layer: LinkLayer::SharedMemory,
        max_rate_mbps: None,
        ..port()
    };
    let nothing = fig7(memory, &LinkRate::ALL);
    assert_eq!(nothing.cells, []);
    let reason = &nothing.unfilled[0].reason;
    assert!(
        reason.starts_with("rate sdr: this device's port (shared memory) has no"),
        "{reason}"
    );
}

#[test]
fn a_study_has_its_figures() {
    let study: StudyId = "macarthur".parse().unwrap();
    let own: Vec<&str> = study.figures().map(FigureId::as_str).collect();
    let all = [
        "fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "table1", "fig7", "fig8",
    ];
    assert_eq!(own, all);
    assert!(study.has(id("fig6c")) && !study.has(id("path")));
}

#[test]
fn ids_are_unique_and_every_cell_can_run() {
    for profile in PROFILES {
        let plan = plan(profile, &[], &caps());
        let mut ids: Vec<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), plan.cells.len());
        for cell in &plan.cells {
            assert_eq!(cell.validate(&DeviceCaps::MODEST), Ok(()), "{}", cell.id);
        }
    }
}

#[test]
fn every_figure_has_cells_alone_and_together() {
    let all = quick(&[]);
    for figure in figures().map(|figure| id(figure.spec.id)) {
        let alone = quick(&[figure]);
        assert!(!alone.cells.is_empty(), "{figure}");
        let ids = |plan: &Plan| -> BTreeSet<String> {
            let cells = plan.cells.iter();
            let shown = cells.filter(|c| c.figures.iter().any(|id| id == figure.as_str()));
            shown.map(|c| c.id.clone()).collect()
        };
        assert_eq!(ids(&alone), ids(&all), "{figure}");
    }
}

#[test]
fn every_panel_has_cells_of_its_figure() {
    for figure in figures() {
        let whole: Vec<String> = quick(&[id(figure.spec.id)])
            .cells
            .iter()
            .map(|c| c.id.clone())
            .collect();
        for panel in figure.panels {
            let cells = quick(&[id(panel.id)]).cells;
            assert!(!cells.is_empty(), "{}", panel.id);
            assert!(cells.iter().all(|c| whole.contains(&c.id)), "{}", panel.id);
            assert!(cells.iter().all(|c| c.figures == [figure.spec.id]));
        }
    }
}

#[test]
fn quick_takes_about_three_minutes() {
    let passes = Profile::Quick.repetitions();
    let plan = without_faults(&[]).in_passes(passes);
    assert!(plan.cells.iter().all(|cell| cell.params.repetitions == 1));
    let estimate = plan.estimate() * u64::from(passes);
    let three_minutes = Span::from_secs(120)..Span::from_secs(200);
    assert!(three_minutes.contains(&estimate), "{estimate}");
}

#[test]
fn loss_takes_seconds_and_only_where_ports_lose_packets() {
    let nowhere = without_faults(&[id("loss")]);
    assert_eq!(nowhere.cells, []);
    assert_eq!(nowhere.unfilled[0].figure, "loss");
    assert_eq!(nowhere.unfilled[0].reason, "it sends no packets");
    let plan = quick(&[id("loss")]);
    let is_lossy = |cell: &CellSpec| cell.params.path.impairment.is_some();
    assert!(plan.cells.iter().all(is_lossy));
    assert!(plan.estimate() < Span::from_secs(15));
    let id = "blast/write/65536/plain/poll/b16/single/all/timeout=14/loss=0.05";
    assert!(plan.cells.iter().any(|c| c.id == id), "{plan:?}");
}

#[test]
fn full_reaches_the_limits() {
    let plan = plan(Profile::Full, &[], &caps());
    for id in [
        "ping/send/1/plain/poll/all",
        "ping/write-imm/67108864/plain/event/all",
        "blast/read/268435456/plain/poll/b1/single/all",
        "blast/write/16/inline/poll/b256/list/periodic",
    ] {
        assert!(plan.cells.iter().any(|c| c.id == id), "{id}");
    }
}

#[test]
fn a_device_without_inline_says_why_a_figure_of_inline_data_is_missing() {
    let caps = DeviceCaps {
        max_inline_data: 0,
        ..DeviceCaps::MODEST
    };
    let plan = plan(Profile::Quick, &[], &caps);
    assert!(!plan.cells.is_empty());
    assert!(plan.cells.iter().all(|c| !c.params.inline));
    let [unfilled] = &plan.unfilled[..] else {
        panic!("{:?}", plan.unfilled);
    };
    assert_eq!(unfilled.figure, "fig3");
    let reason = &unfilled.reason;
    assert!(
        reason.starts_with("16 B inline: this device takes at most 0 B"),
        "{reason}"
    );
}

#[test]
fn the_same_plan_twice_is_the_same() {
    assert_eq!(quick(&[]), quick(&[]));
}
