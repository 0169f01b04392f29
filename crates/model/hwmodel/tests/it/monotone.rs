//! Monotonicity: how times change with faster hardware, longer distance and larger payload.

use crate::common::{cell, run_on};
use adverb_hwmodel::Preset;
use adverb_results::{Opcode, Program};
use adverb_workload::pair::Length;
use proptest::prelude::*;

/// One-way time of a ping on a changed ConnectX-3, in nanoseconds.
fn ping(op: Opcode, size: u64, inline: bool, changes: &[(&str, f64)]) -> f64 {
    ping_on("cx3", op, (size, inline), changes)
}

fn ping_on(preset: &str, op: Opcode, (size, inline): (u64, bool), changes: &[(&str, f64)]) -> f64 {
    let preset = Preset::built_in(preset).and_then(|preset| preset.with(changes));
    let mut spec = cell(Program::Ping, op, size);
    spec.params.inline = inline;
    spec.params.length = Length::Iters(20);
    let metrics = run_on(&preset.expect("possible values"), &spec).metrics;
    metrics.one_way_ns.mean.expect("rounds were timed")
}

fn operation() -> impl Strategy<Value = Opcode> {
    prop::sample::select(vec![
        Opcode::Send,
        Opcode::Write,
        Opcode::WriteImm,
        Opcode::Read,
        Opcode::WriteRead,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_longer_path_is_never_faster(
        op in operation(),
        size in 1u64..20_000,
        cable in 0.0..2_000.0,
        more in 1.0..2_000.0,
        path in prop::sample::select(vec![
            "link.cable_ns", "link.switch_ns", "pcie.one_way_ns", "memory.dma_ns", "nic.tx_ns",
            "nic.rx_ns", "cpu.wqe_build_ns", "cpu.mmio_line_ns", "memory.llc_ns",
        ]),
    ) {
        let base = 1.0 + cable;
        // Memory is farther than any cache.
        let dram = ("memory.dram_ns", 5_000.0);
        let near = ping(op, size, false, &[dram, (path, base)]);
        let far = ping(op, size, false, &[dram, (path, base + more)]);
        prop_assert!(far >= near, "{op} of {size} B: {far} ns with {path} = {} instead of {base}, {near} ns", base + more);
    }

    #[test]
    fn a_longer_message_is_never_faster(
        op in operation(),
        size in 1u64..200_000,
        more in 1u64..200_000,
    ) {
        let short = ping(op, size, false, &[]);
        let long = ping(op, size + more, false, &[]);
        // A last packet that waits for its data leaves as late after them as a full one would. Data arrive a little
        // faster than packets leave, so a longer last packet may be up to 10 ns faster.
        prop_assert!(long >= short - 10.0, "{op}: {long} ns for {} B, {short} ns for {size} B", size + more);
    }

    #[test]
    fn long_messages_stream_at_line_rate_and_not_above(
        preset in prop::sample::select(vec!["cx", "mt26428_qdr", "cx3", "connect_ib", "cx5_skylake"]),
        size in 100_000u64..1_000_000,
    ) {
        let params = Preset::built_in(preset).expect("a preset").params;
        let wire = size as f64 * 8.0 / params.link.gbps;
        let write = ping_on(preset, Opcode::Write, (size, false), &[]);
        // In a round of a READ the data cross the link once.
        let read = 2.0 * ping_on(preset, Opcode::Read, (size, false), &[]);
        prop_assert!(write >= wire && read >= wire, "{preset}: {write} ns and {read} ns for {size} B");
        prop_assert!(read <= 1.1 * write + 5_000.0, "{preset}: READ {read} ns, WRITE {write} ns of {size} B");
        prop_assert!(write <= 1.3 * wire + 10_000.0, "{preset}: {write} ns for {size} B");
    }

    #[test]
    fn a_wider_link_is_never_slower(
        op in operation(),
        size in 1u64..100_000,
        path in prop::sample::select(vec![
            ("link.gbps", 16.0, 54.55), ("pcie.lanes", 4.0, 8.0), ("pcie.generation", 2.0, 3.0),
            ("nic.send_mops", 5.0, 40.0), ("nic.recv_mops", 5.0, 40.0), ("nic.read_response_mops", 5.0, 40.0),
        ]),
    ) {
        let (path, narrow, wide) = path;
        let slow = ping(op, size, false, &[(path, narrow)]);
        let fast = ping(op, size, false, &[(path, wide)]);
        prop_assert!(fast <= slow, "{op} of {size} B: {fast} ns with {path} = {wide}, {slow} ns with {narrow}");
    }

    /// ConnectX-4 takes 2.25 to 2.28 µs for 4 KiB and 4.56 to 4.58 for 32 KiB with 256 B to 4 KiB a packet (`ib_send_lat`; D.
    /// Potter, RWTH Aachen 2018). In the model a packet is sent when its data have been read, so that a few large ones are
    /// later, and the headers of 256 B packets take a tenth of the link.
    #[test]
    fn the_size_of_packets_changes_little(op in operation(), packets in 1u64..16) {
        let size = packets * 4096;
        let [small, large] = [256.0, 4096.0].map(|mtu| {
            ping(op, size, false, &[("link.mtu_bytes", mtu)])
        });
        prop_assert!((0.7..1.07).contains(&(small / large)), "{op} of {size} B: {small} ns with 256 B a packet, {large} ns with 4 KiB");
    }

    #[test]
    fn inline_saves_the_read_of_a_small_payload(size in 1u64..128) {
        let inline = ping(Opcode::Write, size, true, &[]);
        let read = ping(Opcode::Write, size, false, &[]);
        prop_assert!(inline < read, "{size} B: {inline} ns inline, {read} ns not");
    }
}
