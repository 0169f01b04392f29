//! Wireshark's dissector reads in our packets what we wrote.

mod common;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use adverb_wire::bth::BthFlags;
use adverb_wire::pcap::{LinkType, PcapWriter};
use adverb_wire::{Extension, Frame, Opcode, Packet, Service, frame};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const FIELDS: [&str; 22] = [
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.invariant.crc",
];

fn not_run(why: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "\nNOT RUN: packets in Wireshark's dissector: {why}"
    );
}

/// What a field is in a packet of ours; nothing if it has none.
fn expected(frame: &Frame<'_>, field: &str) -> Option<u64> {
    let bth = &frame.packet.headers.bth;
    let extension = &frame.packet.headers.extension;
    let bit = |flag| u64::from(bth.flags.contains(flag));
    let reth = match extension {
        Extension::Rdma(reth) | Extension::RdmaImm(reth, _) => Some(reth),
        _ => None,
    };
    let deth = match extension {
        Extension::Datagram(deth) | Extension::DatagramImm(deth, _) => Some(deth),
        _ => None,
    };
    let atomic = match extension {
        Extension::Atomic(atomic) => Some(atomic),
        _ => None,
    };
    let aeth = match extension {
        Extension::Ack(aeth) | Extension::AtomicAck(aeth, _) => Some(aeth),
        _ => None,
    };
    // Wireshark names the address of an AtomicETH as a RETH's.
    let remote = reth.map(|r| r.remote).or(atomic.map(|a| a.remote));
    match field {
        "udp.dstport" => Some(4791),
        "infiniband.bth.opcode" => Some(bth.opcode.code().into()),
        "infiniband.bth.se" => Some(bit(BthFlags::SOLICITED)),
        "infiniband.bth.m" => Some(bit(BthFlags::MIGRATED)),
        "infiniband.bth.padcnt" => Some(bth.pad.into()),
        "infiniband.bth.p_key" => Some(bth.pkey.into()),
        "infiniband.bth.destqp" => Some(bth.dest_qp.get().into()),
        "infiniband.bth.a" => Some(bit(BthFlags::ACK_REQ)),
        "infiniband.bth.psn" => Some(bth.psn.get().into()),
        "infiniband.deth.q_key" => deth.map(|d| d.qkey.into()),
        "infiniband.deth.srcqp" => deth.map(|d| d.src_qp.get().into()),
        "infiniband.reth.va" => remote.map(|remote| remote.addr),
        "infiniband.reth.r_key" => remote.map(|remote| remote.rkey.0.into()),
        "infiniband.reth.dmalen" => reth.map(|r| r.length.into()),
        "infiniband.atomiceth.swapdt" => atomic.map(|a| a.swap_or_add),
        "infiniband.atomiceth.cmpdt" => atomic.map(|a| a.compare),
        "infiniband.aeth.syndrome" => aeth.map(|a| a.syndrome.to_byte().into()),
        "infiniband.aeth.msn" => aeth.map(|a| a.msn.into()),
        "infiniband.atomicacketh.origremdt" => match extension {
            Extension::AtomicAck(_, found) => Some(found.original),
            _ => None,
        },
        "infiniband.immdt" => match extension {
            Extension::Imm(imm) | Extension::RdmaImm(_, imm) | Extension::DatagramImm(_, imm) => {
                Some(imm.imm.0.into())
            }
            _ => None,
        },
        "infiniband.ieth" => match extension {
            Extension::Invalidate(ieth) => Some(ieth.rkey.0.into()),
            _ => None,
        },
        "infiniband.invariant.crc" => Some(frame.icrc.0.swap_bytes().into()),
        other => panic!("no field {other}"),
    }
}

/// A number as tshark prints it: decimal, hexadecimal, or bare bytes.
fn number(field: &str, text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if ["infiniband.immdt", "infiniband.ieth"].contains(&field) => {
            u64::from_str_radix(text, 16).ok()
        }
        None => text.parse().ok(),
    }
}

/// Frames of every opcode that Wireshark dissects as InfiniBand's transports.
fn frames() -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let strategy = (common::packet(), common::ip(), any::<u16>());
    let mut made = Vec::new();
    while made.len() < 400 {
        let ((headers, payload), ip, port) = strategy.new_tree(&mut runner).unwrap().current();
        // A dissector may take a datagram from another known port for another protocol.
        let port = port | 0xc000;
        if headers.bth.opcode.service() == Service::Cnp {
            continue;
        }
        let payload = &payload;
        let mut bytes = vec![0; 600];
        let packet = Packet { headers, payload };
        let length = frame::emit(&ip, port, &packet, &mut bytes).unwrap();
        bytes.truncate(length);
        made.push(bytes);
    }
    made
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut pcap = PcapWriter::new(file, LinkType::Raw).unwrap();
    for (n, bytes) in frames.iter().enumerate() {
        pcap.write(Duration::from_micros(n as u64), bytes).unwrap();
    }
    pcap.into_inner().flush().unwrap();
}

/// One line a frame, with the fields between tabs; nothing if tshark is not installed.
fn dissect(path: &Path) -> Option<String> {
    let mut tshark = Command::new("tshark");
    tshark
        .args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"])
        .arg(path);
    // It takes some random payloads for its own.
    tshark.args(["--disable-protocol", "rpcordma"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    match tshark.stderr(Stdio::piped()).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "tshark: {errors}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            not_run(&format!("needs the package tshark ({error})"));
            None
        }
    }
}

#[test]
fn wireshark_reads_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.pcap");
    let frames = frames();
    write(&path, &frames);
    let Some(lines) = dissect(&path) else { return };
    assert_eq!(lines.lines().count(), frames.len());
    let mut seen = vec![];
    for (bytes, line) in frames.iter().zip(lines.lines()) {
        let ours = Frame::parse(bytes).unwrap();
        seen.push(ours.packet.opcode());
        let theirs: Vec<&str> = line.split('\t').collect();
        for (field, text) in FIELDS.iter().zip(&theirs) {
            assert_eq!(
                number(field, text),
                expected(&ours, field),
                "{field} is '{text}' in {ours}"
            );
        }
    }
    for opcode in Opcode::ALL {
        let there = seen.contains(opcode) || opcode.service() == Service::Cnp;
        assert!(there, "no frame of {}", opcode.name());
    }
}
